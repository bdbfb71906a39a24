"""What trials say of a load, and of the load at which the share that missed is the threshold.

Points in, verdicts and a fit out. Knows no search. Symbols: theta, the threshold; K of N missed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from pgpaces.answers.capacity.goal import Goal, Point
from pgpaces.answers.stats import dispersion, pearson

Verdict = Literal["passed", "failed", "undecided"]
# One-sided: so often may a bound be on the wrong side.
TAIL = {"normal": 0.05, "quick": 0.05, "strict": 0.02}
# With fewer trials at a load their dispersion says nothing: no verdict.
TRIALS_MIN = 3
# How many times theta's odds are still told apart (e^2.5 = 12): what is far above or below only says
# that it is. An overloaded server's share depends on how long it is looked at, and nothing is less.
_ABOVE, _BELOW = 2.5, 4.0
# What misses grows at least like the load, in its odds.
_SLOPE_MIN = 1.0
# Rounding alone is no variance, and none of a handful of trials is none for sure.
_VARIANCE_MIN = 0.01
_REACH = 0.3


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of the long-run share of a load: low and high, one-sided each; of how many trials."""

    low: float
    high: float
    trials: int
    phi: float


def bounds(points: Sequence[Point], tail: float) -> Bounds:
    """U = (phi/2) chi2(1-a, 2K/phi + 2) / N and L = (phi/2) chi2(a, 2K/phi) / N.

    The exact Poisson limits (Garwood 1936) of K/phi events; phi = max(1, phi_trial (1 + 2/k),
    phi_window), Pearson's dispersion over k trials and over windows of 10 s.
    """
    from scipy.special import chdtri

    missed, due, k = sum(p.missed for p in points), sum(p.due for p in points), len(points)
    windows = [window for point in points for window in point.windows]
    phi = 1.0
    if missed:
        trials = pearson([(p.missed, p.due) for p in points]) * (1 + 2 / k)
        phi = max(1.0, trials, dispersion(windows))
    # chdtri takes the probability above.
    high = phi / 2 * float(chdtri(2 * missed / phi + 2, tail)) / due
    low = phi / 2 * float(chdtri(2 * missed / phi, 1 - tail)) / due if missed else 0.0
    return Bounds(low, min(1.0, high), k, phi)


def verdict(points: Sequence[Point], goal: Goal) -> Verdict:
    """Whether a load holds by its own trials alone, which are all at that load."""
    if len(points) < TRIALS_MIN:
        return "undecided"
    found = bounds(points, TAIL[goal.mode])
    if found.high <= goal.missed_max:
        return "passed"
    return "failed" if found.low > goal.missed_max else "undecided"


def by_load(points: Iterable[Point]) -> dict[float, list[Point]]:
    """The trials of each load, in ascending order."""
    found: dict[float, list[Point]] = {}
    for point in points:
        found.setdefault(point.load, []).append(point)
    return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class Fit:
    """Where the long-run share crosses theta: log load x, from low to high (infinite: no bound).

    slope: of the log odds against log load. variance: between trials at one load, of the log odds.
    within: how much of it chance within trials makes.
    """

    x: float
    low: float
    high: float
    slope: float
    variance: float
    within: float
    n: int

    @property
    def width(self) -> float:
        """high over low, as a log."""
        return self.high - self.low


def fit(points: Sequence[Point], goal: Goal, tail: float) -> Fit | None:
    """A straight line through log odds against log load, and where its mean share is theta.

    y_i = log((K_i + 1/2) / (N_i - K_i + 1/2)) (Haldane 1956) = m + b (x_i - mean x) + e_i, least
    squares, e of variance s2 with n - 2 degrees of freedom. Trials differ by factors, because
    misses come in clumps; the mean share at a load is then exp(s2/2) times the median one (Aitchison
    and Brown, The Lognormal Distribution, 1957), so the line is looked at s2/2 higher. x* solves
    m + s2/2 + b (x* - mean x) = logit theta; its interval is Fieller's (1954), all x with
    (logit theta - m - s2/2 - b z)^2 <= t^2 (s2/n + s2^2 / (2 (n-2)) + s2 z^2 / Sxx), z = x - mean x,
    t Student's of n - 2. None of fewer than three trials or of one load.
    """
    n = len(points)
    x = [math.log(point.load) for point in points]
    if n < 3 or max(x) - min(x) < 1e-9:
        return None
    target = _logit(goal.missed_max)
    y = [_odds(point.missed, point.due, target) for point in points]
    middle, mean = sum(x) / n, sum(y) / n
    spread = sum((a - middle) ** 2 for a in x)
    raw = sum((a - middle) * (b - mean) for a, b in zip(x, y, strict=True)) / spread
    slope = max(raw, _SLOPE_MIN)
    rest = sum((b - mean - slope * (a - middle)) ** 2 for a, b in zip(x, y, strict=True))
    variance = max(rest / (n - 2), _VARIANCE_MIN)
    gap = target - mean - variance / 2
    at = middle + min(max(gap / slope, -_REACH), _REACH)
    low, high = _fieller(gap, slope, (variance, n, spread), tail)
    return Fit(at, middle + low, middle + high, slope, variance, _within(points, target), n)


def _fieller(
    gap: float, slope: float, errors: tuple[float, int, float], tail: float
) -> tuple[float, float]:
    """The ends of all z with (gap - slope z)^2 <= t^2 times their variance; infinite if no ends."""
    from scipy.special import stdtrit

    variance, n, spread = errors
    t2 = float(stdtrit(n - 2, 1 - tail)) ** 2
    level = variance / n + variance**2 / (2 * (n - 2))
    a = slope**2 - t2 * variance / spread
    c = gap**2 - t2 * level
    root = (slope * gap) ** 2 - a * c
    if a <= 0 or root < 0:
        return -math.inf, math.inf
    return (slope * gap - math.sqrt(root)) / a, (slope * gap + math.sqrt(root)) / a


def _logit(share: float) -> float:
    return math.log(share / (1 - share))


def _odds(missed: int, due: int, target: float) -> float:
    odds = math.log((missed + 0.5) / (due - missed + 0.5))
    return min(max(odds, target - _BELOW), target + _ABOVE)


def _within(points: Sequence[Point], target: float) -> float:
    """The variance of a trial's log odds by what differs between its two halves.

    The halves of a trial differ by chance alone, and a trial is twice as long as they.
    """
    found = []
    for point in points:
        half = len(point.windows) // 2
        if half:
            parts = (point.windows[:half], point.windows[-half:])
            one, other = (
                _odds(sum(k for k, _ in part), sum(n for _, n in part), target) for part in parts
            )
            found.append((one - other) ** 2 / 4)
    return sum(found) / len(found) if found else math.inf
