"""Readings become samples: differences in the second that they end, gaps that stay gaps."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgpaces.analysis.server_counters import Blocks, cache_findings
from pgpaces.core.findings import Notes, finding
from pgpaces.core.series import Sample
from pgpaces.monitor.counters import GROUPS, Counter, CounterReading, Differences
from pgpaces.monitor.server import CounterReader, ServerMonitor
from pgpaces.monitor.session import reported

HIT, READ = GROUPS[0].counters[:2]
DEADLOCKS = Counter("database", "deadlocks", "deadlocks")
START = 100.0


def readings(*found: tuple[float, int | None], counter: Counter = READ) -> list[CounterReading]:
    return [CounterReading(START + at, {counter: value}) for at, value in found]


def samples(found: list[CounterReading]) -> list[Sample]:
    counts = Differences(START)
    return [sample for reading in found for sample in counts.add(reading)]


def blocks(found: list[CounterReading]) -> list[Blocks]:
    counts = Differences(START)
    for reading in found:
        list(counts.add(reading))
    return counts.blocks()


def values(found: list[CounterReading]) -> dict[int, float]:
    return {s.second: s.value for s in samples(found) if s.name != "cache_hit_ratio"}


# Readings, and the differences by the second that they end in.
DIFFERENCES: dict[str, tuple[list[CounterReading], dict[int, float]]] = {
    "plain": (
        readings((0.01, 5), (1.02, 7), (2.0, 7), (2.98, 10)), {0: 2 / 1.01, 1: 0, 2: 3 / 0.98}
    ),
    "of the warm-up": (readings((-2, 0), (-1, 1), (0, 2), (1, 3)), {-2: 1, -1: 1, 0: 1}),
    "behind a gap, the mean since": (readings((0, 0), (1, 1), (5, 9)), {0: 1, 4: 2}),
    "events behind a gap, once": (
        readings((0, 0), (1, 1), (5, 4), counter=DEADLOCKS), {0: 1, 4: 3}
    ),
    "it began anew": (readings((0, 90), (1, 3), (2, 5)), {1: 2}),
    "hidden": (readings((0, None), (1, None), (2, 5)), {}),
    "two in one second": (
        readings((0, 0), (0.9, 1), (1.1, 7), (2, 3)), {0: 1 / 0.9, 1: 2 / 1.1}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENCES)
def test_a_difference_belongs_to_the_second_that_it_ends(name):
    found, expected = DIFFERENCES[name]
    assert values(found) == pytest.approx(expected)


def test_the_hit_ratio_is_of_the_blocks_of_its_second():
    found = [CounterReading(START + n, {HIT: 90 * n, READ: 10 * n}) for n in range(3)]
    found.append(CounterReading(START + 3, {HIT: 180, READ: 20}))
    ratios = {s.second: s.value for s in samples(found) if s.name == "cache_hit_ratio"}
    assert ratios == {0: 90.0, 1: 90.0}, "where no block was asked for there is no ratio"


@given(st.lists(st.tuples(st.floats(0.6, 1.4), st.integers(0, 9)), max_size=40))
def test_no_block_is_lost_or_counted_twice(steps):
    at_s, total, found = 0.0, 0, [CounterReading(START, {HIT: 0, READ: 0})]
    for step, more in steps:
        at_s, total = at_s + step, total + more
        found.append(CounterReading(START + at_s, {HIT: total, READ: 0}))
    seen = blocks(found)
    assert len({b.second for b in seen}) == len(seen)
    last = max((b.second for b in seen), default=0) + 1.5
    assert sum(b.hit for b in seen) == max(
        (r.values[HIT] for r in found if r.at_s - START <= last and kept(found, r)), default=0
    )


def kept(found: list[CounterReading], reading: CounterReading) -> bool:
    """Whether it is the first of its second."""
    second = round(reading.at_s - START)
    return next(r for r in found if round(r.at_s - START) >= second) is reading


def test_a_cache_that_still_warms_is_a_warning():
    warming = [Blocks(s, 80 + s, 20 - s) for s in range(20)]
    _, found = cache_findings([Blocks(-1, 0, 9999), *warming])
    assert found.name == "cache-warming"
    assert found.values["percent"] == pytest.approx(89.5)
    for seconds in ([Blocks(s, 99, 1) for s in range(20)], [Blocks(0, 1, 1)]):
        assert [each.name for each in cache_findings(seconds)] == ["cache-hits"]
    assert list(cache_findings([])) == []


def test_the_ratio_that_a_warm_up_reached_is_that_of_its_last_tenth():
    blocks = [*(Blocks(s, 20 + s, -s) for s in range(-20, 0)), Blocks(0, 0, 9999)]
    found, _ = cache_findings(blocks)
    assert found.name == "warm-up-cache-hits"
    assert found.values["percent"] == pytest.approx(100 * 37 / 40)
    assert [each.name for each in cache_findings([Blocks(-1, 3, 1)])] == ["warm-up-cache-hits"]
    assert list(cache_findings([Blocks(-1, 0, 0)])) == []


class Faked:
    """Gives readings until it is told to fail; tells when it was asked often enough."""

    def __init__(self, fails: bool = False) -> None:
        self.notes = Notes([finding("reading-refused", what="wal", error="hidden")])
        self.asked = threading.Event()
        self.fails = fails

    def read(self) -> CounterReading:
        self.asked.set()
        if self.fails:
            raise psycopg.OperationalError("the server is gone\nfor good")
        return CounterReading(time.monotonic(), {READ: 1})


def begun(faked: Faked) -> ServerMonitor:
    """A sensor of a server that was asked at least once."""
    sensor = ServerMonitor(faked)
    assert sensor.silent_s() == 0
    sensor.begin(time.monotonic())
    assert faked.asked.wait(60)
    return sensor


def test_a_server_that_dies_is_a_note_and_no_error():
    sensor = begun(Faked(fails=True))
    assert sensor.close()
    assert sensor.drain() == []
    assert sensor.findings(()) == []
    unanswered = finding("monitor-unanswered", error="the server is gone")
    assert sensor.notes() == [finding("reading-refused", what="wal", error="hidden"), unanswered]


def test_a_server_that_answers_is_not_silent():
    sensor = begun(Faked())
    assert sensor.close()
    assert sensor.silent_s() == 0
    assert ServerMonitor(Faked()).close(), "it never began"


def test_a_session_that_ends_while_views_are_tried_hides_none_of_them():
    def ended(_query: bytes) -> None:
        raise psycopg.errors.AdminShutdown("terminating connection")

    reader = CounterReader({}, "bench")
    session: Any = SimpleNamespace(execute=ended, closed=True)
    with pytest.raises(psycopg.errors.AdminShutdown):
        reader._may(session, "SELECT 1", "io")
    assert reader.notes == []


def test_the_name_of_a_load_is_what_servers_make_of_it():
    assert reported("pgpaces") == ["pgpaces", "pgpaces"]
    assert reported("l\u00f6ad") == [r"l\xc3\xb6ad", "l??ad"]
    assert reported(80 * "x")[0] == 63 * "x"


class Hanging(Faked):
    """A server that answers once it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.release = threading.Event()

    def read(self) -> Any:
        self.asked.set()
        self.release.wait(60)
        return super().read()


def test_a_server_that_has_hung_for_long_is_silent_and_holds_nobody(monkeypatch):
    hanging = Hanging()
    sensor = begun(hanging)
    assert sensor.silent_s() >= 1
    waited: list[float | None] = []
    join = threading.Thread.join

    def joined(self: threading.Thread, timeout: float | None = None) -> None:
        waited.append(timeout)
        join(self, timeout)

    monkeypatch.setattr(threading.Thread, "join", joined)
    assert not sensor.close()
    assert waited == [0.0]
    hanging.release.set()
