"""Where a series gets steady, and whether it stays so. Numbers of a second in, findings out.

numpy, scipy and ruptures are imported where they are used: they take longer to load than a command
takes to start.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pgpaces.answers.stats import inefficiency
from pgpaces.result import Estimate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[Any]

POINTS_MIN = 50
Shape = Literal["flat", "warming up", "slowing down", "no steady state"]

_BATCH = 5
_TOLERANCE = 0.02
# Steady for less than the last quarter is not called steady (Barrett et al.: 500 of 2000).
_LAST = 0.75
_BLOCKS = 600
_SEGMENT_MIN = 5
_PENALTY = 4.0


@dataclass(frozen=True, slots=True)
class WarmUp:
    """What MSER-5 says: how many points to leave out; too_short: it would be half or more."""

    points: int
    too_short: bool


def mser5(points: Numbers) -> WarmUp | None:
    """The warm-up of a series by MSER-5; None with fewer than 50 points.

    z = means of 5 points, the rest behind the last 5 left out; d* = argmin over d <= n/2 of
    sum_{j > d} (z_j - mean)^2 / (n - d)^2 with the mean of the same z_j; the first of equals
    (White, Cobb and Spratt, Winter Simulation Conference 2000). A d* of n/2, the last that is
    tried, says that the minimum may lie behind it: the series is too short.
    """
    if len(points) < POINTS_MIN:
        return None
    import numpy as np

    n = len(points) // _BATCH
    z = np.asarray(points[: n * _BATCH], dtype=float).reshape(n, _BATCH).mean(axis=1)
    # Deviations from the middle: sums of squares lose no digits then.
    z -= z.mean()
    left = n - np.arange(n)
    sums, squares = z[::-1].cumsum()[::-1], (z * z)[::-1].cumsum()[::-1]
    errors = np.maximum(0, squares - sums * sums / left) / left**2
    best = int(np.argmin(errors[: n // 2 + 1]))
    return WarmUp(best * _BATCH, best == n // 2)


@dataclass(frozen=True, slots=True)
class Flatness:
    """The shape of a trial behind its warm-up.

    drift: how much the latency changed over the trial, as a share of its median. changes: the
    seconds in which another level begins. levels_ms: the mean latency of each level.
    """

    shape: Shape
    drift: Estimate
    changes: tuple[int, ...]
    levels_ms: tuple[float, ...]


def flatness(seconds: Numbers, latency_ms: Numbers) -> Flatness | None:
    """The shape of a series of mean latencies by due second; None with fewer than 50 points.

    Two looks. Change points by PELT (Killick, Fearnhead and Eckley 2012), with levels less than
    2 % apart taken as one; and the drift by Theil and Sen's slope. A drift counts where it is over
    2 % and its interval does not hold 0. Named after Barrett et al. (Virtual Machine Warmup Blows
    Hot and Cold, 2017): flat; warming up (levels or drift go down: it got faster) and slowing down
    where the last level holds for the last quarter; else no steady state.

    Both know that neighbours resemble each other: what they take for noise is the variance behind
    the largest step, times its inefficiency. More than 600 points are averaged to 600 or fewer.
    """
    if len(latency_ms) < POINTS_MIN:
        return None
    import numpy as np

    size = math.ceil(len(latency_ms) / _BLOCKS)
    n = len(latency_ms) // size
    x = np.asarray(latency_ms[: n * size], dtype=float).reshape(n, size).mean(axis=1)
    at = np.asarray(seconds[: n * size], dtype=float).reshape(n, size)[:, 0]
    noise = _noise(x)
    starts = _levels(x, noise)
    drift = _drift(at, x, noise)
    levels = tuple(float(part.mean()) for part in np.split(x, starts))
    return Flatness(
        _shape(starts, levels, drift, n), drift, tuple(int(at[s]) for s in starts), levels
    )


def _noise(x: Numbers) -> tuple[float, float]:
    """Variance and inefficiency of a series without its largest step."""
    import numpy as np

    n = np.arange(1, len(x))
    left = np.cumsum(x)[:-1]
    gain = (left - n * x.mean()) ** 2 / (n * (len(x) - n))
    step = int(np.argmax(gain)) + 1
    rest = np.concatenate([part - part.mean() for part in (x[:step], x[step:])])
    return float(rest.var()), inefficiency(rest)


def _levels(x: Numbers, noise: tuple[float, float]) -> list[int]:
    """Where new levels begin, in points."""
    import numpy as np
    from ruptures import KernelCPD

    variance, neighbours = noise
    if variance <= 1e-12 * float(np.mean(x * x)):
        variance = 1e-12 * float(np.mean(x * x)) or 1e-300
    penalty = _PENALTY * variance * neighbours * math.log(len(x))
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
    import numpy as np
    from scipy.stats import theilslopes

    found = theilslopes(x, at, alpha=0.95)
    middle = float(np.median(x))
    scale = (float(at[-1]) - float(at[0])) / middle if middle else 0.0
    wider = math.sqrt(noise[1])
    low = found.slope - wider * (found.slope - found.low_slope)
    high = found.slope + wider * (found.high_slope - found.slope)
    return Estimate(found.slope * scale, float(low) * scale, float(high) * scale, len(x))


def drifts(drift: Estimate) -> bool:
    """Whether a drift is over 2 % and its interval does not hold 0."""
    return abs(drift.value) > _TOLERANCE and (drift.low > 0 or drift.high < 0)


def _shape(starts: list[int], levels: tuple[float, ...], drift: Estimate, n: int) -> Shape:
    if not starts:
        if not drifts(drift):
            return "flat"
        return "slowing down" if drift.value > 0 else "warming up"
    steps = [b - a for a, b in itertools.pairwise(levels)]
    if starts[-1] > _LAST * n or min(steps) < 0 < max(steps):
        return "no steady state"
    return "slowing down" if steps[0] > 0 else "warming up"
