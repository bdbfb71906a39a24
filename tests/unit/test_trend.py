"""Runs one after the other: changes of their level, and a run against earlier ones."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pgpaces.analysis.compare import BASELINE_MIN, ComparisonGoal
from pgpaces.analysis.trend import RUNS_MIN, Run, trend
from pgpaces.spec.result import Estimate
from tests.unit.comparisons import check, runs, side
from tests.unit.seeds import seeds


@pytest.mark.parametrize("tries", seeds(400, 800))
@pytest.mark.parametrize("count", [8, 12, 20, 50])
def test_where_nothing_changed_hardly_ever_a_change_is_found(count, tries):
    draw = np.random.default_rng(count)
    wrong = sum(bool(trend(runs(draw.normal(0, 0.03, count))).changes) for _ in range(tries))
    assert wrong / tries <= 0.06


@pytest.mark.parametrize("count", [10, 30])
def test_a_change_is_found_where_it_is_and_as_large_as_it_is(count):
    draw = np.random.default_rng(count)
    tries, at, exact, held = 200, count // 2, 0, 0
    for _ in range(tries):
        logs = draw.normal(0, 0.02, count)
        logs[at:] -= 0.10
        found = [each for each in trend(runs(logs)).changes if each.first == f"r{at}"]
        exact += len(found)
        held += sum(each.ratio.low <= math.exp(-0.1) <= each.ratio.high for each in found)
    assert exact / tries >= 0.9
    assert held / exact >= 0.9


def test_levels_and_the_runs_around_changes_are_named():
    draw = np.random.default_rng(3)
    logs = draw.normal(0, 0.01, 30)
    logs[10:20] += 0.3
    found = trend(runs(logs))
    assert [(each.before, each.first) for each in found.changes] == [("r9", "r10"), ("r19", "r20")]
    assert [(each.first, each.last, each.runs) for each in found.levels] == [
        ("r0", "r9", 10), ("r10", "r19", 10), ("r20", "r29", 10)
    ]  # fmt: skip
    assert found.levels[1].value.value == pytest.approx(135, rel=0.02)
    assert found.changes[0].ratio.value == pytest.approx(1.35, rel=0.02)
    assert found.spread == pytest.approx(0.01, rel=0.5)
    assert all(each.p < 0.05 for each in found.changes)


@pytest.mark.parametrize(("step", "own"), [(0.02, 0.08), (0.08, 0.10)])
def test_a_step_within_what_runs_say_of_themselves_is_no_change(step, own):
    """Also where it is large enough to be a candidate."""
    logs = [0.0] * 8 + [step] * 8
    assert len(trend(runs(logs)).changes) == 1
    assert trend(runs(logs, own=own)).changes == ()


def test_few_runs_say_how_many_it_takes():
    found = trend(runs([0.0] * (RUNS_MIN - 1)))
    assert (found.needed, found.changes, found.levels) == (RUNS_MIN, (), ())
    assert trend([]).needed == RUNS_MIN


def test_runs_that_are_all_alike_have_one_level():
    found = trend(runs([0.0] * 12))
    assert found.changes == ()
    assert len(found.levels) == 1


@pytest.mark.parametrize("value", [0.0, math.inf])
def test_a_run_without_a_logarithm_is_named_and_left_out(value):
    bad = Run("bad", Estimate.alone(value, 1))
    found = trend([*runs([0.0] * 8), bad])
    assert (found.left_out, found.runs) == (("bad",), 8)


@pytest.mark.parametrize("tries", seeds(2500, 5000))
@pytest.mark.parametrize("count", [4, 8, 20])
def test_a_run_like_the_earlier_ones_is_called_better_or_worse_in_one_of_twenty(count, tries):
    draw, wrong = np.random.default_rng(count), 0
    for _ in range(tries):
        old, new = ([side(100 * math.exp(x)) for x in draw.normal(0, 0.04, k)] for k in (count, 1))
        wrong += check(new, old, ComparisonGoal()).outcome in ("better", "worse")
    assert wrong / tries <= 0.058


def test_each_verdict_on_a_run_is_reached():
    draw = np.random.default_rng(5)
    old = [side(100 * math.exp(x)) for x in draw.normal(0, 0.004, 10)]
    outcomes = {
        rate: check([side(rate)], old, ComparisonGoal()).outcome
        for rate in (80.0, 100.0, 102.0, 120.0)
    }
    assert outcomes[80.0] == "worse"
    assert outcomes[100.0] == "same"
    assert outcomes[102.0] == "better"
    assert outcomes[120.0] == "better"
    wide = [side(100 * math.exp(x)) for x in draw.normal(0, 0.2, 10)]
    assert check([side(90.0)], wide, ComparisonGoal()).outcome == "unknown"


def test_a_baseline_of_few_runs_says_how_many_it_takes():
    found = check([side(100)], [side(100)] * (BASELINE_MIN - 1), ComparisonGoal())
    assert (found.outcome, found.why, found.needed) == ("unknown", "few", BASELINE_MIN)
    assert check([], [side(100)] * 9, ComparisonGoal()).why == "nothing new"


def test_other_metrics_are_held_against_a_baseline_too():
    old = [side(rate, p99=rate / 10) for rate in (98.0, 99.0, 100.0, 101.0, 102.0)]
    goal = ComparisonGoal("throughput", ("p99", "p95"))
    found = check([side(100.0, p99=90.0)], old, goal)
    assert [(each.metric, each.outcome) for each in found.secondary] == [("p99", "worse")]


def test_a_run_whose_number_is_none_is_not_held_against_anything():
    found = check([side(1, p99=math.inf)], [side(1, p99=9)] * 5, ComparisonGoal("p99"))
    assert (found.outcome, found.why, found.undefined) == ("unknown", "unbounded", 1)


def test_shares_are_held_against_what_counts_alone_allow():
    old = [side(1, 0, 200)] * 6
    assert check([side(1, 2, 200)], old, ComparisonGoal("missed")).outcome == "unknown"
    assert check([side(1, 40, 200)], old, ComparisonGoal("missed")).outcome == "worse"
