"""A or B: verdicts, their error rates on a drifting machine, and what is asked for next."""

import math

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgpaces.analysis import compare
from pgpaces.analysis.across import Effect, effect_of_groups, effect_of_pairs, holm
from pgpaces.analysis.compare import BOUNDS, ComparisonGoal, Pair, Verdict, compare_pairs
from pgpaces.analysis.differences import differ
from pgpaces.analysis.sequential import next_pairs, planned_pairs
from pgpaces.core.errors import PlanError
from pgpaces.spec.design import Ask, Cell
from pgpaces.spec.result import Estimate
from pgpaces.spec.setup import Prepared
from tests.errors import raises
from tests.unit.comparisons import (
    MISSED,
    ONCE,
    STEADY,
    differences,
    drift,
    pair,
    pairs_of,
    shares,
    side,
    verdict,
    with_noise,
)
from tests.unit.experiments import made
from tests.unit.seeds import seeds
from tests.unit.trials import changed, planned

MACHINES = 60_000
LOOKS = ComparisonGoal(same=0)


def p_of(logs):
    k = logs.shape[1]
    t = logs.mean(axis=1) / (logs.std(axis=1, ddof=1) / math.sqrt(k))
    return 2 * scipy.special.stdtr(k - 1, -np.abs(t))


def claims(logs, goal):
    """How often a difference is claimed at any look of the goal."""
    return float(np.mean(np.any([p_of(logs[:, :k]) <= p for k, p in goal.looks], axis=0)))


def test_three_looks_cost_no_more_than_one():
    drifting = drift(np.random.default_rng(12), MACHINES, 48)
    independent = np.random.default_rng(12).normal(0, 0.03, (MACHINES, 24))
    assert claims(differences(drifting[:, :16], ONCE)[0], ONCE) <= 0.055
    assert claims(differences(drifting, LOOKS)[0], LOOKS) <= 0.055
    assert claims(independent, LOOKS) <= 0.053


def test_holm_is_the_step_down_of_bonferroni():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert (holm([0.9, 0.8]), holm([])) == ([1, 1], [])


def test_looks_are_thirds_of_as_many_pairs_as_are_allowed_and_the_last_one_ends_it():
    assert [look for look, _ in ComparisonGoal(pairs=48).looks] == [16, 32, 48]
    assert ComparisonGoal(pairs=8).looks == ((8, 0.05),)
    assert len(planned_pairs(ComparisonGoal(pairs=50), 50)) == 58
    found = next_pairs([pair(n, 0.02 + 0.1 * (-1) ** n) for n in range(1, 25)], LOOKS)
    assert (found.outcome, found.pairs, found.level) == ("unknown", 24, BOUNDS[2])
    assert found.needed > 24


def test_of_shares_of_groups_apart_and_of_one_trial_of_each_nothing_is_claimed():
    a, b = [side(1, 0, 1000)] * 5, [side(1, 500, 1000)] * 5
    assert compare.compare_trials(a, b, ComparisonGoal("missed"), basis="apart").why == "apart"
    assert compare.compare_trials(a, b, ComparisonGoal("missed"), basis="trials").outcome == "worse"
    found = compare.compare_trials([side(100)], [side(200)], ComparisonGoal(), basis="apart")
    assert (found.why, found.needed) == ("few", 2)
    assert found.estimate == Estimate.alone(pytest.approx(2.0), 1)


@pytest.mark.parametrize("tau_min", [5, 15, 120])
def test_a_real_difference_of_three_percent_is_found(tau_min):
    draw = np.random.default_rng(14)
    logs = drift(draw, MACHINES // 3, 48, (tau_min, tau_min))
    assert claims(differences(logs, LOOKS, math.log(1.03))[0], LOOKS) >= 0.80


def test_what_is_simulated_in_vectors_is_what_is_decided_pair_by_pair():
    """Equivalence comes first, so a claim of the vectors may also be one of equivalence."""
    goal = ComparisonGoal(same=0, delta=1e-9)
    logs, _ = differences(drift(np.random.default_rng(15), 500, 48), goal, 0.01)
    for row in logs:
        found = next_pairs(pairs_of(row, [], goal), goal)
        assert isinstance(found, Verdict)
        claimed = any(p_of(row[None, :k])[0] <= level for k, level in goal.looks)
        assert claimed == (found.outcome != "unknown")


# A rule that is wrong in 6.5% of all fails 96 times in 100 with 2,000 comparisons.
@pytest.mark.parametrize("comparisons", seeds(2_000, 10_000))
def test_a_server_compared_with_itself_is_rarely_called_better_or_worse(comparisons):
    """All rules together: looks, equivalence, and the noise floor of A with itself."""
    goal, held = ComparisonGoal(), 0
    draw = np.random.default_rng(16)
    real, same = differences(drift(draw, comparisons, 64), goal)
    wrong = 0
    for logs, floor in zip(real, same, strict=True):
        found = next_pairs(pairs_of(logs, floor, goal), goal)
        assert isinstance(found, Verdict)
        wrong += found.outcome in ("better", "worse")
        held += found.estimate.low <= 1 <= found.estimate.high
    assert wrong / len(real) <= 0.055
    assert 0.93 <= held / len(real) <= 0.97


def test_the_interval_holds_the_truth_also_where_a_look_ended_it():
    draw = np.random.default_rng(17)
    for effect in (0.0, 0.02, 0.05):
        logs, _ = differences(drift(draw, MACHINES, 48), LOOKS, effect)
        open_, held = np.ones(MACHINES, dtype=bool), 0
        for k, level in LOOKS.looks:
            part = logs[:, :k]
            half = scipy.special.stdtrit(k - 1, 0.975) * part.std(axis=1, ddof=1) / math.sqrt(k)
            ends = open_ & ((p_of(part) <= level) | (k == LOOKS.pairs))
            held += int(np.sum(ends & (np.abs(part.mean(axis=1) - effect) <= half)))
            open_ &= ~ends
        assert 0.93 <= held / MACHINES <= 0.97


def test_a_ratio_is_students_of_the_logarithms():
    logs = [0.01, 0.03, -0.02, 0.05, 0.04, 0.02, 0.0, 0.03]
    found = verdict(logs)
    test = scipy.stats.ttest_1samp(logs, 0)
    ends = test.confidence_interval()
    assert found.p == pytest.approx(test.pvalue)
    assert (found.estimate.low, found.estimate.high) == pytest.approx(
        (math.exp(ends.low), math.exp(ends.high))
    )
    assert found.estimate.value == pytest.approx(math.exp(np.mean(logs)))


def test_groups_are_welchs():
    a, b = [1.0, 1.1, 0.9, 1.3], [1.2, 1.6, 1.5]
    assert effect_of_groups(a, b).p() == pytest.approx(
        scipy.stats.ttest_ind(b, a, equal_var=False).pvalue
    )
    assert effect_of_pairs([0.1]) is None, "a mean of pairs needs two"
    assert Effect(0.0, 0.01, 7, 8).needed(1e-9) is None, "more pairs than anybody runs"


@given(st.floats(-0.2, 0.2), st.floats(0.001, 0.2), st.integers(2, 30))
def test_equivalence_is_an_interval_of_ninety_percent_within_the_margin(value, error, n):
    effect, margin = Effect(value, error, n - 1, n), 0.05
    within = abs(value) + effect.half(0.1) <= margin
    assert (effect.p_within(margin) <= 0.05) == within


def test_what_lies_at_the_margin_is_called_the_same_in_one_of_twenty():
    """Also with three looks at the same bounds, which are used one-sided here."""
    draw = np.random.default_rng(18)
    margin = math.log1p(0.02)
    logs = draw.normal(margin, 0.02, (MACHINES, 24))
    claimed = []
    for k, level in LOOKS.looks:
        part = logs[:, :k]
        t = (margin - np.abs(part.mean(axis=1))) / (part.std(axis=1, ddof=1) / math.sqrt(k))
        claimed.append(scipy.special.stdtr(k - 1, -t) <= level)
    assert np.any(claimed, axis=0).mean() <= 0.053
    once = verdict(list(logs[0]), ComparisonGoal(same=0, pairs=23))
    assert once.outcome in ("better", "unknown")


def test_the_detectable_effect_is_found_in_eight_of_ten():
    draw = np.random.default_rng(20)
    spread, k = 0.02, 12
    effect = Effect(0, spread / math.sqrt(k), k - 1, k).detectable()
    found = p_of(draw.normal(effect, spread, (MACHINES, k))) <= 0.05
    assert found.mean() == pytest.approx(0.8, abs=0.02)


@pytest.mark.parametrize(
    ("value", "margin"), [(0.02, 1e-6), (0.0, 0.02), (0.005, 0.02), (0.02, 0.02)]
)
def test_as_many_pairs_as_are_said_to_decide_do(value, margin):
    draw = np.random.default_rng(21)
    spread = 0.04
    needed = Effect(value, spread / math.sqrt(8), 7, 8).needed(margin)
    assert needed is not None
    logs = draw.normal(value, spread, (MACHINES // 3, needed))
    t = (margin - np.abs(logs.mean(axis=1))) / (logs.std(axis=1, ddof=1) / math.sqrt(needed))
    decided = (p_of(logs) <= 0.05) | (scipy.special.stdtr(needed - 1, -t) <= 0.05)
    assert 0.78 <= decided.mean() <= 0.9


@pytest.mark.parametrize(
    ("logs", "outcome", "why"),
    [
        ([0.05 + x for x in STEADY], "better", ""),
        ([-0.05 + x for x in STEADY], "worse", ""),
        (STEADY, "same", ""),
        # It differs for sure, and by less than matters.
        ([0.005 + x / 10 for x in STEADY], "same", ""),
        ([60 * x for x in STEADY], "unknown", "wide"),
        ([0.1], "unknown", "few"),
        ([], "unknown", "few"),
    ],
)
def test_each_verdict_is_reached(logs, outcome, why):
    found = verdict(logs)
    assert (found.outcome, found.why) == (outcome, why)


def test_of_a_latency_less_is_better():
    pairs = [
        Pair(n, side(1, p95=10), side(1, p95=9 * math.exp(x))) for n, x in enumerate(STEADY, 1)
    ]
    assert compare_pairs(pairs, ComparisonGoal("p95", same=0)).outcome == "better"


@pytest.mark.parametrize(
    ("by", "same", "outcome", "why"),
    [
        (0, STEADY, "same", ""),
        (0, [30 * x for x in STEADY], "unknown", "noise"),
        # Where A differs from itself, B has to differ from that.
        (0.041, [0.04 + x for x in STEADY], "unknown", "biased"),
        (0.025, [0.04 + x for x in STEADY], "unknown", "biased"),
        (0.09, [0.04 + x for x in STEADY], "better", ""),
        (-0.09, [0.04 + x for x in STEADY], "worse", ""),
    ],
)
def test_a_noise_floor_above_delta_or_bias_leaves_it_open(by, same, outcome, why):
    found = with_noise([by + x for x in STEADY], same)
    assert (found.outcome, found.why) == (outcome, why)
    assert why != "noise" or found.noise.high > 1.02


@pytest.mark.parametrize("bad", [math.inf, 0.0])
def test_a_pair_without_a_ratio_is_not_left_out_in_silence(bad):
    pairs = [Pair(n, side(1, p99=10), side(1, p99=5)) for n in range(7)]
    found = compare_pairs(
        [*pairs, Pair(8, side(1, p99=10), side(1, p99=bad))], ComparisonGoal("p99", same=0)
    )
    assert (found.outcome, found.why, found.undefined) == ("unknown", "unbounded", 1)


def test_secondary_metrics_are_read_together():
    pairs = [
        Pair(n, side(1, mean=10, p95=10, p99=10), side(1.05, mean=9 + x, p95=10 + 99 * x, p99=10))
        for n, x in enumerate(STEADY)
    ]
    goal = ComparisonGoal("throughput", ("mean", "p95", "p50"), same=0)
    found = compare_pairs(pairs, goal).secondary
    assert [(each.metric, each.outcome) for each in found] == [
        ("mean", "better"),
        ("p95", "unknown"),
    ], "of p50 nothing was measured"


def test_shares_are_compared_by_their_difference():
    found = compare_pairs(shares([50, 52, 48, 51] * 2, [30, 31, 29, 30] * 2), MISSED)
    assert found.outcome == "better"
    assert found.estimate.value == pytest.approx(-0.02025)


def test_where_nothing_missed_counts_alone_say_how_sure_that_is():
    few = compare_pairs(shares([0] * 8, [0] * 8, due=20), MISSED)
    many = compare_pairs(shares([0] * 8, [0] * 8), MISSED)
    assert (few.outcome, many.outcome) == ("unknown", "same")
    assert many.estimate.low < 0 < many.estimate.high
    all_missed = compare_pairs(shares([1000] * 8, [1000] * 8), MISSED)
    assert all_missed.outcome == "same"


@pytest.mark.parametrize("share", [0.0005, 0.01, 0.3])
def test_the_interval_of_a_difference_of_shares_holds_the_truth(share):
    draw = np.random.default_rng(23)
    held, tries = 0, 6000
    for _ in range(tries):
        a, b = draw.binomial(600, share, 8), draw.binomial(600, share + 0.005, 8)
        found = compare_pairs(shares(list(a), list(b), 600), MISSED).estimate
        held += found.low <= 0.005 <= found.high
    assert held / tries >= 0.93


def test_pairs_are_asked_for_until_a_look_and_the_same_ones_again():
    goal = ComparisonGoal(seed=7)
    first = next_pairs([], goal)
    assert isinstance(first, tuple)
    assert [each.number for each in first] == list(range(1, 17))
    assert sum(each.same for each in first) == 8
    for same in (False, True):
        begins = [each.b_first for each in first if each.same == same]
        assert sum(begins) == len(begins) / 2, "a drift in one direction cancels out"
    done = [pair(each.number, 0.3 * (-1) ** each.number, same=each.same) for each in first]
    rest = next_pairs(done[:5], goal)
    assert isinstance(rest, tuple)
    assert rest == first[5:]
    second = next_pairs(done, goal)
    assert isinstance(second, tuple)
    assert [each.number for each in second] == list(range(17, 25))
    assert not any(each.same for each in second)


def test_the_order_depends_on_the_seed_alone():
    orders = {
        tuple(each.b_first for each in planned_pairs(ComparisonGoal(seed=s), 24)) for s in range(9)
    }
    assert len(orders) == 9
    assert planned_pairs(ComparisonGoal(), 8) == planned_pairs(ComparisonGoal(), 24)[:16]


def test_what_a_look_decided_stays_decided():
    goal = LOOKS
    early = [pair(n, 0.2 + 0.001 * n) for n in range(1, 9)]
    found = next_pairs(early, goal)
    assert isinstance(found, Verdict)
    assert (found.outcome, found.level, found.pairs) == ("better", BOUNDS[0], 8)
    more = [pair(n, -0.9) for n in range(9, 25)]
    assert next_pairs([*more, *early], goal) == found


@pytest.mark.parametrize(
    ("given", "name", "values"),
    [
        ({"metric": "beauty"}, "not-a-choice", {"what": "metric", "value": "beauty"}),
        ({"metric": "mean", "secondary": ("mean",)}, "given-twice", {"what": "metric 'mean'"}),
        ({"delta": 0.0}, "out-of-range", {"what": "delta", "value": "0"}),
        ({"delta": 1.0}, "out-of-range", {"what": "delta", "value": "1"}),
        ({"pairs": 7}, "out-of-range", {"what": "pairs", "value": 7, "range": "from 8 to 10000"}),
        ({"same": 3}, "same-out-of-range", {"pairs": 3, "low": 8}),
    ],
)
def test_what_cannot_be_asked_is_told_with_what_can(given, name, values):
    with raises(PlanError, name, **values):
        ComparisonGoal(**given)


def test_groups_apart_in_time_are_claimed_to_differ_only_where_no_drift_explains_it():
    draw = np.random.default_rng(24)
    wrong, tries = 0, 5000
    for row in drift(draw, tries, 16):
        a, b = ([side(100 * math.exp(x)) for x in part] for part in (row[:8], row[8:]))
        found = compare.compare_trials(a, b, ComparisonGoal(), basis="apart")
        wrong += found.outcome != "unknown"
    assert wrong / tries <= 0.055
    far = [side(300 * math.exp(x)) for x in STEADY]
    near = [side(100 * math.exp(x)) for x in STEADY]
    assert compare.compare_trials(near, far, ComparisonGoal(), basis="apart").outcome == "better"
    assert compare.compare_trials(near, near, ComparisonGoal(), basis="apart").why == "apart"
    assert compare.compare_trials(near, near, ComparisonGoal(), basis="trials").outcome == "same"


@pytest.mark.parametrize(
    ("order", "mixed"),
    [("AAAABBBB", False), ("ABAB", True), ("ABBABAAB", True), ("AABB", False), ("ABBA", True)],
)
def test_groups_are_mixed_where_they_change_often(order, mixed):
    assert compare.alternate([letter == "B" for letter in order]) is mixed


@pytest.mark.parametrize("names", [("off", "on"), ("pi4", "pi5")])
def test_trials_of_the_blocks_of_an_experiment_are_pairs(names):
    factor = "target" if "pi4" in names else "tls"
    a, b = (
        [
            made(Ask(Cell(((factor, name), ("clients", clients))), n), 5)
            for n in (1, 2, 3)
            for clients in ("1", "2")
        ]
        for name in names
    )
    found = compare.compare_stored(a, b, ComparisonGoal("mean"))
    assert (found.basis, found.pairs) == ("blocks", 6), "one load is no pair of another"
    due = [(p.a.due, p.b.due) for p in compare.pairs_of_blocks(a, b[::-1])]
    assert due == [
        (one.summary.counts.due, other.summary.counts.due) for one, other in zip(a, b, strict=True)
    ]
    alone = [replace(each, trial=replace(each.trial, place=None)) for each in b]
    assert compare.compare_stored(a, alone, ComparisonGoal()).basis in ("trials", "apart")
    assert compare.compare_stored([], b, ComparisonGoal()).why == "few"


def test_trials_that_differ_in_more_than_what_is_compared_are_told_apart():
    one = made(Ask(Cell(()), 1), 5)
    plan = {"clients": 8, "threads": 2, "policy": "run"}
    server = one.trial.server.but(settings={"work_mem": "64MB"})
    other = replace(one, trial=changed(one.trial, plan=plan, server=server))
    named = {each.name for each in differ([[one], [other]])}
    assert {"clients", "threads", "policy", "setting work_mem"} <= named
    left = {each.name for each in differ([[one], [other]], ["clients", "set.work_mem"])}
    assert not left & {"clients", "setting work_mem"}
    assert "policy" in left
    assert differ([[one], [one]]) == differ([[], [one]]) == ()


@pytest.mark.parametrize(
    ("plan", "workload", "names"),
    [
        ({"rate": 9.0}, {}, ["rate"]),
        ({"model": "closed", "policy": "run"}, {}, ["policy", "load"]),
        ({"arrivals": "even"}, {}, ["arrivals"]),
        ({}, {"hash": "b", "scripts": ()}, ["scripts"]),
        ({}, {"hash": "b", "name": "w", "scripts": ()}, ["workload"]),
        ({}, {"hash": "b"}, ["hash of the workload"]),
        ({"variables": (("scale", "9"),)}, {"scale": 9}, ["scale"]),
        # Of arrivals, and of data.
        ({"seed": 99}, {}, []),
        ({"data_seed": 2}, {}, ["data seed"]),
    ],
)
def test_a_difference_is_listed_by_one_of_its_names(plan, workload, names):
    one = made(Ask(Cell(()), 1), 5)
    other = changed(one.trial, plan=plan, workload=one.trial.workload.but(**workload))
    assert [each.name for each in differ([[one], [replace(one, trial=other)]])] == names


@pytest.mark.parametrize(
    ("what", "follows", "not_from"),
    [
        # The data of another version are made anew and are no other data.
        ("prepared", ("server", "target"), ("set.work_mem", "clients")),
        # How the generator waits follows from what is run and how much of it.
        ("poll", ("variant", "clients", "think_time"), ("set.work_mem",)),
    ],
)
def test_what_follows_from_a_factor_is_no_difference_beside_it(what, follows, not_from):
    found = made(Ask(Cell(()), 1), 5)
    trial = found.trial
    if what == "poll":
        both = [planned(trial, poll=poll) for poll in ("io_uring", "threads")]
    else:
        data = [Prepared("d", mark, True, 0.0, 1) for mark in "ab"]
        both = [changed(trial, workload=trial.workload.but(prepared=each)) for each in data]
    one, other = (replace(found, trial=each) for each in both)
    assert all(differ([[one], [other]], [factor]) == () for factor in follows)
    assert all(differ([[one], [other]], [factor]) != () for factor in not_from)
