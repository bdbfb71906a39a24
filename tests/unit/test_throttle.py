"""Whether the machine was slowed down, by its samples."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from pgpaces.analysis.throttle import machine_findings as of_series
from pgpaces.core.findings import Finding
from pgpaces.core.series import Sample
from tests.unit.sensors import collect

Numbers = Any


def findings(found: Iterable[Sample], seconds: int = 120) -> list[Finding]:
    return list(of_series(collect(found), seconds))


def samples(**tracks: Iterable[float]) -> list[Sample]:
    return [
        Sample(second, "host", name, float(value), "%")
        for name, values in tracks.items()
        for second, value in enumerate(values)
    ]


def ramp(seconds: int, start: float, end: float, before: float, after: float) -> Numbers:
    at = np.arange(seconds)
    share = (at >= start) if start == end else np.clip((at - start) / (end - start), 0, 1)
    return before + (after - before) * share


def not_info(found: Iterable[Finding]) -> list[Finding]:
    return [each for each in found if each.severity != "nothing"]


def of(found: Finding, *names: str) -> list[Any]:
    return [found.name, *(found.values[name] for name in names)]


@pytest.mark.parametrize(
    ("percent", "names"), [(0.9, []), (1.1, ["cpu-steal"]), (5.1, ["cpu-steal-high"])]
)
def test_steal_warns_from_1_percent_and_invalidates_from_5(percent, names):
    found = not_info(findings(samples(cpu_steal=[percent] * 100), 100))
    assert [each.name for each in found] == names


def quota(share: Numbers, amounts: Iterable[float | None] = ()) -> list[Sample]:
    """How far a quota was used up, and how many CPUs it was of."""
    return samples(cgroup_throttled=share / 10, cgroup_throttled_share=share) + [
        Sample(second, "host", "cgroup_quota", amount, "CPUs")
        for second, amount in enumerate(amounts)
        if amount is not None
    ]


CONSTANT = np.full(120, 80.0)
COMES, GOES = (ramp(120, 75, 75, *way) for way in ((0, 50), (80, 0)))
QUOTAS: dict[str, tuple[list[Sample], list[str]]] = {
    "all the time": (quota(CONSTANT), ["cpu-throttled"]),
    "the load grew": (quota(COMES, [0.4] * 120), ["cpu-throttled"]),
    "its amount is unknown": (quota(COMES), ["cpu-throttled"]),
    "its amount changed": (quota(COMES, [0.8] * 75 + [0.4] * 45), ["cpu-quota-changed"]),
    "it comes": (quota(COMES, [None] * 75 + [0.4] * 45), ["cpu-quota-changed"]),
    "it goes": (quota(GOES, [0.4] * 75 + [None] * 45), ["cpu-quota-changed"]),
    "it was never used up": (quota(0 * COMES, [None] * 75 + [0.4] * 45), []),
}  # fmt: skip


@pytest.mark.parametrize("name", QUOTAS)
def test_a_quota_that_changes_invalidates_and_one_that_is_the_machines_does_not(name):
    tracks, names = QUOTAS[name]
    found = not_info(findings(tracks))
    assert [each.name for each in found] == names
    for each in found:
        share = np.mean([each.value for each in tracks if each.name == "cgroup_throttled_share"])
        assert of(each, "of_s", "percent")[1:] == [120, pytest.approx(share)]
        assert each.values.get("at_s") == (75 if names == ["cpu-quota-changed"] else None)


def test_a_frequency_below_95_percent_of_its_start_warns_where_there_was_as_much_to_do():
    clock = ramp(120, 60, 60, 1500, 1300)
    [found] = not_info(findings(samples(cpu_frequency=clock, cpu_busy=[80] * 120)))
    expected = ["cpu-frequency-fell", 1500, 1300, 60]
    assert of(found, "before_mhz", "after_mhz", "at_s") == expected
    idle = samples(cpu_frequency=clock, cpu_busy=ramp(120, 60, 60, 80, 10))
    assert not_info(findings(idle)) == []
    little = samples(cpu_frequency=ramp(120, 60, 60, 1500, 1440), cpu_busy=[80] * 120)
    assert not_info(findings(little)) == []


def test_a_trip_point_that_is_reached_invalidates():
    hot = ramp(120, 30, 90, 60, 82)
    tracks = samples(temperature_cpu_0=hot, headroom_cpu_0=80 - hot)
    [found] = not_info(findings(tracks))
    assert of(found, "zone", "at_s") == ["too-hot", "cpu_0", 85]
    assert found.values["celsius"] == pytest.approx(82, abs=0.5)
    cool = samples(temperature_cpu_0=[60] * 60, headroom_cpu_0=[20] * 60)
    assert not_info(findings(cool, 60)) == []


def test_bits_of_a_board_count_now_and_are_told_since_boot():
    now = [0] * 30 + [5] + [0] * 29
    both, values = ["under-voltage", "throttled"], ("flags", "at_s", "seconds", "of_s")
    [found] = not_info(findings(samples(pi_throttled=now), 60))
    assert of(found, *values) == ["pi-throttled", both, 30, 1, 60]
    before = samples(pi_throttled=[0] * 60, pi_throttled_since_boot=[5] * 60)
    [found] = findings(before, 60)
    assert of(found, "flags") == ["pi-throttled-earlier", both]
    between = samples(pi_throttled=[0] * 60, pi_throttled_since_boot=[1] * 30 + [5] * 30)
    [missed] = not_info(findings(between, 60))
    assert of(missed, *values) == ["pi-throttled", ["throttled"], None, 0, 60]


def test_errors_of_disks_invalidate():
    [found] = not_info(findings(samples(io_errors=[0, 0, 3, 1]), 4))
    assert of(found, "count", "at_s") == ["io-errors", 4, 2]


def test_what_the_machine_did_is_one_finding_without_what_was_not_read():
    tracks = samples(cpu_busy=[50] * 9, disk_sda_busy=[12] * 9, disk_sda_written=[300] * 9)
    [found] = findings(tracks, 9)
    assert found.sentence == "cpu busy 50%, disk sda busy 12%, disk sda written 300 kB/s"
    assert findings([], 9) == []


def test_seconds_outside_of_the_measured_part_and_other_sources_are_not_looked_at():
    outside = [Sample(second, "host", "cpu_steal", 90.0) for second in (-2, -1, 10, 11)]
    other = [Sample(second, "database", "cpu_steal", 90.0) for second in range(10)]
    assert findings([*outside, *other], 10) == []
