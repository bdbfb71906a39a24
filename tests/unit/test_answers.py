"""What a trial's answer says, from values alone."""

import math

import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from pgpaces.analysis import condition
from pgpaces.analysis.stats import dispersion, proportion
from pgpaces.analysis.summary import summarize
from pgpaces.core.errors import PlanError, StoreError
from pgpaces.core.record import Interval, Tally
from pgpaces.core.times import merge, quantile_rank, value_at_rank
from pgpaces.show.number_text import percent
from pgpaces.spec.result import Counts
from tests.errors import raises

from .trials import series, spread, times, trial


def value(estimate):
    assert estimate is not None
    return estimate.value


@pytest.mark.parametrize(
    ("state", "tallies", "expected"),
    [
        (
            "finished",
            [Tally(0, 0, 10, 4, 1, 2, {"40001": 1, "08006": 1}, 1)],
            Counts(10, 4, 1, 2, 2, 1),
        ),
        ("finished", [Tally(-1, 0, 5, late=5), Tally(0, 0, 2, 2)], Counts(2, 2)),
        ("interrupted", [Tally(0, 0, 10, 7)], Counts(10, 7, unfinished=3)),
        ("running", [Tally(0, 0, 10, 7)], Counts(7, 7)),
    ],
    ids=["every class", "a warm-up", "what was pending is unfinished", "what goes on is left out"],
)
def test_counts_are_of_what_was_due_in_the_measured_part(state, tallies, expected):
    found = summarize(trial(tallies, state=state)).counts
    assert found == expected
    assert found.missed == found.due - found.on_time


@pytest.mark.parametrize("tallies", [[Tally(0, 0, 10, 7)], [Tally(0, 0, 2, 1), Tally(1, 0, 1, 2)]])
def test_counts_that_do_not_add_up_in_each_second_are_refused(tallies):
    with raises(StoreError, "outcomes-missing", second=0):
        summarize(trial(tallies))


@given(st.integers(1, 5000), st.data())
def test_wilson_agrees_with_scipy(n, data):
    k = data.draw(st.integers(0, n))
    found = proportion(k, n)
    expected = scipy.stats.binomtest(k, n).proportion_ci(0.95, "wilson")
    assert found.low == pytest.approx(expected.low, abs=1e-9)
    assert found.high == pytest.approx(expected.high, abs=1e-9)


def test_clustered_misses_widen_the_interval():
    spread_out = [(1, 100)] * 10
    clustered = [(10, 100)] + [(0, 100)] * 9
    assert dispersion(spread_out) == 1.0
    phi = dispersion(clustered)
    assert phi == pytest.approx(10 / 0.99, rel=0.02)
    narrow, wide = proportion(10, 1000), proportion(10, 1000, phi)
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)


@pytest.mark.parametrize("windows", [[], [(1, 10)], [(0, 10), (0, 10)], [(5, 5), (5, 5)]])
def test_dispersion_is_one_where_it_cannot_be_estimated(windows):
    assert dispersion(windows) == 1.0


@pytest.mark.parametrize(("q", "n", "rank"), [(0.5, 4, 2), (0.99, 100, 99), (0.99, 101, 100)])
def test_a_quantile_is_the_lower_order_statistic(q, n, rank):
    assert quantile_rank(q, n) == rank


@given(st.lists(st.floats(0.001, 3e6), min_size=1, max_size=60), st.integers(1, 60))
def test_a_value_at_a_rank_is_good_to_three_digits(values, rank):
    rank = min(rank, len(values))
    found = value_at_rank(times(values), rank)
    assert found is not None
    assert math.isclose(found, round(sorted(values)[rank - 1] * 1e6), rel_tol=1.1e-3)


@given(st.lists(st.lists(st.floats(0.001, 1e4), max_size=10), max_size=5))
def test_merging_parts_is_the_same_as_counting_all_at_once(parts):
    merged = merge(times(part) for part in parts)
    assert merged == times([v for part in parts for v in part]) or merged.square_sum == (
        pytest.approx(times([v for part in parts for v in part]).square_sum)
    )


def test_shedding_load_cannot_improve_a_quantile():
    served = times([10.0] * 90)
    assert value(spread(served, 90).p95) == pytest.approx(10, rel=1e-3)
    assert value(spread(served, 100).p95) == math.inf
    assert value(spread(served, 100).p50) == pytest.approx(10, rel=1e-3)
    assert spread(served, 100).max is None


@pytest.mark.parametrize(("model", "rate"), [("closed", 5.0), ("open", 10.0)])
def test_of_less_than_a_second_the_rate_is_of_the_time_in_which_they_were_sent_and_ended(
    model, rate
):
    """A closed client sends the next one when the last one ends, an open load when it is due."""
    intervals = (Interval(0, tallies=(Tally(0, 0, due=2, late=2),), ended_ns=400_000_000),)
    plan = {"model": model, "duration_ns": 200_000_000}
    short = trial([], plan=plan, intervals=intervals, measured_ns=200_000_000)
    assert summarize(short).throughput.value == pytest.approx(rate)


@pytest.mark.parametrize(
    ("text", "holds", "seen"),
    [
        ("missed > 5%", True, "it is 10%"),
        ("missed > 20%", False, "it is 10%"),
        ("late >= 10 transactions", True, "it is 10 transactions"),
        ("late > 1 transaction", True, "it is 10 transactions"),
        ("failed > 0", False, "it is 0 transactions"),
        ("p50 > 1.01ms", False, "it is 1 ms"),
        ("p50 >= 1ms", True, "it is 1 ms"),
        ("p99 > 250ms", True, "it is 600 ms"),
        ("p99.9 > 250ms", True, "it is 600 ms"),
        ("latency.p99.9 > 250 ms", True, "it is 600 ms"),
        ("max > 1h", False, "it is 600 ms"),
        ("throughput < 11/s", True, "it is 10/s"),
        ("on time < 90%", False, "it is 90%"),
    ],
)
def test_a_condition_is_read_as_written(text, holds, seen):
    values = times([1.0] * 90 + [600.0] * 10)
    found = summarize(trial([Tally(0, 0, due=100, on_time=90, late=10, latency=values)]))
    assert condition.parse_condition(text)(found) is holds
    assert condition.parse_condition(text).measured(found) == seen


def test_a_condition_holds_where_nothing_was_due():
    found = condition.parse_condition("missed > 5%")
    assert (found(nothing := summarize(trial([]))), found.measured(nothing)) == (
        True,
        "nothing was due",
    )


def test_a_generator_without_cpu_left_is_said_to_be_the_limit():
    busy = Interval(0, cpu_ns=(950_000_000, 10), ended_ns=1_000_000_000)
    grace = Interval(1, cpu_ns=(10, 10), ended_ns=1_200_000_000)
    found = summarize(trial([], intervals=(busy, grace), measured_ns=1_000_000_000)).generator
    assert (found.cpu, found.limited) == (0.95, True)


@pytest.mark.parametrize(
    ("text", "name"),
    [("missed > 5", "count-without-unit"), ("p99 > 5", "time-without-unit"),
     *((text, "bad-condition") for text in ("", "missed", "missed > x%", "p98 > 1ms", "a b > 1"))],
)  # fmt: skip
def test_a_condition_that_cannot_be_read_is_refused(text, name):
    with raises(PlanError, name, condition=text):
        condition.parse_condition(text)


@pytest.mark.parametrize(
    ("share", "text"), [(0, "0.0"), (0.01333, "1.3"), (0.5, "50.0"), (0.00012, "0.012")]
)
def test_a_percentage_keeps_its_digits(share, text):
    assert percent(share) == text


@pytest.mark.parametrize(
    ("limit_ms", "most"),
    [(1000, 0.001), (20, 1.0)],
    ids=["far above every latency", "near the slowest"],
)
def test_latencies_far_below_the_limit_say_nothing_of_how_misses_cluster(limit_ms, most):
    slower = [
        [10 + 3 * second / 60 + place % 7 / 10 for place in range(100)] for second in range(60)
    ]
    plan = {"limit_ns": limit_ms * 1_000_000, "policy": "run", "model": "open"}
    missed = summarize(series(slower, plan=plan)).missed
    assert missed.value == 0
    assert most / 100 < missed.high <= most
