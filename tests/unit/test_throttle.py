"""A machine that was slowed down is named with its minute; one that was not is not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from pgpaces.analysis.level_shift import change
from pgpaces.analysis.throttle import Pace, pace
from pgpaces.analysis.throttle import machine_findings as of_series
from pgpaces.core.findings import Finding
from pgpaces.core.series import Sample
from tests.unit.sensors import collect
from tests.unit.trials import series

Numbers = Any
Chance = np.random.Generator


def chance(seed: int) -> Chance:
    return np.random.default_rng(seed)


def findings(found: Iterable[Sample], pace: Pace) -> list[Finding]:
    return of_series(collect(found), pace)


def samples(**tracks: Iterable[float]) -> list[Sample]:
    return [
        Sample(second, "host", name, float(value), "%")
        for name, values in tracks.items()
        for second, value in enumerate(values)
    ]


def load(succeeded: Sequence[float] | Numbers, latency_ms: Numbers | None = None) -> Pace:
    latency = np.full(len(succeeded), 10.0) if latency_ms is None else latency_ms
    return Pace(np.asarray(succeeded, dtype=float), latency)


def ramp(seconds: int, start: float, end: float, before: float, after: float) -> Numbers:
    at = np.arange(seconds)
    share = (at >= start) if start == end else np.clip((at - start) / (end - start), 0, 1)
    return before + (after - before) * share


def named(found: Iterable[Finding]) -> list[Finding]:
    return [each for each in found if each.name.startswith("throttl")]


def not_info(found: Iterable[Finding]) -> list[Finding]:
    return [each for each in found if each.severity != "nothing"]


def of(found: Finding, *names: str) -> list[Any]:
    return [found.name, *(found.values[name] for name in names)]


@pytest.mark.parametrize(
    "case",
    [
        (60, 25, 25, 100, 40),
        (90, 45, 45, 200, 120),
        (600, 250, 250, 100, 60),
        (900, 540, 900, 100, 41),
        (900, 300, 660, 100, 41),
        (1800, 900, 1500, 50, 20),
    ],
)
@pytest.mark.parametrize("seed", range(5))
def test_a_quota_is_named_with_its_minute_put_on_at_once_or_little_by_little(case, seed):
    seconds, start, end, before, after = case
    succeeded = chance(seed).poisson(ramp(*case))
    share = np.where(np.arange(seconds) >= start, 90.0, 0.0)
    found = findings(
        samples(cgroup_throttled_share=share, cgroup_throttled=share / 10), load(succeeded)
    )
    [shift] = named(found)
    assert shift.values["sensor"] == "CPU quota throttling"
    assert 85 <= shift.values["level_percent"] <= 90
    away = 2 + 0.12 * (end - start)
    assert start - away <= shift.values["at_s"] <= start + away
    assert shift.values["before"] == pytest.approx(before, rel=0.1)
    assert shift.values["after"] == pytest.approx(after, rel=0.15)
    assert shift.severity == "invalid"


def test_one_that_still_falls_at_the_end_has_no_sustained_figure():
    succeeded = chance(4).poisson(ramp(600, 240, 600, 100, 41))
    [shift] = named(findings(samples(cpu_steal=ramp(600, 240, 600, 0, 58)), load(succeeded)))
    assert of(shift, "sensor") == ["throttling-unfinished", "CPU steal"]


def test_latency_that_rises_is_named_where_throughput_does_not_fall():
    succeeded, latency = chance(1).poisson(50, 120), ramp(120, 70, 70, 5, 12)
    latency = latency * chance(2).lognormal(0, 0.2, 120)
    latency[[3, 50]] = np.nan
    share = ramp(120, 70, 70, 0, 30)
    [shift] = named(findings(samples(cgroup_throttled_share=share), load(succeeded, latency)))
    assert of(shift, "sensor") == ["throttled-latency", "CPU quota throttling"]
    assert 60 <= shift.values["at_s"] < 120


def test_a_board_that_throttles_itself_and_a_clock_that_sinks_are_culprits_too():
    succeeded = chance(3).poisson(ramp(300, 120, 120, 100, 60))
    bits = np.where(np.arange(300) >= 120, 4, 0)
    [shift] = named(findings(samples(pi_throttled=bits), load(succeeded)))
    assert of(shift, "sensor") == ["throttled-throughput", "Raspberry Pi throttling"]
    clock = samples(cpu_frequency=ramp(300, 120, 120, 1500, 900))
    [shift] = named(findings(clock, load(succeeded)))
    assert shift.values["sensor"] == "CPU frequency loss"
    assert shift.values["level_percent"] == pytest.approx(40)
    for unknown in (samples(cpu_frequency=[1500] * 300)[130:], samples(cpu_frequency=[0] * 300)):
        assert not named(findings(unknown, load(succeeded)))


def autocorrelated(random: Chance, seconds: int, by: float = 0.5) -> Numbers:
    noise = np.zeros(seconds)
    for at in range(1, seconds):
        noise[at] = by * noise[at - 1] + random.normal(0, 5)
    return 100 + noise


CLEAN: Mapping[str, Callable[[Chance, int], Numbers]] = {
    "steady": lambda _, seconds: np.full(seconds, 100.0),
    "poisson": lambda random, seconds: random.poisson(5, seconds),
    "rare": lambda random, seconds: random.poisson(0.5, seconds),
    "noisy": lambda random, seconds: random.normal(100, 15, seconds),
    "autocorrelated": autocorrelated,
}


@pytest.mark.parametrize("kind", CLEAN)
def test_noise_is_taken_for_a_change_in_at_most_2_percent_of_series(kind):
    random = chance(7)
    alarms = [change(CLEAN[kind](random, seconds)) for seconds in (30, 60, 120) for _ in range(50)]
    assert sum(found is not None for found in alarms) <= 3


@pytest.mark.parametrize("kind", CLEAN)
def test_clean_runs_on_a_machine_with_a_little_steal_are_named_never(kind):
    random = chance(8)
    for seconds in (20, 60, 300):
        for _ in range(10):
            steal = random.exponential(0.3, seconds)
            found = findings(
                samples(cpu_steal=steal, cgroup_throttled=[0] * seconds,
                        cgroup_throttled_share=[0] * seconds),
                load(CLEAN[kind](random, seconds)),
            )  # fmt: skip
            assert not_info(found) == []


def test_beside_noisy_neighbours_a_quota_is_named_by_when_it_came():
    random, hit = chance(5), 0
    for _ in range(20):
        succeeded = autocorrelated(random, 120, 0.8) * ramp(120, 75, 75, 1.0, 0.5)
        share = ramp(120, 75, 75, 0, 88)
        shifts = named(findings(samples(cgroup_throttled_share=share), load(succeeded)))
        hit += bool(shifts) and 70 <= shifts[0].values["at_s"] <= 80
    assert hit >= 19


@pytest.mark.parametrize("kind", CLEAN)
def test_a_culprit_that_did_no_harm_is_blamed_for_noise_in_at_most_2_percent(kind):
    random, share = chance(9), ramp(120, 60, 60, 0, 20)
    tracks = samples(cgroup_throttled_share=share)
    blamed = [
        named(findings(tracks, load(CLEAN[kind](random, 120), random.lognormal(2, 0.2, 120))))
        for _ in range(50)
    ]
    assert sum(map(bool, blamed)) <= 1


def test_a_fall_without_a_culprit_is_not_the_machines():
    succeeded = chance(1).poisson(ramp(300, 100, 100, 100, 40))
    steady = samples(cpu_steal=[0.5] * 300, cpu_busy=[50] * 300)
    assert named(findings(steady, load(succeeded))) == []


def test_a_culprit_that_was_there_before_the_fall_did_not_cause_it():
    succeeded = chance(1).poisson(ramp(600, 400, 400, 100, 40))
    assert named(findings(samples(cpu_steal=[7.0] * 600), load(succeeded))) == []


def test_a_culprit_that_came_later_did_not_cause_a_fall():
    succeeded = chance(1).poisson(ramp(100, 13, 41, 600, 150))
    share = ramp(100, 76, 76, 0, 90)
    shifts = named(findings(samples(cgroup_throttled_share=share), load(succeeded)))
    assert not [shift for shift in shifts if shift.values["at_s"] < 60]


def test_a_culprit_that_rose_long_before_did_not_cause_a_fall():
    succeeded = chance(1).poisson(ramp(200, 163, 163, 1000, 500))
    assert named(findings(samples(cpu_steal=ramp(200, 133, 133, 0, 30)), load(succeeded))) == []


def test_a_rate_that_is_meant_to_change_is_not_a_fall():
    succeeded = chance(1).poisson(ramp(300, 100, 100, 100, 40))
    changing = Pace(succeeded, np.full(300, 5.0), steady=False)
    assert named(findings(samples(cpu_steal=ramp(300, 100, 100, 0, 30)), changing)) == []


@pytest.mark.parametrize(
    ("percent", "names"), [(0.9, []), (1.1, ["cpu-steal"]), (5.1, ["cpu-steal-high"])]
)
def test_steal_warns_from_1_percent_and_invalidates_from_5(percent, names):
    found = not_info(findings(samples(cpu_steal=[percent] * 100), load([10] * 100)))
    assert [each.name for each in found] == names


def quota(share: Numbers, amounts: Iterable[float | None] = ()) -> list[Sample]:
    """How far a quota was used up, and how many CPUs it was of."""
    return samples(cgroup_throttled=share / 10, cgroup_throttled_share=share) + [
        Sample(second, "host", "cgroup_quota", amount, "CPUs")
        for second, amount in enumerate(amounts)
        if amount is not None
    ]


CONSTANT, WHILE = np.full(120, 80.0), np.where(np.abs(np.arange(120) - 79.5) < 10, 90.0, 0.0)
COMES, GOES, GROWS = (ramp(120, 75, 75, *way) for way in ((0, 50), (80, 0), (30, 90)))
PLAIN = load([10] * 120)
QUOTAS: dict[str, tuple[list[Sample], Pace, list[str], float]] = {
    "all the time": (quota(CONSTANT), PLAIN, ["cpu-throttled"], 0),
    "now more, now less": (
        quota(np.clip(40 + chance(0).normal(0, 15, 120), 0, 100)), PLAIN, ["cpu-throttled"], 0
    ),
    "it comes": (quota(COMES), PLAIN, ["cpu-quota-changed"], 75),
    "it goes": (quota(GOES), PLAIN, ["cpu-quota-changed"], 75),
    "for a while": (quota(WHILE), PLAIN, ["cpu-quota-changed"], 70),
    "its amount changed": (
        quota(COMES, [0.8] * 75 + [0.4] * 45), load([10] * 120, 20 + 10 * COMES),
        ["throttled-latency", "cpu-quota-changed"], 75,
    ),
    "it was not there": (quota(COMES, [None] * 75 + [0.4] * 45), PLAIN, ["cpu-quota-changed"], 75),
    **{
        f"{kind}, way {n}": (tracks, pace, ["cpu-throttled"], 0)
        for n, way in enumerate((COMES, GOES, GROWS))
        for kind, tracks, pace in (
            # It did not change: the load has met it.
            ("known", quota(way, [0.4] * 120), load([10] * 120, 20 + 10 * way)),
            # What was measured, under a rate that is meant to change.
            ("planned", quota(way), replace(PLAIN, steady=False)),
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("name", QUOTAS)
def test_a_quota_that_comes_or_goes_invalidates_and_one_that_is_the_machines_does_not(name):
    tracks, pace, names, at_s = QUOTAS[name]
    found = not_info(findings(tracks, pace))
    assert [each.name for each in found] == names
    share = np.mean([each.value for each in tracks if each.name == "cgroup_throttled_share"])
    assert of(found[-1], "of_s", "percent")[1:] == [120, pytest.approx(share)]
    assert found[-1].values.get("at_s", 0) == pytest.approx(at_s, abs=1)


def test_a_frequency_below_95_percent_of_its_start_warns_where_there_was_as_much_to_do():
    clock = ramp(120, 60, 60, 1500, 1300)
    [found] = not_info(
        findings(samples(cpu_frequency=clock, cpu_busy=[80] * 120), load([10] * 120))
    )
    expected = ["cpu-frequency-fell", 1500, 1300, 60]
    assert of(found, "before_mhz", "after_mhz", "at_s") == expected
    idle = samples(cpu_frequency=clock, cpu_busy=ramp(120, 60, 60, 80, 10))
    assert not_info(findings(idle, load([10] * 120))) == []
    little = samples(cpu_frequency=ramp(120, 60, 60, 1500, 1440), cpu_busy=[80] * 120)
    assert not_info(findings(little, load([10] * 120))) == []


def test_a_trip_point_that_is_reached_invalidates():
    hot = ramp(120, 30, 90, 60, 82)
    tracks = samples(temperature_cpu_0=hot, headroom_cpu_0=80 - hot)
    [found] = not_info(findings(tracks, load([10] * 120)))
    assert of(found, "zone", "at_s") == ["too-hot", "cpu_0", 85]
    assert found.values["celsius"] == pytest.approx(82, abs=0.5)
    cool = samples(temperature_cpu_0=[60] * 60, headroom_cpu_0=[20] * 60)
    assert not_info(findings(cool, load([10] * 60))) == []


def test_bits_of_a_board_count_now_and_are_told_since_boot():
    now = [0] * 30 + [5] + [0] * 29
    both, values = ["under-voltage", "throttled"], ("flags", "at_s", "seconds", "of_s")
    [found] = not_info(findings(samples(pi_throttled=now), load([10] * 60)))
    assert of(found, *values) == ["pi-throttled", both, 30, 1, 60]
    before = samples(pi_throttled=[0] * 60, pi_throttled_since_boot=[5] * 60)
    [found] = findings(before, load([10] * 60))
    assert of(found, "flags") == ["pi-throttled-earlier", both]
    between = samples(pi_throttled=[0] * 60, pi_throttled_since_boot=[1] * 30 + [5] * 30)
    [missed] = not_info(findings(between, load([10] * 60)))
    assert of(missed, *values) == ["pi-throttled", ["throttled"], None, 0, 60]


def test_errors_of_disks_invalidate():
    [found] = not_info(findings(samples(io_errors=[0, 0, 3, 1]), load([10] * 4)))
    assert of(found, "count", "at_s") == ["io-errors", 4, 2]


def test_what_the_machine_did_is_one_finding_without_what_was_not_read():
    tracks = samples(cpu_busy=[50] * 9, disk_sda_busy=[12] * 9, disk_sda_written=[300] * 9)
    [found] = findings(tracks, load([10] * 9))
    assert found.sentence == "cpu busy 50%, disk sda busy 12%, disk sda written 300 kB/s"
    assert findings([], load([10] * 9)) == []


def test_seconds_outside_of_the_measured_part_and_other_sources_are_not_looked_at():
    outside = [Sample(second, "host", "cpu_steal", 90.0) for second in (-2, -1, 10, 11)]
    other = [Sample(second, "database", "cpu_steal", 90.0) for second in range(10)]
    assert findings([*outside, *other], load([10] * 10)) == []


def test_what_a_load_did_is_read_from_its_trial():
    from pgpaces.analysis.accumulator import Accumulator

    trial = series([[2, 4], [], [5]])
    found = pace(Accumulator.of(trial.intervals), trial, 3)
    assert found.latency_ms[[0, 2]].tolist() == [3, 5]
    assert np.isnan(found.latency_ms[1])
    assert len(found.succeeded) == 3
