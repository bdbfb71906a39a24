"""Counters of a server: the catalog, counters.toml, and the differences of readings. Pure.

A difference belongs to the second at whose end it was read. A missing reading is a gap, never a
zero. Knows no connection.
"""

from __future__ import annotations

import tomllib
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from pgpaces.analysis.server_counters import Blocks, ratio
from pgpaces.core.series import Sample, Seconds
from pgpaces.spec.result import Moved

PERIOD_S = 1.0
_CATALOG = Path(__file__).with_name("counters.toml")


class Counter(Struct, frozen=True):
    """A counter of the server, and its differences.

    unit: if it ends with "/s", differences are divided by their duration. scale: a factor for
    numbers that are read in smaller units. gauge: a current value, without differences.
    """

    source: str
    name: str
    unit: str = ""
    scale: float = 1.0
    gauge: bool = False


class CounterGroup(Struct, frozen=True):
    """Counters of one view. queries: by the version from which each applies."""

    counters: tuple[Counter, ...]
    queries: Mapping[int, str]
    setting: str = ""

    def query(self, version: int, settings: Mapping[str, str]) -> str:
        """The query for an array of integers, in one row or none; empty if there is none."""
        since = max((each for each in self.queries if each <= version), default=None)
        off = self.setting and settings.get(self.setting) != "on"
        if since is None or off or not self.queries[since]:
            return ""
        values = (
            f"({each.name} * {1 / each.scale:.0f})::numeric::bigint" for each in self.counters
        )
        return f"SELECT ARRAY[{', '.join(values)}] FROM ({self.queries[since]}) counted"


def _groups() -> Iterator[CounterGroup]:
    for group in tomllib.loads(_CATALOG.read_text("utf-8"))["groups"]:
        counters = (
            # Times that the server has in ms are read in us.
            Counter(group["source"], name, unit, 0.001 if unit == "ms/s" else 1.0)
            if unit != "gauge"
            else Counter(group["source"], name, gauge=True)
            for name, unit in group["counters"].items()
        )
        queries = {int(since): query for since, query in group["queries"].items()}
        yield CounterGroup(tuple(counters), queries, group.get("setting", ""))


GROUPS = tuple(_groups())


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
        hits, reads = (_difference(each, before, reading) for each in GROUPS[0].counters[:2])
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
