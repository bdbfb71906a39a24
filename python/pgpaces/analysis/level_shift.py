"""Where a series changes its level, where it becomes steady, and whether it stays steady. Pure.

`levels` finds all sudden changes by least squares: a change counts if it explains more than a
multiple of the noise. `warm_up` and `flatness` judge a series of one number per second.
"""

from __future__ import annotations

import itertools
import math
from typing import Literal

from msgspec import Struct

from pgpaces.analysis.arrays import Numbers, np
from pgpaces.analysis.stats import Z95, inefficiency, long_run, student_quantile
from pgpaces.spec.result import Estimate

# The weight of a penalty for candidates, of which a test keeps some.
CANDIDATES = 3.0
_SHORTEST = 5

POINTS_MIN = 50
FLATNESS_POINTS_MIN = 30
Shape = Literal["flat", "warming up", "slowing down", "no steady state"]

# How often a beginning may be left out that is slower by chance alone; as often a faster one.
_CHANCE = 0.0005
_TOLERANCE = 0.02
# A level that began in the last quarter is not steady (Barrett et al.: 500 of 2000).
_LAST = 0.75
_BLOCKS = 600
# Of the penalty for levels of a warm-up: with 3, the end of a slow one is cut too early.
_WARM_UP_WEIGHT = 2.0
# The weight of the penalty for levels that no other test confirms.
_WEIGHT = 6.0


def means(values: Numbers, most: int) -> tuple[Numbers, int]:
    """A series as at most `most` means of equal stretches, and the length of a stretch."""
    size = math.ceil(len(values) / most)
    n = len(values) // size
    return np.asarray(values[: n * size], dtype=float).reshape(n, size).mean(axis=1), size


def levels(
    x: Numbers, variance: float, *, weight: float = CANDIDATES, shortest: int = _SHORTEST
) -> list[int]:
    """The points at which new levels begin, each of at least `shortest` points.

    Together they have the smallest sum of squared errors plus a penalty of weight variance log n
    for each change (Yao, Statistics and Probability Letters 6, 1988), by optimal partitioning:
    F(end) = min over starts of F(start) + error of one level from start to end + penalty (Jackson
    et al., IEEE Signal Processing Letters 12, 2005).
    """
    n, sums = len(x), _sums(x)
    penalty = weight * variance * math.log(n)
    # Without the squares of all points, which are the same for all series of levels.
    least, begins = np.zeros(n + 1), np.zeros(n + 1, dtype=int)
    least[1:shortest] = math.inf
    for end in range(shortest, n + 1):
        starts = np.arange(end - shortest + 1)
        errors = least[starts] - (sums[end] - sums[starts]) ** 2 / (end - starts)
        begins[end] = errors.argmin()
        least[end] = errors[begins[end]] + penalty
    found, end = [], int(begins[n])
    while end:
        found.append(end)
        end = int(begins[end])
    return found[::-1]


def noise(x: Numbers) -> tuple[float, float]:
    """The variance that levels of a series have, and its inefficiency (see `stats`).

    Both are of what the largest change leaves: the ramp that explains most, or the stretch that
    differs most from the rest (the statistic of circular binary segmentation, Olshen et al.,
    Biostatistics 5, 2004). The variance is multiplied by the inefficiency.
    """
    n, sums = len(x), _sums(x)
    start, end = np.triu_indices(n + 1, 1)
    length = end - start
    possible = np.minimum(length, n - length) >= _SHORTEST
    gain = (sums[end] - sums[start]) ** 2 * n / np.maximum(1, length * (n - length)) * possible
    best = int(gain.argmax())
    (begins, ends), explained = _best_ramp(x)
    form: Numbers = np.clip((np.arange(n) + 0.5 - begins) / max(ends - begins, 1e-9), 0.0, 1.0)
    if explained < gain[best]:
        form = np.zeros(n)
        form[start[best] : end[best]] = 1.0
    form, rest = form - form.mean(), x - x.mean()
    if (spread := float(form @ form)) > 0:
        rest = rest - float(form @ rest) / spread * form
    # Rounding alone is no noise.
    least, neighbors = 1e-12 * float(np.mean(x * x)) or 1e-300, inefficiency(rest)
    return max(least, float(rest.var())) * neighbors, neighbors


def _sums(x: Numbers) -> Numbers:
    """The sums of the first 0 to n deviations from the mean."""
    return np.concatenate([[0.0], np.cumsum(x - x.mean())])


def _best_ramp(x: Numbers) -> tuple[tuple[float, float], float]:
    """The straight line between two levels that explains most: start and end, and how much.

    A ramp is the mean of the steps at k points in a row. So its product with x is a difference of
    sums of sums, and its sum of squares follows from the mean of the larger of two of the points.
    """
    n, sums = len(x), np.cumsum(_sums(x))
    first, last = np.triu_indices(n, 1)
    k, left = last - first, n - 1 - first
    squares = left - (k - 1) * (4 * k + 1) / (6 * k) - (left - (k - 1) / 2) ** 2 / n
    gain = (sums[last] - sums[first]) ** 2 / (k * k * squares) * (left >= 1)
    best = int(gain.argmax())
    start, end = float(first[best]), float(last[best])
    place = (start + 0.5, end + 0.5) if k[best] > 1 else (end, end)
    return place, float(gain[best])


class WarmUp(Struct, frozen=True):
    """How many points at the beginning to leave out. too_short: it would be more than half."""

    points: int
    too_short: bool


def warm_up(points: Numbers) -> WarmUp | None:
    """The warm-up that a series is shown to have; None with fewer than 50 points.

    It ends where a level begins from which on the series differs from its beginning: from its first
    quarter, or from all before if that is less. Levels are of ranks, because bursts are skewed. Of
    several such levels, the last one counts; but not a slower one in the second half, because an
    overload never settles. More than 600 points are averaged to at most 600.
    """
    if len(points) < POINTS_MIN:
        return None
    x, size = means(points, _BLOCKS)
    _, places, counts = np.unique(x, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - counts / 2)[places]
    n = len(ranks)
    starts = levels(ranks, noise(ranks)[0], weight=_WARM_UP_WEIGHT)
    for start in reversed(_apart(x, starts)):
        first, rest = ranks[: min(start, n // 4)], ranks[start:]
        late = 2 * start > n
        if _differs(first, rest) and not (late and first.mean() < rest.mean()):
            return WarmUp(start * size, late)
    return WarmUp(0, too_short=False)


def _differs(first: Numbers, rest: Numbers) -> bool:
    """Whether the means differ by more than chance explains, on either side.

    Student's t with the long-run variance of the rest, because neighbors resemble each other.
    """
    run = long_run(rest - rest.mean())
    error = math.sqrt(run.variance / len(rest) * (1 / len(first) + 1 / len(rest)))
    most = student_quantile(run.cosines, 1 - _CHANCE) * error
    return bool(abs(first.mean() - rest.mean()) > most)


class Flatness(Struct, frozen=True):
    """The shape of a trial after its warm-up.

    drift: how much the latency changed over the trial, as a share of its median. changes: the
    seconds in which a new level begins. levels_ms: the mean latency of each level.
    """

    shape: Shape
    drift: Estimate
    changes: tuple[int, ...]
    levels_ms: tuple[float, ...]


def flatness(seconds: Numbers, latency_ms: Numbers) -> Flatness | None:
    """The shape of a series of mean latencies by due second; None with fewer than 30 points.

    Two tests: levels of at least 5 points, where levels less than 2% apart are one, and drift by
    Theil and Sen's slope, which counts if it is over 2% and its interval does not contain 0. The
    names are from Barrett et al. (Virtual Machine Warmup Blows Hot and Cold, 2017). Flat. Warming
    up: all levels, or the drift, go down. Slowing down: they go up. No steady state: levels go up
    and down, or the last one begins in the last quarter without a drift to it.

    Both allow for neighbors that resemble each other: noise is the variance outside the largest
    change, times its inefficiency. More than 600 points are averaged to at most 600.
    """
    if len(latency_ms) < FLATNESS_POINTS_MIN:
        return None
    x, size = means(latency_ms, _BLOCKS)
    n = len(x)
    at = np.asarray(seconds[: n * size : size], dtype=float)
    variance, neighbors = noise(x)
    starts = _apart(x, levels(x, variance, weight=_WEIGHT))
    drift = _drift(at, x, neighbors)
    means_ms = tuple(float(part.mean()) for part in np.split(x, starts))
    if not starts:
        shape: Shape = _direction(drift.value) if drifts(drift) else "flat"
    else:
        # A ramp is split into many steps: then the series drifts toward its last level.
        last, late = starts[-1], starts[-1] > _LAST * n
        if late:
            before = _drift(at[:last], x[:last], noise(x[:last])[1])
            step = float(x[last:].mean() - x[:last].mean())
            late = not (drifts(before) and before.value * step > 0)
        steps = [b - a for a, b in itertools.pairwise(means_ms)]
        wavers = late or min(steps) < 0 < max(steps)
        shape = "no steady state" if wavers else _direction(steps[0])
    return Flatness(shape, drift, tuple(int(at[s]) for s in starts), means_ms)


def _direction(change: float) -> Shape:
    return "slowing down" if change > 0 else "warming up"


def _apart(x: Numbers, starts: list[int]) -> list[int]:
    """Those starts of levels that are left if levels less than 2% apart are one."""
    while starts:
        levels = [float(part.mean()) for part in np.split(x, starts)]
        apart = [abs(b - a) for a, b in itertools.pairwise(levels)]
        nearest = min(range(len(apart)), key=apart.__getitem__)
        if apart[nearest] > _TOLERANCE * abs(float(np.median(x))):
            break
        del starts[nearest]
    return starts


def _drift(at: Numbers, x: Numbers, neighbors: float) -> Estimate:
    """Theil and Sen's slope times the length, over the median; its interval widened for n_eff."""
    slope, *ends = theil_sen(at, x)
    middle = float(np.median(x))
    scale = (float(at[-1]) - float(at[0])) / middle if middle else 0.0
    wider = math.sqrt(neighbors)
    low, high = (slope + wider * (end - slope) for end in ends)
    return Estimate(slope * scale, low * scale, high * scale, len(x))


def theil_sen(at: Numbers, x: Numbers) -> tuple[float, float, float]:
    """The median of the slopes between all pairs of points, and its 95% interval.

    The interval's ends are slopes too, by their ranks: the variance of Kendall's statistic, less
    for equal values, is (n (n - 1) (2 n + 5) - sum k (k - 1) (2 k + 5)) / 18 (Sen, Journal of the
    American Statistical Association 63, 1968). at: all different, rising.
    """
    start, end = np.triu_indices(len(x), 1)
    slopes = (x[end] - x[start]) / (at[end] - at[start])
    _, equal = np.unique(x, return_counts=True)
    n, k, pairs = len(x), equal.astype(float), len(slopes)
    variance = (n * (n - 1) * (2 * n + 5) - (k * (k - 1) * (2 * k + 5)).sum()) / 18
    reach = Z95 * math.sqrt(variance)
    low = max(round((pairs - reach) / 2) - 1, 0)
    high = min(round((pairs + reach) / 2), pairs - 1)
    slopes.partition([low, (pairs - 1) // 2, pairs // 2, high])
    middle = (slopes[(pairs - 1) // 2] + slopes[pairs // 2]) / 2
    return float(middle), float(slopes[low]), float(slopes[high])


def drifts(drift: Estimate) -> bool:
    """Whether a drift is over 2% and its interval does not contain 0."""
    return abs(drift.value) > _TOLERANCE and (drift.low > 0 or drift.high < 0)
