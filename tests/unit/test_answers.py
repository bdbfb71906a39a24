"""What a trial's answer says, from values alone."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as oracle

from pgpaces.analysis import condition
from pgpaces.analysis.stats import dispersion, proportion, quantile_rank
from pgpaces.analysis.summary import summarize
from pgpaces.core.errors import PlanError, StoreError
from pgpaces.core.record import Interval, Tally
from pgpaces.core.times import merge, value_at_rank
from pgpaces.show.numbers import percent
from pgpaces.spec.result import Estimate

from .trials import series, spread, times, trial


def value(estimate: Estimate | None) -> float:
    assert estimate is not None
    return estimate.value


def test_wilson_gives_the_contracts_figures() -> None:
    found = proportion(8, 600)
    assert found is not None
    assert (round(100 * found.low, 2), round(100 * found.high, 2)) == (0.68, 2.61)


@given(st.integers(1, 5000), st.data())
def test_wilson_agrees_with_scipy(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n))
    found = proportion(k, n)
    expected = oracle.binomtest(k, n).proportion_ci(0.95, "wilson")
    assert found is not None
    assert found.low == pytest.approx(expected.low, abs=1e-9)
    assert found.high == pytest.approx(expected.high, abs=1e-9)


def test_clustered_misses_widen_the_interval() -> None:
    spread_out = [(1, 100)] * 10
    clustered = [(10, 100)] + [(0, 100)] * 9
    assert dispersion(spread_out) == 1.0
    phi = dispersion(clustered)
    assert phi == pytest.approx(10 / 0.99, rel=0.02)
    narrow, wide = proportion(10, 1000), proportion(10, 1000, phi)
    assert narrow is not None
    assert wide is not None
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)


@pytest.mark.parametrize("windows", [[], [(1, 10)], [(0, 10), (0, 10)], [(5, 5), (5, 5)]])
def test_dispersion_is_one_where_it_cannot_be_estimated(windows: list[tuple[int, int]]) -> None:
    assert dispersion(windows) == 1.0


@pytest.mark.parametrize(("q", "n", "rank"), [(0.5, 4, 2), (0.99, 100, 99), (0.99, 101, 100)])
def test_a_quantile_is_the_lower_order_statistic(q: float, n: int, rank: int) -> None:
    assert quantile_rank(q, n) == rank


@given(st.lists(st.floats(0.001, 3e6), min_size=1, max_size=60), st.integers(1, 60))
def test_a_value_at_a_rank_is_good_to_three_digits(values: list[float], rank: int) -> None:
    rank = min(rank, len(values))
    found = value_at_rank(times(values), rank)
    assert found is not None
    assert math.isclose(found, round(sorted(values)[rank - 1] * 1e6), rel_tol=1.1e-3)


@given(st.lists(st.lists(st.floats(0.001, 1e4), max_size=10), max_size=5))
def test_merging_parts_is_the_same_as_counting_all_at_once(parts: list[list[float]]) -> None:
    merged = merge(times(part) for part in parts)
    assert merged == times([v for part in parts for v in part]) or merged.square_sum == (
        pytest.approx(times([v for part in parts for v in part]).square_sum)
    )


def test_shedding_load_cannot_improve_a_quantile() -> None:
    served = times([10.0] * 90)
    assert value(spread(served, 90).p95) == pytest.approx(10, rel=1e-3)
    assert value(spread(served, 100).p95) == math.inf
    assert value(spread(served, 100).p50) == pytest.approx(10, rel=1e-3)
    assert spread(served, 100).max is None


def test_every_class_but_on_time_is_missed() -> None:
    tally = Tally(
        0, 0, due=10, on_time=4, late=1, skipped=2, failed={"40001": 1, "08006": 1}, unfinished=1
    )
    found = summarize(trial([tally]))
    assert (found.counts.missed, found.counts.failed) == (6, 2)
    assert found.failures == {"40001": 1, "08006": 1}


def test_the_warm_up_does_not_count() -> None:
    found = summarize(trial([Tally(-1, 0, due=5, late=5), Tally(0, 0, due=2, on_time=2)]))
    assert (found.counts.due, found.counts.missed) == (2, 0)


def test_what_an_interrupted_trial_left_pending_is_unfinished() -> None:
    tallies = [Tally(0, 0, due=10, on_time=7)]
    assert summarize(trial(tallies, state="interrupted")).counts.unfinished == 3


def test_what_a_running_trial_has_not_ended_is_left_out() -> None:
    found = summarize(trial([Tally(0, 0, due=10, on_time=7)], state="running"))
    assert (found.counts.due, found.counts.missed) == (7, 0)


def test_errors_that_cancel_out_between_seconds_are_found() -> None:
    with pytest.raises(StoreError, match="second 0"):
        summarize(trial([Tally(0, 0, due=2, on_time=1), Tally(1, 0, due=1, on_time=2)]))


@pytest.mark.parametrize(("model", "rate"), [("closed", 5.0), ("open", 10.0)])
def test_of_less_than_a_second_the_rate_is_of_the_time_in_which_they_were_sent_and_ended(
    model: str, rate: float
) -> None:
    """A closed client sends the next one when the last one ends, an open load when it is due."""
    intervals = (Interval(0, tallies=(Tally(0, 0, due=2, late=2),), ended_ns=400_000_000),)
    plan = {"model": model, "duration_ns": 200_000_000}
    short = trial([], plan=plan, intervals=intervals, measured_ns=200_000_000)
    assert summarize(short).rate.value == pytest.approx(rate)


def test_a_condition_holds_where_nothing_was_due() -> None:
    assert condition.parse("missed > 5%")(summarize(trial([])))


def test_a_generator_without_cpu_left_is_said_to_be_the_limit() -> None:
    busy = Interval(0, cpu_ns=(950_000_000, 10), ended_ns=1_000_000_000)
    grace = Interval(1, cpu_ns=(10, 10), ended_ns=1_200_000_000)
    found = summarize(trial([], intervals=(busy, grace), measured_ns=1_000_000_000)).generator
    assert (found.cpu, found.limited) == (0.95, True)


def test_a_finished_trial_whose_counts_do_not_add_up_is_refused() -> None:
    with pytest.raises(StoreError, match="damaged"):
        summarize(trial([Tally(0, 0, due=10, on_time=7)]))


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("missed > 5%", True),
        ("missed > 20%", False),
        ("late >= 10 transactions", True),
        ("late > 1 transaction", True),
        ("failed > 0", False),
        ("p50 > 1.01ms", False),
        ("p50 >= 1ms", True),
        ("p99 > 250ms", True),
        ("p99.9 > 250ms", True),
        ("latency.p99.9 > 250 ms", True),
        ("max > 1h", False),
        ("rate < 11/s", True),
        ("on time < 90%", False),
    ],
)
def test_a_condition_is_read_as_written(text: str, holds: bool) -> None:
    values = times([1.0] * 90 + [600.0] * 10)
    found = summarize(trial([Tally(0, 0, due=100, on_time=90, late=10, latency=values)]))
    assert condition.parse(text)(found) is holds


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("missed > 5%", "it is 10%"),
        ("late > 5 transactions", "it is 10 transactions"),
        ("p99 > 250ms", "it is 600 ms"),
        ("rate < 11/s", "it is 10/s"),
    ],
)
def test_a_condition_says_what_it_saw(text: str, seen: str) -> None:
    values = times([1.0] * 90 + [600.0] * 10)
    found = summarize(trial([Tally(0, 0, due=100, on_time=90, late=10, latency=values)]))
    assert condition.parse(text).measured(found) == seen
    assert condition.parse(text).measured(summarize(trial([]))) == "nothing was due"


def test_a_number_of_nothing_is_refused_with_both_meanings() -> None:
    with pytest.raises(PlanError) as refused:
        condition.parse("missed > 5")
    assert refused.value.hint == "write '5%' of what was due, or '5 transactions'"


@pytest.mark.parametrize(
    "text", ["", "missed", "missed > x%", "missed > 5", "p98 > 1ms", "p99 > 5", "a b > 1"]
)
def test_a_condition_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(PlanError):
        condition.parse(text)


@pytest.mark.parametrize(
    ("share", "text"), [(0, "0.0"), (0.01333, "1.3"), (0.5, "50.0"), (0.00012, "0.012")]
)
def test_a_percentage_keeps_its_digits(share: float, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(
    ("limit_ms", "most"),
    [(1000, 0.001), (20, 1.0)],
    ids=["far above every latency", "near the slowest"],
)
def test_latencies_far_below_the_limit_say_nothing_of_how_misses_cluster(
    limit_ms: int, most: float
) -> None:
    slower = [
        [10 + 3 * second / 60 + place % 7 / 10 for place in range(100)] for second in range(60)
    ]
    plan = {"limit_ns": limit_ms * 1_000_000, "policy": "run", "model": "open"}
    missed = summarize(series(slower, plan=plan)).missed
    assert missed is not None
    assert missed.value == 0
    assert most / 100 < missed.high <= most
