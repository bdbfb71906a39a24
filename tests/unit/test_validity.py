"""A trial is valid or says why not: the warm-up, the shape, the generator, what sensors found."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from pgpaces.analysis.accumulator import Accumulator, Outages, together
from pgpaces.analysis.generator import Generator
from pgpaces.analysis.level_shift import Flatness
from pgpaces.analysis.summary import summarize
from pgpaces.analysis.validity import Validity, judge_trial
from pgpaces.core.findings import Finding, finding
from pgpaces.core.record import Interval, Tally
from pgpaces.spec.result import Counts, Estimate, Trial
from tests.unit.sure import sure

from .trials import SECOND_NS, planned, second, series, times, trial

GOOD = Generator(0.1, Estimate(0.1, 0.1, 0.1, 1000), little=1.0, little_service=1.0, limited=False)
FLAT = Flatness("flat", Estimate(0.0, -0.01, 0.01, 100), (), (10.0,))
RISING = Flatness("slowing down", Estimate(0.2, 0.1, 0.3, 100), (40,), (10.0, 12.0))


def judged(made: Trial, *, too_short: bool = False, **changes: Any) -> Validity:
    """The judgment of a trial whose summary is good but for these changes."""
    good = {"counts": Counts(100, 100), "generator": GOOD, "flatness": FLAT}
    summary = replace(summarize(trial([])), **(good | changes))
    return judge_trial(made, summary, Accumulator(), own=together({}), too_short=too_short)


def names(found: Validity) -> list[str]:
    return [each.name for each in found.findings]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [({"limited": True, "cpu": 0.95}, finding("generator-limited", cpu_percent=95.0)),
     ({"little": 1.05}, finding("counts-disagree", ratio=1.05))],
)  # fmt: skip
def test_a_generator_that_is_the_limit_makes_a_trial_invalid(changes, expected):
    found = judged(trial([]), generator=replace(GOOD, **changes))  # type: ignore[arg-type]
    assert (found.state, found.findings) == ("invalid", (expected,))


def shares(*generators: tuple[str, float, float]) -> tuple[Finding, ...]:
    """What each of several generators did: its name, its lag in ms, and its CPU in percent."""
    return tuple(
        finding("generator-share", name, lag_ms=lag, cpu_percent=cpu, busy=cpu > 90, late=lag > 1)
        for name, lag, cpu in generators
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"cpu": 0.95}, ("generator-limited", "pi-3")),
        (
            {"late": True, "dispatch_p99": Estimate(5.4, 5, 6, 299), "due": 9, "excused": 6},
            ("generator-late-decides", "pi-1, pi-6, pi-2"),
        ),
        (
            {"late": True, "dispatch_p99": Estimate(5.4, 5, 6, 299), "excused": None},
            ("generator-late-users", "pi-1, pi-6, pi-2"),
        ),
    ],
)
def test_of_several_generators_those_that_were_the_limit_are_named(changes, expected):
    named = shares(
        ("pi-1", 5.4, 8.0), ("pi-2", 6.0, 8.0), ("pi-3", 0.1, 95.0), ("pi-4", 0.1, 8.0),
        ("pi-5", 0.1, 91.0), ("pi-6", 5.5, 8.0),
    )  # fmt: skip
    generator = replace(GOOD, limited=True, **changes)  # type: ignore[arg-type]
    found = judged(trial([], findings=named), generator=generator).findings[0]
    assert (found.name, found.about) == expected


def test_one_of_many_generators_that_was_late_is_named_where_all_together_were_not():
    late = shares(("pi-3", 12.0, 8.0))
    found = judged(trial([], findings=late))
    assert found.findings == (finding("one-generator-late", "pi-3"), *late)
    assert found.state == "valid"


@pytest.mark.parametrize(("seconds", "state"), [(0.0, "valid"), (0.9, "valid"), (8.0, "invalid")])
def test_an_outage_says_nothing_of_what_the_server_holds(seconds, state):
    found = judged(trial([]), outages=Outages(all_down_s=seconds))
    assert found.state == state
    assert names(found) == (["no-connection"] if seconds > 1 else [])
    assert found.outage == (state == "invalid")


@pytest.mark.parametrize(
    ("name", "state"),
    [("machine-activity", "valid"), ("cpu-steal", "valid"), ("cpu-steal-high", "invalid")],
)
def test_a_monitor_may_judge_too(name, state):
    found = judged(trial([], findings=(Finding(name),)))
    assert (found.state, names(found)) == (state, [name])


def test_the_most_severe_finding_comes_first_and_then_the_order_of_the_catalog():
    expected = ["too-hot", "settings-changed", "cpu-steal", "unheard-of", "machine-activity"]
    found = judged(trial([], findings=tuple(map(Finding, sorted(expected)))))
    assert names(found) == expected
    assert [len(found.reasons), len(found.warnings)] == [1, 3]


FALLING = replace(RISING, shape="warming up", levels_ms=(12.0, 10.0))
WAVERING = replace(RISING, shape="no steady state", levels_ms=(10.0, 12.0, 10.0))
SHORT = {"too_short": True}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        (SHORT, []),
        ({**SHORT, "flatness": FALLING}, ["never-settled", "latency-fell"]),
        ({**SHORT, "flatness": RISING}, ["latency-rose"]),
        ({"flatness": WAVERING}, ["latency-unsteady"]),
    ],
    ids=["good", "a warm-up alone", "it never settles", "an overload, which is a valid answer",
         "levels that go up and down"],
)  # fmt: skip
def test_a_trial_that_never_settles_is_too_short(changes, expected):
    assert names(judged(trial([]), **changes)) == expected


def test_misses_in_what_was_cut_are_a_warning():
    left_out = Counts(due=50, on_time=40, late=10)
    found = judged(trial([]), cut_s=20, left_out=left_out)
    assert found.findings == (finding("warm-up-missed", seconds=20, missed=10, due=50),)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"state": "interrupted", "ended_at": datetime(2026, 1, 1, tzinfo=UTC)}, "interrupted"),
        ({"state": "interrupted"}, "end-not-stored"),
        ({"state": "failed", "error": "the server went away"}, "ended-early"),
    ],
)
def test_how_a_trial_ended_is_a_warning(changes, expected):
    found = judged(trial([], **changes))
    assert (found.state, names(found)) == ("valid", [expected])
    assert found.findings[0].values == ({"why": changes["error"]} if "error" in changes else {})


@pytest.mark.parametrize(("seconds", "state"), [(8, "invalid"), (9.5, "valid"), (None, "valid")])
def test_a_finished_trial_that_is_shorter_than_planned_is_not_valid(seconds, state):
    measured_ns = None if seconds is None else int(seconds * 1e9)
    ended = trial([], measured_ns=measured_ns)
    ended = planned(ended, duration_ns=10 * SECOND_NS)
    found = judged(ended)
    assert (found.state, "load-ended-early" in names(found)) == (state, state == "invalid")
    assert judged(replace(ended, state="interrupted")).state == "valid"


def test_that_a_generator_was_lost_is_why_sums_are_wrong():
    lost = finding("generator-lost", "pi1", why="it was silent")
    late = finding("generator-began-late", "pi1", late_ms=3.0)
    wrong = replace(GOOD, little=7.5)
    assert len(judged(trial([], findings=(late,)), generator=wrong).reasons) == 2
    assert judged(trial([], findings=(lost,)), generator=wrong).findings == (lost,)


def test_a_trial_in_which_nothing_was_due_is_invalid():
    assert names(summarize(trial([])).validity) == ["nothing-due"]
    assert summarize(trial([], state="interrupted")).validity.state == "valid"
    running = judged(trial([], state="running"), counts=Counts())
    assert running.findings == (finding("still-running"),)


# The cut, in a whole trial.

STEADY = [[9.0, 10.0, 11.0, 10.0]] * 80
SETTLING = [[40.0, 41.0]] * 20


def test_a_warm_up_that_lasts_longer_than_its_minimum_is_cut():
    found = summarize(series([*SETTLING, *STEADY]))
    assert (found.cut_s, found.seconds) == (20, 80.0)
    assert (found.counts.due, found.counts.missed) == (320, 0)
    assert found.throughput.value == 4.0
    assert found.latency.max == pytest.approx(11)
    assert sure(found.latency.mean).value == pytest.approx(10)
    assert found.scripts[0].counts == found.counts
    assert finding("warm-up-cut", seconds=20, missed=0, due=40) in found.validity.findings


def sparse(seconds: list[list[float]]) -> list[list[float]]:
    return [values for second in seconds for values in (second, [])]


WHOLE = [*SETTLING, *STEADY]
BY_COUNT = {"limit_ns": None, "policy": "run", "model": "closed", "transactions": 120}
STEPS = {"limit_ns": None, "policy": "run", "model": "open", "shape": "steps:1:2"}
# A trial, how much of it is cut, how many were due in the rest, and its shape.
CUTS: dict[str, tuple[Trial, int, int, str]] = {
    "it settles within the minimum": (series(WHOLE, first=-20), 0, 320, "flat"),
    "the minimum is too short": (series(WHOLE, first=-7), 13, 320, "flat"),
    "it ends by count": (series(WHOLE, plan=BY_COUNT), 0, 360, "warming up"),
    "its rate changes": (series(WHOLE, plan=STEPS), 0, 360, ""),
    "without that": (series(WHOLE, plan=STEPS | {"shape": "constant"}), 20, 320, "flat"),
    "49 seconds": (series([*SETTLING, *STEADY[:29]]), 0, 156, "warming up"),
    "29 seconds": (series(STEADY[:29]), 0, 116, ""),
    "empty seconds are no points": (series(sparse(WHOLE)), 40, 320, "flat"),
    "29 seconds and empty ones": (series(sparse(STEADY[:29])), 0, 116, ""),
    "too short to settle": (series([[float(ms)] for ms in range(70, 10, -1)]), 0, 60, "warming up"),
    "a queue that grows to the end":
        (series([[float(ms)] for ms in range(10, 200)]), 0, 190, "slowing down"),
}  # fmt: skip


@pytest.mark.parametrize("name", CUTS)
def test_what_is_cut_and_what_shape_the_rest_has(name):
    shown, cut_s, due, shape = CUTS[name]
    found = summarize(shown)
    assert (found.cut_s, found.counts.due) == (cut_s, due)
    assert (found.flatness.shape if found.flatness else "") == shape
    short = name == "too short to settle"
    assert ("rate-changes" in names(found.validity)) == (name == "its rate changes")
    about_cut = {"never-settled", "warm-up-cut", "warm-up-missed"} & {*names(found.validity)}
    assert bool(about_cut) == bool(cut_s or short)
    assert bool(found.validity.reasons) == short


def test_a_cut_goes_by_due_time():
    whole = series([*SETTLING, *STEADY])
    late = Tally(19, 0, due=1, late=1, latency=times([9000.0]))
    served = replace(whole.intervals[28], tallies=(*whole.intervals[28].tallies, late))
    intervals = (*whole.intervals[:28], served, *whole.intervals[29:])
    found = summarize(replace(whole, intervals=intervals))
    assert found.cut_s == 20
    assert (found.counts.late, found.latency.max) == (0, pytest.approx(11))
    assert found.throughput.value == pytest.approx(321 / 80)


def test_failures_and_statements_are_cut_as_well():
    whole = series([*SETTLING, *STEADY])
    early = Tally(3, 0, due=2, failed={"40001": 2})
    late = Tally(90, 0, due=1, failed={"08006": 1})
    added = Interval(99, tallies=(early, late), ended_ns=100 * SECOND_NS)
    found = summarize(replace(whole, intervals=(*whole.intervals, added)))
    assert found.failures == {"08006": 1}
    assert found.counts.failed == 1


def test_under_policy_skip_only_what_was_sent_has_a_latency():
    """Seconds in which all was skipped are no points, and count as missed all the same."""
    skipped = [
        Interval(n, tallies=(Tally(n, 0, due=5, skipped=5),), ended_ns=(n + 1) * SECOND_NS)
        for n in range(60, 80)
    ]
    served = [second(n, STEADY[0]) for n in range(60)]
    plan = {"limit_ns": 500_000_000, "policy": "skip", "model": "open"}
    run = trial([], plan=plan, intervals=(*served, *skipped), measured_ns=80 * SECOND_NS)
    found = summarize(run)
    assert (found.counts.skipped, found.cut_s) == (100, 0)
    assert sure(found.flatness).shape == "flat"
