"""Where a series gets steady, and whether it stays so: known series, and noise by simulation."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pgpaces.analysis.level_shift import WarmUp, drifts, flatness, theil_sen, warm_up
from tests.unit.queues import queue
from tests.unit.sure import sure

from .seeds import seeds


def test_a_warm_up_is_cut_where_it_ends():
    points = np.where(np.arange(103) < 20, 30.0, 10.0)
    assert warm_up(points) == WarmUp(20, too_short=False)


def test_a_latency_that_falls_to_the_end_makes_a_series_too_short_and_one_that_rises_does_not():
    assert sure(warm_up(np.linspace(100, 10, 60))).too_short
    assert warm_up(np.linspace(10, 100, 60)) == WarmUp(0, too_short=False)


def test_a_slow_stretch_after_the_beginning_is_no_warm_up():
    noise = np.random.default_rng(2).gamma(20.0, 1.0, 300)
    at = np.arange(300)
    assert warm_up(noise * np.where((at >= 90) & (at < 130), 3.0, 1.0)) == WarmUp(0, False)


def test_a_constant_series_needs_no_cut():
    assert warm_up(np.full(80, 7.0)) == WarmUp(0, too_short=False)


def test_few_points_are_not_judged():
    assert warm_up(np.ones(49)) is None
    assert flatness(np.arange(29), np.ones(29)) is None


def test_a_burst_at_the_beginning_of_a_steady_queue_is_no_warm_up():
    rng = np.random.default_rng(8)
    points = rng.gamma(2.0, 10.0, 66)
    points[:10] *= 2
    assert warm_up(points) == WarmUp(0, too_short=False)


def test_a_cold_start_is_a_warm_up():
    rng = np.random.default_rng(9)
    points = (1 + 2 * np.exp(-np.arange(300) / 40)) * rng.gamma(20.0, 1.0, 300)
    found = sure(warm_up(points))
    assert 40 <= found.points <= 200


@pytest.mark.parametrize(
    ("seconds", "cold", "least"), [(330, 40, 38), (330, 100, 38), (66, 15, 30), (7200, 900, 38)]
)
def test_a_cold_start_is_cut_where_it_ends_in_nearly_all_series(seconds, cold, least):
    rng = np.random.default_rng(12)
    form = np.where(np.arange(seconds) < cold, 1.4, 1.0)
    found = [warm_up(form * rng.normal(10, 1, seconds)) for _ in range(40)]
    points = [each.points for each in found if each is not None]
    assert sum(abs(each - cold) <= max(5, seconds / 60) for each in points) >= least


@pytest.mark.parametrize("load", [0.5, 0.8, 0.9])
def test_a_steady_queue_has_no_warm_up(load):
    rng, runs, per_s, length_s = np.random.default_rng(13), 150, 100, 60
    cut = 0
    for _ in range(runs):
        due, latency = queue(rng, load, per_s, length_s)
        seconds = due.astype(int)
        counts = np.bincount(seconds, minlength=length_s)
        found = warm_up(np.bincount(seconds, latency, minlength=length_s) / counts)
        cut += found is not None and found != WarmUp(0, too_short=False)
    assert cut <= 3


@given(arrays.arrays(float, st.integers(2, 80), elements=st.integers(1, 1000)))
def test_theil_and_sens_slope_is_that_of_scipy(x):
    at = np.cumsum(1 + x % 3)
    assert theil_sen(at, x) == pytest.approx(
        tuple(scipy.stats.theilslopes(x, at, 0.95))[:1]
        + tuple(scipy.stats.theilslopes(x, at, 0.95))[2:]
    )


def shape(values: np.ndarray) -> str:
    found = sure(flatness(np.arange(len(values)), values))
    return found.shape


def test_a_constant_series_is_flat():
    found = sure(flatness(np.arange(60), np.full(60, 3.0)))
    assert (found.shape, found.changes, found.levels_ms) == ("flat", (), (3.0,))
    assert found.drift.value == 0


SECONDS = 300
SHAPES: list[tuple[str, Callable[[np.ndarray], np.ndarray], str]] = [
    ("faster after a third", lambda t: np.where(t < 1 / 3, 1.3, 1.0), "warming up"),
    ("slower after a third", lambda t: np.where(t < 1 / 3, 1.0, 1.3), "slowing down"),
    ("slower at the end", lambda t: np.where(t < 0.9, 1.0, 1.5), "no steady state"),
    ("slower for a while", lambda t: np.where((t > 0.4) & (t < 0.6), 2.0, 1.0), "no steady state"),
    ("a drift of 20%", lambda t: 1 + 0.2 * t, "slowing down"),
    ("a drift of -20%", lambda t: 1.2 - 0.2 * t, "warming up"),
    ("caches that fill", lambda t: 1 + 2 * np.exp(-10 * t), "warming up"),
]


@pytest.mark.parametrize(("name", "form", "expected"), SHAPES, ids=[name for name, *_ in SHAPES])
def test_a_shape_is_called_by_its_name(name, form, expected):
    rng = np.random.default_rng(3)
    found = Counter(
        shape(form(np.arange(SECONDS) / SECONDS) * rng.normal(10, 0.7, SECONDS)) for _ in range(20)
    )
    assert found[expected] >= 17, found


def test_the_size_of_a_drift_and_the_place_of_a_change_are_told():
    noise = np.random.default_rng(4).normal(0, 0.05, 200)
    drifting = sure(flatness(np.arange(200), 10 + np.arange(200) / 100 + noise))
    assert drifting.drift.value == pytest.approx(2 / 11, abs=0.02)
    assert drifts(drifting.drift)
    stepping = sure(flatness(100 + np.arange(200), np.where(np.arange(200) < 80, 10, 20) + noise))
    assert stepping.changes == (180,)
    assert stepping.levels_ms == pytest.approx((10, 20), abs=0.1)


def test_a_day_is_judged_in_pieces():
    n = 86_400
    values = np.random.default_rng(5).normal(10, 1, n) * np.where(np.arange(n) < n // 3, 1.5, 1)
    found = sure(flatness(np.arange(n), values))
    assert found.shape == "warming up"
    assert found.changes[0] == pytest.approx(n // 3, abs=n / 600)


@pytest.mark.parametrize("runs", seeds(50, 100))
@pytest.mark.parametrize(("load", "least"), [(0.0, 0.9), (0.5, 0.85), (0.8, 0.7)])
def test_chance_alone_is_seldom_called_a_shape(load, least, runs):
    rng, per_s, length_s = np.random.default_rng(6), 20, 300
    flat = 0
    for _ in range(runs):
        if load:
            due, latency = queue(rng, load, per_s, length_s)
        else:
            due = rng.uniform(0, length_s, rng.poisson(per_s * length_s))
            latency = rng.exponential(10, len(due))
        seconds = due.astype(int)
        counts = np.bincount(seconds, minlength=length_s)
        busy = counts.nonzero()[0]
        means = np.bincount(seconds, latency, minlength=length_s)[busy] / counts[busy]
        found = sure(flatness(busy, means))
        flat += found.shape == "flat"
    assert flat / runs >= least
