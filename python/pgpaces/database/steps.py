"""Runs the steps that make a workload's data: SQL files by psql, programs under a watchdog.

Knows nothing of ownership, load and results.
"""

from __future__ import annotations

import contextlib
import functools
import queue
import threading
import time
from collections.abc import Mapping

from msgspec.structs import replace

from pgpaces.core.errors import PgpacesError, PrepareError
from pgpaces.core.messages import message
from pgpaces.core.sessions import Session
from pgpaces.core.texts import Say
from pgpaces.database import psql
from pgpaces.database.programs import (
    CommandOrder,
    Execution,
    ProgramEnvironment,
    Runner,
    program_environment,
)
from pgpaces.database.programs.inputs import used_names
from pgpaces.spec.workload import InitStep, Workload

_FOREVER_NS = 2**62
_REPORT_S = 5.0


def check_extensions(session: Session, workload: Workload) -> None:
    """Raises PrepareError if the server lacks an extension that the workload needs."""
    for name, package in workload.needs.extensions.items():
        row = session.execute(
            "SELECT current_setting('server_version'), EXISTS"
            " (SELECT FROM pg_catalog.pg_available_extensions WHERE name = %s)",
            (name,),
        ).fetchone()
        if row is not None and not row[1]:
            raise PrepareError(
                "extension-missing",
                version=row[0],
                extension=name,
                workload=workload.name,
                package=package,
            )


def make(
    client: psql.ClientProgram, workload: Workload, values: Mapping[str, str], *, say: Say
) -> None:
    """Runs every step. values: scale, seed, and the variables.

    Raises PrepareError, PlanError, RunError.
    """
    variables = {name: values[name] for name in ("scale", "seed")}
    with contextlib.ExitStack() as stack:
        if any(step.run is not None for step in workload.init):
            programs = stack.enter_context(program_environment(client, workload, values, say=say))
            runner = Runner(programs.files, programs.scratch)
            stack.callback(runner.close)
        for number, step in enumerate(workload.init, 1):
            what = f"{step.name} ({number} of {len(workload.init)})"
            say(what)
            if step.run is None:
                progress = functools.partial(_say_step, say, what)
                psql.run(client, step, variables, progress=progress, trusted=workload.trusted)
            else:
                _run(programs, runner, step, what=what, say=say)


def _say_step(say: Say, what: str, text: str) -> None:
    say(f"{what}, {text}")


def _run(
    programs: ProgramEnvironment, runner: Runner, step: InitStep, *, what: str, say: Say
) -> None:
    assert step.run is not None
    # Hide values that it does not name: data is reused after a change of these.
    visible = {"scale", "seed", "dsn", "dbname", "scratch", "cache", "python"} | used_names(step)
    hidden = {name for name in programs.values if name.lower() not in visible}
    order = programs.order(step.name, step.run, hidden)
    execution = run_reporting(runner, replace(order, timeout_ns=_FOREVER_NS), what, say=say)
    if execution is None or execution.failed:
        ended = ("stopped",) if execution is None else (execution.failed, execution.output)
        raise PrepareError("data-failed", step=step.name, why="\n".join(ended))


def run_reporting(runner: Runner, order: CommandOrder, what: str, *, say: Say) -> Execution | None:
    """Runs a program to its end; reports the last line of its output every few seconds."""
    results: queue.SimpleQueue[Execution | PgpacesError | None] = queue.SimpleQueue()

    def work() -> None:
        try:
            results.put(runner.run(order, time.monotonic_ns()))
        except PgpacesError as error:
            results.put(error)

    started = time.monotonic()
    threading.Thread(target=work, daemon=True).start()
    while True:
        try:
            result = results.get(timeout=_REPORT_S)
        except queue.Empty:
            last = order.shown(runner.last())
            waited_s = time.monotonic() - started
            say(message("program-runs", what=what, waited_s=waited_s, line=last or "-"))
            continue
        if isinstance(result, PgpacesError):
            raise result
        return result
