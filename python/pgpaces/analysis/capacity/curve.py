"""The goal of a search, its trials as points, and the line of their missed shares. Pure.

A threshold on a quantile is one on a share: p99 <= 250 ms means that at most 1% may miss a limit
of 250 ms; the caller converts it. Symbols: theta, the threshold; K of N missed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.analysis.goal import Verdict, verdict
from pgpaces.analysis.stats import chi_squared_quantile, dispersion, pearson, student_quantile
from pgpaces.core.messages import message
from pgpaces.spec.result import Estimate

Kind = Literal["rate", "users", "clients"]
# short: a short trial, which narrows the range. long: a long one near the threshold.
Role = Literal["short", "long", "soak"]
ROLES: tuple[Role, ...] = ("short", "long", "soak")
UNITS: Mapping[Kind, str] = {"rate": "1/s", "users": "users", "clients": "clients"}
# The highest pass and the lowest fail; None if there is none.
Ends = tuple[float | None, float | None]
_TEXTS = {"rate": "load-rate", "users": "load-users", "clients": "load-clients"}
# The one-sided probability that a bound is on the wrong side.
TAIL = 0.035
# With fewer trials at a load, or seconds in all, their dispersion is unknown: no verdict.
TRIALS_MIN, _SECONDS_MIN = 2, 20.0
# Log odds are clipped this far above and below theta's (e^2.5 = 12 times): farther out they do not
# lie on the curve. An overloaded server's share depends on the length of the trial.
_ABOVE, _BELOW = 2.5, 4.0
# The odds of a miss grow at least in proportion to the load.
_SLOPE_MIN = 1.0
# A handful of trials cannot show a smaller variance.
_VARIANCE_MIN = 0.01
_REACH = 0.3
_SCAN, _SCAN_MOST = 0.01, 60
# Trials between moves of the expected threshold to the crossing. Moving it after each trial makes
# the line too steep (Kaernbach, Perception & Psychophysics 63, 2001).
_BLOCK = 4
# The fewest trials for which the interval of a line is useful.
_LINE_MIN = 8
_SPREAD_FIRST, _SPREAD_MIN, _SPREAD_MAX = 0.07, 0.02, 0.16
_SPREAD_ODDS = 1.8
_MOVE = 0.12
_STEP = 0.01
# Trials count up to this many spreads away: further out the odds are too large or too small to lie
# on the curve.
_NEAR = 2.5


class CapacityGoal(Struct, frozen=True):
    """The most that may miss (a share between 0 and 1), and which loads can be offered.

    load: transactions a second, users with a pace each, or clients in a closed loop; the latter
    two are integers. start: the first load. quick: with few and short trials. soak_s: how long 0.9
    of the highest pass runs at the end, 0 for no soak.
    """

    missed_max: float
    start: float
    lowest: float
    highest: float
    load: Kind = "rate"
    quick: bool = False
    soak_s: float = 600.0

    @property
    def whole(self) -> bool:
        return self.load != "rate"

    @property
    def margin(self) -> float:
        """Trials of seconds do not show an overload of a few percent: each end is further out."""
        return 1.2 if self.quick else 1.0

    def offered(self, load: float, turn: Callable[[float], int] = round) -> float:
        """A load rounded to three digits, or to an integer."""
        if self.whole:
            return float(turn(load))
        return float(f"{load:.3g}") if load > 0 else load


class TrialPoint(Struct, frozen=True):
    """The result of a trial at a load. windows: (missed, due) by 10 s, in order.

    excused: how many of the missed may be the fault of a late generator: these count for proving a
    load, and not for refuting one. invalid: why its numbers are not a bound; empty if they are.
    """

    load: float
    role: Role
    due: int
    missed: int
    seconds: float
    windows: tuple[tuple[int, int], ...] = ()
    invalid: str = ""
    excused: int = 0

    @property
    def valid(self) -> bool:
        return not self.invalid and self.due > 0

    @property
    def share(self) -> float:
        return self.missed / self.due


def load_text(load: float, kind: Kind) -> str:
    return message(_TEXTS[kind], load=load)


class LoadVerdict(Struct, frozen=True):
    """A load with trials on the curve, or that of the soak, by these trials alone.

    In the answer, a load with too few trials for that has the answer's verdict.

    share: missed of due; low, high: the one-sided bounds of the long-run share.
    """

    load: float
    verdict: Verdict
    trials: int
    share: float
    low: float
    high: float


class Points(Struct, frozen=True, dict=True):
    """The trials of a search so far, in the order in which they ran, and its goal."""

    every: Sequence[TrialPoint]
    goal: CapacityGoal

    def of_role(self, *roles: Role) -> list[TrialPoint]:
        """The valid ones of these roles."""
        return [point for point in self.every if point.role in roles and point.valid]

    @cached_property
    def of_curve(self) -> list[TrialPoint]:
        """Those of the curve: long trials. In a quick search all trials are equally long."""
        return self.of_role("long", "short") if self.goal.quick else self.of_role("long")

    @cached_property
    def without_excused(self) -> Points:
        """The points without the misses that a late generator may explain."""
        return Points(excused(self.every), self.goal)

    @cached_property
    def loads(self) -> list[LoadVerdict]:
        """The loads of the curve in ascending order, each judged by its own trials alone."""
        ordered = sorted(self.of_curve, key=lambda point: point.load)
        groups = groupby(ordered, lambda point: point.load)
        return [judge_load([*own], self.goal) for _, own in groups]

    @cached_property
    def bracket(self) -> Ends:
        """The highest load that did not clearly miss in a short trial, and the lowest that did."""
        loads: dict[bool, list[float]] = {True: [], False: []}
        for point in self.of_role("short"):
            loads[clearly_misses(point, self.goal.missed_max)].append(point.load)
        return max(loads[False], default=None), min(loads[True], default=None)

    @cached_property
    def expected_threshold(self) -> tuple[float, float]:
        """Where the next long trials are, as log load, and how far they spread around it."""
        long, (passes, fails), start = self.of_curve, self.bracket, self.goal.start
        at = (math.log(passes or fails or start) + math.log(fails or passes or start)) / 2
        spread, move = _SPREAD_FIRST, _MOVE
        for n in range(_BLOCK, len(long) + 1, _BLOCK):
            line = _through(_near(long[:n], at, spread), self.goal.missed_max)
            if line is None:
                continue
            to = min(max(line.crossing, at - move), at + move)
            # Larger steps as long as the crossing is out of reach.
            move = 2 * move if abs(to - at) >= move else _MOVE
            at, spread = to, min(max(_SPREAD_ODDS / line.slope, _SPREAD_MIN), _SPREAD_MAX)
        return at, spread

    def crossing(self, tail: float = TAIL) -> Estimate | None:
        """The log load at which the mean share is theta; an end is infinite without a bound.

        y_i = log((K_i + 1/2) / (N_i - K_i + 1/2)) (Haldane 1956) against log load, least squares
        through the long trials near there, s2 the variance of the residuals. Trials differ by
        factors, because misses come in clumps; the mean share at a load is then exp(s2/2) times the
        median one (Aitchison and Brown, The Lognormal Distribution, 1957), so s2/2 is added to the
        line f. x* solves f(x) + s2/2 = logit theta; its interval is Fieller's (1954), all x around
        x* with (logit theta - s2/2 - f(x))^2 <= t^2 (var f(x) + s2^2 / (2 d)), t Student's of d =
        n - 2. tail: of the interval, one-sided. None for too few trials, or one load.
        """
        near = _near(self.of_curve, *self.expected_threshold)
        line = _through(near, self.goal.missed_max)
        if line is None or len(self.of_curve) < _LINE_MIN:
            return None
        return Estimate(line.crossing, *line.interval(tail), line.n)


def excused(points: Iterable[TrialPoint]) -> list[TrialPoint]:
    """The points without the misses that a late generator may explain."""
    return [replace(p, missed=p.missed - p.excused, excused=0) if p.excused else p for p in points]


def clearly_misses(point: TrialPoint, share: float) -> bool:
    """Whether more missed than the threshold plus two standard deviations.

    Otherwise a server that always misses a little would seem to fail at a low load.
    """
    most = share * point.due + 2 * math.sqrt(share * (1 - share) * point.due)
    return point.missed > min(most, (1 + share) / 2 * point.due)


def share_bounds(points: Sequence[TrialPoint], tail: float = TAIL) -> tuple[float, float]:
    """One-sided bounds, low and high, of the long-run share of a load.

    U = (phi/2) chi2(1-a, 2K/phi + 2) / N and L = (phi/2) chi2(a, 2K/phi) / N.

    The exact Poisson limits (Garwood 1936) of K/phi events; phi = max(1, phi_trial (1 + 2/k),
    phi_window), Pearson's dispersion over k trials and over windows of 10 s.
    """
    missed, due, k = sum(p.missed for p in points), sum(p.due for p in points), len(points)
    windows = [window for point in points for window in point.windows]
    phi = 1.0
    if missed:
        trials = pearson([(p.missed, p.due) for p in points]) * (1 + 2 / k)
        phi = max(1.0, trials, dispersion(windows))
    high = phi / 2 * chi_squared_quantile(2 * missed / phi + 2, 1 - tail) / due
    low = phi / 2 * chi_squared_quantile(2 * missed / phi, tail) / due if missed else 0.0
    return low, min(1.0, high)


def judge_load(points: Sequence[TrialPoint], goal: CapacityGoal) -> LoadVerdict:
    """A load by its own trials alone; of a single one, or a few seconds, there is no verdict."""
    low, high = share_bounds(points)
    if any(point.excused for point in points):
        # The low bound also holds without what a late generator may explain.
        low = min(low, share_bounds(excused(points))[0])
    due = sum(point.due for point in points)
    share = Estimate(sum(point.missed for point in points) / due, low, high, due)
    known = len(points) >= TRIALS_MIN and sum(point.seconds for point in points) >= _SECONDS_MIN
    said = verdict(share, goal.missed_max) if known else "unknown"
    return LoadVerdict(points[0].load, said, len(points), share.value, low, high)


def _near(long: Sequence[TrialPoint], at: float, spread: float) -> list[TrialPoint]:
    return [point for point in long if abs(math.log(point.load) - at) <= _NEAR * spread + _STEP]


class _Line(Struct, frozen=True):
    """Least squares: y = mean + slope z, z = x - middle; spread: sum of z^2.

    target: the log odds at which the mean share is the threshold.
    """

    n: int
    middle: float
    mean: float
    spread: float
    slope: float
    variance: float
    target: float

    def at(self, x: float) -> float:
        return self.mean + self.slope * (x - self.middle)

    @property
    def crossing(self) -> float:
        """Where the mean share is the threshold; at most `_REACH` from the middle."""
        z = (self.target - self.mean) / self.slope
        return self.middle + min(max(z, -_REACH), _REACH)

    def interval(self, tail: float) -> tuple[float, float]:
        """The interval of the load at which its mean share is the threshold, as logs.

        Infinite at the side where the loads of the trials are too far away to say more.
        """
        s2, at, freedom = self.variance, self.crossing, self.n - 2
        t = student_quantile(freedom, 1 - tail)

        def differs(x: float) -> bool:
            # The variance of the line at x, and of the variance term added to it.
            z = x - self.middle
            error2 = s2 * (1 / self.n + z * z / self.spread) + s2 * s2 / (2 * freedom)
            return (self.target - self.at(x)) ** 2 > t**2 * error2

        if differs(at):
            # The crossing is out of reach, and `at` as far towards it as the line is good for.
            return (at, math.inf) if self.at(at) < self.target else (-math.inf, at)
        return _end(differs, at, -_SCAN), _end(differs, at, _SCAN)


def _end(differs: Callable[[float], bool], at: float, step: float) -> float:
    """The nearest point in steps from `at` that differs, refined; infinite: none in reach."""
    near = at
    for k in range(1, _SCAN_MOST):
        far = at + k * step
        if differs(far):
            for _ in range(8):
                half = (near + far) / 2
                near, far = (near, half) if differs(half) else (half, far)
            return far
        near = far
    return math.copysign(math.inf, step)


def _through(points: Sequence[TrialPoint], share: float) -> _Line | None:
    """The line; None for fewer than three trials or one load. share: the threshold."""
    x = [math.log(point.load) for point in points]
    if len(x) < 3 or max(x) - min(x) < 1e-9:
        return None
    target = math.log(share / (1 - share))
    odds = (math.log((p.missed + 0.5) / (p.due - p.missed + 0.5)) for p in points)
    y = [min(max(each, target - _BELOW), target + _ABOVE) for each in odds]
    n = len(x)
    middle, mean = sum(x) / n, sum(y) / n
    z = [a - middle for a in x]
    spread = sum(a * a for a in z)
    slope = max(sum(a * b for a, b in zip(z, y, strict=True)) / spread, _SLOPE_MIN)
    rest = sum((b - mean - slope * a) ** 2 for a, b in zip(z, y, strict=True))
    variance = max(rest / (n - 2), _VARIANCE_MIN)
    return _Line(n, middle, mean, spread, slope, variance, target - variance / 2)
