"""The monitors of a trial: guard, servers and machines during its load, plans after it.

Around a command, also the counters of the server that tell what the command did.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

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
from pgpaces.core.texts import encoded
from pgpaces.load import engine as generator
from pgpaces.load.composite import Together
from pgpaces.load.engine import for_driver
from pgpaces.monitor import guard, plans
from pgpaces.monitor.host import HostMonitor, ThisMachine
from pgpaces.monitor.remote import NearbySource, RemoteCommand
from pgpaces.monitor.server import ServerMonitor
from pgpaces.spec.result import Blocked, Explained, Observed
from pgpaces.trial.components import ComponentLoad, ReadyTrial
from pgpaces.trial.listener import Listener
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
def monitoring(ready: ReadyTrial, listener: Listener) -> Iterator[Monitors]:
    keywords = for_driver(connection := ready.primary())
    with contextlib.ExitStack() as stack:
        watcher = None
        if ready.request.trial.guard and not ready.site.managed:
            listener.say(message("guard-measures-before"))
            login = generator.resolve("", **{**keywords, "application_name": guard.APPLICATION})
            name = connection.keywords["application_name"]
            watcher = stack.enter_context(
                guard.guarding(keywords, name, lambda: generator.probe(login))
            )
        monitors = Monitors(ready, keywords, watcher)
        if ready.request.observe:
            monitors.open(stack)
        yield monitors


class Monitors:
    """All monitors of a trial. explained: see `explain`. reason: why the load was stopped."""

    def __init__(
        self,
        ready: ReadyTrial,
        keywords: dict[str, str],
        watcher: guard.Guard | None,
    ) -> None:
        self._ready, self._keywords = ready, keywords
        self._guard, self._counters = watcher, Counters(ready)
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
        ready, places, servers = self._ready, set[str](), self._servers
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
                nearby = NearbySource({**keywords, "dbname": dbname})
                source = nearby if command is None else RemoteCommand(command)
                self._machines.append(HostMonitor(source, name))
            application = connection.keywords["application_name"]
            servers.append(ServerMonitor.of(keywords, dbname, application=application, node=name))
        if "" not in places:
            self._machines.append(HostMonitor(ThisMachine(), generator=True))
        for monitor in self._every:
            stack.callback(monitor.close)

    @property
    def _every(self) -> list[HostMonitor | ServerMonitor]:
        return [*self._machines, *self._servers]

    def ready(self) -> None:
        self._counters.begin()

    def begin(self, start_s: float) -> None:
        if self._guard:
            self._guard.begin()
        for monitor in self._every:
            monitor.begin(start_s)

    def sample(self, load: Together) -> None:
        """To be called once a second. Ends the load when the guard reports a reason."""
        if self._guard and self.reason is None and (reason := self._guard.reason()):
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
            first += len(component.places)
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
        keywords = (
            self._keywords if component.node == POOL else for_driver(ready.connection(component))
        )
        try:
            return plans.explain(
                keywords, work.prepared.dbname, statements, analyze=not as_is, notes=notes
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
        findings += self._counters.findings()
        if self._silent_s:
            findings.append(finding("last-readings-missing", silent_s=self._silent_s))
        return findings

    def notes(self) -> Notes:
        notes = Notes()
        if self._guard is not None:
            notes.add(*self._guard.notes(self.reason))
        for monitor in self._every:
            notes.add(*monitor.notes())
        notes.add(*self._notes)
        return notes


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
