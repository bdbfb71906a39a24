"""A generator that was late itself: what it may explain, and what a search makes of the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from pgpaces.analysis.capacity.answer import Capacity, judge
from pgpaces.analysis.capacity.curve import CapacityGoal, Points, TrialPoint
from pgpaces.analysis.capacity.search import NextLoad, next_trial, trial_point
from pgpaces.analysis.digest import digest
from pgpaces.analysis.sequential import Tell
from pgpaces.analysis.summary import summarize
from pgpaces.answers.run import next_steps
from pgpaces.core.record import Interval
from pgpaces.spec.result import Place, Trial
from tests.unit.queues import Queue, exponential, search
from tests.unit.seeds import seeds
from tests.unit.sure import sure
from tests.unit.trials import SECOND_NS, second, times, trial

BASE = CapacityGoal(0.01, 50, 1, 10_000, soak_s=0)
# Of a second: one in time, one late by less than twice 20 ms, two late by more.
LATENCIES_MS = (100.0, 530.0, 560.0, 900.0)
LIMIT_MS, LAG_MS = 500.0, 20.0


def of_trial(
    latencies_ms: tuple[float, ...] = LATENCIES_MS,
    lag_ms: float = LAG_MS,
    cpu: float = 0.1,
    skipped: int = 0,
    settling_s: int = 0,
    **plan: Any,
) -> Trial:
    """Ten seconds alike, of a generator that was late by lag_ms each time.

    settling_s: seconds before these, in which three of four were late.
    """

    def one(number: int) -> Interval:
        of_second = LATENCIES_MS if number < settling_s else latencies_ms
        late = sum(ms > LIMIT_MS for ms in of_second)
        counts = {"late": late, "on_time": len(of_second) - late, "skipped": skipped}
        counts["due"] = len(of_second) + skipped
        service = times(max(0.0, ms - lag_ms) for ms in of_second)
        found = second(number, of_second, **counts)
        return replace(
            found,
            tallies=tuple(replace(tally, service=service) for tally in found.tallies),
            in_flight_ns=service.sum_ns,
            dispatch=times([lag_ms] * 40),
            cpu_ns=(round(cpu * SECOND_NS),),
        )

    seconds = settling_s * 5 or 10
    intervals = tuple(map(one, range(seconds)))
    asked = {"limit_ns": 500_000_000, "policy": "run", "model": "open", "seed": 3} | plan
    place = Place("E", "c", {"rate": "4/s", "role": "long"}, 1)
    return trial([], intervals=intervals, measured_ns=seconds * SECOND_NS, plan=asked, place=place)


@pytest.mark.parametrize(
    ("changes", "excused"),
    [
        pytest.param({"lag_ms": 0.5}, 0, id="it was in time"),
        pytest.param({}, 10, id="late by 20 ms: what took less than 540 ms"),
        pytest.param({"lag_ms": 35.0}, 20, id="late by 35 ms: what took less than 570 ms"),
        pytest.param({"lag_ms": 600.0}, 30, id="later than the limit: all of it"),
        pytest.param({"skipped": 1}, 14, id="skipped: as many as the time lost had room for"),
        pytest.param({"limits": [("a", 540_000_000)]}, 20, id="a script's own limit counts"),
        pytest.param({"cpu": 0.95}, None, id="it had no CPU left"),
        pytest.param({"cpu": 0.95, "lag_ms": 0.5}, None, id="no CPU left, and in time"),
        pytest.param({"model": "closed"}, 0, id="a load that waits for itself has no lag"),
    ],
)
def test_what_a_late_generator_may_explain(changes, excused):
    assert summarize(of_trial(**changes)).generator.excused == excused


@pytest.mark.parametrize(("allowed", "limited"), [(0.05, False), (0.01, True)])
def test_a_generator_that_stood_still_explains_the_backlog_whatever_its_p99(allowed, limited):
    """It stood still from second 30 to 32, sent one of 100 a second late, the others after it."""

    def one(number: int) -> Interval:
        slow = number in (30, 31, 32)
        latencies_ms = [2500.0 if slow or number == 50 else 100.0] * 20 + [100.0] * 80
        late = sum(ms > LIMIT_MS for ms in latencies_ms)
        seconds = second(number, latencies_ms, late=late, on_time=100 - late)
        return replace(seconds, dispatch=times([0.05] * 99 + [2500.0 if number == 32 else 0.05]))

    plan = {"limit_ns": 500_000_000, "policy": "run", "model": "open", "missed": allowed}
    intervals = tuple(map(one, range(60)))
    shown = trial([], intervals=intervals, measured_ns=60 * SECOND_NS, plan=plan)
    made = summarize(shown)
    check = made.generator
    assert sure(check.dispatch_p99).value < 1
    assert (check.late, check.missed, check.explained) == (True, 80, 60)
    assert check.limited == limited
    [still] = [each for each in made.validity.findings if each.name.startswith("generator-")]
    name = "generator-stood-still-decides" if limited else "generator-stood-still"
    assert (still.name, still.values["still_s"]) == (name, 2.5)
    advice = [each.command for each in next_steps(shown, made) if " -j" in each.command]
    assert advice == [], "more threads stand still, too"
    busy = replace(made, generator=replace(check, limited=True, still_s=0.0))
    assert [each.command for each in next_steps(shown, busy)] == ["pgpaces run --like T -j 2"]


def test_what_a_late_generator_did_in_a_warm_up_that_is_cut_decides_nothing():
    """The answer counts none of it. A search, which cuts nothing, may still excuse it."""
    found = summarize(of_trial(latencies_ms=(100.0, 110.0, 90.0, 105.0), settling_s=20))
    assert found.cut_s >= 20
    assert (found.counts.missed, found.generator.missed) == (0, 0)
    assert found.generator.excused == 20
    assert (found.generator.late, found.generator.limited) == (True, False)
    assert found.validity.state == "valid"


@pytest.mark.parametrize(
    ("changes", "missed", "excused"),
    [
        pytest.param({"latencies_ms": (100.0, 200.0)}, 0, 0, id="what held in spite of it holds"),
        pytest.param({}, 30, 10, id="what it cannot explain is told from what it may"),
        pytest.param({"latencies_ms": (100.0, 200.0), "cpu": 0.95}, 0, None, id="no CPU left"),
    ],
)
def test_what_a_search_makes_of_a_late_generator(changes, missed, excused):
    made = of_trial(**changes)
    found = digest(made)
    seen = trial_point(Tell.of(found), "rate")
    assert seen is not None
    assert ("generator-limited" in seen.invalid) == (not seen.valid) == (excused is None)
    assert seen.missed == missed
    assert seen.excused == excused or excused is None


def offered(next_load: NextLoad, share: float, excused: float) -> TrialPoint:
    due = max(1, round(next_load.load * next_load.seconds))
    missed = round(due * share)
    spared = min(missed, round(due * excused))
    return TrialPoint(
        next_load.load, next_load.role, due, missed, next_load.seconds, excused=spared
    )


def steep(load: float, at: float) -> float:
    return 1 / (1 + 99 * (load / at) ** -20)


def searched(excused: float, goal: CapacityGoal = BASE) -> tuple[Capacity, list[TrialPoint]]:
    """A server of 175/s; so much of what is due the generator may explain from 100/s on."""
    points: list[TrialPoint] = []
    for _ in range(120):
        next_load = next_trial(Points(points, goal))
        if next_load is None:
            return judge(Points(points, goal)), points
        points.append(
            offered(next_load, steep(next_load.load, 175), excused if next_load.load > 100 else 0.0)
        )
    raise AssertionError("the search does not end")


def said(found: Capacity) -> str:
    return " ".join((str(found.bounds), *map(str, found.findings)))


def test_lateness_that_explains_a_little_moves_what_fails_alone():
    (plain, _), (late, points) = searched(0.0), searched(0.004)
    assert sure(late.passes) <= 175 < sure(plain.fails) < sure(late.fails)
    assert late.passes == pytest.approx(plain.passes, rel=0.02)
    assert sure(late.estimate).high > sure(plain.estimate).high
    assert all(p.valid for p in points)
    assert "generator-late-loads: " in said(late)
    assert "generator" not in said(plain)


def test_what_a_late_generator_may_explain_altogether_is_no_failure():
    found, _ = searched(1.0)
    assert found.fails is None
    assert sure(found.passes) <= 175
    assert "generator-late-loads: " in said(found)


def test_a_quick_search_refutes_what_no_lateness_explains():
    found, _ = searched(0.03, replace(BASE, quick=True))
    assert 120 < sure(found.passes) <= 175 < sure(found.fails) < 300


def test_a_load_that_failed_by_the_generator_alone_is_no_lower_end():
    found, _ = searched(1.0, replace(BASE, lowest=300, start=300))
    assert (found.passes, found.fails) == (None, None)
    assert "capacity-below-range" not in said(found)


def test_a_soak_is_held_by_all_that_missed():
    next_load = NextLoad(100, 600, "soak")
    found = judge(Points([offered(next_load, 0.02, 0.02)], BASE))
    assert sure(found.soak).verdict != "pass"


@pytest.mark.parametrize("count", seeds(50, 100))
def test_a_late_generator_makes_no_claim_less_true(count):
    # M/M/4 of 20 ms with 5 ms more to each answer, 200 ms, 1%: 175.05/s without the generator's
    # lateness. 20 ms of it are forgiven where something fails.
    queue = Queue(exponential(50), 4, 0.2, later=0.005, forgiven=0.02)
    found = search(queue, BASE, [0.0] * count, seed=11)
    assert found.above(175.05) <= 0.10
    assert float((found.fails < 175.05).mean()) <= 0.10
    assert np.isfinite(found.fails).mean() >= 0.9
    assert found.flagged("generator-late-loads") >= 0.9
