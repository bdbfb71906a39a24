"""Counters of a server: which view of which version has them, and what two readings say. Pure.

Differences of a second belong to the second that they end. A reading that is missing is a gap,
never a zero. Knows no connection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from pgpaces.answers import cache
from pgpaces.result import Moved, Sample

PERIOD_S = 1.0
_LATEST = 1_000_000


class Counter(Struct, frozen=True):
    """A counter of the server: the SQL that gives it, and what its differences are called.

    unit: with "/s" at its end the difference is divided by the time that it took. scale: what the
    number is multiplied by, where the server's is read in smaller parts. gauge: it is a number as
    it is, not a counter.
    """

    source: str
    name: str
    sql: str
    unit: str = ""
    scale: float = 1.0
    gauge: bool = False


class CounterGroup(Struct, frozen=True):
    """Counters that one view gives to one kind of server. versions: from, and below.

    setting: one that must be on, else the view has zeros.
    """

    view: str
    counters: tuple[Counter, ...]
    since: int = 0
    until: int = _LATEST
    setting: str = ""

    def fits(self, version: int, settings: Mapping[str, str]) -> bool:
        """Whether a server of this version, with these settings, has it."""
        on = not self.setting or settings.get(self.setting) == "on"
        return on and self.since <= version < self.until

    @property
    def query(self) -> str:
        """What gives an array of whole numbers, in one row or none."""
        values = ", ".join(f"({counter.sql})::numeric::bigint" for counter in self.counters)
        return f"SELECT ARRAY[{values}] FROM {self.view}"


def _each(source: str, unit: str, **columns: str) -> tuple[Counter, ...]:
    return tuple(Counter(source, name, sql, unit) for name, sql in columns.items())


def _times(source: str, **columns: str) -> tuple[Counter, ...]:
    """Times that the server has in ms, read in us."""
    return tuple(
        Counter(source, name, f"({sql}) * 1000", "ms/s", 0.001) for name, sql in columns.items()
    )


# Parallel workers do the work of clients.
_KINDS = {
    "client": "'client backend', 'background worker'",
    "background_writer": "'background writer'",
    "checkpointer": "'checkpointer'",
    "autovacuum": "'autovacuum worker', 'autovacuum launcher'",
}
_NO_READS = ("background_writer", "checkpointer")


def _io(kind: str, sizes: str, of: str) -> Iterator[Counter]:
    """What one kind of process does with files of data. sizes: how a version has its bytes."""
    where = f"FILTER (WHERE backend_type IN ({_KINDS[kind]}){of})"

    def total(what: str) -> str:
        return f"coalesce(sum({what}) {where}, 0)"

    columns = {"read": "read", "write": "written", "extend": "extended"}
    for column, name in columns.items():
        if kind in _NO_READS and column != "write":
            continue
        size = sizes.format(column=column)
        yield Counter("io", f"{kind}_{name}", total(size), "B/s")
    yield Counter("io", f"{kind}_fsyncs", total("fsyncs"), "1/s")


def _all_io(sizes: str, of: str) -> tuple[Counter, ...]:
    return tuple(counter for kind in _KINDS for counter in _io(kind, sizes, of))


_DATABASE = "pg_catalog.pg_stat_database WHERE datname = pg_catalog.current_database()"
_IO = "pg_catalog.pg_stat_io"
_CHECKPOINTER = "pg_catalog.pg_stat_checkpointer"
# Of a standby: how far it has replayed.
WAL_POSITION = Counter("wal", "written", "position", "B/s")
PARTS = (
    CounterGroup(
        _DATABASE,
        (
            Counter("database", "blocks_hit", "blks_hit", "blocks/s"),
            Counter("database", "blocks_read", "blks_read", "blocks/s"),
            Counter("database", "temp_written", "temp_bytes", "B/s"),
            Counter("database", "temp_files", "temp_files", "1/s"),
            Counter("database", "deadlocks", "deadlocks"),
            *_each("transactions", "1/s", commits="xact_commit", rollbacks="xact_rollback"),
            Counter("sessions", "connected", "numbackends", gauge=True),
            *_each(
                "tuples",
                "1/s",
                returned="tup_returned",
                fetched="tup_fetched",
                inserted="tup_inserted",
                updated="tup_updated",
                deleted="tup_deleted",
            ),
        ),
    ),
    CounterGroup(
        _DATABASE,
        _times("database", read_time="blk_read_time", write_time="blk_write_time"),
        setting="track_io_timing",
    ),
    CounterGroup(
        _DATABASE,
        _each(
            "sessions",
            "1/s",
            opened="sessions",
            abandoned="sessions_abandoned",
            fatal="sessions_fatal",
            killed="sessions_killed",
        ),
        since=140_000,
    ),
    CounterGroup(
        _DATABASE,
        _each(
            "workers", "1/s", planned="parallel_workers_to_launch",
            launched="parallel_workers_launched",
        ),
        since=180_000,
    ),
    CounterGroup(
        "pg_catalog.pg_stat_database_conflicts WHERE datname = pg_catalog.current_database()",
        _each(
            "conflicts", "", lock="confl_lock", snapshot="confl_snapshot", pin="confl_bufferpin",
            deadlock="confl_deadlock",
        ),
    ),
    # By its position, not by pg_stat_wal: that one hears of what a session wrote only when it ends
    # a transaction, and some servers have none.
    CounterGroup(
        "(SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()"
        " ELSE pg_catalog.pg_current_wal_insert_lsn() END - '0/0'::pg_lsn AS position) wal",
        (WAL_POSITION,),
    ),
    CounterGroup(
        "pg_catalog.pg_stat_wal",
        (
            *_each("wal", "1/s", records="wal_records", full_page_images="wal_fpi"),
            *_each("wal", "B/s", generated="wal_bytes"),
            *_each("wal", "1/s", buffers_full="wal_buffers_full"),
        ),
        since=140_000,
    ),
    CounterGroup(
        "pg_catalog.pg_stat_wal",
        _each("wal", "1/s", writes="wal_write", syncs="wal_sync"),
        since=140_000,
        until=180_000,
    ),
    CounterGroup(
        f"{_IO} WHERE object = 'wal'",
        _each(
            "wal", "1/s", writes="coalesce(sum(writes), 0)", syncs="coalesce(sum(fsyncs), 0)"
        ),
        since=180_000,
    ),
    CounterGroup(_IO, _all_io("{column}s * op_bytes", ""), since=160_000, until=180_000),
    CounterGroup(_IO, _all_io("{column}_bytes", " AND object <> 'wal'"), since=180_000),
    CounterGroup(
        "pg_catalog.pg_stat_bgwriter",
        (
            Counter("checkpoints", "checkpoints", "checkpoints_timed + checkpoints_req"),
            Counter("checkpoints", "requested", "checkpoints_req"),
            Counter("checkpoints", "written", "buffers_checkpoint", "blocks/s"),
            Counter("background_writer", "written", "buffers_clean", "blocks/s"),
            Counter("background_writer", "stopped_early", "maxwritten_clean"),
            Counter("background_writer", "written_by_backends", "buffers_backend", "blocks/s"),
        ),
        until=170_000,
    ),
    CounterGroup(
        "pg_catalog.pg_stat_bgwriter",
        (
            Counter("background_writer", "written", "buffers_clean", "blocks/s"),
            Counter("background_writer", "stopped_early", "maxwritten_clean"),
        ),
        since=170_000,
    ),
    CounterGroup(
        _CHECKPOINTER,
        (
            Counter("checkpoints", "checkpoints", "num_timed + num_requested"),
            Counter("checkpoints", "requested", "num_requested"),
            Counter("checkpoints", "written", "buffers_written", "blocks/s"),
        ),
        since=170_000,
        until=180_000,
    ),
    # Those before count also what was due and had nothing to do.
    CounterGroup(
        _CHECKPOINTER,
        (
            Counter("checkpoints", "checkpoints", "num_done"),
            Counter("checkpoints", "requested", "num_requested"),
            Counter("checkpoints", "written", "buffers_written", "blocks/s"),
        ),
        since=180_000,
    ),
    CounterGroup(
        _CHECKPOINTER,
        _times("checkpoints", write_time="write_time", sync_time="sync_time"),
        since=170_000,
    ),
    CounterGroup(
        "pg_catalog.pg_stat_bgwriter",
        _times("checkpoints", write_time="checkpoint_write_time", sync_time="checkpoint_sync_time"),
        until=170_000,
    ),
)  # fmt: skip


class CounterReading(Struct, frozen=True):
    """What the counters were at a time of the monotonic clock; None: not known then.

    rows: what was read of standbys, slots and a standby itself; see replication.py.
    """

    at_s: float
    values: Mapping[Counter, int | None]
    rows: tuple[str, ...] = ()


def second_of(at_s: float, start_s: float) -> int:
    """The full second of a trial that is nearest to a moment, as the second that it ends."""
    return round((at_s - start_s) / PERIOD_S) - 1


def _pairs(
    readings: Sequence[CounterReading], start_s: float
) -> Iterator[tuple[int, CounterReading, CounterReading]]:
    """Readings one after the other, with the second that the later one ends.

    Of two in one second the later is left out.
    """
    before: CounterReading | None = None
    seen: int | None = None
    for reading in readings:
        second = second_of(reading.at_s, start_s)
        if seen is not None and second <= seen:
            continue
        if before is not None:
            yield second, before, reading
        before, seen = reading, second


def _difference(counter: Counter, before: CounterReading, after: CounterReading) -> float | None:
    """None where it is not known: one is missing, or the counter began anew."""
    low, high = before.values.get(counter), after.values.get(counter)
    if high is not None and counter.gauge:
        return float(high)
    return None if low is None or high is None or high < low else (high - low) * counter.scale


def samples(readings: Sequence[CounterReading], start_s: float) -> tuple[Sample, ...]:
    """What readings say of seconds. Behind a gap a rate is the mean since the reading before it.

    A counter that never moved has no samples: `moved` says that it stayed.
    """
    found, moving = [], set()
    for second, before, after in _pairs(readings, start_s):
        seconds = after.at_s - before.at_s
        for counter in after.values:
            difference = _difference(counter, before, after)
            if difference is None or counter.name == "blocks_hit":
                continue
            if difference:
                moving.add((counter.source, counter.name))
            value = difference / seconds if counter.unit.endswith("/s") else difference
            found.append(
                Sample(second, counter.source, counter.name, float(f"{value:.7g}"), counter.unit)
            )
    found = [sample for sample in found if (sample.source, sample.name) in moving]
    ratios = ((b.second, cache.ratio([b])) for b in blocks(readings, start_s))
    found += [Sample(s, "database", "cache_hit_ratio", r, "%") for s, r in ratios if r is not None]
    return tuple(sorted(found, key=lambda sample: sample.second))


def moved(readings: Sequence[CounterReading], start_s: float) -> tuple[Moved, ...]:
    """How far each counter went since the last reading before second 0, else since the first.

    What began anew in between is left out: how far it went is not known.
    """
    if len(readings) < 2:
        return ()
    before = [r for r in readings if second_of(r.at_s, start_s) < 0]
    first = before[-1] if before else readings[0]
    since = [reading for reading in readings if reading.at_s >= first.at_s]
    found = []
    for counter in first.values:
        known = [value for r in since if (value := r.values.get(counter)) is not None]
        if counter.gauge or len(known) < 2 or known != sorted(known):
            continue
        unit = counter.unit.removesuffix("/s").removesuffix("1")
        way = (known[-1] - known[0]) * counter.scale
        found.append(Moved(counter.source, counter.name, way, unit))
    return tuple(found)


def blocks(readings: Sequence[CounterReading], start_s: float) -> list[cache.Blocks]:
    """Blocks of each second, where both counters are known."""
    hit, read = PARTS[0].counters[:2]
    found = []
    for second, before, after in _pairs(readings, start_s):
        hits, reads = _difference(hit, before, after), _difference(read, before, after)
        if hits is not None and reads is not None:
            found.append(cache.Blocks(second, int(hits), int(reads)))
    return found
