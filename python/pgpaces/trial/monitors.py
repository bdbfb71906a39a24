"""The monitors of a trial: guard, servers and machines during its load, plans after it.

Around a command, also the counters of the server that tell what the command did.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, LiteralString

import psycopg
from msgspec import Struct
from msgspec.structs import replace

from pgpaces.analysis import bulk
from pgpaces.core import sessions
from pgpaces.core.errors import PgpacesError, PlanError
from pgpaces.core.findings import Finding, Notes, finding
from pgpaces.core.locality import is_local
from pgpaces.core.messages import message
from pgpaces.core.series import Sample, Series
from pgpaces.core.texts import Say, encoded
from pgpaces.load import engine as generator
from pgpaces.load.composite import Together
from pgpaces.load.engine import for_driver
from pgpaces.monitor import guard, plans
from pgpaces.monitor.host import HostMonitor, ThisMachine
from pgpaces.monitor.remote import NearbySource, RemoteCommand
from pgpaces.monitor.server import ServerMonitor
from pgpaces.spec.result import Blocked, Explained, Observed
from pgpaces.trial.prepare import ComponentLoad, ReadyTrial
from pgpaces.trial.request import POOL, PRIMARY

# Characters of a script up to which its statements are explained: that executes each once more.
_EXPLAINED_MAX = 2**20
# Seconds between observations that are stored as a whole, at least.
_WHOLE_S = 10

# Maximum waits for the server's counters to settle (of a pool), the interval, the equal readings.
_COUNTED_S, _IDLE_S, _LOOK_S, _STILL = 4.0, 12.0, 0.25, 3
# Rows and columns of an answer that is not a number, of which a finding shows the values.
_SHOWN = 3
# Not pg_stat_database: that view also counts rows of catalogs and of dropped tables.
_INSERTED = "SELECT relid, n_tup_ins FROM pg_catalog.pg_stat_user_tables"
_WAL = "SELECT pg_catalog.pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
_COUNTED = "counted"  # the key of a query's count, which belongs to no table
_SIZE = "SELECT pg_catalog.pg_database_size(pg_catalog.current_database())"


@contextlib.contextmanager
def monitoring(ready: ReadyTrial, say: Say) -> Iterator[Monitors]:
    with contextlib.ExitStack() as stack:
        monitors = Monitors(ready)
        if ready.request.trial.guard and not ready.site.managed:
            connection = ready.primary()
            say(message("guard-measures-before"))
            keywords = for_driver(connection)
            login = generator.resolve("", **{**keywords, "application_name": guard.APPLICATION})
            name = connection.keywords["application_name"]
            monitors.guard = stack.enter_context(
                guard.guarding(keywords, name, lambda: generator.probe(login))
            )
        if ready.request.observe:
            monitors.open(stack)
        yield monitors


class Monitors:
    """All monitors of a trial. explained: see `explain`. reason: why the guard stopped the load."""

    def __init__(self, ready: ReadyTrial) -> None:
        self._ready = ready
        self.guard: guard.Guard | None = None
        # Around the trial's own command, else the first background one.
        commands = (each for each in ready.components if each.command is not None)
        self._counters = [Counters(ready, each) for each in itertools.islice(commands, 1)]
        # Of the primary first. Machines: of every server that is on one of its own, and the
        # generator's if no server is on it.
        self._servers: list[ServerMonitor] = []
        self._machines: list[HostMonitor] = []
        self.reason: Finding | None = None
        self.explained: tuple[Explained, ...] = ()
        self._notes = Notes()
        self._silent_s = 0.0
        self._whole_at = _WHOLE_S
        self._blocked: dict[str, tuple[Blocked, ...]] = {}

    def open(self, stack: contextlib.ExitStack) -> None:
        ready, places = self._ready, set[str]()
        for node in (PRIMARY, *ready.site.standbys):
            name = "" if node == PRIMARY else node
            # The database that a standby serves, if any.
            served = (c.work.prepared.dbname for c in ready.components if c.node == node)
            dbname = ready.prepared.dbname if not name else next(served, ready.prepared.dbname)
            connection = ready.way(node, dbname)
            keywords = for_driver(connection)
            place = keywords.get("hostaddr") or keywords.get("host", "")
            place = "" if is_local(keywords) else place
            if place not in places:
                places.add(place)
                command = None if name else ready.request.target.observe_command
                source = NearbySource(keywords) if command is None else RemoteCommand(command)
                self._machines.append(HostMonitor(source, name))
            application = connection.keywords["application_name"]
            monitor = ServerMonitor.of(keywords, dbname, application=application, node=name)
            self._servers.append(monitor)
        if "" not in places:
            self._machines.append(HostMonitor(ThisMachine(), generator=True))
        for each in self._every:
            stack.callback(each.close)

    @property
    def _every(self) -> list[HostMonitor | ServerMonitor]:
        return [*self._machines, *self._servers]

    def ready(self) -> None:
        """To be called just before the load begins."""
        for counters in self._counters:
            counters.before = counters.read()

    def begin(self, start_s: float) -> None:
        if self.guard:
            self.guard.begin()
        for monitor in self._every:
            monitor.begin(start_s)

    def sample(self, load: Together) -> None:
        """To be called once a second. Ends the load when the guard reports a reason."""
        if self.guard and self.reason is None and (reason := self.guard.reason()):
            self.reason = reason
            load.abort()

    def answers(self) -> bool:
        """Whether the server answers after the load; a silent one gets no more queries."""
        self._silent_s = self._servers[0].silent_s() if self._servers else 0.0
        return not self._silent_s

    def explain(self) -> None:
        """Explains each statement once, after the load, so that it slows nothing.

        In a database that must stay as it is, statements are not executed.
        """
        first, found = 0, list[Explained]()
        for component in self._ready.components:
            if component.work.request.workload.is_scripts:
                found += self._explain(component, first)
            first += len(component.scripts)
        self.explained = tuple(found)

    def _explain(self, component: ComponentLoad, first: int) -> list[Explained]:
        """The plans of a component, from its own server; of a pool, from the primary.

        first: the number of its first script.
        """
        ready, work, notes = self._ready, component.work, self._notes
        variables = tuple(work.variables().items())
        statements: list[plans.Statement] = []
        for number, script in enumerate(component.scripts, first):
            if len(script.text) > _EXPLAINED_MAX:
                notes.add(finding("long-scripts-unexplained", most=_EXPLAINED_MAX))
                continue
            try:
                rehearsed = generator.rehearse(
                    script.name, script.text, variables, seed=component.plan.seed
                )
            except PgpacesError as error:  # its clients give up, too
                notes.add(finding("script-unexplained", why=error.message))
                continue
            statements += ((number, command, text) for command, text in rehearsed)
        as_is = ready.request.as_is and work.prepared.dbname == ready.prepared.dbname
        way = ready.primary() if component.node == POOL else ready.connection(component)
        try:
            return plans.explain(
                for_driver(way), work.prepared.dbname, statements, analyze=not as_is, notes=notes
            )
        except PgpacesError as error:
            node = component.node if len(ready.components) > 1 else ""
            notes.add(finding("plans-missing", node, why=error.message))
            return []

    def drain(self) -> list[Sample]:
        return [sample for monitor in self._every for sample in monitor.drain()]

    def news(self, second: int) -> list[Observed]:
        """Other observations that are new; to be called once a second.

        Blocked sessions when they change. All others whenever the load is a tenth longer, as what
        is stored of them grows with its length.
        """
        whole = second >= self._whole_at
        if whole:
            self._whole_at = second + max(_WHOLE_S, second // 10)
        readings = [each.observed() if whole else each.blocked() for each in self._servers]
        new = [
            each for each in readings if whole or each.blocked != self._blocked.get(each.node, ())
        ]
        self._blocked.update((each.node, each.blocked) for each in new)
        return new

    def observed(self) -> tuple[Observed, ...]:
        return tuple(monitor.observed() for monitor in self._servers)

    def findings(self, series: Sequence[Series], seconds: int) -> list[Finding]:
        """The findings of all monitors. series: all samples. seconds: the measured ones."""
        by_node: dict[str, list[Series]] = {}
        for each in series:
            node, _, source = each.source.rpartition("/")
            by_node.setdefault(node, []).append(replace(each, source=source))
        findings = list[Finding]()
        for monitor in self._every:
            findings += monitor.findings(by_node.get(monitor.node, []), seconds)
        findings += (each for counters in self._counters for each in counters.findings())
        if self._silent_s:
            findings.append(finding("last-readings-missing", silent_s=self._silent_s))
        return findings

    def notes(self) -> Notes:
        notes = Notes()
        if self.guard is not None:
            notes.add(*self.guard.notes(self.reason))
        for monitor in self._every:
            notes.add(*monitor.notes())
        notes.add(*self._notes)
        return notes


class Counters:
    """The server's counters around a command: its rows, WAL, and the size of its database."""

    def __init__(self, ready: ReadyTrial, component: ComponentLoad) -> None:
        work, command = component.work, component.work.request.workload.command
        assert component.command is not None
        self._load = component.command
        others = (each for each in ready.components if each is not component)
        self._others = any(each.work.request.workload.writes for each in others)
        self._pooled = component.node != PRIMARY
        self._keywords = for_driver(ready.way(PRIMARY, work.prepared.dbname))
        self._query = command.rows if command else None
        self.before = _Reading()
        if self._query is not None:
            self.read()  # an error of syntax is found before the load

    def findings(self) -> Iterator[Finding]:
        start, now = self.before, self.read(still=True)
        rows = None
        if now.rows is not None:
            rows = loaded(start.rows or {}, now.rows, self._load.executions)
        values = {
            **self._load.did(),
            "rows": rows,
            "wal_bytes": None if start.wal is None or now.wal is None else now.wal - start.wal,
            "size_before_bytes": start.size,
            "size_after_bytes": now.size,
            "others_wrote": True if self._others else None,
        }
        known = {name: value for name, value in values.items() if value is not None}
        yield finding(bulk.WORK, **known)
        if now.why is not None:
            yield now.why
        elif rows is None and now.rows is not None:
            yield finding("rows-remade")

    def read(self, *, still: bool = False) -> _Reading:
        """The current numbers; None for one that is not readable. still: once they settle."""
        try:
            session = sessions.connect(self._keywords, "pgpaces sensor", prepare_threshold=None)
        except psycopg.Error:
            return _Reading()
        with session:

            def figure(query: LiteralString) -> float | None:
                with contextlib.suppress(psycopg.Error, TypeError):
                    return float(sessions.scalar(session, query))
                return None

            wal, size, rows, why = figure(_WAL), figure(_SIZE), None, None
            if self._query is not None:
                counted, why = _number_of(session, self._query)
                rows = None if counted is None else {_COUNTED: counted}
            else:
                with contextlib.suppress(psycopg.Error):
                    rows = self._inserted(session, still=still)
        return _Reading(rows, wal, size, why)

    def _inserted(self, session: Any, *, still: bool) -> dict[Any, float]:
        """The inserted rows of each table.

        Sessions report them when they end, or shortly after; those of a pool do not end, and report
        them after ten idle seconds.
        """
        started, counts = time.monotonic(), list[dict[Any, float]]()
        while True:
            counts.append(dict(session.execute(_INSERTED.encode()).fetchall()))
            settled = len(counts) >= _STILL and all(c == counts[-1] for c in counts[-_STILL:])
            nothing = counts[-1] == self.before.rows
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
