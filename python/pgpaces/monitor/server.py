"""Monitors a server while a load runs: counters, wait events, standbys, sizes.

Has two sessions, each with a thread: one reads all counters once a second, and sizes and statements
before and after the load; the other samples wait events ten times a second. A server that hangs or
dies delays only these threads. A missing reading is a gap, never a zero. Knows nothing of the load.
Each of several servers of one trial has its own sensor, with the name of its node.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

import psycopg
from msgspec import Struct
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
        self._rows: list[str] = []
        self._query = ""
        self.notes, self.more = Notes(), Notes()

    def read(self) -> CounterReading:
        """The present counters, by one query. Raises psycopg.Error."""
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
        self._rows = [
            replication.column(query)
            if version >= replication.SINCE and self._may(session, query, replication.SOURCE)
            else "(SELECT '[]'::text)"
            for query in (replication.STANDBYS, replication.SLOTS_QUERY, replication.STANDBY)
        ]
        # As subqueries: a join of all would take long to plan.
        values = [f"({part.query})" for part in self._parts]
        self._query = f"SELECT {MARK} {', '.join([*values, *self._rows])}"
        self._prepared_for = session

    def close(self) -> None:
        self.snapshot.close()

    def _may(self, session: Session, query: str, source: str) -> bool:
        with self.snapshot.refusals(source, self.notes):
            session.execute(query.encode())
            return True
        return False


class Others(Struct, frozen=True):
    """The monitors other than counters. sessions: with their cost."""

    waits: Sampler
    snapshots: Snapshots
    sessions: tuple[SessionSnapshot, ...]


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
        """The duration of the present read; 0 between reads."""
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


class Sensor:
    """Reads until it is closed. node: its name among several servers of a trial, else "".

    primary: for a standby, the sensor of its primary.
    """

    def __init__(
        self,
        reader: CounterReader,
        others: Others | None = None,
        node: str = "",
        *,
        primary: Sensor | None = None,
    ) -> None:
        self._reader, self._others, self._node, self._primary = reader, others, node, primary
        self._waits = others.waits if others else None
        self._lock = threading.Lock()
        self._start_s = self._began_s = self._ended_s = time.monotonic()
        self._counts = counters.Differences(self._start_s)
        self._samples: list[Sample] = []
        self._positions: dict[int, int] = {}
        self._second: int | None = None
        self._closed = False
        self._counting = Thread("pgpaces-sensor", self._read, lambda: PERIOD_S)
        waits = self._waits
        self._waiting = Thread(
            "pgpaces-waits", self._sample, lambda: waits.period_s if waits else PERIOD_S
        )

    def begin(self, start_s: float) -> None:
        """Begins to read at every full second, in threads that end with the program.

        start_s: the beginning of the measured part, by time.monotonic().
        """
        self._start_s, self._began_s = start_s, time.monotonic()
        self._counts = counters.Differences(start_s)
        if self._others is None:
            self._counting.begin(start_s)
        else:
            snapshots = self._others.snapshots
            self._counting.begin(start_s, snapshots.before, snapshots.after)
            self._waiting.begin(start_s)

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
        prefix = f"{self._node}/" if self._node else ""
        return [replace(sample, source=f"{prefix}{sample.source}") for sample in rows]

    def replay_lags(self, standby: Sensor) -> list[Sample]:
        """The lags of a standby in seconds in which both were read, each second once."""
        with self._lock, standby._lock:
            lags = list(replication.replay_lags(self._positions, standby._positions))
            for lag in lags:
                del standby._positions[lag.second]
            return lags

    def findings(self, series: Iterable[Series]) -> list[Finding]:
        """Findings about its cache, settings, and standbys. series: its samples."""
        with self._lock:
            blocks, seconds = self._counts.blocks(), list(self._counts.seconds)
        findings = [*cache_findings(blocks), *standby_findings(series, seconds)]
        findings += self._others.snapshots.changed if self._others else ()
        if not self._node:
            return findings
        # Of a standby only warnings and errors; its figures are in the samples.
        severe = (each for each in findings if each.severity != "nothing")
        return [replace(each, about=each.about or self._node) for each in severe]

    def blocked(self) -> Observed:
        with self._lock:
            return Observed(self._node, blocked=self._waits.blocked() if self._waits else ())

    def observed(self) -> Observed:
        with self._lock:
            observed = Observed(self._node, self._counts.moved())
            if self._waits:
                waits, blocked = self._waits.tally.waits(), self._waits.blocked()
                observed = replace(observed, waits=waits, blocked=blocked)
        if self._others:
            snapshots = self._others.snapshots
            observed = replace(observed, grown=snapshots.grown, executed=snapshots.executed)
        return observed

    def notes(self) -> list[Finding]:
        """Notes for the trial: what is hidden, reasons of gaps, and the cost of sampling."""
        silent = self._counting.silent or self._waiting.silent
        notes = [*self._reader.notes]
        if silent is not None:
            notes.append(finding("monitor-unanswered", error=silent))
        if self._waits and self._waits.slowed:
            notes.append(self._waits.slowed)
        if self._others:
            # The sensor of the primary already has the notes for a standby's role.
            notes += () if self._node else self._reader.more
            if (cost := self.cost()) is not None:
                here, there = cost
                notes.append(finding("monitor-cost", here_percent=here, server_percent=there))
        return [replace(note, about=self._node) for note in notes]

    def cost(self) -> tuple[float, float | None] | None:
        """CPU time of its threads, and of its server processes if known, as % of one core.

        None before it is closed, or without readings.
        """
        duration_s = self._ended_s - self._began_s
        if self._second is None or duration_s <= 0:
            return None
        sessions = self._others.sessions if self._others else ()
        times = [cpu_s for each in sessions if (cpu_s := each.cost.cpu_s) is not None]
        server = 100 * sum(times) / duration_s if len(times) == len(sessions) else None
        return 100 * (self._counting.cpu_s + self._waiting.cpu_s) / duration_s, server

    def silent_s(self) -> float:
        """The time since the server's last answer; 0 if it answers. Takes at most a second."""
        threads = [self._counting, *([self._waiting] if self._others else [])]
        while 0 < (hangs_s := min(each.hangs_s() for each in threads)) < _SILENT_S:
            time.sleep(_SILENT_S / 20)
        return hangs_s

    def close(self) -> bool:
        """Stops sampling; false if the last reading hangs."""
        self._waiting.stop()
        ended = self._counting.close()
        ended = self._waiting.close() and ended
        self._closed = True
        self._ended_s = time.monotonic()
        for each in self._others.sessions if self._others else ():
            each.cost.read()
        return ended


@contextlib.contextmanager
def sensing(
    keywords: Mapping[str, str],
    dbname: str,
    node: str = "",
    *,
    application: str = "pgpaces",
    primary: Sensor | None = None,
) -> Iterator[Sensor]:
    """A sensor of the server and one of its databases, before its beginning. keywords: libpq's.

    application: the load's application_name. primary: for a standby, the sensor of its primary,
    which begins and ends with it. It raises nothing: errors are in its notes.
    """
    reader, waits = CounterReader(keywords, dbname), SessionSnapshot(keywords, dbname)
    others = Others(
        Sampler(Activity(waits, application)),
        Snapshots(reader.snapshot, reader.notes, reader.more),
        (reader.snapshot, waits),
    )
    sensor = Sensor(reader, others, node, primary=primary)
    try:
        yield sensor
    finally:
        # A session in a hanging query ends with the program.
        if sensor.close():
            reader.close()
            waits.close()
