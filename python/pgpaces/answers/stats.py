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
# Cosines used: at most n^(2/3), and a third of the independent points.
_COSINES_EXPONENT, _COSINES_PART = 2 / 3, 3.0
# An excess kurtosis k of n values adds k / 2 n to 1 / degrees of freedom of their variance.
# Exponential values, as waiting times are, have 6.
_HALF_KURTOSIS = 3.0
_FREEDOM_MIN = 2.0
# That neighbors balance each other is believed for half of the variance.
_BALANCED = 0.5
# What a planned rate explains by chance is believed for as much.
_REMAINING = 0.5
# Chosen by simulation (docs/explanation/coverage.md). A rare share's own design effect weighs as
# many events as there are, that of what is more frequent as many as this. Where transactions
# resemble each other the number of a quiet trial is too low more often than that of a busy one too
# high: so the upper end is at 99.5 %, the lower one at 4.5 %.
_PRIOR_EVENTS = 20.0
_TAIL_ABOVE = 0.005
_EXPONENT_MAX = 700.0
_HALVINGS = 50


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

    effect: the design effect, how many transactions tell as much as one independent one. Below 1
    where they balance each other. freedom: Student's degrees of freedom of its estimate.
    """

    effect: float = 1.0
    freedom: float = math.inf

    @property
    def phi(self) -> float:
        """The dispersion of a two-sided interval of 95 %."""
        return self.divisor(_TAIL)

    @property
    def tails(self) -> tuple[float, float]:
        """The probabilities below and above an interval: both 2.5 % of independent transactions."""
        above = _TAIL - (_TAIL - _TAIL_ABOVE) * _clumped(self.effect)
        return 2 * _TAIL - above, above

    @property
    def reach(self) -> tuple[float, float]:
        """How many standard errors an interval reaches, down and up."""
        below, above = self.tails
        return student_quantile(self.freedom, 1 - below), student_quantile(self.freedom, 1 - above)

    def divisor(self, tail: float) -> float:
        """By what a number of transactions is divided for a bound beyond which `tail` lies.

        The normal quantile is then as wide as Student's, but no narrower than of independent ones.
        """
        ratio = student_quantile(self.freedom, 1 - tail) / student_quantile(math.inf, 1 - tail)
        return max(1.0, self.effect * ratio * ratio)


INDEPENDENT = Clusters()


def _clumped(effect: float) -> float:
    """The share of a variance that is due to clusters."""
    return max(0.0, 1 - 1 / effect) if effect > 0 else 0.0


def clusters(
    sums: Numbers, counts: Numbers, stddev: float | None, planned: Numbers | None = None
) -> Clusters:
    """What a series with a count and a sum of values for each second tells of all its values.

    The variance of the mean as the seconds show it over the variance that as many independent
    values would have (Kish, Survey Sampling, 1965, 8.2). Waiting comes in clumps: at 100/s and a
    utilization of 0.8 it is about 75. `INDEPENDENT` where it cannot be told: fewer than 10 seconds.
    """
    if not stddev or len(counts) < _POINTS_MIN:
        return INDEPENDENT
    found = _of_ratio(sums, counts, planned)
    effect = found.variance / float(counts.sum()) / (stddev * stddev)
    return Clusters(effect, found.freedom(effect))


def clusters_of(
    hits: Numbers, due: Numbers, body: Clusters, planned: Numbers | None = None
) -> Clusters:
    """The same of a share: hits and due in equal stretches of time; body: that of the mean, or of a
    share that is more frequent.

    Few hits say little of how they cluster: in a quiet trial they seem to be alone. So their own
    effect, from E events, and that of what is more frequent are weighed: (E own + P body) /
    (E + P) with E = hits / body and P = 20 (1 - 2 share), because half is not rare. Where nearly
    all are hits, those that are none count. Two estimates are known better than one: the degrees of
    freedom are those of the mean of two variances with these weights (Satterthwaite 1946).
    """
    total, all_due = float(hits.sum()), float(due.sum())
    rare = min(total, all_due - total)
    if not rare or len(due) < _POINTS_MIN:
        return body
    share = rare / all_due
    found = _of_ratio(hits, due, planned)
    own = found.variance / all_due / (share * (1 - share))
    events, prior = rare / max(1.0, body.effect), _PRIOR_EVENTS * (1 - 2 * share)
    weight = events / (events + prior)
    effect = weight * own + (1 - weight) * body.effect
    return Clusters(effect, found.freedom(effect) / (weight**2 + (1 - weight) ** 2))


class LongRun(Struct, frozen=True):
    """The variance of the sum of a series whose neighbors resemble each other.

    cosines: how many independent squares it is the mean of. points: independent points in it.
    """

    variance: float
    cosines: float
    points: float

    def freedom(self, effect: float) -> float:
        """Student's degrees of freedom for values with this design effect.

        Clusters make values skewed and long-tailed: fewer than of normal ones (Cramer, Mathematical
        Methods of Statistics, 1946, 27.4).
        """
        slack = _HALF_KURTOSIS * _clumped(effect) / self.points
        return max(_FREEDOM_MIN, 1 / (1 / self.cosines + slack))


def _of_ratio(sums: Numbers, counts: Numbers, planned: Numbers | None) -> LongRun:
    """The long-run variance of a sum, less the mean times its count.

    A ratio of two sums (Cochran, Sampling Techniques, 1977, 6.3, seconds as clusters): the errors
    e_s = sum_s - mean count_s have mean 0. So seconds may be empty or busy, and values of a second
    may resemble each other.
    """
    return long_run(sums - float(sums.sum()) / float(counts.sum()) * counts, planned)


def long_run(errors: Numbers, planned: Numbers | None = None) -> LongRun:
    """What a series with mean 0 tells of the variance of its sum.

    By the first B cosines: n times the mean of the squares of their orthonormal weights.

    For n -> infinity these are independent, so B are the degrees of freedom of Student's t
    (Mueller, Journal of Econometrics 141, 2007; Lazarus, Lewis, Stock and Watson, Journal of
    Business and Economic Statistics 36, 2018). B is at most n^(2/3) and
    n / (3 inefficiency): slow waves alone show what neighbors have in common.

    planned: the rate that was planned for each point, None of a constant one. What a parabola of it
    explains is no chance and is left out; each cosine counts for what is left of it, and each
    column takes the chance of one independent point away. n is then the effective number of points,
    (sum v)^2 / sum v^2 with v the variance at that rate (Kish 1965, 11.7): what happens in bursts
    alone is known from these alone.
    """
    import numpy as np

    explained = _explained(len(errors), planned)
    rest = errors - explained @ (explained.T @ errors)
    n, busy = len(rest), _effective_share(rest, explained)
    points = n * busy / inefficiency(rest)
    most = min((n * busy) ** _COSINES_EXPONENT, points / _COSINES_PART)
    left = np.cumsum(1 - np.square(_cosines(explained)).sum(axis=1))
    used = min(n - 1, 1 + int(np.searchsorted(left, max(2, int(most)) / busy - 1e-9)))
    cosines = float(left[used - 1])
    squares = float(np.square(_cosines(rest[:, None])[:used]).sum())
    variance = max(n * squares / cosines, _BALANCED * n * float(np.square(rest).sum()) / (n - 1))
    remaining = max(_REMAINING, 1 - explained.shape[1] / points)
    return LongRun(variance / remaining, cosines * busy, points)


def _explained(n: int, planned: Numbers | None) -> Numbers:
    """Orthonormal columns of n points: what a planned rate and its square explain."""
    import numpy as np

    if planned is None or n < _POINTS_MIN or np.ptp(planned) <= 1e-9 * np.max(planned):
        return np.zeros((n, 0))
    x = np.asarray(planned, dtype=float)
    x = (x - x.mean()) / x.std()
    columns = np.stack([x, x * x - 1], axis=1)
    vectors, sizes, _ = np.linalg.svd(columns, full_matrices=False)
    found: Numbers = vectors[:, sizes > 1e-6 * sizes[0]]
    return found


def _effective_share(rest: Numbers, explained: Numbers) -> float:
    """The effective number of points over their number: 1 where all vary alike."""
    import numpy as np

    if not explained.shape[1]:
        return 1.0
    n, squares = len(rest), np.square(rest)
    by_rate = squares.mean() + explained @ (explained.T @ squares)
    v = np.maximum(0, by_rate)
    return float(v.sum() ** 2 / (n * np.square(v).sum())) if v.any() else 1.0


def _cosines(columns: Numbers) -> Numbers:
    """Orthonormal weights of cosines 1 to n - 1 in each column (discrete cosine transform II)."""
    import numpy as np

    n = len(columns)
    waves = np.fft.rfft(np.concatenate([columns, columns[::-1]]), axis=0)[1:n]
    turned = waves * np.exp(-0.5j * np.pi / n * np.arange(1, n))[:, None]
    found: Numbers = turned.real / math.sqrt(2 * n)
    return found


def proportion(hits: int, trials: int, phi: float = 1.0) -> Estimate | None:
    """A share with Wilson's 95 % interval, n replaced by n / phi; None of nothing.

    Wilson (1927); phi is the dispersion of clustered hits. 8 of 600 at phi 1: 0.68 to 2.61 %.
    """
    return _wilson(hits, trials, ((_TAIL, phi), (_TAIL, phi)))


def share(hits: int, trials: int, found: Clusters) -> Estimate | None:
    """The same of one trial, whose hits come in clusters: by Student's t."""
    return _wilson(hits, trials, tuple((tail, found.divisor(tail)) for tail in found.tails))


def _wilson(hits: int, trials: int, ends: Sequence[tuple[float, float]]) -> Estimate | None:
    """ends: the tail below with its dispersion, and that above."""
    if trials == 0:
        return None
    p = hits / trials

    def end(sign: int, tail: float, phi: float) -> float:
        n, z = trials / phi, student_quantile(math.inf, 1 - tail)
        half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return (p + z * z / (2 * n) + sign * half) / (1 + z * z / n)

    below, above = ends
    low = end(-1, *below) if hits else 0.0
    high = end(1, *above) if hits < trials else 1.0
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

    Of values in clusters they are those of fewer independent ones, and no whole numbers before they
    are stretched to n: see `_ranks_of_clusters`.
    """
    if q**n > 2 * _TAIL:
        return None
    if found != INDEPENDENT:
        return _ranks_of_clusters(q, n, found)
    if q**n > _TAIL:
        return 0, n
    return _rank_below(q, n), _rank_above(q, n)


def _rank_below(q: float, n: int) -> int:
    """The largest rank with P(B < rank) <= 0.025; 0 where there is none."""
    return bisect_right(range(1, n + 1), _TAIL, key=lambda rank: binomial_cdf(rank - 1, n, q))


def _rank_above(q: float, n: int) -> int:
    """The smallest rank with P(B >= rank) <= 0.025, of n values that are enough for one."""
    return 1 + bisect_left(
        range(1, n + 1), 1 - _TAIL, key=lambda rank: binomial_cdf(rank - 1, n, q)
    )


def _ranks_of_clusters(q: float, n: int, found: Clusters) -> tuple[int, int | None]:
    """The ranks of quantile q of values in clusters, for each end of n / divisor independent ones.

    U = how many of m are above the quantile is binomial (m, 1 - q) as a beta distribution, m being
    no whole number (Korn and Graubard, Survey Methodology 24, 1998), with half an event for
    continuity. Where m is too small for a bound from above, that from below is at 95 %; where it is
    too small for that, too, the largest value may be a bound.
    """
    below, above = found.tails
    value, m = quantile_rank(q, n), max(1.0, n / found.divisor(above))
    if q**m <= above:
        high = min(n, max(value, math.ceil(n - n / m * _events(m, 1 - q, above))))
    else:
        high, below = None, 2 * _TAIL
    m = max(1.0, n / found.divisor(below))
    low = max(0, min(value, math.floor(n - n / m * _events(m, 1 - q, 1 - below))))
    if high is None and low == 0 and q**m <= below:
        high = n
    return low, high


def _events(m: float, share: float, p: float) -> float:
    """As many events of m, each with this probability, as are exceeded with probability 1 - p."""
    low, high = 0.0, m
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if binomial_cdf(middle, m, share) < p else (low, middle)
    return low + 0.5


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


def mean(
    sums: Numbers, counts: Numbers, effect: float = 1.0, planned: Numbers | None = None
) -> Estimate | None:
    """The mean of values, none below 0, of which each second has a count and a sum; None of none.

    Student's t of its logarithm, because the larger a mean is the more it varies. effect: the
    design effect of the values, which decides its tails.
    """
    total = int(counts.sum())
    if total == 0:
        return None
    value = float(sums.sum()) / total
    if len(sums) < 2:
        return Estimate.alone(value, total)
    run = _of_ratio(sums, counts, planned)
    error = math.sqrt(run.variance) / total / value if value > 0 else 0.0
    down, up = (error * reach for reach in Clusters(effect, run.freedom(effect)).reach)
    return Estimate(value, value * math.exp(-down), value * math.exp(min(up, _EXPONENT_MAX)), total)


def rate(per_second: Numbers, planned: Numbers | None = None) -> Estimate | None:
    """A number a second with its interval; None of no seconds.

    Student's t over the seconds' counts. Not a Poisson interval with a dispersion: what a server
    completes is smoother than Poisson where it is the bottleneck, and a dispersion, which is never
    below 1, could not show that.
    """
    if len(per_second) == 0:
        return None
    value, n = float(per_second.mean()), int(per_second.sum())
    if len(per_second) < 2:
        return Estimate.alone(value, n)
    run = long_run(per_second - value, planned)
    error = math.sqrt(run.variance) / len(per_second)
    half = student_quantile(run.freedom(1.0), 1 - _TAIL) * error
    return Estimate(value, max(0.0, value - half), value + half, n)
