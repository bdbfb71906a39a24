"""Shares, means, quantiles and their 95% intervals, each with its source.

The distribution functions are those of the binding and the standard library. They equal scipy's,
which takes longer to load than a command takes to start. Probabilities are above 0 and below 1,
degrees of freedom above 0; ValueError for others.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist

from msgspec import Struct

from pgpaces import _engine
from pgpaces.analysis.arrays import Numbers, np
from pgpaces.core.times import quantile_rank
from pgpaces.spec.result import Estimate

_NORMAL = NormalDist()
chi_squared_quantile = _engine.chi_squared_quantile
# P(B <= k) of n events, each with probability p; between integers, from -1 on, by beta.
binomial_cdf = _engine.binomial_cdf


def student_cdf(freedom: float, t: float) -> float:
    """P(T <= t) of Student's distribution; t may be infinite."""
    return float(t > 0) if math.isinf(t) else _engine.student_cdf(freedom, t)


@lru_cache(1024)  # called often with few different arguments
def student_quantile(freedom: float, p: float) -> float:
    """The t with P(T <= t) = p; the normal quantile for infinite degrees of freedom."""
    return _NORMAL.inv_cdf(p) if math.isinf(freedom) else _engine.student_quantile(freedom, p)


Z95 = student_quantile(math.inf, 0.975)
# The probability that an interval does not hold the truth.
ERROR = 0.05
_TAIL = ERROR / 2
# The variance of fewer points than this is too uncertain to use.
_POINTS_MIN = 10
# Cosines used: at most n^(2/3), and a third of the independent points.
_COSINES_EXPONENT, _COSINES_PART = 2 / 3, 3.0
# An excess kurtosis k of n values adds k / 2 n to 1 / degrees of freedom of their variance.
# Exponential values, as waiting times are, have 6.
_HALF_KURTOSIS = 3.0
_FREEDOM_MIN = 2.0
# A long-run variance is at least this part of the variance of independent points.
_BALANCED = 0.5
# At least this part of the variance is taken to be left by what a planned rate explains.
_REMAINING = 0.5
# Chosen by simulation (docs/internals/coverage.md). A rare share's own design effect has the
# weight of its events, that of a more frequent one this weight, and less if it includes the events.
_PRIOR_EVENTS, _PRIOR_EVENTS_RARER = 20.0, 15.0
# In clusters, a quiet trial's number is too low more often than a busy one's too high: the tails
# become 4.5% below and 0.5% above. A busy trial also shows more clusters, so an uncertain variance
# widens mostly lower ends: their tail is larger by this over the degrees of freedom.
_TAIL_ABOVE, _TAIL_UNCERTAIN = 0.005, 0.055
# The tail of a lower end without an upper one, before the same is added.
_TAIL_ALONE = 0.055
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
    """The same, but at least 1: less is taken for chance."""
    return max(1.0, pearson(windows))


class Clusters(Struct, frozen=True):
    """How much neighboring transactions of a trial resemble each other; by default not at all.

    effect: the design effect, the number of transactions that are worth one independent one; below
    1 if they balance each other. freedom: Student's degrees of freedom of its estimate.
    """

    effect: float = 1.0
    freedom: float = math.inf

    @property
    def phi(self) -> float:
        """The dispersion of a two-sided interval of 95%."""
        return self.divisor(_TAIL)

    @property
    def tails(self) -> tuple[float, float]:
        """The probabilities below and above an interval; both 2.5% without clusters."""
        above = _TAIL - (_TAIL - _TAIL_ABOVE) * _clumped(self.effect)
        return 2 * _TAIL - above + self._uncertain, above

    @property
    def tail_alone(self) -> float:
        """The probability below a lower end without an upper one."""
        return _TAIL_ALONE + self._uncertain

    @property
    def _uncertain(self) -> float:
        return _TAIL_UNCERTAIN * _clumped(self.effect) / self.freedom

    @property
    def reach(self) -> tuple[float, float]:
        """How many standard errors below and above its value an interval ends."""
        below, above = self.tails
        return student_quantile(self.freedom, 1 - below), student_quantile(self.freedom, 1 - above)

    def divisor(self, tail: float) -> float:
        """What n is divided by for a bound with probability `tail` beyond it.

        A normal quantile with this n is as wide as Student's t, and at least as wide as for
        independent transactions.
        """
        ratio = student_quantile(self.freedom, 1 - tail) / student_quantile(math.inf, 1 - tail)
        return max(1.0, self.effect * ratio * ratio)


INDEPENDENT = Clusters()


def _clumped(effect: float) -> float:
    return max(0.0, 1 - 1 / effect) if effect > 0 else 0.0


def clusters(
    sums: Numbers, counts: Numbers, stddev: float | None, *, planned: Numbers | None = None
) -> Clusters:
    """The clusters of values, from their sum and count in each second.

    The design effect is the variance of the mean, estimated from the seconds, over that of as many
    independent values (Kish, Survey Sampling, 1965, 8.2). Waits come in clusters: at 100/s and a
    utilization of 0.8 it is about 75. `INDEPENDENT` for fewer than 10 seconds.
    """
    if not stddev or len(counts) < _POINTS_MIN:
        return INDEPENDENT
    run = _of_ratio(sums, counts, planned)
    effect = run.variance / float(counts.sum()) / (stddev * stddev)
    return Clusters(effect, run.freedom(effect))


def clusters_of(
    hits: Numbers,
    due: Numbers,
    prior: Clusters,
    *,
    planned: Numbers | None = None,
    is_rarer: bool = False,
) -> Clusters:
    """The clusters of hits, from hits and due in equal stretches of time.

    prior: the clusters of the mean, or of a more frequent share. Few hits do not show how they
    cluster: in a quiet trial they seem to be independent. So their own design effect is weighed
    with the prior's: (E own + P prior) / (E + P), where E = hits / prior is the number of
    independent events, and P = 20 (1 - 2 share), because half is not rare. If most are hits, E is
    that of the others. The degrees of freedom are those of a mean of two variances with these
    weights (Satterthwaite 1946).

    is_rarer: the prior is that of a share which includes these hits. Then P = 15 (1 - 2 share), and
    only the part of the variance that clusters cause is uncertain: that of so few independent
    events is binomial.
    """
    total, all_due = float(hits.sum()), float(due.sum())
    rare = min(total, all_due - total)
    if not rare or len(due) < _POINTS_MIN:
        return prior
    share = rare / all_due
    run = _of_ratio(hits, due, planned)
    own = run.variance / all_due / (share * (1 - share))
    events = rare / max(1.0, prior.effect)
    prior_events = _PRIOR_EVENTS_RARER if is_rarer else _PRIOR_EVENTS
    weight = events / (events + prior_events * (1 - 2 * share))
    effect = weight * own + (1 - weight) * prior.effect
    freedom = run.freedom(effect) / (weight**2 + (1 - weight) ** 2)
    if is_rarer:
        uncertain = _clumped(effect)
        freedom = freedom / uncertain if uncertain else math.inf
    return Clusters(effect, freedom)


class LongRun(Struct, frozen=True):
    """The variance of the sum of a series whose neighbors resemble each other.

    cosines: the number of independent squares that it is the mean of. points: the number of
    independent points in the series.
    """

    variance: float
    cosines: float
    points: float

    def freedom(self, effect: float) -> float:
        """Student's degrees of freedom for values with this design effect.

        Fewer than for normal values, because clusters make values skewed and long-tailed (Cramer,
        Mathematical Methods of Statistics, 1946, 27.4).
        """
        slack = _HALF_KURTOSIS * _clumped(effect) / self.points
        return max(_FREEDOM_MIN, 1 / (1 / self.cosines + slack))


def _of_ratio(sums: Numbers, counts: Numbers, planned: Numbers | None) -> LongRun:
    """The long-run variance of the errors of a ratio of two sums: e_s = sum_s - mean count_s.

    Seconds are the clusters (Cochran, Sampling Techniques, 1977, 6.3): they may be empty or busy,
    and the values of a second may resemble each other.
    """
    return long_run(sums - float(sums.sum()) / float(counts.sum()) * counts, planned)


def long_run(errors: Numbers, planned: Numbers | None = None) -> LongRun:
    """The variance of the sum of a series with mean 0, which is taken from its slow waves.

    It is n times the mean square of the orthonormal weights of the first B cosines. For large n
    the weights are independent, so Student's t has B degrees of freedom (Mueller, Journal of
    Econometrics 141, 2007; Lazarus, Lewis, Stock and Watson, Journal of Business and Economic
    Statistics 36, 2018). B is at most n^(2/3) and n / (3 inefficiency): only waves that are slower
    show the correlation of neighbors.

    planned: the planned rate of each point, None if it is constant. What a parabola of this rate
    explains is not chance and is subtracted. Each cosine then counts for the part of it that is
    left, and the variance is raised for the chance that each column removes, one independent point.
    n becomes the effective number of points, (sum v)^2 / sum v^2 with v the variance at the planned
    rate (Kish 1965, 11.7): what happens only in bursts is known only from the bursts.
    """
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
    """Orthonormal columns of n points that span a planned rate and its square."""
    if planned is None or n < _POINTS_MIN or np.ptp(planned) <= 1e-9 * np.max(planned):
        return np.zeros((n, 0))
    x = np.asarray(planned, dtype=float)
    x = (x - x.mean()) / x.std()
    columns = np.stack([x, x * x - 1], axis=1)
    vectors, sizes, _ = np.linalg.svd(columns, full_matrices=False)
    basis: Numbers = vectors[:, sizes > 1e-6 * sizes[0]]
    return basis


def _effective_share(rest: Numbers, explained: Numbers) -> float:
    """The effective number of points over their number: 1 if all have the same variance."""
    if not explained.shape[1]:
        return 1.0
    n, squares = len(rest), np.square(rest)
    by_rate = squares.mean() + explained @ (explained.T @ squares)
    v = np.maximum(0, by_rate)
    return float(v.sum() ** 2 / (n * np.square(v).sum())) if v.any() else 1.0


def _cosines(columns: Numbers) -> Numbers:
    """Orthonormal weights of cosines 1 to n - 1 in each column (discrete cosine transform II)."""
    n = len(columns)
    waves = np.fft.rfft(np.concatenate([columns, columns[::-1]]), axis=0)[1:n]
    turned = waves * np.exp(-0.5j * np.pi / n * np.arange(1, n))[:, None]
    weights: Numbers = turned.real / math.sqrt(2 * n)
    return weights


def proportion(hits: int, trials: int, phi: float = 1.0) -> Estimate | None:
    """A share with Wilson's 95% interval, n replaced by n / phi; None if n is 0.

    Wilson (1927); phi is the dispersion of clustered hits. 8 of 600 at phi 1: 0.68 to 2.61%.
    """
    return wilson(hits, trials, ((_TAIL, phi), (_TAIL, phi)))


def share(
    hits: int, trials: int, clusters: Clusters, *, errors: tuple[float, float] = (ERROR, ERROR)
) -> Estimate | None:
    """The same for hits in clusters, by Student's t.

    errors: each end is that of an interval with this error, the lower one first.
    """
    tails = (tail * error / ERROR for tail, error in zip(clusters.tails, errors, strict=True))
    return wilson(hits, trials, tuple((tail, clusters.divisor(tail)) for tail in tails))


def wilson(hits: int, trials: int, ends: Sequence[tuple[float, float]]) -> Estimate | None:
    """The same. ends: the tail below with its dispersion, and the tail above with its own."""
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


def quantile_ranks(
    q: float, n: int, clusters: Clusters = INDEPENDENT
) -> tuple[int, int | None] | None:
    """The ranks, from 1, between which quantile q lies with 95%; None if n is too small.

    B, the number of n independent values that are at most the quantile, is binomial (n, q). low is
    the largest rank with P(B < low) <= 0.025, high the smallest with P(B >= high) <= 0.025 (David
    and Nagaraja, Order Statistics, 2003, 7.1). n = 1000, q = .99: 983 and 997. If there is no such
    high, but P(B = n) <= 0.05, the largest value is a one-sided bound: (0, n). A p99 has one from
    299 values on, both ends from 368 on. For values in clusters see `_ranks_of_clusters`.
    """
    if q**n > 2 * _TAIL:
        return None
    if clusters != INDEPENDENT:
        return _ranks_of_clusters(q, n, clusters)
    if q**n > _TAIL:
        return 0, n

    def at_most(rank: int) -> float:
        return binomial_cdf(rank - 1, n, q)

    ranks = range(1, n + 1)
    low = bisect_right(ranks, _TAIL, key=at_most)
    return low, 1 + bisect_left(ranks, 1 - _TAIL, key=at_most)


def _ranks_of_clusters(q: float, n: int, clusters: Clusters) -> tuple[int, int | None]:
    """The ranks of quantile q of n values in clusters; None above: there is no upper end.

    The values are as many as m = n / divisor independent ones. U, the number of m above the
    quantile, is binomial (m, 1 - q), taken as a beta distribution because m is not an integer (Korn
    and Graubard, Survey Methodology 24, 1998), with half an event for continuity. The ranks of m
    are then scaled to n. If m is too small for an upper end, there is a lower one alone; if m is
    too small for that too, the largest value may be an upper end.
    """
    below, above = clusters.tails
    value, m = quantile_rank(q, n), max(1.0, n / clusters.divisor(above))
    if q**m <= above:
        high = min(n, max(value, math.ceil(n - n / m * _events(m, 1 - q, above))))
    else:
        high, below = None, clusters.tail_alone
    m = max(1.0, n / clusters.divisor(below))
    low = max(0, min(value, math.floor(n - n / m * _events(m, 1 - q, 1 - below))))
    if high is None and low == 0 and q**m <= below:
        high = n
    return low, high


def _events(m: float, share: float, p: float) -> float:
    """The quantile p of the number of events of m, each with probability `share`, plus a half.

    Less than a half if even none is likelier than p: so lower ends of few values rise with each.
    """
    low, high = -1.0, m
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if binomial_cdf(middle, m, share) < p else (low, middle)
    return low + 0.5


def inefficiency(series: Numbers) -> float:
    """1 + 2 sum rho_k: the number of neighbors that are worth one independent value, at least 1.

    The autocorrelations rho_k are summed over Geyer's initial positive sequence, that is while
    rho_2k + rho_2k+1 is positive (Geyer, Practical Markov Chain Monte Carlo, 1992, 3.3). Less than
    1, that is neighbors that balance each other, is taken for chance. n / inefficiency is n_eff.

    Each autocovariance about the series' own mean is too low by about the variance of that mean, so
    a sum over 2 m + 1 lags is divided by 1 - (2 m + 1) / n (Anderson, The Statistical Analysis of
    Time Series, 1971, 8.2). A sum over more than n / 3 lags is not: it shows a change, not chance.
    """
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
    sums: Numbers, counts: Numbers, effect: float = 1.0, *, planned: Numbers | None = None
) -> Estimate | None:
    """The mean of nonnegative values, from their sum and count in each second; None without any.

    Student's t of its logarithm, because a larger mean varies more. effect: the design effect of
    the values, which decides the tails.
    """
    total = int(counts.sum())
    if total == 0:
        return None
    value = float(sums.sum()) / total
    if np.count_nonzero(counts) < 2:  # The spread between seconds is unknown.
        return Estimate.alone(value, total)
    run = _of_ratio(sums, counts, planned)
    error = math.sqrt(run.variance) / total / value if value > 0 else 0.0
    down, up = (error * reach for reach in Clusters(effect, run.freedom(effect)).reach)
    return Estimate(value, value * math.exp(-down), value * math.exp(min(up, _EXPONENT_MAX)), total)


def rate(per_second: Numbers, planned: Numbers | None = None) -> Estimate | None:
    """A number per second with its interval; None for no seconds.

    Student's t over the seconds' counts, not a Poisson interval with a dispersion: completions of a
    server that is the bottleneck vary less than Poisson counts, and a dispersion is never below 1.
    Not narrower than one more or less in all, which depends on when the first second began.
    """
    if len(per_second) == 0:
        return None
    value, n = float(per_second.mean()), int(per_second.sum())
    if len(per_second) < 2:
        return Estimate.alone(value, n)
    run = long_run(per_second - value, planned)
    error = math.sqrt(run.variance) / len(per_second)
    half = student_quantile(run.freedom(1.0), 1 - _TAIL) * error
    half = max(half, 1 / len(per_second))
    return Estimate(value, max(0.0, value - half), value + half, n)
