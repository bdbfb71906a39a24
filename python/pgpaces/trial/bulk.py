"""Commands as a trial runs them: their connection, their folder, and the server's counters.

The generator runs and times a command; this module prepares it, and reads its effect from the
server.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from pgpaces.analysis import bulk
from pgpaces.core.errors import PlanError, PrepareError
from pgpaces.core.findings import Finding, finding
from pgpaces.core.messages import message
from pgpaces.core.texts import Say, encoded
from pgpaces.database import programs, psql
from pgpaces.database.programs.environment import filled
from pgpaces.database.steps import run_reporting
from pgpaces.load import engine as generator
from pgpaces.load.command import CommandLoad, Executions
from pgpaces.load.composite import RunningLoad
from pgpaces.load.engine import for_driver
from pgpaces.spec.plan import ONLY_OF_SCRIPTS, TrialPlan
from pgpaces.spec.workload import Workload

if TYPE_CHECKING:
    from pgpaces.trial.components import ComponentLoad
    from pgpaces.trial.ready_trial import ReadyTrial

_POLITE_NS = 5_000_000_000
# Maximum waits for the server's counters to settle (of a pool), the interval, the equal readings.
_COUNTED_S, _IDLE_S, _LOOK_S, _STILL = 4.0, 12.0, 0.25, 3
# Rows and columns of an answer that is not a number, of which a finding shows the values.
_SHOWN = 3
# Not pg_stat_database: that view also counts rows of catalogs and of dropped tables.
_INSERTED = "SELECT relid, n_tup_ins FROM pg_catalog.pg_stat_user_tables"
_WAL = "SELECT pg_catalog.pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
_COUNTED = "counted"  # the key of a query's count, which belongs to no table
_SIZE = "SELECT pg_catalog.pg_database_size(pg_catalog.current_database())"


def check(workload: Workload, trial: TrialPlan) -> None:
    """Raises PlanError for options that a command does not support."""
    command = workload.command
    if command is None:
        return
    if workload.scripts != (command.script,):
        raise PlanError("runs-no-scripts", workload=workload.name, kind="command")
    if trial.load.model != "closed" or trial.load.think != "none":
        raise PlanError("command-with-rate", workload=workload.name)
    several = {
        "--generators": trial.generators is not None,
        f"--clients {trial.clients}": (trial.clients or 1) > 1,
        "--start-every": bool(trial.start_every_ns),
    }
    for option, used in several.items():
        if used:
            raise PlanError("command-runs-alone", option=option)
    for name, usual in ONLY_OF_SCRIPTS.items():
        if getattr(trial, name) != usual:
            raise PlanError("scripts-only", option=f"--{name.replace('_', '-')}")


class CommandJob(Struct, frozen=True):
    """The command of a component, ready to run. input_bytes: of the files that it reads."""

    component: ComponentLoad
    order: programs.CommandOrder
    runner: programs.Runner
    say: Say
    input_bytes: int | None
    loads: list[CommandLoad] = field(default_factory=list)

    def load(self) -> CommandLoad:
        """The load that runs it; the command makes its own connection."""
        plan = self.component.plan
        limits = dict(plan.limits)
        executions = Executions(
            transactions=plan.transactions,
            duration_ns=plan.duration_ns,
            warmup_ns=0 if plan.transactions is not None else plan.warmup,
            limit_ns=limits.get(self.component.scripts[0].name, plan.limit_ns) or None,
            accompanies=bool(self.component.work.name),
        )
        load = CommandLoad(self.order, executions, self.runner, say=self.say)
        self.loads.append(load)
        return load

    @property
    def executions(self) -> int:
        return sum(len(load.ended) + load.cut for load in self.loads)

    def did(self) -> dict[str, Any]:
        """Its own numbers: executions that succeeded, and how many others there were."""
        ended = [each for load in self.loads for each in load.ended]
        good = [each for each in ended if not each.failed]
        broken = len(ended) - len(good) + sum(load.cut for load in self.loads)
        return {
            "executions": len(good),
            "spent_s": sum(each.done_ns - each.due_ns for each in good) / 1e9,
            "broken": broken or None,
            "cpu_s": sum(each.cpu_s for each in good),
            "input_bytes": self.input_bytes,
        }


@contextlib.contextmanager
def jobs(
    ready: ReadyTrial,
    connections: Sequence[generator.Connection],
    say: Say,
    *,
    check: Callable[[], None],
) -> Iterator[list[CommandJob | None]]:
    """The command of each component, ready within this context; None for one without a command.

    check: raises if the end was requested while something runs before a command.

    Raises PlanError for unknown placeholders, RunError for a missing program, PrepareError if the
    command to run before it fails.
    """
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(_job(ready, component, connection, say=say, check=check))
            if component.work.request.workload.command is not None
            else None
            for component, connection in zip(ready.components, connections, strict=True)
        ]


@contextlib.contextmanager
def _job(
    ready: ReadyTrial,
    component: ComponentLoad,
    connection: generator.Connection,
    *,
    say: Say,
    check: Callable[[], None],
) -> Iterator[CommandJob]:
    workload = component.work.request.workload
    command = workload.command
    assert command is not None
    keywords = for_driver(connection)
    way = psql.ClientProgram(ready.site.access.psql, keywords, keywords["dbname"])
    values = {"seed": str(component.work.request.data_seed), **component.work.variables()}
    with (
        programs.program_environment(way, workload, values, say=say) as environment,
        contextlib.ExitStack() as stack,
    ):
        # Not `grace`, which is at least the latency limit: that may be an hour here.
        polite_ns = _POLITE_NS if component.plan.grace_ns is None else component.plan.grace_ns

        def order(run: tuple[str, ...] | str, succeeds: tuple[int, ...]) -> programs.CommandOrder:
            base = environment.order(component.labels[0], run)
            timeout_ns = command.timeout_ns
            return replace(base, succeeds=succeeds, timeout_ns=timeout_ns, polite_ns=polite_ns)

        def say_and_check(text: str) -> None:
            say(text)
            check()

        runner = programs.Runner(environment.files, environment.scratch)
        stack.callback(runner.close)
        measured = order(command.run, command.succeeds)
        if command.before is not None:
            what = message("before-command", workload=workload.name)
            say(what)
            before = order(command.before, (0,))
            result = run_reporting(runner, before, what, say=say_and_check)
            if result is None or result.failed:
                why, output = (result.failed, result.output) if result else ("stopped", "")
                raise PrepareError("before-failed", workload=workload.name, why=why, output=output)
        words = [filled(pattern, environment.values) for pattern in command.input]
        paths = programs.matching(words, environment.folder)
        size = sum(path.stat().st_size for path in paths) if command.input else None
        yield CommandJob(component, measured, runner, say, size)


def end_together(loads: Sequence[tuple[str, RunningLoad]]) -> None:
    """Makes background workloads of a command end when it ends, not a second later.

    loads: by name; the trial's own have an empty name.
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
    def __init__(self, ready: ReadyTrial, jobs: Sequence[CommandJob | None]) -> None:
        """For the trial's own command, else the first background one; else reads nothing."""
        self._job = next((job for job in jobs if job is not None), None)
        self._others = any(
            component.work.request.workload.writes
            for component in ready.components
            if self._job is not None and component is not self._job.component
        )
        self._before: _Reading | None = None
        if self._job is not None:
            work = self._job.component.work
            self._keywords = for_driver(ready.way("primary", work.prepared.dbname))
            command = work.request.workload.command
            self._rows = command.rows if command else None
            if self._rows is not None:
                self._read()  # an error of syntax is found before the load

    def begin(self) -> None:
        """To be called just before the load begins."""
        if self._job is not None:
            self._before = self._read()

    def findings(self) -> list[Finding]:
        job = self._job
        if job is None or self._before is None:
            return []
        start, now = self._before, self._read(still=True)
        rows = None if now.rows is None else loaded(start.rows or {}, now.rows, job.executions)
        values = {
            **job.did(),
            "rows": rows,
            "wal_bytes": None if start.wal is None or now.wal is None else now.wal - start.wal,
            "size_before_bytes": start.size,
            "size_after_bytes": now.size,
            "others_wrote": True if self._others else None,
        }
        known = {name: value for name, value in values.items() if value is not None}
        findings = [finding(bulk.WORK, **known)]
        if now.why is not None:
            findings.append(now.why)
        elif rows is None and now.rows is not None:
            findings.append(finding("rows-remade"))
        return findings

    def _read(self, *, still: bool = False) -> _Reading:
        """The current numbers; None for one that is not readable. still: once they settle."""
        import psycopg

        from pgpaces.core import sessions

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
        """The inserted rows of each table.

        Sessions report them when they end, or shortly after; those of a pool do not end, and report
        them after ten idle seconds.
        """
        pooled = self._job is not None and self._job.component.node != "primary"
        started, counts = time.monotonic(), list[dict[Any, float]]()
        while True:
            counts.append(dict(session.execute(_INSERTED.encode()).fetchall()))
            settled = len(counts) >= _STILL and all(c == counts[-1] for c in counts[-_STILL:])
            nothing = self._before is not None and counts[-1] == self._before.rows
            patience_s = _IDLE_S if pooled and nothing else _COUNTED_S
            waited_s = time.monotonic() - started
            if not still or (settled and not (pooled and nothing)) or waited_s > patience_s:
                return counts[-1]
            time.sleep(_LOOK_S)


class _Reading(Struct, frozen=True):
    """A reading: rows by table, WAL position and size of the database in bytes.

    why: why the query for rows returned no number.
    """

    rows: Mapping[Any, float] | None = None
    wal: float | None = None
    size: float | None = None
    why: Finding | None = None


def _number_of(session: Any, query: str) -> tuple[float, None] | tuple[None, Finding]:
    """The number that a user's query returns, or why it returns none.

    Raises PlanError for a query that the server cannot parse.
    """
    import psycopg

    try:
        rows = session.execute(encoded(query)).fetchall()
    except psycopg.errors.SyntaxError as error:
        raise PlanError("rows-query", query=query, why=error.diag.message_primary) from None
    except psycopg.Error as error:
        why = error.diag.message_primary or str(error)
        return None, finding("rows-unknown", query=query, error=why)
    try:
        ((value,),) = rows
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        answer = [str(value) for row in rows[:_SHOWN] for value in row[:_SHOWN]]
        return None, finding("rows-not-a-number", query=query, answer=answer)
    return number, None


def loaded(
    before: Mapping[Any, float], after: Mapping[Any, float], executions: int
) -> float | None:
    """The rows loaded into the tables that exist afterwards; a new table was empty before.

    None if several executions may each have created tables: only those of the last one remain.
    """
    created = any(count for table, count in after.items() if table not in before)
    if created and executions > 1:
        return None
    return max(0.0, sum(count - before.get(table, 0.0) for table, count in after.items()))
