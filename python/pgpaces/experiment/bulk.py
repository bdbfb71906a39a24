"""Commands as a trial runs them: their way to the server, their folder, what is counted beside.

How a command is run and timed is the generator's; here is what it is given, and what the server
says that it did.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from pgpaces import programs, psql
from pgpaces.answers import bulk
from pgpaces.errors import PlanError, PrepareError
from pgpaces.experiment.site import for_driver
from pgpaces.generators import engine as generator
from pgpaces.generators.command import CommandLoad, Executions
from pgpaces.generators.composite import RunningLoad
from pgpaces.plan import TrialPlan
from pgpaces.result import Finding
from pgpaces.texts import encoded
from pgpaces.workload import Workload

if TYPE_CHECKING:
    from pgpaces.experiment.cell import ReadyTrial
    from pgpaces.experiment.components import ComponentLoad

Say = Callable[[str], None]
_POLITE_NS = 5_000_000_000
# What commands and functions have not, as it is where nobody asks for it.
ONLY_OF_SCRIPTS: Mapping[str, Any] = {
    "protocol": "simple",
    "describe": False,
    "connect_each": False,
    "on_connect": (),
    "max_tries": 1,
    "threads": None,
    "log": None,
}
# So long the server's counters are waited for until they stand still.
_COUNTED_S, _IDLE_S, _LOOK_S, _STILL = 4.0, 12.0, 0.25, 3
# Not pg_stat_database: that one counts what goes into catalogs and into tables that are gone.
_INSERTED = "SELECT relid, n_tup_ins FROM pg_catalog.pg_stat_user_tables"
_WAL = "SELECT pg_catalog.pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
_ANEW = (
    "rows are not known: each execution may have made its tables anew, and those of earlier ones"
    " are gone; let init make them and the command TRUNCATE them, or run it once a trial"
)
_COUNTED = "counted"  # what a query counts, which is of no table
_SIZE = "SELECT pg_catalog.pg_database_size(pg_catalog.current_database())"


def check(workload: Workload, trial: TrialPlan) -> None:
    """Raises PlanError for what a command cannot be asked."""
    command = workload.command
    if command is None:
        return
    if workload.scripts != (command.script,):
        raise PlanError(
            f"workload {workload.name} is a command, and runs no scripts",
            "name the scripts' own workload, or run them beside it: --beside FILE.sql",
        )
    if trial.load.model != "closed" or trial.load.think != "none":
        raise PlanError(
            f"a command has no rate: {workload.name} is run again when it has ended",
            "leave the rate out; -t says how often, --duration for how long",
        )
    if (trial.clients or 1) > 1:
        raise PlanError(
            f"{trial.clients} clients cannot run a command: it is timed alone",
            "let the command itself work in parallel, as pg_restore --jobs does",
        )
    if trial.start_every_ns:
        raise PlanError("a command has one client, and none comes after it", "no --start-every")
    for name, usual in ONLY_OF_SCRIPTS.items():
        if getattr(trial, name) != usual:
            raise PlanError(f"{name.replace('_', ' ')} is of scripts, and a command has none")


def script_limit(component: ComponentLoad) -> int | None:
    """The latency limit of the component's only script."""
    found = dict(component.plan.limits).get(component.scripts[0].name, component.plan.limit_ns)
    return found or None


class CommandJob(Struct, frozen=True):
    """The command of a component, ready to be run. input_bytes: of the files that it reads."""

    component: ComponentLoad
    order: programs.CommandOrder
    runner: programs.Runner
    say: Say
    input_bytes: int | None
    loads: list[CommandLoad] = field(default_factory=list)

    def load(self, connection: generator.Connection) -> CommandLoad:
        """It as a load. connection: it has its own way."""
        plan = self.component.plan
        beside = bool(self.component.work.name)
        asked = Executions(
            transactions=plan.transactions,
            duration_ns=plan.duration_ns,
            warmup_ns=0 if plan.transactions is not None else plan.warmup,
            limit_ns=script_limit(self.component),
            accompanies=beside,
        )
        made = CommandLoad(self.order, asked, self.runner, self.say)
        self.loads.append(made)
        return made

    @property
    def executions(self) -> int:
        """How many have begun."""
        return sum(len(load.ended) + load.cut for load in self.loads)

    def did(self) -> dict[str, float | None]:
        """What it tells of itself: executions with a good end, and whether there were others."""
        ended = [each for load in self.loads for each in load.ended]
        good = [each for each in ended if not each.failed]
        broken = len(ended) - len(good) + sum(load.cut for load in self.loads)
        return {
            bulk.RUNS: float(len(good)),
            bulk.SPENT: sum(each.done_ns - each.due_ns for each in good) / 1e9,
            bulk.BROKEN: float(broken) if broken else None,
            bulk.CPU: sum(each.cpu_s for each in good),
            bulk.INPUT: self.input_bytes,
        }


@contextlib.contextmanager
def jobs(
    cell: ReadyTrial, connections: Sequence[generator.Connection], say: Say
) -> Iterator[list[CommandJob | None]]:
    """For each component its command, ready while this lasts; None where it has none.

    Raises PlanError for placeholders that nobody knows, RunError where there is no such program,
    PrepareError where what is to be run before fails.
    """
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(_job(cell, component, connection, say))
            if component.work.request.workload.command is not None
            else None
            for component, connection in zip(cell.components, connections, strict=True)
        ]


@contextlib.contextmanager
def _job(
    cell: ReadyTrial, component: ComponentLoad, connection: generator.Connection, say: Say
) -> Iterator[CommandJob]:
    workload = component.work.request.workload
    command = workload.command
    assert command is not None
    keywords = for_driver(connection)
    way = psql.Way(cell.site.access.psql, keywords, keywords["dbname"])
    values = {"seed": str(component.work.request.data_seed), **component.work.variables()}
    with (
        programs.program_environment(way, workload, values, say) as given,
        contextlib.ExitStack() as stack,
    ):
        # Not `grace`, which is no less than a latency limit: that may be an hour here.
        polite_ns = _POLITE_NS if component.plan.grace_ns is None else component.plan.grace_ns

        def order(run: tuple[str, ...] | str, succeeds: tuple[int, ...]) -> programs.CommandOrder:
            made = given.order(component.labels[0], run)
            timeout_ns = command.timeout_ns
            return replace(made, succeeds=succeeds, timeout_ns=timeout_ns, polite_ns=polite_ns)

        runner = programs.Runner(given.files, given.scratch)
        stack.callback(runner.close)
        measured = order(command.run, command.succeeds)
        if command.before is not None:
            say(f"{workload.name}: what is run before it")
            _before(runner, order(command.before, (0,)), workload.name)
        yield CommandJob(component, measured, runner, say, _size(command.input, given))


def _before(runner: programs.Runner, order: programs.CommandOrder, name: str) -> None:
    found = runner.run(order, time.monotonic_ns())
    if found is None or found.failed:
        why, said = ("it was stopped", "") if found is None else (found.failed, found.said)
        raise PrepareError(
            f"what {name} runs before its command failed ({why}):\n{said}",
            "mend `before` and run again",
        )


def _size(patterns: Sequence[str], given: programs.ProgramEnvironment) -> int | None:
    """The bytes of the files that the patterns name; None of none. Raises RunError."""
    words = [given.filled(pattern) for pattern in patterns]
    found = programs.matching(words, given.folder)
    return sum(path.stat().st_size for path in found) if patterns else None


def end_together(loads: Sequence[tuple[str, RunningLoad]]) -> None:
    """Lets what runs beside a command end at the moment when that has, and not a second later.

    loads: the trial's own have no name.
    """

    def stop() -> None:
        for name, load in loads:
            if name:
                load.stop()

    # A trial that is a command has no other load of its own: it has one client, on one server.
    for name, load in loads:
        if isinstance(load, CommandLoad) and not name:
            load.then = stop


class Counters:
    """What the server says that a command did: read before it, and behind it."""

    def __init__(self, cell: ReadyTrial, found: Sequence[CommandJob | None]) -> None:
        """The trial's own command, else the first beside it; without one nothing is read."""
        self._job = next((job for job in found if job is not None), None)
        self._others = any(
            component.work.request.workload.writes
            for component in cell.components
            if self._job is not None and component is not self._job.component
        )
        self._before: _Reading | None = None
        if self._job is not None:
            work = self._job.component.work
            self._keywords = for_driver(cell.way("primary", work.prepared.dbname))
            command = work.request.workload.command
            self._rows = command.rows if command else None

    def begin(self) -> None:
        """The load is about to begin."""
        if self._job is not None:
            self._before = self._read()

    def findings(self) -> list[Finding]:
        """What it did; to be asked behind the load."""
        job = self._job
        if job is None or self._before is None:
            return []
        start, now = self._before, self._read(still=True)
        rows = None if now.rows is None else loaded(start.rows or {}, now.rows, job.executions)
        values = {
            **job.did(),
            bulk.ROWS: rows,
            bulk.WAL: None if None in (start.wal, now.wal) else (now.wal or 0) - (start.wal or 0),
            bulk.BEFORE: start.size,
            bulk.AFTER: now.size,
            bulk.SHARED: 1.0 if self._others else None,
        }
        found = list(bulk.findings(values))
        if now.why:
            text = f"rows are not known: the query that counts them, {self._rows}: {now.why}"
            found.append(Finding("rows", "warning", text))
        elif rows is None and now.rows is not None:
            found.append(Finding("command", "info", _ANEW))
        return found

    def _read(self, *, still: bool = False) -> _Reading:
        """The numbers as they are; None of what cannot be read. still: once they stand still."""
        import psycopg

        from pgpaces import sessions

        try:
            session = sessions.connect(self._keywords, "pgpaces sensor", prepare_threshold=None)
        except psycopg.Error:
            return _Reading()
        with session:

            def one(text: str) -> float | None:
                with contextlib.suppress(psycopg.Error, TypeError, ValueError):
                    row = session.execute(encoded(text)).fetchone()
                    return None if row is None else float(row[0])
                return None

            wal, size = one(_WAL), one(_SIZE)
            if self._rows is not None:
                counted, why = _number_of(session, self._rows)
                return _Reading(None if counted is None else {_COUNTED: counted}, wal, size, why)
            with contextlib.suppress(psycopg.Error):
                return _Reading(self._inserted(session, still=still), wal, size)
            return _Reading(None, wal, size)

    def _inserted(self, session: Any, *, still: bool) -> dict[Any, float]:
        """Rows that were inserted into each table.

        Sessions tell them when they end, or a bit later; those of a pool do not end, and tell them
        when they have been idle for ten seconds.
        """
        pooled = self._job is not None and self._job.component.node != "primary"
        started, seen = time.monotonic(), list[dict[Any, float]]()
        while True:
            seen.append(dict(session.execute(_INSERTED.encode()).fetchall()))
            alike = len(seen) >= _STILL and all(each == seen[-1] for each in seen[-_STILL:])
            nothing = self._before is not None and seen[-1] == self._before.rows
            patience_s = _IDLE_S if pooled and nothing else _COUNTED_S
            waited_s = time.monotonic() - started
            if not still or (alike and not (pooled and nothing)) or waited_s > patience_s:
                return seen[-1]
            time.sleep(_LOOK_S)


class _Reading(Struct, frozen=True):
    """Numbers of a moment: rows by table, position of the WAL and size of the database in bytes.

    why: why the query for rows told none.
    """

    rows: Mapping[Any, float] | None = None
    wal: float | None = None
    size: float | None = None
    why: str = ""


def _number_of(session: Any, query: str) -> tuple[float | None, str]:
    """What somebody's query for a number says, or why it says none."""
    import psycopg

    try:
        found = session.execute(encoded(query)).fetchall()
    except psycopg.Error as error:
        return None, error.diag.message_primary or str(error)
    try:
        ((value,),) = found
        return float(value), ""
    except (TypeError, ValueError):
        return None, "its answer is not one row with one number"


def loaded(
    before: Mapping[Any, float], behind: Mapping[Any, float], executions: int
) -> float | None:
    """The rows of tables that are there behind it; one that the command made was empty before.

    None where several executions may each have made theirs: of those before the last nothing is
    there any more.
    """
    made = any(count for table, count in behind.items() if table not in before)
    if made and executions > 1:
        return None
    return max(0.0, sum(count - before.get(table, 0.0) for table, count in behind.items()))
