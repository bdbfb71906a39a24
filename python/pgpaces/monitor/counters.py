"""Counters of a server: the views of each version that have them, and their differences. Pure.

A difference belongs to the second at whose end it was read. A missing reading is a gap, never a
zero. Knows no connection.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping

from msgspec import Struct

from pgpaces.analysis.server_counters import Blocks, ratio
from pgpaces.core.series import Sample, Seconds
from pgpaces.spec.result import Moved

PERIOD_S = 1.0
_LATEST = 1_000_000


class Counter(Struct, frozen=True):
    """A counter of the server: its SQL, and the name of its differences.

    unit: if it ends with "/s", differences are divided by their duration. scale: a factor for
    numbers that are read in smaller units. gauge: a current value, without differences.
    """

    source: str
    name: str
    sql: str
    unit: str = ""
    scale: float = 1.0
    gauge: bool = False


class CounterGroup(Struct, frozen=True):
    """Counters of one view in versions from `since` to below `until`.

    setting: must be on, otherwise the view has zeros.
    """

    view: str
    counters: tuple[Counter, ...]
    since: int = 0
    until: int = _LATEST
    setting: str = ""

    def fits(self, version: int, settings: Mapping[str, str]) -> bool:
        on = not self.setting or settings.get(self.setting) == "on"
        return on and self.since <= version < self.until

    @property
    def query(self) -> str:
        """The query for an array of integers, in one row or none."""
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
    """I/O on data files by one kind of process. sizes: a version's expression for bytes."""
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
# On a standby: the replayed position.
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
    # By its position, not by pg_stat_wal, which gets the WAL of a session only at the end of its
    # transaction, and which old servers lack.
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
    # Before 18, num_timed also counts due checkpoints that were skipped.
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
    """The counters at a time of the monotonic clock; None: unknown at that time.

    rows: of standbys, of slots, and of a standby itself; see replication.py.
    """

    at_s: float
    values: Mapping[Counter, int | None]
    rows: tuple[str, ...] = ()


def second_of(at_s: float, start_s: float) -> int:
    """The second of a trial whose end is nearest to a time."""
    return round((at_s - start_s) / PERIOD_S) - 1


def _difference(counter: Counter, before: CounterReading, after: CounterReading) -> float | None:
    """None if one reading is missing or the counter was reset."""
    low, high = before.values.get(counter), after.values.get(counter)
    if high is not None and counter.gauge:
        return float(high)
    return None if low is None or high is None or high < low else (high - low) * counter.scale


class _Total(Struct):
    """The increase of a counter. fell: it was reset, so the increase is unknown."""

    first: int | None = None
    last: int | None = None
    count: int = 0
    fell: bool = False

    def add(self, value: int) -> None:
        self.first = value if self.first is None else self.first
        self.fell = self.fell or (self.last is not None and value < self.last)
        self.last, self.count = value, self.count + 1


class Differences:
    """Differences of successive readings. It keeps the last reading and sums, not the readings.

    seconds: the time of each reading. start_s: the beginning of second 0, by the monotonic clock.
    """

    def __init__(self, start_s: float) -> None:
        self._start_s = start_s
        self.seconds = Seconds()
        self._second: int | None = None
        self._before: CounterReading | None = None
        self._changed: set[tuple[str, str]] = set()
        self._zeros: dict[tuple[str, str], Seconds] = {}
        self._blocks = array("q")
        self._totals: dict[Counter, _Total] | None = None

    def add(self, reading: CounterReading) -> Iterator[Sample]:
        """The samples of its second. After a gap, a rate is the mean since the reading before it.

        Of two readings in one second, the later only counts for `moved`. A counter without changes
        has no samples, as `moved` has its zero; at its first change, earlier zeros are samples too.
        """
        second = second_of(reading.at_s, self._start_s)
        self._sum(second, reading)
        if self._second is not None and second <= self._second:
            return
        self.seconds.add(second)
        before, self._before, self._second = self._before, reading, second
        if before is None:
            return
        for counter in reading.values:
            difference = _difference(counter, before, reading)
            if difference is None or counter.name == "blocks_hit":
                continue
            seconds = reading.at_s - before.at_s if counter.unit.endswith("/s") else 1.0
            key = counter.source, counter.name
            if not difference and key not in self._changed:
                self._zeros.setdefault(key, Seconds()).add(second)
                continue
            self._changed.add(key)
            for earlier in self._zeros.pop(key, ()):
                yield Sample(earlier, *key, 0.0, counter.unit)
            value = float(f"{difference / seconds:.7g}")
            yield Sample(second, *key, value, counter.unit)
        hits, reads = (_difference(each, before, reading) for each in PARTS[0].counters[:2])
        if hits is not None and reads is not None:
            self._blocks.extend((second, int(hits), int(reads)))
            share = ratio([Blocks(second, int(hits), int(reads))])
            if share is not None:
                yield Sample(second, "database", "cache_hit_ratio", share, "%")

    def _sum(self, second: int, reading: CounterReading) -> None:
        if second < 0 or self._totals is None:
            self._totals = {each: _Total() for each in reading.values if not each.gauge}
        for counter, total in self._totals.items():
            if (value := reading.values.get(counter)) is not None:
                total.add(value)

    def moved(self) -> tuple[Moved, ...]:
        """The increase of each counter since the last reading before second 0, else the first.

        Omits counters that were reset, whose increase is unknown.
        """
        return tuple(
            Moved(
                counter.source,
                counter.name,
                (total.last - total.first) * counter.scale,
                counter.unit.removesuffix("/s").removesuffix("1"),
            )
            for counter, total in (self._totals or {}).items()
            if total.first is not None and total.last is not None
            if total.count >= 2 and not total.fell
        )

    def blocks(self) -> list[Blocks]:
        each = iter(self._blocks)
        return [Blocks(*numbers) for numbers in zip(each, each, each, strict=True)]
