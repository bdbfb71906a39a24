"""Standbys: rows become samples, a lag that grows and a standby that goes are found."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from pgpaces.analysis.server_counters import standby_findings as of_series
from pgpaces.core.findings import Finding
from pgpaces.core.series import Sample
from pgpaces.monitor.replication import named, rows, samples
from tests.unit.sensors import collect

MB = 1_000_000


def findings(found: Iterable[Sample], seconds: Iterable[int]) -> list[Finding]:
    return of_series(collect(found), seconds)


def standby(name: str = "standby1", **values: Any) -> dict[str, Any]:
    lags = {f"{lag}_bytes": 5 for lag in ("sent", "write", "flush", "replay")}
    delays = {f"{delay}_lag": None for delay in ("write", "flush", "replay")}
    return {"name": name, "state": "streaming", **lags, **delays, **values}


def test_what_a_primary_says_becomes_samples_and_what_it_hides_a_gap():
    slot = {"name": "s1", "retained": 16 * MB}
    found = {
        (s.source, s.name): (s.value, s.unit)
        for s in samples(3, [standby(replay_lag=0.25)], [slot], own=[])
    }
    assert found["replication", "standby1 replay_lag"] == (5, "B")
    assert found["replication", "standby1 replay_delay"] == (0.25, "s")
    assert found["replication", "standby1 streaming"] == (1, "")
    assert found["slots", "s1 retained"] == (16 * MB, "B")
    assert ("replication", "standby1 write_delay") not in found


def test_a_standby_that_receives_nothing_does_not_know_how_far_behind_it_is():
    row = {"receiving": False, "position": 1, "unreplayed": 0, "delay": None}
    found = {s.name: s.value for s in samples(0, [], [], own=[row])}
    assert found == {"receiving": 0, "unreplayed": 0}
    # Its clock may be ahead.
    row = {"receiving": True, "position": 1, "unreplayed": -8, "delay": -0.2}
    found = {s.name: s.value for s in samples(0, [standby(flush_bytes=None)], [], own=[row])}
    assert (found["unreplayed"], found["replay_delay"]) == (0, 0)
    assert "standby1 flush_lag" not in found, "not known is not 0"
    assert rows(json.dumps([standby()])) == [standby()]


def test_standbys_of_one_name_are_told_apart():
    found = [name for name, _ in named([standby("w"), standby("w"), standby("")])]
    assert found == ["w", "w 2", "standby"]
    assert list(named([standby(state=None)])) == [], "hidden from our role"


def lagging(values: list[float], name: str = "standby1", first: int = 0) -> list[Sample]:
    return [
        Sample(second, "replication", f"{name} replay_lag", value, "B")
        for second, value in enumerate(values, first)
    ]


def test_how_far_behind_each_was_is_told():
    delays = [Sample(n, "replication", "standby1 replay_delay", 0.001 * n, "s") for n in (1, 3)]
    lags = [*lagging([1000.0, 3000.0]), *delays, *lagging([0.0], "b")]
    assert [*map(str, findings(lags, range(4)))] == [
        "standby-lag: standby1: replay lag 2 kB on average, at most 3 kB",
        "standby-delay: standby1: replay delay 2 ms on average, at most 3 ms",
        "standby-lag: b: replay lag 0 B on average, at most 0 B",
    ]


def streaming(seconds: Iterable[int], name: str = "standby1") -> list[Sample]:
    return [Sample(s, "replication", f"{name} streaming", 1.0) for s in seconds]


GROWING = lagging([second * 0.1 * MB for second in range(100)])
WRITTEN = [Sample(second, "wal", "written", 5 * MB, "B/s") for second in range(100)]
OWN = [Sample(s, "standby1/replication", "receiving", float(s < 5)) for s in range(9)]
# What was seen in so many seconds, and the finding about it: its name and values.
SEEN: dict[str, tuple[list[Sample], int, str, dict[str, float]]] = {
    "it grows": (lagging([s * 3.4 * MB for s in range(100)]), 100, "standby-lag-grew",
                 {"first_bytes": 15.3 * MB, "last_bytes": 321.3 * MB}),
    "no lag": (lagging([0.0] * 60), 60, "", {}),
    "large and constant": (lagging([300.0 * MB] * 60), 60, "", {}),
    "it falls": (lagging([(60 - s) * MB for s in range(60)]), 60, "", {}),
    "little": (lagging([s * 1000 for s in range(60)]), 60, "", {}),
    "waves": (lagging([50 * MB if s % 7 == 0 else 0 for s in range(60)]), 60, "", {}),
    "a spike": (lagging([0.0] * 30 + [80 * MB] + [0.0] * 29), 60, "", {}),
    "one second": (lagging([5 * MB]), 1, "", {}),
    "it grows a little": (GROWING, 100, "standby-lag-grew", {}),
    "by 2% of the WAL, which may be on its way": ([*GROWING, *WRITTEN], 100, "", {}),
    "it goes for good": (streaming(range(72)), 100, "standby-lost", {"at_s": 72}),
    "it comes back": (streaming([*range(10), *range(15, 30)]), 30, "standby-left",
                      {"without_s": 5, "of_s": 30}),
    "it joins late": (streaming(range(20, 30)), 30, "", {}),
    "by itself": (OWN, 9, "standby-lost", {"at_s": 5}),
}  # fmt: skip


@pytest.mark.parametrize("name", SEEN)
def test_a_lag_that_grows_and_a_standby_that_goes_are_found(name):
    found, seconds, expected, values = SEEN[name]
    told = [f for f in findings(found, range(seconds)) if f.severity != "nothing"]
    assert [each.name for each in told] == ([expected] if expected else [])
    for key, value in values.items():
        assert told[0].values[key] == pytest.approx(value)


def test_a_second_that_was_looked_at_twice_counts_once():
    found = streaming([*range(10), *range(15, 30)])
    [left] = findings(found, [*range(30), 12, 29])
    assert (left.values["without_s"], left.values["of_s"]) == (5, 30)


def test_where_nobody_looked_no_standby_is_missed():
    looked = [*range(10), *range(15, 30)]
    assert findings(streaming(looked), looked) == []
    assert findings(streaming([-3, -2]), range(-3, 10)) == [], "it left before second 0"
