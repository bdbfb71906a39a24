"""Shares, means, quantiles and their intervals, each with its source. Numbers in, estimates out.

All intervals are of 95 %. numpy and scipy are imported where they are used: they take longer to
load than a command takes to start.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pgpaces.result import Estimate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[Any]

Z95 = 1.959963984540054
_TAIL = 0.025
# With fewer seconds than this their variance says next to nothing.
_SECONDS_MIN = 10


def pearson(windows: Sequence[tuple[int, int]]) -> float:
    """Pearson's dispersion of (hits, trials) per window.

    phi = sum((k_i - n_i p)^2 / (n_i p (1 - p))) / (windows - 1), p over all windows. 1 where it
    cannot be estimated: fewer than two windows, or no hits or only hits.
    """
    used = [(k, n) for k, n in windows if n > 0]
    hits, trials = sum(k for k, _ in used), sum(n for _, n in used)
    if len(used) < 2 or hits in (0, trials):
        return 1.0
    p = hits / trials
    return sum((k - n * p) ** 2 / (n * p * (1 - p)) for k, n in used) / (len(used) - 1)


def dispersion(windows: Sequence[tuple[int, int]]) -> float:
    """The same, at least 1: that hits balance each other is not believed."""
    return max(1.0, pearson(windows))


def proportion(hits: int, trials: int, phi: float = 1.0) -> Estimate | None:
    """A share with Wilson's 95 % interval, n replaced by n / phi; None of nothing.

    Wilson (1927); phi is the dispersion of clustered hits. 8 of 600 at phi 1: 0.68 to 2.61 %.
    """
    if trials == 0:
        return None
    n, p, z = trials / phi, hits / trials, Z95
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low = middle - half if hits else 0.0
    high = middle + half if hits < trials else 1.0
    return Estimate(p, max(0.0, low), min(1.0, high), trials)


def quantile_rank(q: float, due: int) -> int:
    """The rank of quantile q among `due` values in ascending order, from 1.

    The lower order statistic ceil(q n).
    """
    return max(1, math.ceil(q * due - 1e-9))


def quantile_ranks(q: float, n: int, deff: float = 1.0) -> tuple[int, int] | None:
    """The ranks, from 1, between which quantile q lies with 95 %; None: not estimable.

    B = how many of n independent values are at most the quantile is binomial (n, q). low is the
    largest rank with P(B < low) <= 0.025, high the smallest with P(B >= high) <= 0.025 (David and
    Nagaraja, Order Statistics, 2003, 7.1). n = 1000, q = .99: 983 and 997. Where there is no such
    high, but P(B = n) <= 0.05, the largest value is a one-sided bound: (0, n). p99: from 299 and
    368 values on.

    deff: the design effect (see `mean`): the ranks are those of n / deff independent values,
    stretched to n and rounded outwards.
    """
    m = int(n / deff)
    if m < 1 or q**m > 2 * _TAIL:
        return None
    if q**m > _TAIL:
        return 0, n
    from scipy.special import bdtr, bdtrik

    # The inverse in real numbers is within one of the rank; the distribution itself decides.
    low = int(bdtrik(_TAIL, m, q)) + 2
    while low > 0 and bdtr(low - 1, m, q) > _TAIL:
        low -= 1
    high = max(1, int(bdtrik(1 - _TAIL, m, q)) - 1)
    while bdtr(high - 1, m, q) < 1 - _TAIL:
        high += 1
    return low * n // m, min(n, -(-high * n // m))


def inefficiency(series: Numbers) -> float:
    """1 + 2 sum rho_k: how many neighbours tell as much as one independent value, at least 1.

    rho_k: autocorrelations, summed over Geyer's initial positive sequence, that is for as long as
    rho_2k + rho_2k+1 is positive (Geyer, Practical Markov Chain Monte Carlo, 1992, 3.3). Values
    below 1 (neighbours that balance each other) are not believed. n / inefficiency is n_eff.
    """
    import numpy as np

    x = np.asarray(series, dtype=float) - np.mean(series)
    n = len(x)
    spectrum = np.fft.rfft(x, 2 * n)
    gamma = np.fft.irfft(spectrum * spectrum.conj())[:n] / n
    # Rounding alone is no variance.
    if n < 4 or gamma[0] <= 1e-24 * float(np.mean(np.square(series))):
        return 1.0
    pairs = gamma[: n // 2 * 2].reshape(-1, 2).sum(axis=1)
    ends = np.flatnonzero(pairs <= 0)
    used = pairs[: ends[0]] if len(ends) else pairs
    return float(min(n, max(1.0, 2 * used.sum() / gamma[0] - 1)))


def _half_width(errors: Numbers) -> float:
    """Half of the interval of a mean from its errors, one a second: Student's t with n_eff."""
    import numpy as np
    from scipy.special import stdtrit

    n_eff = len(errors) / inefficiency(errors)
    freedom = max(1.0, n_eff - 1)
    return float(stdtrit(freedom, 1 - _TAIL) * np.std(errors, ddof=1) / math.sqrt(n_eff))


def mean(sums: Numbers, counts: Numbers) -> Estimate | None:
    """The mean of values of which each second has a count and a sum; None of no values.

    A ratio of two sums (Cochran, Sampling Techniques, 1977, 6.3, seconds as clusters): the errors
    e_s = (sum_s - mean count_s) / mean count have mean 0, and the interval is Student's t over
    them with n_eff = seconds / inefficiency. So seconds may be empty or busy, values of a second
    may resemble each other, and so may neighbouring seconds.
    """
    total = int(counts.sum())
    if total == 0:
        return None
    value = float(sums.sum()) / total
    if len(sums) < 2:
        return Estimate.alone(value, total)
    half = _half_width((sums - value * counts) / (total / len(counts)))
    return Estimate(value, max(0.0, value - half), value + half, total)


def design_effect(found: Estimate | None, stddev: float | None, seconds: int) -> float:
    """How many transactions tell as much as one independent one would, at least 1.

    The variance of the mean as its seconds show it over the variance that as many independent
    values would have (Kish, Survey Sampling, 1965, 8.2). Waiting comes in clumps: at 100/s and a
    utilization of 0.8 it is about 75. The mean's is taken for quantiles too, where it is right for
    the tail and wider than needed in the middle. 1 where it cannot be told: fewer than 10 seconds.
    """
    if found is None or not found.estimable or not stddev or seconds < _SECONDS_MIN:
        return 1.0
    # Not Student's t of the mean: so few seconds count as a wider design effect.
    error = (found.high - found.value) / Z95
    return max(1.0, error * error * found.n / (stddev * stddev))


def rate(per_second: Numbers) -> Estimate | None:
    """A number a second with its interval; None of no seconds.

    Student's t over the seconds' counts with n_eff. Not a Poisson interval with a dispersion: what
    a server completes is smoother than Poisson where it is the bottleneck, and a dispersion, which
    is never below 1, could not show that; n_eff holds for clumps that last for seconds.
    """
    if len(per_second) == 0:
        return None
    value, n = float(per_second.mean()), int(per_second.sum())
    if len(per_second) < 2:
        return Estimate.alone(value, n)
    half = _half_width(per_second - value)
    return Estimate(value, max(0.0, value - half), value + half, n)
