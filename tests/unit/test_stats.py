"""Intervals: the contract's figures, what must always hold, and coverage by simulation."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from pgpaces.analysis.stats import (
    INDEPENDENT,
    Clusters,
    clusters,
    clusters_of,
    inefficiency,
    long_run,
    mean,
    proportion,
    quantile_ranks,
    rate,
    share,
)
from pgpaces.analysis.summary import planned_rates
from pgpaces.analysis.time_distribution import Distribution, distribution_of
from pgpaces.core.times import Times, quantile_rank
from pgpaces.spec.result import Estimate
from tests.unit.queues import queue
from tests.unit.sure import sure

from .seeds import seeds
from .trials import SECOND_NS, spread, times, trial

RUNS = seeds(100, 200)


def least(runs: int) -> float:
    """95% less three standard errors of that share: 0.885 of 100 runs, 0.904 of 200."""
    return 0.95 - 3 * math.sqrt(0.95 * 0.05 / runs)


def test_the_ranks_of_a_p99_of_1000_are_the_contracts():
    assert quantile_ranks(0.99, 1000) == (983, 997)


@pytest.mark.parametrize(
    ("q", "n", "ranks"),
    [
        (0.99, 298, None),
        (0.99, 299, (0, 299)),
        (0.99, 367, (0, 367)),
        (0.99, 368, (360, 368)),
        (0.999, 2994, None),
        (0.999, 2995, (0, 2995)),
        (0.5, 4, None),
        (0.5, 5, (0, 5)),
        (0.5, 6, (1, 6)),
        (0.95, 0, None),
    ],
)
def test_a_quantile_is_estimable_from_the_contracts_numbers_on(q, n, ranks):
    assert quantile_ranks(q, n) == ranks


@given(st.sampled_from([0.5, 0.95, 0.99, 0.999]), st.integers(1, 30_000))
def test_ranks_are_the_tightest_that_the_binomial_allows(q, n):
    found = quantile_ranks(q, n)
    if found is None:
        assert q**n > 0.05
        return
    low, high = found
    assert low <= quantile_rank(q, n) <= high <= n
    if low == 0:
        assert high == n
        return
    below = scipy.stats.binom(n, q).cdf
    assert below(low - 1) <= 0.025 < below(low)
    assert 1 - below(high - 1) <= 0.025 + 1e-12
    assert 1 - below(high - 2) > 0.025 - 1e-12


@given(st.sampled_from([0.5, 0.95, 0.99]), st.integers(1, 5000), st.floats(1, 50))
def test_clusters_never_raise_the_lower_rank(q, n, effect):
    plain, wide = quantile_ranks(q, n), quantile_ranks(q, n, Clusters(effect * 2, 20))
    assert (plain is None) == (wide is None)
    if plain is None or wide is None or plain[1] is None:
        return
    assert wide[0] <= max(plain[0], quantile_rank(q, n))
    assert wide[1] is None or wide[1] >= quantile_rank(q, n)


def test_a_p99_of_clusters_has_a_lower_end_where_they_are_too_few_for_an_upper_one():
    low, high = quantile_ranks(0.99, 6000, Clusters(60, 50)) or (0, 0)
    assert 5700 < low < 5940
    assert high is None
    assert quantile_ranks(0.99, 60_000, Clusters(60, 500)) is not None
    assert quantile_ranks(0.99, 200, Clusters(2, 50)) is None


def test_the_share_of_independent_transactions_has_wilsons_interval():
    found = share(8, 600, INDEPENDENT)
    assert found == proportion(8, 600)
    assert found is not None
    assert (found.low, found.high) == (
        pytest.approx(0.0068, abs=5e-5),
        pytest.approx(0.0261, abs=5e-5),
    )


@given(st.integers(0, 50), st.integers(1, 50), st.floats(1, 100), st.floats(1, 100))
def test_clusters_only_widen_the_interval_of_a_share(hits, others, effect, freedom):
    plain = share(hits, hits + others, INDEPENDENT)
    wide = share(hits, hits + others, Clusters(effect, freedom))
    assert plain is not None
    assert wide is not None
    assert 0 <= wide.low <= wide.value <= wide.high <= 1
    assert wide.high >= plain.high - 1e-12


def test_few_hits_take_their_clusters_from_the_mean_and_many_have_their_own():
    due, body = np.full(60, 100), Clusters(40.0, 50.0)
    none = clusters_of(np.zeros(60), due, body)
    assert none.effect == 40
    alone = np.zeros(60)
    alone[::20] = 1
    assert 30 < clusters_of(alone, due, body).effect < 40
    spread_out = np.random.default_rng(3).binomial(100, 0.4, 60)
    assert clusters_of(spread_out, due, Clusters(1.0, 50.0)).effect == pytest.approx(1, abs=0.5)
    outage = np.where(np.arange(60) < 6, 100, 0)
    assert clusters_of(outage, due, Clusters(1.0, 50.0)).effect > 100


def test_an_uncertain_variance_makes_the_tail_below_larger_and_leaves_the_one_above():
    sure, unsure = Clusters(effect=4.0), Clusters(effect=4.0, freedom=5.0)
    assert sure.tails == pytest.approx((0.04, 0.01))
    assert unsure.tails == pytest.approx((0.04 + 0.055 * 0.75 / 5, 0.01))
    assert (sure.tail_alone, unsure.tail_alone) == pytest.approx((0.055, 0.06325))
    assert Clusters(effect=1.0, freedom=5.0).tails == (0.025, 0.025)


def test_a_lower_end_alone_rises_with_every_independent_value():
    """Also where none of them is expected above a p99."""
    ends = [quantile_ranks(0.99, 3000, Clusters(effect=3000 / m)) for m in range(2, 40)]
    lows = [low for low, high in ends if high is None]
    assert len(lows) > 30
    assert all(before < after for before, after in pairwise(lows))
    # Of five no event is likelier than 95%: the end is above that for half an event.
    assert lows[3] > 3000 - 3000 / 5 / 2


def test_few_hits_that_come_independently_are_as_certain_as_the_binomial():
    rng = np.random.default_rng(4)
    due = np.full(60, 100.0)
    hits = rng.binomial(100, 0.01, 60).astype(float)
    as_any, as_rarer = (
        clusters_of(hits, due, Clusters(1.3, 9.0), is_rarer=is_rarer) for is_rarer in (False, True)
    )
    assert as_rarer.freedom > 3 * as_any.freedom
    clumped = np.where(np.arange(60) % 20 < 2, 25.0, 0.0)
    as_any, as_rarer = (
        clusters_of(clumped, due, Clusters(20.0, 9.0), is_rarer=is_rarer)
        for is_rarer in (False, True)
    )
    assert as_rarer.freedom < 1.3 * as_any.freedom


def test_what_did_not_succeed_is_above_every_end_of_an_interval():
    served = times(range(1, 991))
    found = sure(spread(served, 1000).p99)
    assert found.value == pytest.approx(990, rel=1e-3)
    assert found.low == pytest.approx(983, rel=1e-3)
    assert found.high == math.inf
    assert found.n == 1000


def test_too_few_for_an_interval_is_said_to_be_not_estimable():
    found = spread(times([1.0] * 200), 200)
    assert found.p99 is not None
    assert not found.p99.estimable
    assert found.p99.value == pytest.approx(1, rel=1e-3)
    assert sure(found.p50).estimable


def test_one_bound_starts_at_nothing():
    found = sure(spread(times(range(1, 321)), 320).p99)
    assert (found.low, found.high) == (0.0, pytest.approx(320, rel=1e-3))
    assert found.estimable


def test_of_nothing_there_is_no_number():
    found = spread(Times(), 0)
    assert (found.p50, found.p99, found.mean, found.max) == (None, None, None, None)


@given(st.lists(st.floats(0.01, 1e3), min_size=1, max_size=200), st.integers(0, 50))
def test_a_value_lies_in_its_interval(values, lost):
    found = spread(times(values), len(values) + lost)
    for estimate in (found.mean, found.p50, found.p95, found.p99, found.p999):
        assert estimate is not None
        assert estimate.low <= estimate.value <= estimate.high


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=200))
def test_the_inefficiency_is_from_1_to_n(values):
    assert 1.0 <= inefficiency(np.array(values)) <= len(values)


def test_independent_seconds_are_worth_themselves():
    noise = np.random.default_rng(1).normal(size=20_000)
    assert inefficiency(noise) == pytest.approx(1, abs=0.1)


def test_the_inefficiency_of_an_autoregression_is_the_known_one():
    rng, phi = np.random.default_rng(2), 0.7
    x = np.zeros(50_000)
    for i, shock in enumerate(rng.normal(size=len(x) - 1)):
        x[i + 1] = phi * x[i] + shock
    assert inefficiency(x) == pytest.approx((1 + phi) / (1 - phi), rel=0.15)


def test_constant_seconds_have_an_exact_mean():
    counts = np.array([10, 0, 30, 10])
    found = mean(counts * 5.0, counts)
    assert found == Estimate(5.0, 5.0, 5.0, 50)


def test_a_single_second_has_no_interval_of_its_mean():
    for seconds in ([4], [0, 4, 0]):
        counts = np.array(seconds)
        found = sure(mean(counts * 2.5, counts))
        assert (found.value, found.estimable) == (2.5, False)
    alone = sure(rate(np.array([4])))
    assert (alone.value, alone.estimable) == (4.0, False)


@pytest.mark.parametrize("seconds", [2, 60])
def test_a_rate_is_known_to_within_one_transaction_however_regular_it_is(seconds):
    found = sure(rate(np.full(seconds, 10)))
    assert (found.value, found.low, found.high) == (10, 10 - 1 / seconds, 10 + 1 / seconds)


def test_few_seconds_are_taken_for_independent():
    sums, counts = np.array([1.0, 100.0, 1.0]), np.array([10, 10, 10])
    assert clusters(sums, counts, 1.0) == INDEPENDENT
    assert clusters(np.repeat(sums, 5), np.repeat(counts, 5), 5.0).effect > 1.5


def test_that_neighbors_balance_each_other_is_believed_for_half_of_the_variance():
    alone = 10 * 60 / 59
    assert long_run(np.tile([3.0, -3.0], 30)).variance == pytest.approx(60 * 0.9 * alone / 2)


def test_the_upper_end_of_a_mean_is_farther_than_the_lower_and_none_is_below_0():
    found = sure(mean(np.array([1.0, 100.0, 1.0, 3.0]), np.array([1, 1, 1, 1]), 5.0))
    assert 0 <= found.low < found.value < found.high
    assert found.high / found.value > found.value / max(found.low, 1e-9) * 0.99


def observed(due_s: np.ndarray, latency_ms: np.ndarray, length_s: int) -> Distribution:
    seconds = due_s.astype(int)
    counts = np.bincount(seconds, minlength=length_s)
    sums = np.bincount(seconds, latency_ms * 1e6, minlength=length_s)
    return distribution_of(times(latency_ms), len(latency_ms), counts, sums_ns=sums)[0]


def covered(estimates: list[Estimate | None], truth: float) -> float:
    """The share of intervals that hold the truth, of those that there are."""
    told = [e for e in estimates if e is not None and e.estimable]
    assert len(told) > len(estimates) // 2
    return sum(e.low <= truth <= e.high for e in told) / len(told)


@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize("load", [0.5, 0.8])
def test_intervals_hold_the_truth_of_a_queue(load, runs):
    rng, per_s, length_s = np.random.default_rng(4), 20, 600
    mean_ms = 1000 * load / per_s / (1 - load)
    found = [observed(*queue(rng, load, per_s, length_s), length_s) for _ in range(runs)]
    assert covered([s.p50 for s in found], mean_ms * math.log(2)) >= least(runs)
    assert covered([s.p95 for s in found], mean_ms * math.log(20)) >= least(runs)
    # Ten minutes at a utilization of 0.8 are some 190 independent transactions; that shows.
    assert covered([s.mean for s in found], mean_ms) >= (least(runs) if load < 0.8 else 0.84)


@pytest.mark.parametrize("runs", RUNS)
def test_ranks_alone_would_not_hold_the_truth_of_a_queue(runs):
    rng, per_s, length_s = np.random.default_rng(5), 20, 600
    truth = 1000 * 0.8 / per_s / 0.2 * math.log(20)
    each = [queue(rng, 0.8, per_s, length_s)[1] for _ in range(runs)]
    assert covered([spread(times(run), len(run)).p95 for run in each], truth) < 0.5


@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize("per_s", [2, 100])
def test_intervals_hold_the_truth_of_independent_transactions(per_s, runs):
    rng, length_s = np.random.default_rng(6), 60
    found, rates = [], []
    for _ in range(runs):
        due = rng.uniform(0, length_s, rng.poisson(per_s * length_s))
        found.append(observed(due, rng.exponential(10, len(due)), length_s))
        rates.append(rate(np.bincount(due.astype(int), minlength=length_s)))
    assert covered([s.mean for s in found], 10) >= least(runs)
    assert covered([s.p50 for s in found], 10 * math.log(2)) >= least(runs)
    assert covered([s.p95 for s in found], 10 * math.log(20)) >= least(runs)
    assert covered(rates, per_s) >= least(runs)
    if per_s == 100:
        assert covered([s.p99 for s in found], 10 * math.log(100)) >= least(runs)


OWN = (0,)


def planned(shape: str, seconds: int, start: int = 0) -> list[float] | None:
    plan = {"limit_ns": None, "policy": "run", "model": "open", "shape": shape}
    made = trial([], plan=plan, measured_ns=seconds * SECOND_NS)
    found = planned_rates(made, OWN, start, count=seconds - start)
    return None if found is None else found.tolist()


def test_the_planned_rate_of_each_second_is_that_of_the_shape():
    assert planned("constant", 6) is None
    assert planned("steps:0.5:1:2", 6) == [0.5, 0.5, 1, 1, 2, 2]
    assert planned("steps:0.5:2", 3) == [0.5, 1.25, 2]
    assert planned("steps:0.5:2", 4, 1) == [0.5, 2, 2]
    assert planned("ramp:1:2", 4) == pytest.approx([1.125, 1.375, 1.625, 1.875])
    assert planned("burst:4:1s:3s", 6) == [1, 1, 4, 1, 1, 4]
    day = planned("day", 96)
    assert day is not None
    assert np.mean(day) == pytest.approx(1, abs=0.01)


def test_a_workload_beside_the_trials_own_has_a_constant_rate():
    plan = {"limit_ns": None, "policy": "run", "model": "open", "shape": "ramp:1:2"}
    made = trial([], plan=plan, measured_ns=4 * SECOND_NS)
    assert planned_rates(made, (7,), 0, count=4) is None
    assert planned_rates(made, OWN, 0, count=0) is None


def test_what_was_planned_is_no_chance():
    rng, steps = np.random.default_rng(3), np.repeat([50.0, 100.0, 150.0], 40)
    found, blind = rate(rng.poisson(steps), steps), rate(rng.poisson(steps))
    assert found is not None
    assert blind is not None
    assert found.high - found.low < 6
    assert blind.high - blind.low > 30


def test_what_varies_in_a_part_of_the_time_is_known_from_that_part():
    rng, bursts = np.random.default_rng(4), np.tile(np.repeat([1.0, 2.0], [8, 2]), 30)
    noise = rng.normal(size=300)
    everywhere, seldom = long_run(noise, bursts), long_run(noise * (bursts > 1), bursts)
    assert everywhere.points > 200
    assert 30 < seldom.points < 70
    assert seldom.cosines < everywhere.cosines / 2
