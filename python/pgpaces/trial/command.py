"""Commands as a trial runs them: their connection, their folder, and the server's counters.

The generator runs and times a command; this module prepares it, and reads its effect from the
server.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.analysis import bulk
from pgpaces.core.errors import PlanError, PrepareError
from pgpaces.core.findings import Finding, finding
from pgpaces.core.messages import message
from pgpaces.core.texts import Say, encoded
from pgpaces.database import inputs, programs, psql
from pgpaces.database.inputs import filled
from pgpaces.database.programs import run_reporting
from pgpaces.load.command import CommandLoad, Executions
from pgpaces.load.engine import for_driver
from pgpaces.spec.load import TrialPlan
from pgpaces.spec.workload import Workload

if TYPE_CHECKING:
    from pgpaces.trial.components import ComponentLoad, ReadyTrial

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
    trial.check_without_scripts()


@contextlib.contextmanager
def with_command(
    ready: ReadyTrial, component: ComponentLoad, say: Say, *, check: Callable[[], None]
) -> Iterator[ComponentLoad]:
    """The component with its command, if it has one, ready to run within this context.

    check: raises if the end was requested while something runs before a command. Raises PlanError
    for unknown placeholders, RunError for a missing program, PrepareError if the command to run
    before it fails.
    """
    work, plan = component.work, component.plan
    workload, command = work.request.workload, work.request.workload.command
    if command is None:
        yield component
        return
    keywords = for_driver(ready.connection(component))
    way = psql.ClientProgram(ready.site.access.psql, keywords, keywords["dbname"])
    values = {"seed": str(work.request.data_seed), **work.variables()}
    with (
        programs.program_environment(way, workload, values, say=say) as environment,
        contextlib.ExitStack() as stack,
    ):
        # Not `grace`, which is at least the latency limit: that may be an hour here.
        polite_ns = _POLITE_NS if plan.grace_ns is None else plan.grace_ns

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
        executions = Executions(
            transactions=plan.transactions,
            duration_ns=plan.duration_ns,
            warmup_ns=plan.warmup,
            limit_ns=dict(plan.limits).get(component.scripts[0].name, plan.limit_ns) or None,
            accompanies=bool(work.name),
        )
        load = CommandLoad(measured, executions, runner, say=say)
        if command.input:
            words = [filled(pattern, environment.values) for pattern in command.input]
            paths = inputs.matching(words, environment.folder)
            load.input_bytes = sum(path.stat().st_size for path in paths)
        yield replace(component, command=load)


class Counters:
    """The server's counters around a command: its rows, WAL, and the size of its database."""

    def __init__(self, ready: ReadyTrial) -> None:
        """For the trial's own command, else the first background one; else reads nothing."""
        found = next((each for each in ready.components if each.command is not None), None)
        self._load = None if found is None else found.command
        self._before: _Reading | None = None
        if found is not None:
            others = (each for each in ready.components if each is not found)
            self._others = any(each.work.request.workload.writes for each in others)
            work = found.work
            self._pooled = found.node != "primary"
            self._keywords = for_driver(ready.way("primary", work.prepared.dbname))
            command = work.request.workload.command
            self._rows = command.rows if command else None
            if self._rows is not None:
                self._read()  # an error of syntax is found before the load

    def begin(self) -> None:
        """To be called just before the load begins."""
        if self._load is not None:
            self._before = self._read()

    def findings(self) -> list[Finding]:
        load = self._load
        if load is None or self._before is None:
            return []
        start, now = self._before, self._read(still=True)
        rows = None if now.rows is None else loaded(start.rows or {}, now.rows, load.executions)
        values = {
            **load.did(),
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
        started, counts = time.monotonic(), list[dict[Any, float]]()
        while True:
            counts.append(dict(session.execute(_INSERTED.encode()).fetchall()))
            settled = len(counts) >= _STILL and all(c == counts[-1] for c in counts[-_STILL:])
            nothing = self._before is not None and counts[-1] == self._before.rows
            patience_s = _IDLE_S if self._pooled and nothing else _COUNTED_S
            waited_s = time.monotonic() - started
            if not still or (settled and not (self._pooled and nothing)) or waited_s > patience_s:
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
