"""Where the trials of a search are centered, and the line through those near there. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec.structs import replace

from pgpaces.analysis.capacity.goal import CapacityGoal, TrialPoint, excused, of_curve, of_role, own
from pgpaces.analysis.capacity.rule import TAIL, Drawn, Fit, crossing, drawn, fit
from pgpaces.core.findings import finding

# Trials between moves of the center to the crossing. Moving it after each trial makes the line too
# steep (Kaernbach, Perception & Psychophysics 63, 2001).
_BLOCK = 4
_SPREAD_FIRST, _SPREAD_MIN, _SPREAD_MAX = 0.07, 0.02, 0.16
_SPREAD_ODDS, _SPREAD_BENT = 1.8, 1.0
_MOVE = 0.12
_STEP = 0.01
# Trials count up to this many spreads away: further out the odds are too large or too small to lie
# on the curve.
_NEAR = 2.5
_DRAWN_STEPS = 40


def countable(points: Sequence[TrialPoint], goal: CapacityGoal) -> list[TrialPoint]:
    """The points at loads of this goal, without short ones that prove nothing."""
    return [unless_doubtful(point, goal) for point in own(points, goal)]


def unless_doubtful(point: TrialPoint, goal: CapacityGoal) -> TrialPoint:
    """A short trial is invalid where its misses may be the fault of server or generator.

    Of a trial of the curve both numbers count, each for the bound that it makes safer.
    """
    if goal.quick or point.role != "coarse" or not (point.valid and point.excused):
        return point
    (without,) = excused([point])
    doubtful = clearly_misses(point, goal.missed_max) and not clearly_misses(
        without, goal.missed_max
    )
    if not doubtful:
        return point
    return replace(point, invalid=str(finding("generator-late-short")), generator=True)


def bracket(points: Sequence[TrialPoint], goal: CapacityGoal) -> tuple[float | None, float | None]:
    """The highest load that met the goal in a short trial, and the lowest that clearly missed."""
    coarse = of_role(points, "coarse")
    fails = [p.load for p in coarse if clearly_misses(p, goal.missed_max)]
    passes = [p.load for p in coarse if not clearly_misses(p, goal.missed_max)]
    return max(passes, default=None), min(fails, default=None)


def clearly_misses(point: TrialPoint, share: float) -> bool:
    """Whether more missed than the threshold plus two standard deviations.

    Otherwise a server that always misses a little would seem to fail at a low load.
    """
    most = share * point.due + 2 * math.sqrt(share * (1 - share) * point.due)
    return point.missed > min(most, (1 + share) / 2 * point.due)


def center(points: Sequence[TrialPoint], goal: CapacityGoal) -> tuple[float, float]:
    """The center of the next long trials as log load, and how far they spread around it."""
    fine = of_curve(points, goal)
    passes, fails = bracket(points, goal)
    at = (math.log(passes or fails or goal.start) + math.log(fails or passes or goal.start)) / 2
    spread, move = _SPREAD_FIRST, _MOVE
    # The dozen trials of a quick search are too few to leave out those that are less near.
    least = _SPREAD_FIRST if goal.quick else _SPREAD_MIN
    for n in range(_BLOCK, len(fine) + 1, _BLOCK):
        crosses = crossing(_near(fine[:n], at, spread), goal)
        if crosses is None:
            continue
        to = min(max(crosses.x, at - move), at + move)
        # Larger steps as long as the crossing is out of reach.
        move = 2 * move if abs(to - at) >= move else _MOVE
        wide = (_SPREAD_BENT if crosses.bent else _SPREAD_ODDS) / crosses.slope
        at, spread = to, min(max(wide, least), _SPREAD_MAX)
    return at, spread


def line(points: Sequence[TrialPoint], goal: CapacityGoal, tail: float = TAIL) -> Fit | None:
    """The line through the long trials near the center; tail: of its interval, one-sided."""
    fine = of_curve(points, goal)
    at, spread = center(points, goal)
    return fit(_near(fine, at, spread), goal, tail)


def curve(points: Sequence[TrialPoint], goal: CapacityGoal) -> tuple[Drawn, ...]:
    fine = of_curve(points, goal)
    at, spread = center(points, goal)
    return drawn(_near(fine, at, spread), goal, TAIL, steps=_DRAWN_STEPS)


def _near(fine: Sequence[TrialPoint], at: float, spread: float) -> list[TrialPoint]:
    return [point for point in fine if abs(math.log(point.load) - at) <= _NEAR * spread + _STEP]
