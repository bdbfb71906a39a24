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
from typing import Any

import psycopg
from msgspec.structs import replace

from pgpaces.analysis.server_counters import cache_findings, standby_findings
from pgpaces.core.findings import Finding, Notes, finding
from pgpaces.core.series import Sample, Series
from pgpaces.core.sessions import Session, scalar
from pgpaces.monitor import counters, replication
from pgpaces.monitor.counters import (
    PARTS,
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
# Seconds whose position of the WAL waits for that of the other server.
_POSITIONS_MAX = 30
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
        self.snapshot.cost.read()
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
        fitting = [part for part in PARTS if part.fits(version, settings)]
        self._parts = [p for p in fitting if self._may(session, p.query, p.counters[0].source)]
        rows = [
            replication.column(query)
            if version >= replication.SINCE and self._may(session, query, replication.SOURCE)
            else "(SELECT '[]'::text)"
            for query in (replication.STANDBYS, replication.SLOTS_QUERY, replication.STANDBY)
        ]
        # As subqueries: a join of all would take long to plan.
        values = [f"({part.query})" for part in self._parts]
        self._query = f"SELECT {MARK} {', '.join([*values, *rows])}"
        self._prepared_for = session

    def _may(self, session: Session, query: str, source: str) -> bool:
        with self.snapshot.refusals(source, self.notes):
            session.execute(query.encode())
            return True
        return False


def _nothing() -> None:
    """A read without effect."""


class Thread:
    """Reads every `period_s()` seconds. read: may raise psycopg.Error, or hang.

    An error of the server is recorded as text, and the next read tries again. A server that hangs
    delays no other thread. cpu_s: CPU time of the thread so far. silent: the first error, if any.
    """

    def __init__(self, name: str, read: Read, period_s: Callable[[], float]) -> None:
        self._name, self._read, self._period_s = name, read, period_s
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._failed = self._finishing = False
        self._since_s: float | None = None
        self.cpu_s = 0.0
        self.silent: str | None = None

    def begin(self, start_s: float, first: Read = _nothing, last: Read = _nothing) -> None:
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
        self.cpu_s = time.thread_time()

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
    the load. node: its name among several servers of a trial, else "". primary: for a standby, the
    monitor of its primary, which begins and ends with it.
    """

    def __init__(
        self,
        reader: CounterReader,
        waits: Sampler | None = None,
        snapshots: Snapshots | None = None,
        *,
        node: str = "",
        primary: ServerMonitor | None = None,
    ) -> None:
        self._reader, self._waits, self._snapshots = reader, waits, snapshots
        self.node, self._primary = node, primary
        self._lock = threading.Lock()
        self._start_s = self._began_s = self._ended_s = time.monotonic()
        self._counts = counters.Differences(self._start_s)
        self._samples: list[Sample] = []
        self._positions: dict[int, int] = {}
        self._second: int | None = None
        self._closed = False
        self._threads = [Thread("pgpaces-sensor", self._read, lambda: PERIOD_S)]
        if waits is not None:
            self._threads.append(Thread("pgpaces-waits", self._sample, lambda: waits.period_s))

    @classmethod
    def of(
        cls, keywords: Mapping[str, str], dbname: str, *, application: str = "pgpaces", **more: Any
    ) -> ServerMonitor:
        """The monitor of a server and one of its databases. keywords: libpq's.

        application: the load's application_name. more: node, primary.
        """
        reader = CounterReader(keywords, dbname)
        waits = Sampler(Activity(SessionSnapshot(keywords, dbname), application))
        snapshots = Snapshots(reader.snapshot, reader.notes, reader.more)
        return cls(reader, waits, snapshots, **more)

    def begin(self, start_s: float) -> None:
        """Begins to read at every full second, in threads that end with the program.

        start_s: the beginning of the measured part, by time.monotonic().
        """
        self._start_s, self._began_s = start_s, time.monotonic()
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
                position = reading.values.get(counters.WAL_POSITION)
                if position is not None:
                    self._positions[second] = position
                    self._positions.pop(second - _POSITIONS_MAX, None)
                if len(reading.rows) == 3:
                    standbys, slots, own = map(replication.rows, reading.rows)
                    self._samples += replication.samples(second, standbys, slots, own=own)

    def _sample(self) -> None:
        if self._waits is not None:
            self._waits.take(self._start_s, self._lock)

    def drain(self) -> list[Sample]:
        """The samples of the seconds that ended since the last call; the warm-up's are below 0."""
        with self._lock:
            rows, self._samples = self._samples, []
            rows += self._waits.tally.drain(ended=self._closed) if self._waits else []
        if self._primary is not None:
            rows += self._primary.replay_lags(self)
        prefix = f"{self.node}/" if self.node else ""
        return [replace(sample, source=f"{prefix}{sample.source}") for sample in rows]

    def replay_lags(self, standby: ServerMonitor) -> list[Sample]:
        """The lags of a standby in seconds in which both were read, each second once."""
        with self._lock, standby._lock:
            lags = list(replication.replay_lags(self._positions, standby._positions))
            for lag in lags:
                del standby._positions[lag.second]
            return lags

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
        """Notes for the trial: what is hidden, reasons of gaps, and the cost of sampling."""
        silent = next((each.silent for each in self._threads if each.silent), None)
        notes = [*self._reader.notes]
        if silent is not None:
            notes.append(finding("monitor-unanswered", error=silent))
        if self._waits and self._waits.slowed:
            notes.append(self._waits.slowed)
        if self._snapshots:
            # The monitor of the primary already has the notes for a standby's role.
            notes += () if self.node else self._reader.more
            if (cost := self.cost()) is not None:
                here, there = cost
                notes.append(finding("monitor-cost", here_percent=here, server_percent=there))
        return [replace(note, about=self.node) for note in notes]

    @property
    def _sessions(self) -> list[SessionSnapshot]:
        return [self._reader.snapshot, self._waits.snapshot] if self._waits else []

    def cost(self) -> tuple[float, float | None] | None:
        """CPU time of its threads, and of its server processes if known, as % of one core.

        None before it is closed, or without readings.
        """
        duration_s = self._ended_s - self._began_s
        if self._second is None or duration_s <= 0:
            return None
        times = [session.cost.cpu_s for session in self._sessions]
        known = [cpu_s for cpu_s in times if cpu_s is not None]
        server = 100 * sum(known) / duration_s if len(known) == len(times) else None
        return 100 * sum(thread.cpu_s for thread in self._threads) / duration_s, server

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
        self._ended_s = time.monotonic()
        for session in self._sessions:
            session.cost.read()
            if ended:
                session.close()
        return ended
