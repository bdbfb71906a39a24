"""What several trials say together: Student's t, hulls, and shares that know of dispersion."""

import math

import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from pgpaces.analysis import across
from pgpaces.spec.result import Estimate


def estimates(*values):
    return [Estimate(value, value - 1, value + 2, 10) for value in values]


def test_three_trials_have_students_interval_of_what_each_of_them_says():
    found = across.together([estimates(10, 12, 17)])
    low, high = scipy.stats.t.interval(0.95, 2, 13, scipy.stats.sem([10, 12, 17]))
    assert (found.value, found.low, found.high, found.n) == pytest.approx(
        (13, max(0, low), high, 30)
    )


def test_two_trials_have_students_interval_of_three_and_no_less_than_their_own():
    apart = across.together([estimates(10, 14)])
    agreed = across.together([estimates(10, 10)])
    half = float(scipy.stats.t.ppf(0.975, 2)) * 2
    assert (apart.low, apart.high) == pytest.approx((12 - half, 12 + half))
    assert agreed == Estimate(10, 9, 12, 20)


ABOVE = Estimate(math.inf, 400, math.inf, 10)


@pytest.mark.parametrize(
    ("trials", "expected"),
    [
        ([Estimate(12.5, 11, 14, 10)] * 3, Estimate(12.5, 11, 14, 30)),
        # An upper end among what did not succeed is bounded by no mean, nor averaged away.
        ([ABOVE, ABOVE, *estimates(300)], Estimate(math.inf, 299, math.inf, 30)),
        ([ABOVE, *estimates(300, 310)], Estimate(310, 299, math.inf, 30)),
        (estimates(10), estimates(10)[0]),
        ([], None),
    ],
)
def test_ends_that_are_no_numbers_or_agree_are_not_averaged(trials, expected):
    assert across.together([trials]) == expected
    if trials:
        open_ = across.together([[Estimate(480, 400, math.inf, 10), *estimates(470, 490)]])
        assert (open_.high, open_.low > 0) == (math.inf, True)


def test_a_share_is_wilsons_where_trials_agree_and_wider_where_trials_or_machines_differ():
    found = across.share([[(4, 300, 1.0)] * 2])
    assert (found.low, found.high) == pytest.approx((0.0068, 0.0261), abs=1e-4)
    agreed = across.share([[(30, 300, 1.0)] * 4])
    trials = across.share([[(n, 300, 1.0) for n in (10, 50, 12, 48)]])
    machines = across.share([[(n, 300, 1.0) for n in own] for own in ((10, 12), (50, 48))])
    assert agreed.high - agreed.low < trials.high - trials.low < machines.high - machines.low


@pytest.mark.parametrize("others", [1, 2, 9])
def test_a_trial_whose_interval_is_not_estimable_makes_that_of_all_so(others):
    trials = [Estimate.alone(3, 5), *estimates(*range(4, 4 + others))]
    found = across.together([trials])
    assert not found.estimable
    spread = across.together([trials], bounded=False)
    assert spread.estimable


def test_the_spread_between_machines_is_in_the_interval():
    """Many trials on three boards say no more of the kind of board than three numbers do."""
    boards = [estimates(10, 10.1, 9.9), estimates(14, 14.1, 13.9), estimates(12, 12.1, 11.9)]
    apart = across.together(boards)
    pooled = across.together([[each for board in boards for each in board]])
    low, high = scipy.stats.t.interval(0.95, 2, 12, scipy.stats.sem([10, 14, 12]))
    assert (apart.low, apart.high) == pytest.approx((low, high))
    assert apart.high - apart.low > 2 * (pooled.high - pooled.low)


@given(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=12))
def test_the_value_lies_in_its_interval_and_that_is_no_less_than_nothing(values):
    found = across.together([[Estimate(v, 0.5 * v, 2 * v, 3) for v in values]])
    assert 0 <= found.low <= found.value * (1 + 1e-9)
    assert found.value <= found.high * (1 + 1e-9)
