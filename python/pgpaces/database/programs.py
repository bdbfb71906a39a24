"""Programs of a workload: their environment, and how they run so that none outlives pgpaces.

They run in sequence under a supervisor, which ends them when pgpaces ends. The same environment
serves a program that makes data and one that is timed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Set
from pathlib import Path
from typing import Any, ClassVar

from msgspec import Struct

from pgpaces.core.errors import PgpacesError, PrepareError, RunError, TrustError
from pgpaces.core.hidden_fields import Redacted
from pgpaces.core.home import home, make_folder
from pgpaces.core.messages import message
from pgpaces.core.sessions import Session
from pgpaces.core.texts import Say
from pgpaces.database import psql
from pgpaces.database.inputs import filled, located, named, used_names
from pgpaces.server.supervisor import Order, Supervisor
from pgpaces.spec.workload import InitStep, Workload

_SHELL = "/bin/sh"
# How psql ends, which then cancels its statement.
_CANCEL = ((signal.SIGINT, 5.0),)
# Keywords that every libpq understands; the others are in variables, which old versions ignore.
_DSN = ("host", "hostaddr", "port", "user", "dbname")


class CommandOrder(Order, frozen=True, kw_only=True):
    """An order to run a command, by its name. secret: a text to mask in its output."""

    REDACTED: ClassVar = ("variables", "secret")
    name: str
    secret: str | None = None

    def shown(self, output: str) -> str:
        return output.replace(self.secret, "***") if self.secret else output


class Execution(Struct, frozen=True):
    """A completed execution. Times by the monotonic clock; failed: its class, empty on success.

    output: the last lines, if it failed. cpu_s: of the process and its waited-for children.
    stopped: pgpaces has ended it, before its timeout.
    """

    due_ns: int
    sent_ns: int
    done_ns: int
    failed: str = ""
    output: str = ""
    cpu_s: float = 0.0
    stopped: bool = False


class Runner(Supervisor):
    """Runs commands in sequence. They end with pgpaces, however it ends.

    line: the last line of the running command, as of the last report.
    """

    line = ""

    def run(
        self, order: CommandOrder, due_ns: int, report: Callable[[str], None] = lambda _: None
    ) -> Execution | None:
        """Runs a command to its end; None after `stop` or `kill`. Raises RunError.

        report: gets the last line of its output every few seconds.
        """
        self.send(order)
        begun = self._answer()
        if "refused" in begun:
            return None
        while "line" in (ended := self._answer()):
            self.line = order.shown(ended["line"])
            report(self.line)
        ended["output"] = order.shown(ended["output"])
        return Execution(due_ns, begun["sent_ns"], **ended)

    def stop(self) -> None:
        """Lets nothing new begin, and ends the running command politely. Does not wait."""
        self.send("stop")

    def kill(self) -> None:
        """The same by force."""
        self.send("kill")

    def close(self) -> None:
        super().close()
        self.process.wait()

    def _answer(self) -> dict[str, Any]:
        if not (answer := self.read()):
            raise RunError("supervisor-ended")
        return answer


class ProgramEnvironment(Redacted, frozen=True):
    """The environment of programs, valid within `program_environment`.

    values: by the names that words have in braces. variables: of the environment, without those
    that repeat the values. scratch: an empty folder. files: open descriptors that they inherit.
    """

    REDACTED: ClassVar = ("variables", "secret")
    folder: Path
    scratch: Path
    values: Mapping[str, str]
    variables: Mapping[str, str]
    files: tuple[int, ...] = ()
    secret: str | None = None

    def order(
        self, name: str, run: tuple[str, ...] | str, hidden: Set[str] = frozenset()
    ) -> CommandOrder:
        """The order to run a program, called `name`.

        hidden: values without an environment variable. Raises PlanError for an unknown placeholder,
        RunError for a missing program.
        """
        shown = {f"PGPACES_{k.upper()}": v for k, v in self.values.items() if k not in hidden}
        variables = {**self.variables, **shown}
        words = (
            (_SHELL, "-c", run)
            if isinstance(run, str)
            else tuple(filled(word, self.values) for word in run)
        )
        at = str(self.folder / words[0]) if "/" in words[0] else words[0]
        if shutil.which(at, path=variables["PATH"]) is None:
            raise RunError("program-not-found", program=words[0])
        if "cache" in named(run):
            _make_cache(Path(self.values["cache"]))
        return CommandOrder(
            name=name,
            words=words,
            folder=self.folder,
            variables=variables,
            files=self.files,
            secret=self.secret,
        )


def _make_cache(folder: Path) -> None:
    try:
        make_folder(folder)
    except OSError as error:
        raise RunError("home-unusable", path=folder, why=error.strerror) from None


@contextlib.contextmanager
def program_environment(
    way: psql.ClientProgram, workload: Workload, values: Mapping[str, str], *, say: Say
) -> Iterator[ProgramEnvironment]:
    """The environment of a workload's programs for a database. values: scale and so on.

    Fetches the files that they read. Raises RunError for a missing program, PrepareError for a
    missing file.
    """
    from psycopg.conninfo import make_conninfo

    keywords = {**way.keywords, "dbname": way.dbname}
    dsn = make_conninfo(**{name: keywords[name] for name in _DSN if keywords.get(name)})
    cache = home() / "cache" / "workloads" / workload.folder.resolve().name
    with contextlib.ExitStack() as stack:
        environment = stack.enter_context(psql.environment(way))
        path = environment.variables.get("PATH", os.defpath)
        path = f"{way.program.parent}{os.pathsep}{path}"
        for name, package in workload.needs.programs.items():
            if shutil.which(name, path=path) is None:
                own = {"program": name, "package": package}
                raise RunError("workload-program-missing", workload=workload.name, **own)
        files = located(workload, values, say)
        # After the slow steps: the supervisor, which always removes it, starts soon after.
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pgpaces-")))
        yield ProgramEnvironment(
            workload.folder.resolve(),
            scratch,
            {
                **values,
                **files,
                "dsn": dsn,
                "dbname": way.dbname,
                "scratch": str(scratch),
                "cache": str(cache),
                "python": sys.executable,
            },
            {
                **environment.variables,
                "PGAPPNAME": keywords.get("application_name") or "pgpaces",
                "PATH": path,
            },
            environment.files,
            keywords.get("password"),
        )


def check_extensions(session: Session, workload: Workload) -> None:
    """Raises PrepareError if the server lacks an extension that the workload needs."""
    for name, package in workload.needs.extensions.items():
        row: Any = session.execute(
            "SELECT current_setting('server_version'), EXISTS"
            " (SELECT FROM pg_catalog.pg_available_extensions WHERE name = %s)",
            (name,),
        ).fetchone()
        if not row[1]:
            values = {"version": row[0], "extension": name, "package": package}
            raise PrepareError("extension-missing", workload=workload.name, **values)


def make_data(
    client: psql.ClientProgram, workload: Workload, values: Mapping[str, str], *, say: Say
) -> None:
    """Runs the steps that make a workload's data: SQL files by psql, and programs.

    values: scale, seed, and the variables. Raises PrepareError, PlanError, RunError, and TrustError
    for commands of psql in a workload that is not trusted.
    """
    variables = {name: values[name] for name in ("scale", "seed")}
    with contextlib.ExitStack() as stack:
        files, scratch = [], []
        if any(step.run is not None for step in workload.init):
            programs = stack.enter_context(program_environment(client, workload, values, say=say))
            files, scratch = [*programs.files], [programs.scratch]
        for_psql = stack.enter_context(psql.environment(client))
        runner = Runner(scratch, [*files, *for_psql.files])
        stack.callback(runner.close)
        for number, step in enumerate(workload.init, 1):
            what = f"{step.name} ({number} of {len(workload.init)})"
            say(what)
            if step.run is None:
                words = psql.words(client.program, step, variables, trusted=workload.trusted)
                order = CommandOrder(
                    name=step.name,
                    words=words,
                    folder=step.path.parent.absolute(),
                    variables=for_psql.variables,
                    files=for_psql.files,
                    ending=_CANCEL,
                    hurry=_CANCEL,
                    secret=client.keywords.get("password"),
                )
            else:
                # Hide values that it does not name: data is reused after a change of these.
                visible = {"scale", "seed", "dsn", "dbname", "scratch", "cache", "python"}
                visible |= used_names(step)
                hidden = {name for name in programs.values if name.lower() not in visible}
                order = programs.order(step.name, step.run, hidden)
            ended = run_reporting(runner, order, what, say=say)
            if ended is None or ended.failed:
                raise _failure(step, ended, trusted=workload.trusted)


def _failure(step: InitStep, ended: Execution | None, *, trusted: bool) -> PgpacesError:
    if ended is None:
        return PrepareError("data-failed", step=step.name, why="stopped")
    why = ended.output if step.run is None else f"{ended.failed}\n{ended.output}"
    # In any language, psql's message names the command that it expects.
    if step.run is None and not trusted and "\\unrestrict" in why:
        return TrustError("psql-commands-untrusted", step=step.name, why=why)
    full = os.strerror(errno.ENOSPC) in why
    return PrepareError("data-disk-full" if full else "data-failed", step=step.name, why=why)


def run_reporting(runner: Runner, order: CommandOrder, what: str, *, say: Say) -> Execution | None:
    """Runs a program to its end; reports the last line of its output every few seconds."""
    started = time.monotonic()

    def report(line: str) -> None:
        waited_s = time.monotonic() - started
        say(message("program-runs", what=what, waited_s=waited_s, line=line or "-"))

    return runner.run(order, time.monotonic_ns(), report)
