"""Runs the steps that make a workload's data: SQL files by psql, programs under a watchdog.

Knows nothing of ownership, load and results.
"""

from __future__ import annotations

import contextlib
import functools
import queue
import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pgpaces import psql
from pgpaces.database.access import Say
from pgpaces.errors import PgpacesError, PrepareError
from pgpaces.programs import (
    CommandOrder,
    Execution,
    ProgramEnvironment,
    Runner,
    program_environment,
)
from pgpaces.programs.inputs import used_names
from pgpaces.workload import InitStep, Workload

if TYPE_CHECKING:
    from pgpaces.database.access import Session

_FOREVER_NS = 2**62
_TELL_S = 5.0


def check_extensions(session: Session, workload: Workload) -> None:
    """Raises PrepareError where the server lacks an extension that the workload needs."""
    for name, package in workload.needs.extensions.items():
        row = session.execute(
            "SELECT current_setting('server_version'), EXISTS"
            " (SELECT FROM pg_catalog.pg_available_extensions WHERE name = %s)",
            (name,),
        ).fetchone()
        if row is not None and not row[1]:
            raise PrepareError(
                f"PostgreSQL {row[0]} has no extension {name}, which workload {workload.name}"
                " needs",
                f"Debian's package {package} brings it for PostgreSQL NN, which --server NN starts;"
                " the embedded server has none of the kind",
            )


def make(way: psql.Way, workload: Workload, values: Mapping[str, str], say: Say) -> None:
    """Runs every step. values: scale, seed, and the variables.

    Raises PrepareError, PlanError, RunError.
    """
    variables = {name: values[name] for name in ("scale", "seed")}
    with contextlib.ExitStack() as stack:
        ready: Ready | None = None
        if any(step.run is not None for step in workload.init):
            ready = stack.enter_context(_ready(way, workload, values, say))
        for number, step in enumerate(workload.init, 1):
            what = f"{step.name} ({number} of {len(workload.init)})"
            say(what)
            if step.run is None:
                more = functools.partial(_more, say, what)
                psql.run(way, step, variables, more, trusted=workload.trusted)
            elif ready is not None:
                _run(ready, step, what, say)


def _more(say: Say, what: str, text: str) -> None:
    say(f"{what}, {text}")


Ready = tuple[ProgramEnvironment, Runner]


@contextlib.contextmanager
def _ready(
    way: psql.Way, workload: Workload, values: Mapping[str, str], say: Say
) -> Iterator[Ready]:
    """What programs need, for all of them: they share a folder. None outlives this."""
    with program_environment(way, workload, values, say) as found:
        runner = Runner(found.files, found.scratch)
        try:
            yield found, runner
        finally:
            runner.close()


def _run(ready: Ready, step: InitStep, what: str, say: Say) -> None:
    found, runner = ready
    assert step.run is not None
    # What it does not name it must not know: data would be used again where that has changed.
    kept = {"scale", "seed", "dsn", "dbname", "scratch", "cache", "python"} | used_names(step)
    hidden = {name for name in found.values if name.lower() not in kept}
    order = found.order(step.name, step.run, hidden)
    ended = _watched(runner, replace(order, timeout_ns=_FOREVER_NS), what, say)
    if ended is None or ended.failed:
        why, said = ("it was stopped", "") if ended is None else (ended.failed, ended.output)
        raise PrepareError(
            f"making the data failed in {step.name} ({why}):\n{said}",
            "mend what it says and run again: what was made so far is thrown away",
        )


def _watched(runner: Runner, order: CommandOrder, what: str, say: Say) -> Execution | None:
    """Runs it to its end, and tells every few seconds what it said last."""
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
            found = results.get(timeout=_TELL_S)
        except queue.Empty:
            last = order.shown(runner.last())
            say(f"{what}, {time.monotonic() - started:.0f} s{': ' if last else ''}{last}")
            continue
        if isinstance(found, PgpacesError):
            raise found
        return found
