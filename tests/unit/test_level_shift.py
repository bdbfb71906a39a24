"""Levels of a series are the best ones, and the largest change is no noise."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pgpaces.analysis.level_shift import levels, means, noise


def cost(x: np.ndarray, starts: tuple[int, ...], penalty: float) -> float:
    parts = np.split(x, list(starts))
    return sum(float(((part - part.mean()) ** 2).sum()) for part in parts) + penalty * len(starts)


@given(
    arrays.arrays(float, st.integers(4, 12), elements=st.integers(-9, 9)),
    st.integers(1, 3),
    st.floats(0.1, 30),
)
def test_levels_have_the_smallest_errors_and_penalties_of_all(x, shortest, variance):
    penalty = 3 * variance * math.log(len(x))
    possible = [
        starts
        for count in range(len(x))
        for starts in itertools.combinations(range(1, len(x)), count)
        if all(b - a >= shortest for a, b in itertools.pairwise((0, *starts, len(x))))
    ]
    found = levels(x, variance, shortest=shortest)
    best = min(cost(x, starts, penalty) for starts in possible)
    assert cost(x, tuple(found), penalty) == pytest.approx(best)
    assert tuple(found) in possible


@pytest.mark.parametrize(
    ("form", "variance"),
    [
        (lambda at: np.where(at < 120, 0.0, 50.0), 1.0),
        (lambda at: np.where((at >= 120) & (at < 150), 50.0, 0.0), 1.0),
        (lambda at: np.clip((at - 100) / 150, 0, 1) * 50, 1.0),
        (lambda at: at / 6, 1.0),
    ],
    ids=["a step", "a bump", "a ramp", "a drift"],
)
def test_the_largest_change_is_no_noise(form, variance):
    x = form(np.arange(300.0)) + np.random.default_rng(3).normal(0, 1, 300)
    found, neighbors = noise(x)
    assert found == pytest.approx(variance, rel=0.35)
    assert neighbors == pytest.approx(1.0, abs=0.35)


def test_a_long_series_is_averaged_to_points():
    points, size = means(np.arange(1000.0), 120)
    assert (len(points), size) == (111, 9)
    assert points[0] == 4


@pytest.mark.parametrize("values", [np.zeros(30), np.full(30, 7.0)])
def test_a_constant_series_has_one_level(values):
    assert levels(values, noise(values)[0]) == []
