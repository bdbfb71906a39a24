"""Looks at a server while somebody else loads it: counters, wait events, standbys, sizes.

Two sessions of our own, each with a thread of its own: one reads once a second all that is counted,
and sizes and statements before and replay_lags the load; the other looks ten times a second at what
sessions wait for. A server that hangs or dies delays nobody but these threads. A reading that is
missing is a gap, never a zero. Knows nothing of what the load is. Of several servers of one trial
each has a sensor of its own, with the name of its node.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.answers import cache
from pgpaces.answers import replication as standbys
from pgpaces.observe import counters, replication
from pgpaces.observe.counters import (
    PARTS,
    PERIOD_S,
    Counter,
    CounterGroup,
    CounterReading,
    second_of,
)
from pgpaces.observe.session import MARK, SessionSnapshot
from pgpaces.observe.snapshots import Snapshots
from pgpaces.observe.thread import Thread, nothing
from pgpaces.observe.waits import OfServer, Sampler
from pgpaces.result import Finding, Observed, Sample

if TYPE_CHECKING:
    from pgpaces.observe.session import Session

_READS_ALL = "SELECT pg_catalog.pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')"
_ROLES_SINCE = 100_000
# A server that leaves two sessions without an answer for so long is silent.
_SILENT_S = 1.0


class CounterReader:
    """What reads the counters. notes: what it may not read, and why. more: what would show more."""

    def __init__(self, keywords: Mapping[str, str], dbname: str) -> None:
        self.snapshot = SessionSnapshot(keywords, dbname)
        self._of: Session | None = None
        self._parts: list[CounterGroup] = []
        self._rows: list[str] = []
        self._query = ""
        self.notes: dict[str, None] = {}
        self.more: dict[str, None] = {}

    def read(self) -> CounterReading:
        """The counters as they are, in one answer. Raises psycopg.Error."""
        self._ready()
        row = self.snapshot.rows(self._query)[0]
        at_s = time.monotonic()
        self.snapshot.cost.look()
        values: dict[Counter, int | None] = {}
        for part, found in zip(self._parts, row, strict=False):
            # Without a row there is nothing known of any of them.
            numbers = found or [None] * len(part.counters)
            values.update(zip(part.counters, numbers, strict=True))
        return CounterReading(at_s, values, tuple(row[len(self._parts) :]))

    def _ready(self) -> None:
        """A session, and which parts the server has and the role may read."""
        session = self.snapshot.session()
        if session is self._of:
            return
        self._of = None
        version = session.info.server_version
        settings = {"track_io_timing": _setting(session, "track_io_timing")}
        if settings["track_io_timing"] == "off":
            self.more["track_io_timing = on (times of reading and writing)"] = None
        if version >= _ROLES_SINCE and session.execute(_READS_ALL.encode()).fetchone() == (False,):
            self.more["GRANT pg_read_all_stats TO its role (what other roles do)"] = None
        fitting = [part for part in PARTS if part.fits(version, settings)]
        self._parts = [p for p in fitting if self._may(session, p.query, p.counters[0].source)]
        queries = (replication.STANDBYS, replication.SLOTS_QUERY, replication.STANDBY)
        able = [
            version >= replication.SINCE and self._may(session, query, standbys.SOURCE)
            for query in queries
        ]
        none = "(SELECT '[]'::text)"
        self._rows = [
            replication.column(query) if there else none
            for query, there in zip(queries, able, strict=True)
        ]
        # Each by itself: a join of so many would take long to plan.
        values = [f"({part.query})" for part in self._parts]
        self._query = f"SELECT {MARK} {', '.join([*values, *self._rows])}"
        self._of = session

    def close(self) -> None:
        """Ends the session."""
        self.snapshot.close()

    def _may(self, session: Session, query: str, source: str) -> bool:
        import psycopg

        try:
            session.execute(query.encode())
        except psycopg.errors.DatabaseError as error:
            if error.sqlstate is None:  # the session is gone
                raise
            self.notes[f"sensor: no {source}: {error.diag.message_primary}"] = None
            return False
        return True


def _setting(session: Session, name: str) -> str:
    row = session.execute("SELECT pg_catalog.current_setting(%s, true)", [name]).fetchone()
    return str(row[0]) if row else ""


class Reads(Protocol):
    """What readings come from. read: raises psycopg.Error, or hangs. notes: what is hidden."""

    notes: dict[str, None]

    def read(self) -> CounterReading:
        """One reading."""


class Others(Struct, frozen=True):
    """What is looked at beside counters. more: what would show more. sessions: that cost."""

    waits: Sampler
    snapshots: Snapshots
    more: Mapping[str, None]
    sessions: tuple[SessionSnapshot, ...]


class Cost(Struct, frozen=True):
    """CPU time of our threads, and of the server's processes that served them, as % of one core.

    server: None where it is not seen.
    """

    here: float
    server: float | None


class Sensor:
    """Reads until it is closed. node: of several servers of a trial; "" of the only one.

    primary: the sensor of the server that this one is a standby of.
    """

    def __init__(
        self,
        reader: Reads,
        others: Others | None = None,
        node: str = "",
        primary: Sensor | None = None,
    ) -> None:
        self._reader, self._others, self._node, self._primary = reader, others, node, primary
        self._waits = others.waits if others else None
        self._lock = threading.Lock()
        self._readings: list[CounterReading] = []
        self._start_s = self._began_s = self._ended_s = time.monotonic()
        self._counting = Thread("pgpaces-sensor", self._read, lambda: PERIOD_S)
        self._waiting = Thread("pgpaces-waits", self._look, self._waits_period_s)

    def begin(self, start_s: float) -> None:
        """Reads at every full second from now on, in threads that end with the program.

        start_s: when the measured part begins, by time.monotonic().
        """
        self._start_s, self._began_s = start_s, time.monotonic()
        if self._others is None:
            self._counting.begin(start_s, nothing, nothing)
        else:
            self._counting.begin(
                start_s, self._others.snapshots.before, self._others.snapshots.after
            )
            self._waiting.begin(start_s, nothing, nothing)

    def _read(self) -> None:
        reading = self._reader.read()
        with self._lock:
            self._readings.append(reading)

    def _waits_period_s(self) -> float:
        return self._waits.period_s if self._waits else PERIOD_S

    def _look(self) -> None:
        if self._waits is not None:
            self._waits.look(self._start_s, self._lock)

    def samples(self) -> tuple[Sample, ...]:
        """What was read, by second; those of the warm-up are below 0."""
        with self._lock:
            found = [*counters.samples(self._readings, self._start_s), *self._standbys()]
            found += self._waits.samples() if self._waits else []
        if self._primary is not None:
            found += standbys.replay_lags(self._primary.positions(), self.positions())
        prefix = f"{self._node}/" if self._node else ""
        found = [replace(sample, source=f"{prefix}{sample.source}") for sample in found]
        return tuple(sorted(found, key=lambda sample: sample.second))

    def _standbys(self) -> Iterator[Sample]:
        seen: set[int] = set()
        for reading in self._readings:
            second = second_of(reading.at_s, self._start_s)
            if second not in seen and len(reading.rows) == 3:
                seen.add(second)
                parts = [replication.rows(text) for text in reading.rows]
                yield from replication.samples(second, *parts)

    def positions(self) -> dict[int, int]:
        """Where the server was in its WAL at the end of each second: written, or replayed."""
        found: dict[int, int] = {}
        with self._lock:
            for reading in self._readings:
                value = reading.values.get(counters.WAL_POSITION)
                if value is not None:
                    found.setdefault(second_of(reading.at_s, self._start_s), value)
        return found

    def findings(self) -> list[Finding]:
        """How warm the server's cache was, before and while it counted, and how standbys did."""
        with self._lock:
            blocks = counters.blocks(self._readings, self._start_s)
            looked = [second_of(reading.at_s, self._start_s) for reading in self._readings]
        found = [cache.warmed(blocks), cache.finding(blocks)]
        said = [finding for finding in found if finding is not None]
        said += standbys.findings(self.samples(), looked)
        if not self._node:
            return said
        # Of a standby what weighs something; its figures are in the samples.
        weighty = (one for one in said if one.severity != "info")
        return [replace(one, text=f"{self._node}: {one.text}") for one in weighty]

    def observed(self) -> Observed:
        """What was seen that is no sample."""
        with self._lock:
            moved = counters.moved(self._readings, self._start_s)
            found = Observed(self._node, moved)
            if self._waits:
                found = replace(found, waits=self._waits.waits(), blocked=self._waits.blocked())
        if self._others:
            snapshots = self._others.snapshots
            found = replace(found, grown=snapshots.grown, executed=snapshots.executed)
        return found

    def notes(self) -> list[str]:
        """What a trial says of it: what is hidden, why there are gaps, and what looking took."""
        silent = self._counting.silent or self._waiting.silent
        found = [*self._reader.notes]
        found += [] if silent is None else [f"sensor: the server was silent: {silent}"]
        slowed = self._waits.slowed if self._waits else None
        found += [] if slowed is None else [slowed]
        if self._others:
            # What more the role of a standby would show, that of its primary says.
            found += [] if self._node else _more(self._others.more)
            found += _told(self.cost())
        of = f"sensor of {self._node}" if self._node else "sensor"
        return [note.replace("sensor", of, 1) for note in found]

    def cost(self) -> Cost | None:
        """What looking took; None before it is closed, or where nothing was read."""
        took_s = self._ended_s - self._began_s
        if not self._readings or took_s <= 0:
            return None
        sessions = self._others.sessions if self._others else ()
        there = [each.cost.cpu_s for each in sessions]
        known = [cpu_s for cpu_s in there if cpu_s is not None]
        server = 100 * sum(known) / took_s if len(known) == len(there) else None
        return Cost(100 * (self._counting.cpu_s + self._waiting.cpu_s) / took_s, server)

    def silent_s(self) -> float:
        """For how long the server has not answered; 0 where it does. Takes a second at most."""
        threads = [self._counting, *([self._waiting] if self._others else [])]
        while 0 < (hangs_s := min(each.hangs_s() for each in threads)) < _SILENT_S:
            time.sleep(_SILENT_S / 20)
        return hangs_s

    def close(self) -> bool:
        """Reads no more; false if the last reading hangs."""
        self._waiting.stop()
        ended = self._counting.close()
        ended = self._waiting.close() and ended
        self._ended_s = time.monotonic()
        for each in self._others.sessions if self._others else ():
            each.cost.look()
        return ended


def _more(more: Mapping[str, None]) -> Iterator[str]:
    """One note for all that more rights, settings and extensions would show."""
    if more:
        yield f"sensor: more would be seen with {'; '.join(more)}"


def _told(cost: Cost | None) -> Iterator[str]:
    if cost is not None:
        server = "not seen" if cost.server is None else f"{cost.server:.1f} %"
        yield (
            f"sensor: looking at the server took {cost.here:.1f} % of one core here,"
            f" {server} on the server"
        )


@contextlib.contextmanager
def sensing(
    keywords: Mapping[str, str],
    dbname: str,
    node: str = "",
    application: str = "pgpaces",
    primary: Sensor | None = None,
) -> Iterator[Sensor]:
    """A sensor of the server and one of its databases, not begun yet. keywords: libpq's.

    application: the load's application_name. primary: of a standby, the sensor of its primary,
    which begins and ends with it. It raises nothing: what cannot be read is in its notes.
    """
    reader, waits = CounterReader(keywords, dbname), SessionSnapshot(keywords, dbname)
    made = Sensor(
        reader,
        Others(
            Sampler(OfServer(waits, application)),
            Snapshots(reader.snapshot, reader.notes, reader.more),
            reader.more,
            (reader.snapshot, waits),
        ),
        node,
        primary,
    )
    try:
        yield made
    finally:
        # A session that is being waited for goes with the program.
        if made.close():
            reader.close()
            waits.close()
