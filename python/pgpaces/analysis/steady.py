"""Where a series becomes steady, and whether it stays steady: from one number per second.

scipy and ruptures are imported where they are used: they take longer to load than a command takes
to start.
"""

from __future__ import annotations

import itertools
import math
from typing import Literal

from msgspec import Struct

from pgpaces.analysis.arrays import Numbers, np
from pgpaces.analysis.distributions import student_quantile
from pgpaces.analysis.stats import inefficiency, long_run
from pgpaces.spec.result import Estimate

POINTS_MIN = 50
FLATNESS_POINTS_MIN = 30
Shape = Literal["flat", "warming up", "slowing down", "no steady state"]

_BATCH = 5
# How often a beginning may be left out that is slower by chance alone; as often a faster one.
_CHANCE = 0.002
_TOLERANCE = 0.02
# A level that began in the last quarter is not steady (Barrett et al.: 500 of 2000).
_LAST = 0.75
_BLOCKS = 600
_SEGMENT_MIN = 5
_PENALTY = 6.0


class WarmUp(Struct, frozen=True):
    """How many points at the beginning to leave out. too_short: it would be half or more."""

    points: int
    too_short: bool


def mser5(points: Numbers) -> WarmUp | None:
    """The warm-up of a series by MSER-5; None with fewer than 50 points.

    z = means of 5 points, an incomplete last five left out; d* = argmin over d <= n/2 of
    sum_{j > d} (z_j - mean)^2 / (n - d)^2 with the mean of the same z_j; the first of equals
    (White, Cobb and Spratt, Winter Simulation Conference 2000). If d* is n/2, the last one that is
    tried, the minimum may lie after it: the series is too short.
    """
    if len(points) < POINTS_MIN:
        return None
    n = len(points) // _BATCH
    z = np.asarray(points[: n * _BATCH], dtype=float).reshape(n, _BATCH).mean(axis=1)
    best = int(np.argmin([z[d:].var() / (n - d) for d in range(n // 2 + 1)]))
    return WarmUp(best * _BATCH, best == n // 2)


def warm_up(points: Numbers) -> WarmUp | None:
    """The warm-up that a series is shown to have; None with fewer than 50 points.

    MSER-5 says where a warm-up would end. It counts only if the beginning differs from the rest:
    MSER-5 alone takes the early bursts of a steady queue for a warm-up.
    """
    proposal = mser5(points)
    if proposal is None or not proposal.points:
        return proposal
    return proposal if _beginning_differs(points) else WarmUp(0, proposal.too_short)


def _beginning_differs(points: Numbers) -> bool:
    """Whether the first quarter, eighth, sixteenth and so on of a series differs from its rest.

    Student's t of the mean ranks, because bursts are skewed, with the long-run variance of the
    rest, because neighbors resemble each other, and with Bonferroni's correction for the number of
    tests. Where MSER-5 would cut plays no part: it chooses a beginning that differs by chance.
    """
    _, places, counts = np.unique(points, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - counts / 2)[places]
    n = len(ranks)
    lengths = [n >> halvings for halvings in range(2, n.bit_length()) if n >> halvings >= _BATCH]
    chance = _CHANCE / len(lengths)
    return any(_differs(ranks[:length], ranks[length:], chance) for length in lengths)


def _differs(start: Numbers, rest: Numbers, chance: float) -> bool:
    """Whether the means differ by more than chance explains, on either side."""
    run = long_run(rest - rest.mean())
    error = math.sqrt(run.variance / len(rest) * (1 / len(start) + 1 / len(rest)))
    most = student_quantile(run.cosines, 1 - chance) * error
    return bool(abs(start.mean() - rest.mean()) > most)


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

    Two tests: change points by PELT (Killick, Fearnhead and Eckley 2012), where levels less than
    2% apart are one, and drift by Theil and Sen's slope, which counts if it is over 2% and its
    interval does not contain 0. The names are from Barrett et al. (Virtual Machine Warmup Blows
    Hot and Cold, 2017). Flat. Warming up: all levels, or the drift, go down. Slowing down: they go
    up. No steady state: levels go up and down, or the last one begins in the last quarter without
    a drift to it.

    Both allow for neighbors that resemble each other: noise is the variance outside the largest
    bump, times its inefficiency. More than 600 points are averaged to at most 600.
    """
    if len(latency_ms) < FLATNESS_POINTS_MIN:
        return None
    size = math.ceil(len(latency_ms) / _BLOCKS)
    n = len(latency_ms) // size
    x = np.asarray(latency_ms[: n * size], dtype=float).reshape(n, size).mean(axis=1)
    at = np.asarray(seconds[: n * size], dtype=float).reshape(n, size)[:, 0]
    noise = _noise(x)
    starts = _levels(x, noise)
    drift = _drift(at, x, noise)
    levels = tuple(float(part.mean()) for part in np.split(x, starts))
    if not starts:
        shape: Shape = _direction(drift.value) if drifts(drift) else "flat"
    else:
        late = starts[-1] > _LAST * n and not _drifts_to(starts[-1], at, x)
        shape = "no steady state" if late else _staircase(levels)
    return Flatness(shape, drift, tuple(int(at[s]) for s in starts), levels)


def _drifts_to(last: int, at: Numbers, x: Numbers) -> bool:
    """Whether a series drifts toward its last level: PELT splits a ramp into many steps."""
    before = _drift(at[:last], x[:last], _noise(x[:last]))
    step = float(x[last:].mean() - x[:last].mean())
    return drifts(before) and before.value * step > 0


def _staircase(levels: tuple[float, ...]) -> Shape:
    steps = [b - a for a, b in itertools.pairwise(levels)]
    return "no steady state" if min(steps) < 0 < max(steps) else _direction(steps[0])


def _direction(change: float) -> Shape:
    return "slowing down" if change > 0 else "warming up"


def _noise(x: Numbers) -> tuple[float, float]:
    """Variance and inefficiency of a series around its two levels.

    The second level is the stretch that differs most from the rest, so that a single step or bump
    does not count as noise (the statistic of circular binary segmentation, Olshen et al. 2004).
    """
    n = len(x)
    sums = np.concatenate([[0.0], np.cumsum(x - x.mean())])
    length = np.arange(n + 1)[None, :] - np.arange(n + 1)[:, None]
    possible = (length >= _SEGMENT_MIN) & (length <= n - _SEGMENT_MIN)
    gain = np.full(possible.shape, -1.0)
    gain[possible] = ((sums[None, :] - sums[:, None]) ** 2)[possible]
    gain[possible] /= (length * (n - length))[possible]
    start, end = np.unravel_index(int(np.argmax(gain)), gain.shape)
    inside = np.zeros(n, dtype=bool)
    inside[start:end] = True
    rest = np.where(inside, x - x[inside].mean(), x - x[~inside].mean())
    return float(rest.var()), inefficiency(rest)


def _levels(x: Numbers, noise: tuple[float, float]) -> list[int]:
    """Where new levels begin, in points."""
    from ruptures import KernelCPD

    variance, neighbors = noise
    if variance <= 1e-12 * float(np.mean(x * x)):
        variance = 1e-12 * float(np.mean(x * x)) or 1e-300
    penalty = _PENALTY * variance * neighbors * math.log(len(x))
    # A linear kernel is the squared error around a mean, and with a penalty it is PELT, in C.
    search = KernelCPD(kernel="linear", min_size=_SEGMENT_MIN).fit(x.reshape(-1, 1))
    starts: list[int] = [int(end) for end in search.predict(pen=penalty)[:-1]]
    while starts:
        levels = [float(part.mean()) for part in np.split(x, starts)]
        apart = [abs(b - a) for a, b in itertools.pairwise(levels)]
        nearest = min(range(len(apart)), key=apart.__getitem__)
        if apart[nearest] > _TOLERANCE * abs(float(np.median(x))):
            break
        del starts[nearest]
    return starts


def _drift(at: Numbers, x: Numbers, noise: tuple[float, float]) -> Estimate:
    """Theil and Sen's slope times the length, over the median; its interval widened for n_eff."""
    from scipy.stats import theilslopes

    fit = theilslopes(x, at, alpha=0.95)
    middle = float(np.median(x))
    scale = (float(at[-1]) - float(at[0])) / middle if middle else 0.0
    wider = math.sqrt(noise[1])
    low = fit.slope - wider * (fit.slope - fit.low_slope)
    high = fit.slope + wider * (fit.high_slope - fit.slope)
    return Estimate(float(fit.slope) * scale, float(low) * scale, float(high) * scale, len(x))


def drifts(drift: Estimate) -> bool:
    """Whether a drift is over 2% and its interval does not contain 0."""
    return abs(drift.value) > _TOLERANCE and (drift.low > 0 or drift.high < 0)
