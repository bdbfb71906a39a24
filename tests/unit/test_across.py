"""What several trials say together: Student's t, hulls, and shares that know of dispersion."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as oracle

from pgpaces.analysis import across
from pgpaces.spec.result import Estimate


def estimates(*values: float) -> list[Estimate]:
    return [Estimate(value, value - 1, value + 2, 10) for value in values]


def test_three_trials_have_students_interval_of_what_each_of_them_says() -> None:
    found = across.together([estimates(10, 12, 17)])
    assert found is not None
    low, high = oracle.t.interval(0.95, 2, 13, oracle.sem([10, 12, 17]))
    assert (found.value, found.low, found.high, found.n) == pytest.approx(
        (13, max(0, low), high, 30)
    )


def test_two_trials_have_students_interval_of_three_and_no_less_than_their_own() -> None:
    apart = across.together([estimates(10, 14)])
    agreed = across.together([estimates(10, 10)])
    assert apart is not None
    half = float(oracle.t.ppf(0.975, 2)) * 2
    assert (apart.low, apart.high) == pytest.approx((12 - half, 12 + half))
    assert agreed == Estimate(10, 9, 12, 20)


def test_one_trial_has_its_own() -> None:
    (own,) = estimates(10)
    assert across.together([[own]]) is own
    assert across.together([[], []]) is None


def test_trials_that_agree_to_the_last_digit_have_no_interval_of_no_width() -> None:
    found = across.together([[Estimate(12.5, 11, 14, 10)] * 3])
    assert found == Estimate(12.5, 11, 14, 30)


@pytest.mark.parametrize("others", [1, 2, 9])
def test_a_trial_whose_interval_is_not_estimable_makes_that_of_all_so(others: int) -> None:
    trials = [Estimate.alone(3, 5), *estimates(*range(4, 4 + others))]
    found = across.together([trials])
    assert found is not None
    assert not found.estimable
    spread = across.together([trials], bounded=False)
    assert spread is not None
    assert spread.estimable


def test_an_upper_end_among_what_did_not_succeed_is_bounded_by_no_mean() -> None:
    found = across.together([[Estimate(480, 400, math.inf, 10), *estimates(470, 490)]])
    assert found is not None
    assert found.high == math.inf
    assert found.low > 0


def test_what_lies_above_every_time_is_not_averaged_away() -> None:
    above = Estimate(math.inf, 400, math.inf, 10)
    mostly = across.together([[above, above, *estimates(300)]])
    rarely = across.together([[above, *estimates(300, 310)]])
    assert mostly == Estimate(math.inf, 299, math.inf, 30)
    assert rarely == Estimate(310, 299, math.inf, 30)


def test_the_spread_between_machines_is_in_the_interval() -> None:
    """Many trials on three boards say no more of the kind of board than three numbers do."""
    boards = [estimates(10, 10.1, 9.9), estimates(14, 14.1, 13.9), estimates(12, 12.1, 11.9)]
    apart = across.together(boards)
    pooled = across.together([[each for board in boards for each in board]])
    assert apart is not None
    assert pooled is not None
    low, high = oracle.t.interval(0.95, 2, 12, oracle.sem([10, 14, 12]))
    assert (apart.low, apart.high) == pytest.approx((low, high))
    assert apart.high - apart.low > 2 * (pooled.high - pooled.low)


@given(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=12))
def test_the_value_lies_in_its_interval_and_that_is_no_less_than_nothing(
    values: list[float],
) -> None:
    found = across.together([[Estimate(v, 0.5 * v, 2 * v, 3) for v in values]])
    assert found is not None
    assert 0 <= found.low <= found.value * (1 + 1e-9)
    assert found.value <= found.high * (1 + 1e-9)


def test_a_share_is_wilsons_where_trials_agree() -> None:
    found = across.share([[(4, 300), (4, 300)]], 1.0)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((0.0068, 0.0261), abs=1e-4)


def test_a_share_is_wider_where_trials_or_machines_differ() -> None:
    agreed = across.share([[(30, 300)] * 4], 1.0)
    trials = across.share([[(10, 300), (50, 300), (12, 300), (48, 300)]], 1.0)
    machines = across.share([[(10, 300), (12, 300)], [(50, 300), (48, 300)]], 1.0)
    assert agreed is not None
    assert trials is not None
    assert machines is not None
    assert agreed.high - agreed.low < trials.high - trials.low < machines.high - machines.low
