"""Shares, means, quantiles and their intervals, each with its source. Numbers in, estimates out.

All intervals are of 95 %. numpy is imported where it is used: it takes longer to load than a
command takes to start.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pgpaces.answers.distributions import binomial_cdf, student_quantile
from pgpaces.result import Estimate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[Any]

Z95 = student_quantile(math.inf, 0.975)
_TAIL = 0.025
# With fewer points than this their variance says next to nothing.
_POINTS_MIN = 10
# Chosen by simulation (docs/explanation/coverage.md). A share's own design effect weighs as many
# events as there are, that of what is more frequent as many as this. Where transactions resemble
# each other the number of a quiet trial is too low more often than that of a busy one too high: so
# the upper end is at 99 %, the lower one at 4 %.
_PRIOR_EVENTS = 20.0
_FREEDOM_EVENTS, _FREEDOM_PRIOR = 0.4, 10.0
_TAIL_ABOVE = 0.01
_MEAN_FREEDOM = 5.0
_EXPONENT_MAX = 700.0


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


class Clusters(Struct, frozen=True):
    """How much transactions of a trial resemble those next to them; as made: not at all.

    effect: the design effect, how many transactions tell as much as one independent one, from 1.
    freedom: how many independent points it was estimated from (Student's degrees of freedom).
    """

    effect: float = 1.0
    freedom: float = math.inf

    @property
    def phi(self) -> float:
        """The dispersion with which Wilson's interval is as wide as Student's."""
        return self.effect * (student_quantile(self.freedom, 1 - _TAIL) / Z95) ** 2

    @property
    def tails(self) -> tuple[float, float]:
        """The probabilities below and above an interval: both 2.5 % of independent transactions."""
        above = _TAIL - (_TAIL - _TAIL_ABOVE) * (1 - 1 / self.effect)
        return 2 * _TAIL - above, above

    @property
    def reach(self) -> tuple[float, float]:
        """How many standard errors an interval reaches, down and up."""
        below, above = self.tails
        return student_quantile(self.freedom, 1 - below), student_quantile(self.freedom, 1 - above)


INDEPENDENT = Clusters()


def clusters(sums: Numbers, counts: Numbers, stddev: float | None) -> Clusters:
    """What a series with a count and a sum of values for each second tells of all its values.

    The variance of the mean as the seconds show it over the variance that as many independent
    values would have (Kish, Survey Sampling, 1965, 8.2). Waiting comes in clumps: at 100/s and a
    utilization of 0.8 it is about 75. `INDEPENDENT` where it cannot be told: fewer than 10 seconds.
    """
    if not stddev or len(counts) < _POINTS_MIN:
        return INDEPENDENT
    variance, freedom = _variance(sums, counts)
    return Clusters(max(1.0, variance * float(counts.sum()) / (stddev * stddev)), freedom)


def clusters_of(hits: Numbers, due: Numbers, body: Clusters) -> Clusters:
    """The same of a share: hits and due in equal stretches of time; body: that of the mean, or of a
    share that is more frequent.

    Few hits say little of how they cluster: in a quiet trial they seem to be alone. So their own
    effect, from E events, and that of what is more frequent are weighed: (E own + 20 body) /
    (E + 20) with E = hits / body. Where nearly all are hits, those that are none count.
    """
    total, all_due = float(hits.sum()), float(due.sum())
    rare = min(total, all_due - total)
    own = body.effect
    if rare > 0 and len(due) >= _POINTS_MIN:
        share = total / all_due
        variance, _ = _variance(hits, due)
        own = max(1.0, variance * all_due / (share * (1 - share)))
    events = rare / body.effect
    effect = (events * own + _PRIOR_EVENTS * body.effect) / (events + _PRIOR_EVENTS)
    if effect == 1:
        return INDEPENDENT
    slack = 1 / body.freedom + _FREEDOM_EVENTS / (rare / effect + _FREEDOM_PRIOR)
    return Clusters(effect, max(1.0, 1 / slack))


def _variance(sums: Numbers, counts: Numbers) -> tuple[float, float]:
    """The variance of a mean of which each second has a count and a sum, and independent seconds.

    A ratio of two sums (Cochran, Sampling Techniques, 1977, 6.3, seconds as clusters): the errors
    e_s = sum_s - mean count_s have mean 0, and what neighbouring seconds have in common is in their
    inefficiency. So seconds may be empty or busy, and values of a second may resemble each other.
    """
    import numpy as np

    n, total = len(counts), float(counts.sum())
    errors = sums - float(sums.sum()) / total * counts
    alike = inefficiency(errors)
    return alike * float(np.square(errors).sum()) / (n - 1) * n / total**2, n / alike


def proportion(hits: int, trials: int, phi: float = 1.0) -> Estimate | None:
    """A share with Wilson's 95 % interval, n replaced by n / phi; None of nothing.

    Wilson (1927); phi is the dispersion of clustered hits. 8 of 600 at phi 1: 0.68 to 2.61 %.
    """
    return _wilson(hits, trials, phi, (Z95, Z95))


def share(hits: int, trials: int, found: Clusters) -> Estimate | None:
    """The same of one trial, whose hits come in clusters: by Student's t."""
    return _wilson(hits, trials, found.effect, found.reach)


def _wilson(hits: int, trials: int, effect: float, reach: tuple[float, float]) -> Estimate | None:
    if trials == 0:
        return None
    n, p = trials / effect, hits / trials

    def end(z: float) -> float:
        half = abs(z) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return (p + z * z / (2 * n) + math.copysign(half, z)) / (1 + z * z / n)

    low = end(-reach[0]) if hits else 0.0
    high = end(reach[1]) if hits < trials else 1.0
    return Estimate(p, max(0.0, low), min(1.0, high), trials)


def quantile_rank(q: float, due: int) -> int:
    """The rank of quantile q among `due` values in ascending order, from 1.

    The lower order statistic ceil(q n).
    """
    return max(1, math.ceil(q * due - 1e-9))


def quantile_ranks(
    q: float, n: int, found: Clusters = INDEPENDENT
) -> tuple[int, int | None] | None:
    """The ranks, from 1, between which quantile q lies with 95 %; None: n values are too few.

    B = how many of n independent values are at most the quantile is binomial (n, q). low is the
    largest rank with P(B < low) <= 0.025, high the smallest with P(B >= high) <= 0.025 (David and
    Nagaraja, Order Statistics, 2003, 7.1). n = 1000, q = .99: 983 and 997. Where there is no such
    high, but P(B = n) <= 0.05, the largest value is a one-sided bound: (0, n). p99: from 299 and
    368 values on.

    Of values in clusters the ranks are those of n / phi independent ones, stretched to n and
    rounded outwards, with the tails of the clusters. Where these would be too few for a bound from
    above there is one from below alone: (low, None).
    """
    if q**n > 2 * _TAIL:
        return None
    m, (below, above) = max(1, int(n / found.phi)), found.tails
    if q**m > above:
        if found.effect == 1 or q**m <= 2 * _TAIL:
            return 0, n
        return _stretched(_rank_below(q, m, below), m, n), None
    low = _stretched(_rank_below(q, m, below), m, n)
    return low, min(n, -(-_rank_above(q, m, above) * n // m))


def _stretched(rank: int, m: int, n: int) -> int:
    """The rank among n values below which the same share of them lies in the mean."""
    return rank * (n + 1) // (m + 1)


def _rank_below(q: float, m: int, tail: float) -> int:
    """The largest rank with P(B < rank) <= tail; 0 where there is none."""
    return bisect_right(range(1, m + 1), tail, key=lambda rank: binomial_cdf(rank - 1, m, q))


def _rank_above(q: float, m: int, tail: float) -> int:
    """The smallest rank with P(B >= rank) <= tail, of m values that are enough for one."""
    return 1 + bisect_left(range(1, m + 1), 1 - tail, key=lambda rank: binomial_cdf(rank - 1, m, q))


def inefficiency(series: Numbers) -> float:
    """1 + 2 sum rho_k: how many neighbours tell as much as one independent value, at least 1.

    rho_k: autocorrelations, summed over Geyer's initial positive sequence, that is for as long as
    rho_2k + rho_2k+1 is positive (Geyer, Practical Markov Chain Monte Carlo, 1992, 3.3). Values
    below 1 (neighbours that balance each other) are not believed. n / inefficiency is n_eff.

    Each autocovariance about the series' own mean is low by about the variance of that mean, so a
    sum over 2 m + 1 lags is divided by 1 - (2 m + 1) / n (Anderson, The Statistical Analysis of
    Time Series, 1971, 8.2); not one over more than n / 3: that is of a change, not of chance.
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
    lags = 4 * len(used) - 1
    left = 1 - lags / n if lags <= n / 3 else 1.0
    return float(min(n, max(1.0, (2 * used.sum() / gamma[0] - 1) / left)))


def mean(sums: Numbers, counts: Numbers, effect: float = 1.0) -> Estimate | None:
    """The mean of values, none below 0, of which each second has a count and a sum; None of none.

    Student's t of its logarithm, because the larger a mean is the more it varies, with a fifth of
    the independent seconds as degrees of freedom: few of them tell their own variance badly.
    effect: the design effect of the values, which decides its tails.
    """
    total = int(counts.sum())
    if total == 0:
        return None
    value = float(sums.sum()) / total
    if len(sums) < 2:
        return Estimate.alone(value, total)
    variance, freedom = _variance(sums, counts)
    error = math.sqrt(variance) / value if value > 0 else 0.0
    found = Clusters(effect, max(1.0, freedom / _MEAN_FREEDOM - 1))
    down, up = (error * reach for reach in found.reach)
    return Estimate(value, value * math.exp(-down), value * math.exp(min(up, _EXPONENT_MAX)), total)


def rate(per_second: Numbers) -> Estimate | None:
    """A number a second with its interval; None of no seconds.

    Student's t over the seconds' counts with n / inefficiency of them. Not a Poisson interval with
    a dispersion: what a server completes is smoother than Poisson where it is the bottleneck, and a
    dispersion, which is never below 1, could not show that.
    """
    import numpy as np

    if len(per_second) == 0:
        return None
    value, n = float(per_second.mean()), int(per_second.sum())
    if len(per_second) < 2:
        return Estimate.alone(value, n)
    independent = len(per_second) / inefficiency(per_second)
    error = float(np.std(per_second, ddof=1)) / math.sqrt(independent)
    half = student_quantile(max(1.0, independent - 1), 1 - _TAIL) * error
    return Estimate(value, max(0.0, value - half), value + half, n)
