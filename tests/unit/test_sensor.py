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

from pgpaces.analysis.cache import Blocks, finding, warmed
from pgpaces.core.series import Sample
from pgpaces.monitor.counters import PARTS, Counter, CounterReading, Differences
from pgpaces.monitor.server import CounterReader, Sensor
from pgpaces.monitor.session import reported

HIT, READ = PARTS[0].counters[:2]
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


def test_a_difference_belongs_to_the_second_that_it_ends() -> None:
    found = readings((0.01, 5), (1.02, 7), (2.0, 7), (2.98, 10))
    assert values(found) == pytest.approx({0: 2 / 1.01, 1: 0, 2: 3 / 0.98})


def test_seconds_of_the_warm_up_are_below_zero() -> None:
    assert set(values(readings((-2, 0), (-1, 1), (0, 2), (1, 3)))) == {-2, -1, 0}


def test_a_gap_is_a_gap_and_the_rate_behind_it_the_mean_since() -> None:
    found = readings((0, 0), (1, 1), (5, 9))
    assert values(found) == {0: 1, 4: 2}


def test_an_event_behind_a_gap_is_counted_once() -> None:
    found = readings((0, 0), (1, 1), (5, 4), counter=DEADLOCKS)
    assert values(found) == {0: 1, 4: 3}


def test_a_counter_that_began_anew_or_is_hidden_gives_no_number() -> None:
    assert values(readings((0, 90), (1, 3), (2, 5))) == {1: 2}
    assert values(readings((0, None), (1, None), (2, 5))) == {}


def test_of_two_readings_in_one_second_the_first_counts() -> None:
    assert values(readings((0, 0), (0.9, 1), (1.1, 7), (2, 3))) == pytest.approx(
        {0: 1 / 0.9, 1: 2 / 1.1}
    )


def test_the_hit_ratio_is_of_the_blocks_of_its_second() -> None:
    found = [CounterReading(START + n, {HIT: 90 * n, READ: 10 * n}) for n in range(3)]
    found.append(CounterReading(START + 3, {HIT: 180, READ: 20}))
    ratios = {s.second: s.value for s in samples(found) if s.name == "cache_hit_ratio"}
    assert ratios == {0: 90.0, 1: 90.0}, "where no block was asked for there is no ratio"


@given(st.lists(st.tuples(st.floats(0.6, 1.4), st.integers(0, 9)), max_size=40))
def test_no_block_is_lost_or_counted_twice(steps: list[tuple[float, int]]) -> None:
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


def test_a_cache_that_still_warms_is_a_warning() -> None:
    warming = [Blocks(s, 80 + s, 20 - s) for s in range(20)]
    found = finding([Blocks(-1, 0, 9999), *warming])
    assert found is not None
    assert (found.severity, found.unit) == ("warning", "%")
    assert found.value == pytest.approx(89.5)
    assert "80.5% in the first tenth, 98.5% in the last" in found.text


def test_a_cache_that_is_warm_is_none() -> None:
    found = finding([Blocks(s, 99, 1) for s in range(20)])
    assert found is not None
    assert found.severity == "info"
    assert finding([]) is None
    assert finding([Blocks(-1, 1, 1)]) is None
    assert finding([Blocks(0, 1, 1)]) is not None


def test_the_ratio_that_a_warm_up_reached_is_that_of_its_last_tenth() -> None:
    found = warmed([*(Blocks(s, 20 + s, -s) for s in range(-20, 0)), Blocks(0, 0, 9999)])
    assert found is not None
    assert found.value == pytest.approx(100 * 37 / 40)
    assert found.source != "cache", "the part that counts is found by that"
    assert warmed([Blocks(-1, 3, 1)]) is not None
    assert warmed([Blocks(0, 1, 1)]) is None
    assert warmed([Blocks(-1, 0, 0)]) is None


class Faked:
    """Gives readings until it is told to fail; tells when it was asked often enough."""

    def __init__(self, fails: bool = False) -> None:
        self.notes: dict[str, None] = {"sensor: no wal: hidden": None}
        self.asked = threading.Event()
        self.fails = fails

    def read(self) -> CounterReading:
        self.asked.set()
        if self.fails:
            raise psycopg.OperationalError("the server is gone\nfor good")
        return CounterReading(time.monotonic(), {READ: 1})


def test_a_server_that_dies_is_a_note_and_no_error() -> None:
    faked = Faked(fails=True)
    sensor = Sensor(faked)
    sensor.begin(time.monotonic())
    assert faked.asked.wait(60)
    assert sensor.close()
    assert sensor.drain() == []
    assert sensor.findings(()) == []
    assert sensor.notes() == [
        "sensor: no wal: hidden", "sensor: the server was silent: the server is gone",
    ]  # fmt: skip


def test_a_session_that_ends_while_views_are_tried_hides_none_of_them() -> None:
    def ended(_query: bytes) -> None:
        raise psycopg.errors.AdminShutdown("terminating connection")

    reader = CounterReader({}, "bench")
    session: Any = SimpleNamespace(execute=ended, closed=True)
    with pytest.raises(psycopg.errors.AdminShutdown):
        reader._may(session, "SELECT 1", "io")
    assert reader.notes == {}


def test_the_name_of_a_load_is_what_servers_make_of_it() -> None:
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


def test_a_server_that_hangs_holds_nobody() -> None:
    hanging = Hanging()
    sensor = Sensor(hanging)
    sensor.begin(time.monotonic())
    assert hanging.asked.wait(60)
    assert not sensor.close()
    hanging.release.set()


def test_a_server_that_has_hung_for_long_is_silent_and_is_not_waited_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hanging = Hanging()
    sensor = Sensor(hanging)
    assert sensor.silent_s() == 0
    sensor.begin(time.monotonic())
    assert hanging.asked.wait(60)
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


def test_a_server_that_answers_is_not_silent() -> None:
    answering = Faked()
    sensor = Sensor(answering)
    sensor.begin(time.monotonic())
    assert answering.asked.wait(60)
    assert sensor.close()
    assert sensor.silent_s() == 0


def test_a_sensor_that_never_began_is_closed_at_once() -> None:
    assert Sensor(Faked()).close()
