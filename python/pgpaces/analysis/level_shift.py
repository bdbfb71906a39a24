"""Where a series changes its level: for warm-up, flatness, throttling, and trends over runs. Pure.

All of it is least squares from cumulative sums, and a change counts if it explains more than a
multiple of the noise. `levels` finds all sudden changes. `change` finds the one change, sudden or
gradual, that explains a series best.
"""

from __future__ import annotations

import math

from msgspec import Struct

from pgpaces.analysis.arrays import Numbers, np
from pgpaces.analysis.stats import inefficiency

# Length from which a change can be distinguished from noise.
SECONDS_MIN = 15
# The weight of a penalty for candidates, of which a test keeps some.
CANDIDATES = 3.0
_SHORTEST = 5
_POINTS_MAX = 120
# By simulation: Poisson and normal noise reach it in 0.5% of series of 20 to 600 s, noise with an
# autocorrelation of 0.5 in 2% of 20 s and in 0.5% of longer ones.
_GAIN_MIN = 30.0
# Of a change whose time is known: 1 in 1000 of noise.
_GAIN_AT_MIN = 12.0


class LevelShift(Struct, frozen=True):
    """From one level to another: `before` until `start_s`, `after` from `end_s` on.

    explained: the share of the series' variance that the shift explains.
    """

    start_s: float
    end_s: float
    before: float
    after: float
    explained: float


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

    Both are of what the largest change leaves: a ramp as of `change`, or the stretch that differs
    most from the rest (the statistic of circular binary segmentation, Olshen et al., Biostatistics
    5, 2004). The variance is multiplied by the inefficiency.
    """
    n, sums = len(x), _sums(x)
    start, end = np.triu_indices(n + 1, 1)
    length = end - start
    possible = np.minimum(length, n - length) >= _SHORTEST
    gain = (sums[end] - sums[start]) ** 2 * n / np.maximum(1, length * (n - length)) * possible
    best = int(gain.argmax())
    place, explained = _best_ramp(x)
    form = _ramp(n, *place)
    if explained < gain[best]:
        form = np.zeros(n)
        form[start[best] : end[best]] = 1.0
    return _noise(x, _fit(x, form)[2])


def change(values: Numbers, other: LevelShift | None = None) -> LevelShift | None:
    """The one change of level, sudden or gradual, that explains a series best; None for noise.

    x(t) = a until t0, b from t1 on, a straight line between: least squares over all t0 <= t1. It
    counts where it explains 30 times the residual variance, which is widened for autocorrelation.
    With another change, that at the same time: then 12 times is enough. values: by second, none
    missing; a series of more than 120 is averaged to at most 120 points.
    """
    if len(values) < SECONDS_MIN:
        return None
    x, size = means(values, _POINTS_MAX)
    if other is None:
        (start, end), _ = _best_ramp(x, _SHORTEST / size)
    else:
        start, end = other.start_s / size, other.end_s / size
    form = _ramp(len(x), start, end)
    step, gain, rest = _fit(x, form)
    if gain < (_GAIN_MIN if other is None else _GAIN_AT_MIN) * _noise(x, rest)[0]:
        return None
    before = float(x.mean() - step * form.mean())
    explained = gain / float(np.square(x - x.mean()).sum())
    return LevelShift(start * size, end * size, before, before + step, explained)


def _sums(x: Numbers) -> Numbers:
    """The sums of the first 0 to n deviations from the mean."""
    return np.concatenate([[0.0], np.cumsum(x - x.mean())])


def _noise(x: Numbers, rest: Numbers) -> tuple[float, float]:
    """The same of what is left of a series; rounding alone is no noise."""
    least, neighbors = 1e-12 * float(np.mean(x * x)) or 1e-300, inefficiency(rest)
    return max(least, float(rest.var())) * neighbors, neighbors


def _ramp(n: int, start: float, end: float) -> Numbers:
    """0 until the start, 1 from the end on, a straight line between."""
    form: Numbers = np.clip((np.arange(n) + 0.5 - start) / max(end - start, 1e-9), 0.0, 1.0)
    return form


def _fit(x: Numbers, form: Numbers) -> tuple[float, float, Numbers]:
    """The multiple of a form that fits best, the squares that it explains, and what is left."""
    form, x = form - form.mean(), x - x.mean()
    spread = float(form @ form)
    step = float(form @ x) / spread if spread > 0 else 0.0
    return step, step * step * spread, x - step * form


def _best_ramp(x: Numbers, after: float = 1) -> tuple[tuple[float, float], float]:
    """The ramp that explains most: start and end, and how much. after: points left at its start.

    A ramp is the mean of the steps at k points in a row. So its product with x is a difference of
    sums of sums, and its sum of squares follows from the mean of the larger of two of the points.
    """
    n, sums = len(x), np.cumsum(_sums(x))
    first, last = np.triu_indices(n, 1)
    k, left = last - first, n - 1 - first
    squares = left - (k - 1) * (4 * k + 1) / (6 * k) - (left - (k - 1) / 2) ** 2 / n
    gain = (sums[last] - sums[first]) ** 2 / (k * k * squares) * (left >= after)
    best = int(gain.argmax())
    start, end = float(first[best]), float(last[best])
    place = (start + 0.5, end + 0.5) if k[best] > 1 else (end, end)
    return place, float(gain[best])
