"""Where the trials of a search are centred, and the line through those that are near. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec.structs import replace

from pgpaces.answers.capacity.goal import CapacityGoal, TrialPoint, excused, of_role, own
from pgpaces.answers.capacity.rule import TAIL, Drawn, Fit, drawn, fit

# So often the centre is moved to where the line crosses. Moving it after each trial makes the line
# too steep (Kaernbach, Perception & Psychophysics 63, 2001).
_BLOCK = 4
_SPREAD_FIRST, _SPREAD_MIN, _SPREAD_MAX = 0.07, 0.02, 0.16
_SPREAD_ODDS, _SPREAD_BENT = 1.8, 1.0
_MOVE = 0.12
_STEP = 0.01
# Those trials count that are at most so many spreads away: further out the odds are too large or
# too small to lie on the curve.
_NEAR = 2.5
_DRAWN_STEPS = 40
# Of short trials: those within a factor of 1.4 of the bracket; half an interval, as logs; with
# fewer that may miss in a trial than this they say less.
_QUICK_NEAR, _QUICK_TAIL, _QUICK_FEW = math.log(1.4), 0.05, 5.0
_QUICK_HALF, _QUICK_HALF_MOST = math.log(1.299) / 2, math.log(2) / 2
_DOUBT = "generator-limited: what missed may be its own lateness"


def judged(points: Sequence[TrialPoint], goal: CapacityGoal) -> list[TrialPoint]:
    """Those of this goal, each as it counts."""
    return [doubted(point, goal) for point in own(points, goal)]


def doubted(point: TrialPoint, goal: CapacityGoal) -> TrialPoint:
    """A short one is not valid where it is open whether the server or the generator missed.

    Of a long one both numbers count, each for the bound that it makes safer.
    """
    if point.role != "coarse" or not (point.valid and point.excused):
        return point
    (spared,) = excused([point])
    open_ = _broke(point, goal.missed_max) and not _broke(spared, goal.missed_max)
    return replace(point, invalid=_DOUBT) if open_ else point


def bracket(points: Sequence[TrialPoint], goal: CapacityGoal) -> tuple[float | None, float | None]:
    """The highest load that held in a short trial and the lowest that clearly did not."""
    coarse = of_role(points, "coarse")
    broke = [p.load for p in coarse if _broke(p, goal.missed_max)]
    held = [p.load for p in coarse if not _broke(p, goal.missed_max)]
    return max(held, default=None), min(broke, default=None)


def indicated(
    points: Sequence[TrialPoint], goal: CapacityGoal
) -> tuple[float | None, float | None]:
    """Between which loads the capacity most likely is, by short trials; None where there is no end.

    Around where the line through those near the bracket crosses the threshold, a factor of 1.3
    wide: ten seconds of a busy server say little of the next ten. Wider, up to a factor of 2, where
    trials have so few transactions that hardly one may miss.
    """
    held, broke = bracket(points, goal)
    if held is None or broke is None:
        return held, broke
    middle = math.log(held * broke) / 2
    near = [p for p in of_role(points, "coarse") if abs(math.log(p.load) - middle) <= _QUICK_NEAR]
    found, half, at = fit(near, goal, _QUICK_TAIL), _QUICK_HALF, middle
    if found is not None:
        at = min(max(found.x, middle - half), middle + half)
        if goal.missed_max * sum(p.due for p in near) < _QUICK_FEW * len(near):
            half = min(max(found.high - at, at - found.low, half), _QUICK_HALF_MOST)
    low, high = math.exp(at - half), math.exp(at + half)
    if goal.whole:
        low = float(math.floor(low))
        return max(low, goal.lowest), max(low + 1, float(math.ceil(high)))
    return max(low, goal.lowest), min(high, goal.highest)


def _broke(point: TrialPoint, share: float) -> bool:
    """Whether more missed than twice the standard deviation above the threshold.

    A server that always misses a little would else be taken for one that broke at a low load.
    """
    most = share * point.due + 2 * math.sqrt(share * (1 - share) * point.due)
    return point.missed > min(most, (1 + share) / 2 * point.due)


def centre(points: Sequence[TrialPoint], goal: CapacityGoal) -> tuple[float, float]:
    """The centre of the next long trials as log load, and how far they are spread around it."""
    fine = of_role(points, "fine")
    at, spread, move = _first(points, goal), _SPREAD_FIRST, _MOVE
    for n in range(_BLOCK, len(fine) + 1, _BLOCK):
        found = fit(_near(fine[:n], at, spread), goal, TAIL[goal.mode])
        if found is None:
            continue
        to = min(max(found.x, at - move), at + move)
        # Who is far from it takes larger steps.
        move = 2 * move if abs(to - at) >= move else _MOVE
        wide = (_SPREAD_BENT if found.bent else _SPREAD_ODDS) / found.slope
        at, spread = to, min(max(wide, _SPREAD_MIN), _SPREAD_MAX)
    return at, spread


def line(points: Sequence[TrialPoint], goal: CapacityGoal, tail: float | None = None) -> Fit | None:
    """The line through the long trials near the centre; tail: of its interval, one-sided."""
    fine = of_role(points, "fine")
    at, spread = centre(points, goal)
    return fit(_near(fine, at, spread), goal, TAIL[goal.mode] if tail is None else tail)


def curve(points: Sequence[TrialPoint], goal: CapacityGoal) -> tuple[Drawn, ...]:
    """That line as a curve to be drawn."""
    fine = of_role(points, "fine")
    at, spread = centre(points, goal)
    return drawn(_near(fine, at, spread), goal, TAIL[goal.mode], _DRAWN_STEPS)


def _near(fine: Sequence[TrialPoint], at: float, spread: float) -> list[TrialPoint]:
    return [point for point in fine if abs(math.log(point.load) - at) <= _NEAR * spread + _STEP]


def _first(points: Sequence[TrialPoint], goal: CapacityGoal) -> float:
    held, broke = bracket(points, goal)
    return (math.log(held or broke or goal.start) + math.log(broke or held or goal.start)) / 2
