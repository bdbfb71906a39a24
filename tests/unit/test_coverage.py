"""How often the intervals and claims of an experiment are right, by simulation with fixed seeds.

The same figures stand in docs/explanation/validity-and-intervals.md.
"""

import numpy as np
import pytest

from pgpaces.analysis import across, crossing
from pgpaces.analysis.cells import Row
from pgpaces.analysis.stats import quantile_ranks
from pgpaces.core.times import quantile_rank
from pgpaces.spec.design import Cell
from pgpaces.spec.result import Estimate
from tests.unit.seeds import seeds

RUNS = seeds(400, 800)
MISSED_MAX = 0.05


def shares(truth, spread):
    """A cell of k trials with 400 due each, of which each misses a share of its own around truth.

    spread: the standard deviation of those shares (beta) over their mean.
    """

    def cell(draw, trials):
        size = (1 - truth) / (truth * spread**2) - 1
        own = draw.beta(truth * size, (1 - truth) * size, trials)
        hits = [(int(k), 400) for k in draw.binomial(400, own)]
        found = across.share([[(k, n, 1.0) for k, n in hits]])
        assert found is not None
        return found

    return cell


def times(share, spread):
    """A quantile of k trials of 400 log-normal times; spread: between trials, of the log."""

    def trial(draw):
        found = np.sort(np.exp(draw.normal(0, 0.5, 400) + draw.normal(0, spread)))
        value = float(found[quantile_rank(share, 400) - 1])
        ranks = quantile_ranks(share, 400)
        if ranks is None:
            return Estimate.alone(value, 400)
        low, high = ranks
        return Estimate(value, float(found[low - 1]) if low else 0.0, float(found[high - 1]), 400)

    def cell(draw, trials):
        found = across.together([[trial(draw) for _ in range(trials)]])
        assert found is not None
        return found

    return cell


def covered(cell, trials, truth, runs):
    """In what share of experiments the interval holds the truth."""
    draw = np.random.default_rng(20261122)
    found = [cell(draw, trials) for _ in range(runs)]
    return sum(each.low <= truth <= each.high for each in found) / runs


@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize(
    ("of", "trials", "spread", "least"),
    [(shares, 2, 0.3, 0.86), (shares, 3, 0.3, 0.94), (shares, 5, 0.3, 0.93), (shares, 8, 0.3, 0.93),
     (shares, 2, 0.6, 0.82), (shares, 3, 0.6, 0.93), (shares, 5, 0.6, 0.92),
     (times, 2, 0.05, 0.93), (times, 3, 0.05, 0.92), (times, 5, 0.05, 0.92),
     (times, 2, 0.15, 0.86), (times, 3, 0.15, 0.92), (times, 5, 0.15, 0.92)],
)  # fmt: skip
def test_an_interval_holds_the_truth_when_the_server_wavers(of, trials, spread, least, runs):
    truth = 0.05 if of is shares else float(np.exp(0.5 * 1.6448536 + spread**2 / 2))
    cell = of(0.05 if of is shares else 0.95, spread)
    assert covered(cell, trials, truth, runs) >= least


def test_a_percentile_that_no_trial_can_tell_is_not_estimable_from_any_number_of_them():
    draw = np.random.default_rng(1)
    assert not times(0.999, 0.0)(draw, 8).estimable


@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize("trials", [2, 3, 5])
@pytest.mark.parametrize("truth", [0.04, 0.05, 0.065])
def test_held_and_did_not_hold_are_seldom_claimed_wrongly(trials, truth, runs):
    """At the threshold either claim is wrong; a little off it, that of the other side."""
    draw = np.random.default_rng(3)
    said = []
    for _ in range(runs):
        row = Row(Cell(()), sound=True, estimates={"missed": shares(truth, 0.3)(draw, trials)})
        said.append(crossing.verdict(row, MISSED_MAX))
    most = 0.05 if truth == MISSED_MAX else 0.02
    if truth >= MISSED_MAX:
        assert said.count("pass") / runs <= most
    if truth <= MISSED_MAX:
        assert said.count("fail") / runs <= most


def test_where_the_share_is_far_from_the_threshold_three_trials_tell():
    draw = np.random.default_rng(4)
    found = [
        crossing.verdict(Row(Cell(()), sound=True, estimates={"missed": cell(draw, 3)}), MISSED_MAX)
        for cell in (shares(0.01, 0.3), shares(0.15, 0.3))
        for _ in range(200)
    ]
    assert found[:200].count("pass") > 150
    assert found[200:].count("fail") > 150
