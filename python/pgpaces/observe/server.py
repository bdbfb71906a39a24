"""Reads the counters of a server once a second while somebody else loads it.

A session of our own and a thread of our own: a server that hangs or dies delays nobody but the
thread. Counters become rates by their difference between two readings. A reading that is missing is
a gap, never a zero. Knows nothing of what the load is.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pgpaces.answers import cache
from pgpaces.result import Finding, Sample

if TYPE_CHECKING:
    import psycopg

    Session = psycopg.Connection[tuple[Any, ...]]

PERIOD_S = 1.0
_CONNECT_TIMEOUT_S = 3
_PATIENCE_S = 1.0


@dataclass(frozen=True, slots=True)
class Counter:
    """A counter of the server: the SQL that gives it, and what its differences are called.

    unit: with "/s" at its end the difference is divided by the time that it took.
    """

    source: str
    name: str
    sql: str
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """Counters that one view gives to one kind of server. versions: from, and below."""

    view: str
    counters: tuple[Counter, ...]
    since: int = 0
    until: int = 1_000_000


_DATABASE = "pg_catalog.pg_stat_database WHERE datname = pg_catalog.current_database()"
PARTS = (
    Part(
        _DATABASE,
        (
            Counter("database", "blocks_hit", "blks_hit", "blocks/s"),
            Counter("database", "blocks_read", "blks_read", "blocks/s"),
            Counter("database", "temp_written", "temp_bytes", "B/s"),
            Counter("database", "deadlocks", "deadlocks"),
        ),
    ),
    Part(
        _DATABASE,
        (
            Counter("workers", "planned", "parallel_workers_to_launch", "1/s"),
            Counter("workers", "launched", "parallel_workers_launched", "1/s"),
        ),
        since=180_000,
    ),
    # By its position, not by pg_stat_wal: that one hears of what a session wrote only when it ends
    # a transaction, and some servers have none.
    Part(
        "(SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()"
        " ELSE pg_catalog.pg_current_wal_insert_lsn() END - '0/0'::pg_lsn AS position) wal",
        (Counter("wal", "written", "position", "B/s"),),
    ),
    Part(
        "pg_catalog.pg_stat_bgwriter",
        (
            Counter("checkpoints", "checkpoints", "checkpoints_timed + checkpoints_req"),
            Counter("checkpoints", "written", "buffers_checkpoint", "blocks/s"),
        ),
        until=170_000,
    ),
    Part(
        "pg_catalog.pg_stat_checkpointer",
        (
            Counter("checkpoints", "checkpoints", "num_timed + num_requested"),
            Counter("checkpoints", "written", "buffers_written", "blocks/s"),
        ),
        since=170_000,
        until=180_000,
    ),
    # Those before count also what was due and had nothing to do.
    Part(
        "pg_catalog.pg_stat_checkpointer",
        (
            Counter("checkpoints", "checkpoints", "num_done"),
            Counter("checkpoints", "written", "buffers_written", "blocks/s"),
        ),
        since=180_000,
    ),
)


@dataclass(frozen=True, slots=True)
class Reading:
    """What the counters were at a time of the monotonic clock; None: not known then."""

    at_s: float
    values: Mapping[Counter, int | None]


class Reader:
    """The session that reads, made anew where it broke. notes: what it may not read, and why."""

    def __init__(self, keywords: Mapping[str, str], dbname: str) -> None:
        self._keywords: dict[str, Any] = {
            **keywords,
            "dbname": dbname,
            "application_name": "pgpaces sensor",
            "connect_timeout": str(_CONNECT_TIMEOUT_S),
        }
        self._session: Session | None = None
        self._parts: list[Part] = []
        self.notes: dict[str, None] = {}

    def read(self) -> Reading:
        """The counters as they are. Raises psycopg.Error."""
        session = self._ready()
        tables = ", ".join(
            f"(SELECT {_columns(part)} FROM {part.view}) AS part{number}"
            for number, part in enumerate(self._parts)
        )
        row = session.execute(f"SELECT * FROM {tables}".encode()).fetchone() if tables else None
        at_s = time.monotonic()
        counters = [counter for part in self._parts for counter in part.counters]
        return Reading(at_s, dict(zip(counters, row or [None] * len(counters), strict=True)))

    def _ready(self) -> Session:
        """A session, and which parts the server has and the role may read."""
        import psycopg

        if self._session is not None and not self._session.closed:
            return self._session
        self._session = psycopg.connect(autocommit=True, prepare_threshold=None, **self._keywords)
        version = self._session.info.server_version
        self._parts = []
        for part in PARTS:
            if not part.since <= version < part.until:
                continue
            try:
                self._session.execute(f"SELECT {_columns(part)} FROM {part.view}".encode())
                self._parts.append(part)
            except psycopg.errors.DatabaseError as error:
                if error.sqlstate is None:  # the session is gone
                    raise
                said = error.diag.message_primary
                self.notes[f"sensor: no {part.counters[0].source}: {said}"] = None
        return self._session

    def close(self) -> None:
        """Ends the session."""
        if self._session is not None:
            self._session.close()


def _columns(part: Part) -> str:
    return ", ".join(
        f"({c.sql})::numeric::bigint AS c{number}" for number, c in enumerate(part.counters)
    )


class Reads(Protocol):
    """What readings come from. read: raises psycopg.Error, or hangs. notes: what is hidden."""

    notes: dict[str, None]

    def read(self) -> Reading:
        """One reading."""


class Sensor:
    """Reads until it is closed."""

    def __init__(self, reader: Reads) -> None:
        self._reader = reader
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._readings: list[Reading] = []
        self._start_s = 0.0
        self._thread: threading.Thread | None = None
        self._silent: str | None = None

    def begin(self, start_s: float) -> None:
        """Reads at every full second from now on, in a thread that ends with the program.

        start_s: when the measured part begins, by time.monotonic().
        """
        self._start_s = start_s
        self._thread = threading.Thread(target=self._go_on, name="pgpaces-sensor", daemon=True)
        self._thread.start()

    def _go_on(self) -> None:
        while True:
            self._look()
            ahead_s = PERIOD_S - (time.monotonic() - self._start_s) % PERIOD_S
            if self._ended.wait(ahead_s):
                return

    def _look(self) -> None:
        import psycopg

        try:
            reading = self._reader.read()
        except psycopg.Error as error:
            with self._lock:
                self._silent = self._silent or str(error).strip().splitlines()[0]
            return
        with self._lock:
            self._readings.append(reading)

    def samples(self) -> tuple[Sample, ...]:
        """What was read, by second; those of the warm-up are below 0."""
        with self._lock:
            return samples(self._readings, self._start_s)

    def findings(self) -> list[Finding]:
        """How warm the server's cache was, before and while it counted, where that was read."""
        with self._lock:
            found = blocks(self._readings, self._start_s)
        return [each for each in (cache.warmed(found), cache.finding(found)) if each is not None]

    def notes(self) -> list[str]:
        """What a trial says of it: what the role may not read, and why there are gaps."""
        with self._lock:
            gaps = (
                [] if self._silent is None else [f"sensor: the server was silent: {self._silent}"]
            )
            return [*self._reader.notes, *gaps]

    def close(self) -> bool:
        """Reads no more; false if the last reading hangs."""
        self._ended.set()
        if self._thread is None:
            return True
        self._thread.join(_PATIENCE_S)
        return not self._thread.is_alive()


@contextlib.contextmanager
def sensing(keywords: Mapping[str, str], dbname: str) -> Iterator[Sensor]:
    """A sensor of the server and one of its databases, not begun yet. keywords: libpq's.

    It raises nothing: what cannot be read is in its notes.
    """
    reader = Reader(keywords, dbname)
    made = Sensor(reader)
    try:
        yield made
    finally:
        # A session that is being waited for goes with the program.
        if made.close():
            reader.close()


def _pairs(readings: list[Reading], start_s: float) -> Iterator[tuple[int, Reading, Reading]]:
    """Readings one after the other, with the second that the later one ends.

    A reading belongs to the full second that is nearest; of two in one the later is left out.
    """
    before: Reading | None = None
    seen: int | None = None
    for reading in readings:
        second = round((reading.at_s - start_s) / PERIOD_S) - 1
        if seen is not None and second <= seen:
            continue
        if before is not None:
            yield second, before, reading
        before, seen = reading, second


def _difference(counter: Counter, before: Reading, after: Reading) -> int | None:
    """None where it is not known: one is missing, or the counter began anew."""
    low, high = before.values.get(counter), after.values.get(counter)
    return None if low is None or high is None or high < low else high - low


def samples(readings: list[Reading], start_s: float) -> tuple[Sample, ...]:
    """What readings say of seconds. Behind a gap a rate is the mean since the reading before it."""
    found = []
    for second, before, after in _pairs(readings, start_s):
        seconds = after.at_s - before.at_s
        for counter in after.values:
            difference = _difference(counter, before, after)
            if difference is None or counter.name == "blocks_hit":
                continue
            value = difference / seconds if counter.unit.endswith("/s") else float(difference)
            found.append(Sample(second, counter.source, counter.name, value, counter.unit))
    ratios = ((b.second, cache.ratio([b])) for b in blocks(readings, start_s))
    found += [Sample(s, "database", "cache_hit_ratio", r, "%") for s, r in ratios if r is not None]
    return tuple(sorted(found, key=lambda sample: sample.second))


def blocks(readings: list[Reading], start_s: float) -> list[cache.Blocks]:
    """Blocks of each second, where both counters are known."""
    hit, read = PARTS[0].counters[:2]
    found = []
    for second, before, after in _pairs(readings, start_s):
        hits, reads = _difference(hit, before, after), _difference(read, before, after)
        if hits is not None and reads is not None:
            found.append(cache.Blocks(second, hits, reads))
    return found
