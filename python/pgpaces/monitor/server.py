"""Monitors a server while a load runs: counters, wait events, standbys, sizes.

Has two sessions, each with a thread: one reads all counters once a second, and sizes and statements
before and after the load; the other samples wait events ten times a second. A server that hangs or
dies delays only these threads. A missing reading is a gap, never a zero. Knows nothing of the load.
Each of several servers of one trial has its own monitor, with the name of its node.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping

import psycopg
from msgspec.structs import replace

from pgpaces.analysis.server_counters import cache_findings, standby_findings
from pgpaces.core.findings import Finding, Notes, finding
from pgpaces.core.series import Sample, Series
from pgpaces.core.sessions import Session, scalar
from pgpaces.monitor import counters, replication
from pgpaces.monitor.counters import (
    GROUPS,
    PERIOD_S,
    Counter,
    CounterGroup,
    CounterReading,
    second_of,
)
from pgpaces.monitor.session import MARK, SessionSnapshot, first_line
from pgpaces.monitor.sizes import Snapshots
from pgpaces.monitor.waits import Activity, Sampler
from pgpaces.spec.result import Observed

_READS_ALL = "SELECT pg_catalog.pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')"
_ROLES_SINCE = 100_000
# A server is silent if two sessions have had no answer for this time.
_SILENT_S = 1.0
# The wait for a hanging thread at its end; longer if it has begun its last reads.
_PATIENCE_S = 1.0
_LAST_READS_S = 6.0
# The minimum interval of retries with a silent server.
_AGAIN_S = 1.0
Read = Callable[[], None]


class CounterReader:
    """Reads the counters. notes: what it may not read, and why. more: what would show more."""

    def __init__(self, keywords: Mapping[str, str], dbname: str) -> None:
        self.snapshot = SessionSnapshot(keywords, dbname)
        self._prepared_for: Session | None = None
        self._parts: list[CounterGroup] = []
        self._query = ""
        self.notes, self.more = Notes(), Notes()

    def read(self) -> CounterReading:
        self._prepare()
        row = self.snapshot.rows(self._query)[0]
        at_s = time.monotonic()
        values: dict[Counter, int | None] = {}
        for part, array in zip(self._parts, row, strict=False):
            # Without a row, all are unknown.
            numbers = array or [None] * len(part.counters)
            values.update(zip(part.counters, numbers, strict=True))
        return CounterReading(at_s, values, tuple(row[len(self._parts) :]))

    def _prepare(self) -> None:
        session = self.snapshot.session()
        if session is self._prepared_for:
            return
        self._prepared_for = None
        version = session.info.server_version
        query = "SELECT pg_catalog.current_setting('track_io_timing', true)"
        settings = {"track_io_timing": scalar(session, query) or ""}
        if settings["track_io_timing"] == "off":
            self.more.add(finding("io-timing-off"))
        if version >= _ROLES_SINCE and scalar(session, _READS_ALL) is False:
            self.more.add(finding("other-roles-hidden"))
        queries = {
            query: group
            for group in GROUPS
            if (query := group.query(version, settings))
            and self._may(session, query, group.counters[0].source)
        }
        self._parts = list(queries.values())
        rows = [
            replication.column(query)
            if version >= replication.SINCE and self._may(session, query, replication.SOURCE)
            else "(SELECT '[]'::text)"
            for query in (replication.STANDBYS, replication.SLOTS_QUERY, replication.STANDBY)
        ]
        # As subqueries: a join of all would take long to plan.
        values = [f"({query})" for query in queries]
        self._query = f"SELECT {MARK} {', '.join([*values, *rows])}"
        self._prepared_for = session

    def _may(self, session: Session, query: str, source: str) -> bool:
        with self.snapshot.refusals(source, self.notes):
            session.execute(query.encode())
            return True
        return False


class Thread:
    """Reads every `period_s()` seconds. read: may raise psycopg.Error, or hang.

    An error of the server is recorded as text, and the next read tries again. A server that hangs
    delays no other thread. silent: the first error, if any.
    """

    def __init__(self, name: str, read: Read, period_s: Callable[[], float]) -> None:
        self._name, self._read, self._period_s = name, read, period_s
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._failed = self._finishing = False
        self._since_s: float | None = None
        self.silent: str | None = None

    def begin(self, start_s: float, first: Read = lambda: None, last: Read = lambda: None) -> None:
        """Reads at every full period from now on; the thread ends with the program.

        first: runs once after the first read. last: runs once at the end.
        """
        self._thread = threading.Thread(
            target=self._run, args=(start_s, first, last), name=self._name, daemon=True
        )
        self._thread.start()

    def _run(self, start_s: float, first: Read, last: Read) -> None:
        self._try(self._read)
        if not self._failed:
            self._try(first)
        while not self._ended.wait(self._ahead_s(start_s)):
            self._try(self._read)
        self._finishing = not self._failed
        if self._finishing:
            self._try(self._read)
            self._try(last)

    def _ahead_s(self, start_s: float) -> float:
        period_s = max(_AGAIN_S, self._period_s()) if self._failed else self._period_s()
        return period_s - (time.monotonic() - start_s) % period_s

    def _try(self, read: Read) -> None:
        self._failed, self._since_s = True, time.monotonic()
        try:
            read()
            self._failed = False
        except psycopg.Error as error:
            self.silent = self.silent or first_line(error)
        finally:
            self._since_s = None

    def hangs_s(self) -> float:
        since_s = self._since_s
        return 0.0 if since_s is None else time.monotonic() - since_s

    def stop(self) -> None:
        """Begins no further read; does not wait for the present one."""
        self._ended.set()

    def close(self) -> bool:
        """Ends the thread; false if a read hangs."""
        self.stop()
        if self._thread is None:
            return True
        self._thread.join(max(0.0, _PATIENCE_S - self.hangs_s()))
        if self._thread.is_alive() and self._finishing:
            self._thread.join(_LAST_READS_S)
        return not self._thread.is_alive()


class ServerMonitor:
    """Reads until it is closed; raises nothing: errors are in its notes.

    waits: samples wait events, if they are of interest. snapshots: of what is read before and after
    the load. node: its name among several servers of a trial, else "".
    """

    def __init__(
        self,
        reader: CounterReader,
        waits: Sampler | None = None,
        snapshots: Snapshots | None = None,
        *,
        node: str = "",
    ) -> None:
        self._reader, self._waits, self._snapshots = reader, waits, snapshots
        self.node = node
        self._lock = threading.Lock()
        self._start_s = time.monotonic()
        self._counts = counters.Differences(self._start_s)
        self._samples: list[Sample] = []
        self._second: int | None = None
        self._closed = False
        self._threads = [Thread("pgpaces-sensor", self._read, lambda: PERIOD_S)]
        if waits is not None:
            take = lambda: waits.take(self._start_s, self._lock)  # noqa: E731
            self._threads.append(Thread("pgpaces-waits", take, lambda: waits.period_s))

    @classmethod
    def of(
        cls,
        keywords: Mapping[str, str],
        dbname: str,
        *,
        application: str = "pgpaces",
        node: str = "",
    ) -> ServerMonitor:
        """The monitor of a server and one of its databases. keywords: libpq's.

        application: the load's application_name.
        """
        reader = CounterReader(keywords, dbname)
        waits = Sampler(Activity(SessionSnapshot(keywords, dbname), application))
        snapshots = Snapshots(reader.snapshot, reader.notes, reader.more)
        return cls(reader, waits, snapshots, node=node)

    def begin(self, start_s: float) -> None:
        """Begins to read at every full second, in threads that end with the program.

        start_s: the beginning of the measured part, by time.monotonic().
        """
        self._start_s = start_s
        self._counts = counters.Differences(start_s)
        counting, *others = self._threads
        around = self._snapshots
        counting.begin(start_s, *((around.before, around.after) if around else ()))
        for thread in others:
            thread.begin(start_s)

    def _read(self) -> None:
        reading = self._reader.read()
        with self._lock:
            self._samples += self._counts.add(reading)
            second = second_of(reading.at_s, self._start_s)
            if second != self._second:
                self._second = second
                if len(reading.rows) == 3:
                    standbys, slots, own = map(replication.rows, reading.rows)
                    self._samples += replication.samples(second, standbys, slots, own=own)

    def drain(self) -> list[Sample]:
        """The samples of the seconds that ended since the last call; the warm-up's are below 0."""
        with self._lock:
            rows, self._samples = self._samples, []
            rows += self._waits.tally.drain(ended=self._closed) if self._waits else []
        prefix = f"{self.node}/" if self.node else ""
        return [replace(sample, source=f"{prefix}{sample.source}") for sample in rows]

    def findings(self, series: Iterable[Series], _seconds: int = 0) -> list[Finding]:
        """Findings about its cache, settings, and standbys. series: its samples."""
        with self._lock:
            blocks, seconds = self._counts.blocks(), list(self._counts.seconds)
        findings = [*cache_findings(blocks), *standby_findings(series, seconds)]
        findings += self._snapshots.changed if self._snapshots else ()
        if not self.node:
            return findings
        # Of a standby only warnings and errors; its figures are in the samples.
        severe = (each for each in findings if each.severity != "nothing")
        return [replace(each, about=each.about or self.node) for each in severe]

    def blocked(self) -> Observed:
        with self._lock:
            return Observed(self.node, blocked=self._waits.blocked() if self._waits else ())

    def observed(self) -> Observed:
        observed = self.blocked()
        with self._lock:
            observed = replace(observed, moved=self._counts.moved())
            if self._waits:
                observed = replace(observed, waits=self._waits.tally.waits())
        if self._snapshots:
            grown, executed = self._snapshots.grown, self._snapshots.executed
            observed = replace(observed, grown=grown, executed=executed)
        return observed

    def notes(self) -> list[Finding]:
        """Notes for the trial: what is hidden, and reasons of gaps."""
        silent = next((each.silent for each in self._threads if each.silent), None)
        notes = [*self._reader.notes]
        if silent is not None:
            notes.append(finding("monitor-unanswered", error=silent))
        if self._waits and self._waits.slowed:
            notes.append(self._waits.slowed)
        # The monitor of the primary already has the notes for a standby's role.
        if self._snapshots and not self.node:
            notes += self._reader.more
        return [replace(note, about=self.node) for note in notes]

    def silent_s(self) -> float:
        """The time since the server's last answer; 0 if it answers. Takes at most a second."""
        while 0 < (hangs_s := min(each.hangs_s() for each in self._threads)) < _SILENT_S:
            time.sleep(_SILENT_S / 20)
        return hangs_s

    def close(self) -> bool:
        """Stops sampling; false if the last reading hangs, whose session ends with the program."""
        for thread in self._threads:
            thread.stop()
        ended = all([thread.close() for thread in self._threads])
        self._closed = True
        if ended and self._waits:
            self._reader.snapshot.close()
            self._waits.snapshot.close()
        return ended
