"""What two looks at sizes, statements and counters say of the time between them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgpaces.core.series import Sample
from pgpaces.monitor import sizes
from pgpaces.monitor.counters import GROUPS, Counter, CounterReading, Differences
from pgpaces.monitor.sizes import SHOWN_MAX, Counted, Size, View, changed, grown, statement_changes
from pgpaces.spec.result import Moved

SIZES = st.dictionaries(
    st.text("abc", min_size=1, max_size=3),
    st.builds(Size, st.sampled_from(["table", "index"]), st.integers(0, 10**9)),
)


@given(SIZES, SIZES)
def test_what_grew_most_is_first_and_what_is_largest_is_in_it(before, after):
    found = grown(before, after)
    growth = [abs(one.after_bytes - one.before_bytes) for one in found]
    changed = [g for g in growth if g][:SHOWN_MAX]
    assert changed == sorted(changed, reverse=True)
    assert len({one.name for one in found}) == len(found) <= 2 * SHOWN_MAX
    if after:
        largest = max(after.values(), key=lambda size: size.size_bytes)
        assert not largest.size_bytes or largest.size_bytes in [one.after_bytes for one in found]


def test_what_is_largest_now_is_shown_also_where_many_were_larger_before():
    shrunk = {f"shrunk{n}": Size("table", 10**9 + n) for n in range(2 * SHOWN_MAX)}
    kept = {"kept": Size("table", 10**8)}
    small = {name: Size("table", 10) for name in shrunk}
    assert "kept" in {one.name for one in grown({**shrunk, **kept}, {**small, **kept})}


def test_a_table_that_was_made_or_dropped_grew_from_or_to_nothing():
    new, old = Size("table", 8192, 3), Size("index", 16384)
    found = {one.name: one for one in grown({"old": old}, {"new": new})}
    assert (found["new"].before_bytes, found["new"].dead_before, found["new"].dead_after) == (
        0, None, 3,
    )  # fmt: skip
    assert (found["old"].kind, found["old"].after_bytes) == ("index", 0)


def test_a_table_that_one_reading_of_the_largest_omits_did_not_grow_from_nothing(monkeypatch):
    monkeypatch.setattr(sizes, "RELATIONS_MAX", 2)
    before = {"a": Size("table", 8192), "b": Size("table", 8192)}
    after = {"a": Size("table", 16384), "c": Size("table", 8192)}
    assert [one.name for one in grown(before, after)] == ["a"]
    assert {one.name for one in grown({"a": before["a"]}, after)} == {"a", "c"}


def counted(calls: int, ms: float, wal: int | None = 0) -> Counted:
    return Counted(calls, ms, calls, 2 * calls, calls, wal)


def test_statements_are_ordered_by_the_time_that_they_took_in_between():
    before = {(1, 1): counted(10, 100.0), (1, 2): counted(5, 9.0), (1, 4): counted(9, 9.0)}
    after = {
        (1, 1): counted(11, 101.0), (1, 2): counted(8, 59.0), (1, 3): counted(2, 7.0, None),
        (1, 4): counted(9, 9.0),
    }  # fmt: skip
    found = statement_changes(before, after)
    assert list(found) == [(1, 2), (1, 3), (1, 1)], "what was not called is not in it"
    assert found[1, 2] == Counted(3, 50.0, 3, 6, 3, 0)
    assert found[1, 3].wal_bytes is None
    # Also with more calls than before the reset.
    for before_ms, now in ((100.0, counted(2, 3.0, 5)), (9e4, counted(20, 3.0))):
        reset = statement_changes({(1, 1): counted(10, before_ms, 7)}, {(1, 1): now})
        assert reset[1, 1] == now, "it counts from nothing"


def test_a_password_in_a_statement_that_was_executed_is_not_kept():
    row = (1, 1, "ALTER ROLE a\n PASSWORD 's3cret'", False)
    session: Any = SimpleNamespace(execute=lambda *_: [row])
    [one] = View("public", frozenset()).executed(session, {}, {(1, 1): counted(1, 1.0)})
    assert one.text == "ALTER ROLE a ..."


COMMITS = Counter("transactions", "commits", "1/s")
TIME = Counter("database", "read_time", "ms/s", 0.001)
CONNECTED = Counter("sessions", "connected", gauge=True)


def readings(counter: Counter, *values: int | None, first_s: float = 0.0) -> list[CounterReading]:
    return [CounterReading(first_s + n, {counter: value}) for n, value in enumerate(values)]


def samples(found: list[CounterReading], start_s: float) -> tuple[Sample, ...]:
    counts = Differences(start_s)
    return tuple(sample for reading in found for sample in counts.add(reading))


def moved(found: list[CounterReading], start_s: float) -> tuple[Moved, ...]:
    counts = Differences(start_s)
    for reading in found:
        list(counts.add(reading))
    return counts.moved()


WRITTEN = Counter("wal", "written", "B/s")
# Readings, how far the counter went in the measured part, and its samples by second.
WENT: dict[str, tuple[list[CounterReading], float | None, str, dict[int, float]]] = {
    "since the measured part": (
        readings(COMMITS, 10, 20, 40, 90, first_s=-2.0),
        50,
        "",
        {-2: 10, -1: 20, 0: 50},
    ),
    "times are in ms": (readings(TIME, 0, 1500), 1.5, "ms", {0: 1.5}),
    "bytes lose their second": (readings(WRITTEN, 0, 5), 5, "B", {0: 5}),
    "it began anew": (readings(COMMITS, 10, 3, 50), None, "", {1: 47}),
    "a gap": (readings(COMMITS, 10, None, 50), 40, "", {}),
    "one": (readings(COMMITS, 1), None, "", {}),
    "it never moved": (readings(COMMITS, 7, 7, 7), 0, "", {}),
    "earlier zeros": (readings(COMMITS, 7, 7, 7, None, 7, 9), 2, "", {0: 0, 1: 0, 4: 2}),
    "a gauge is as it is": (readings(CONNECTED, 3, 5, 2), None, "", {0: 5, 1: 2}),
}


@pytest.mark.parametrize("name", WENT)
def test_how_far_a_counter_went_in_the_measured_part(name):
    found, value, unit, by_second = WENT[name]
    [counter] = {each for reading in found for each in reading.values}
    expected = () if value is None else (Moved(counter.source, counter.name, value, unit),)
    assert moved(found, 0.0) == expected
    assert {s.second: s.value for s in samples(found, 0.0)} == by_second


def test_each_version_has_each_counter_once():
    for version in (*range(100_000, 200_000, 10_000), 90_600):
        for timing in ("on", "off"):
            settings = {"track_io_timing": timing}
            fitting = [group for group in GROUPS if group.query(version, settings)]
            names = [(c.source, c.name) for part in fitting for c in part.counters]
            assert len(names) == len(set(names)), version


def test_settings_that_changed_are_named_and_texts_are_not_shown():
    before = {"jit": ("on", True), "primary_conninfo": ("password=a", False), "old": ("1", True)}
    after = {"jit": ("off", True), "primary_conninfo": ("password=b", False), "new": ("1", True)}
    [found] = changed(before, after)
    assert found.values == {"changes": ["jit on -> off", "primary_conninfo"]}
    assert list(changed(before, before)) == []
