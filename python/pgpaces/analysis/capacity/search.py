"""The next trial in a search for the capacity: a pure function of the points so far.

Coarse: single short trials, doubled and bisected. Fine: longer ones, spread around the crossing of
the line through them and the threshold (rule.py). Then the soak. To resume is to call it again.
Points in, the next load or the answer out; knows no clock and no server.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.analysis.capacity import answer, words
from pgpaces.analysis.capacity.answer import Capacity
from pgpaces.analysis.capacity.center import bracket, center, countable
from pgpaces.analysis.capacity.goal import (
    CapacityGoal,
    NextLoad,
    TrialPoint,
    cost_s,
    excused,
    of_curve,
    of_role,
)
from pgpaces.analysis.capacity.rule import verdict
from pgpaces.core.messages import message

COARSE_S, _COARSE_DUE, _COARSE_MAX_S = 20.0, 200.0, 60.0
_COARSE_TO = 1.12
# The length of each trial of a quick search, and of all together. Of fewer than 10 seconds a trial
# cannot tell how much its transactions resemble each other.
QUICK_S, _QUICK_MAX_S = 10.0, 180.0
_COARSE_MOST = 40
# The least seconds and transactions of a long trial.
_FINE_S, _FINE_DUE = 60.0, 1500.0
_FINE_MAX_S = 1800.0
# The fewest long trials when time is over.
_FEWEST = 8
# The fewest long trials before the search checks, every two trials, whether they are enough: to
# stop as soon as an interval is narrow prefers intervals that are too narrow by chance.
_LEAST, _MOST = 12, 20
_PATTERN = (-1.0, 1.0, -0.33, 0.33)
_STEP = 0.02
# Trials at the lowest or the highest load before any other, and their greatest length.
_EDGE, _EDGE_MAX_S = 4, 240.0
INVALID_MOST = 10
_BARRED = 2
# Steps of a simulated search.
_STEPS_MOST = 100


def step(points: Sequence[TrialPoint], goal: CapacityGoal) -> NextLoad | Capacity:
    """The next trial, or the answer. points: all trials so far, in the order in which they ran.

    Trials at loads outside of the goal belong to another search and do not count.
    """
    counted = countable(points, goal)
    result = _step(counted, goal)
    if isinstance(result, Capacity):
        return result
    at = [point.valid for point in counted if point.load == result.load and point.possible]
    if at.count(False) >= max(_BARRED, at.count(True) + 1):
        return answer.of(counted, goal)  # what made these invalid would make the next one so
    return replace(result, seed=1 + max((max(point.seed, 0) for point in points), default=0))


def _step(points: Sequence[TrialPoint], goal: CapacityGoal) -> NextLoad | Capacity:
    highest = _highest(points, goal)
    if sum(1 for p in points if not p.valid) >= INVALID_MOST or highest < goal.lowest:
        return answer.of(points, goal)
    if goal.quick and not _room(goal, _spent(points), QUICK_S):
        return answer.of(points, goal)
    load = _coarse(points, goal, highest)
    if load is not None:
        low, high = (end and words.load(end, goal) for end in bracket(points, goal))
        why = message("search-begins")
        if low and high:
            why = message("load-between", low=low, high=high)
        elif low:
            why = message("load-raised", low=low)
        elif high:
            why = message("load-lowered", high=high)
        return NextLoad(load, coarse_s(points, goal, load), "coarse", 0, why)
    return _fine(points, goal, highest) or _soak(points, answer.of(points, goal))


def _highest(points: Sequence[TrialPoint], goal: CapacityGoal) -> float:
    """The highest load below those that were repeatedly invalid, with no valid trial above."""
    best = max((p.load for p in points if p.valid), default=0.0)
    tries: dict[float, int] = {}
    for point in points:
        if not point.valid and point.possible and point.load > best:
            tries[point.load] = tries.get(point.load, 0) + 1
    barred = min((load for load, n in tries.items() if n >= _BARRED), default=math.inf)
    if barred > goal.highest:
        return goal.highest
    if best == 0.0:
        return _offered(barred / 2, goal, math.floor)
    near = barred / best <= _COARSE_TO or (goal.whole and barred - best <= 1)
    highest = best if near else _offered(math.sqrt(best * barred), goal, math.floor)
    return max(best, highest)


def _offered(load: float, goal: CapacityGoal, turn: Callable[[float], int] = round) -> float:
    """A load rounded to three digits, or to an integer."""
    if goal.whole:
        return float(turn(load))
    return float(f"{load:.3g}") if load > 0 else load


def _clip(load: float, goal: CapacityGoal, highest: float) -> float:
    return min(max(load, goal.lowest), highest)


def _coarse(points: Sequence[TrialPoint], goal: CapacityGoal, highest: float) -> float | None:
    coarse = of_role(points, "coarse")
    if len(coarse) >= _COARSE_MOST or of_role(points, "fine"):
        return None
    passes, fails = bracket(points, goal)
    if fails is None:
        if passes is None:
            return _clip(goal.start, goal, highest)
        # Low loads first, then larger steps to get to an end.
        factor = 2 if len(coarse) < 4 else 4
        return None if passes >= highest else _clip(passes * factor, goal, highest)
    if passes is None:
        half = float(math.floor(fails / 2)) if goal.whole else fails / 2
        return None if fails <= goal.lowest else _clip(half, goal, highest)
    narrow = fails / passes <= _COARSE_TO or (goal.whole and fails - passes <= 1)
    if narrow or passes >= highest or fails <= goal.lowest:
        return None
    load = _offered(math.sqrt(passes * fails), goal)
    return _clip(load, goal, highest) if passes < load < fails else None


def coarse_s(points: Sequence[TrialPoint], goal: CapacityGoal, load: float) -> float:
    """How long a short trial at a load is: longer where it would have too few transactions."""
    if goal.quick:
        return QUICK_S
    seconds = _COARSE_DUE / (_rate(points) * load)
    return float(math.ceil(min(max(COARSE_S, seconds), _COARSE_MAX_S)))


def _fine(points: Sequence[TrialPoint], goal: CapacityGoal, highest: float) -> NextLoad | None:
    """The next long trial; None where there are enough, or the most."""
    fine = of_role(points, "fine")
    passes, fails = bracket(points, goal)
    # Short trials all met the goal up to the highest load, or all missed it down to the lowest.
    if (passes is None) is not (fails is None):
        edge = highest if fails is None else goal.lowest
        at = [p for p in of_curve(points, goal) if p.load == edge]
        if len(at) < _EDGE:
            name = "load-highest" if edge >= highest else "load-lowest"
            why = message(name, load=words.load(edge, goal))
            seconds = min(fine_s(points, goal, edge), _EDGE_MAX_S)
            return NextLoad(edge, seconds, "fine", 0, why)
        if edge >= highest and verdict(at, goal) == "pass":
            return None
        if edge <= goal.lowest and verdict(excused(at), goal) == "fail":
            return None
    load = next_load(points, goal, highest)
    seconds = fine_s(points, goal, load)
    if _enough(points, goal, seconds):
        return None
    number = len(fine) + 1
    why = message("load-near-threshold", number=number)
    if not goal.quick:
        why = message("load-near-threshold-of", number=number, least=_LEAST)
    return NextLoad(load, seconds, "fine", 0, why)


def fine_s(points: Sequence[TrialPoint], goal: CapacityGoal, load: float) -> float:
    """How long a long trial at a load is, from the transactions per load so far."""
    if goal.quick:
        return QUICK_S
    return float(math.ceil(min(max(_FINE_S, _FINE_DUE / (_rate(points) * load)), _FINE_MAX_S)))


def _rate(points: Sequence[TrialPoint]) -> float:
    """Transactions a second per load so far, the median; before the first, 1."""
    rates = sorted(p.due / p.seconds / p.load for p in points if p.valid)
    return rates[len(rates) // 2] if rates else 1.0


def budget_s(trial_s: float) -> float:
    """How long a search with trials of this length may take in all, without the soak.

    25 minutes for trials of a minute, 56 for those of a server of 7/s (214 s); more only if the
    fewest trials need it.
    """
    share = (trial_s - _FINE_S) / (_FINE_DUE / 7 - _FINE_S)
    return 60.0 * min(56.0, 25.0 + 31.0 * share)


def _enough(points: Sequence[TrialPoint], goal: CapacityGoal, seconds: float) -> bool:
    """Whether another trial of this length is too many, too late, or not worth it."""
    n = len(of_role(points, "fine"))
    if n < _FEWEST:
        return False
    if n >= _MOST or not _room(goal, _spent(points), seconds):
        return True
    return n >= _LEAST and n % 2 == 0 and answer.narrow(points, goal)


def _spent(points: Sequence[TrialPoint]) -> float:
    return sum(cost_s(p.seconds) for p in points if p.possible)


def _room(goal: CapacityGoal, spent: float, seconds: float) -> bool:
    return spent + cost_s(seconds) <= (_QUICK_MAX_S if goal.quick else budget_s(seconds))


def next_load(points: Sequence[TrialPoint], goal: CapacityGoal, highest: float) -> float:
    """The load of the next long trial: spread around the center, which moves every four trials."""
    fine = of_role(points, "fine")
    at, spread = center(points, goal)
    offset = _PATTERN[len(fine) % len(_PATTERN)]
    x = at + offset * spread
    if goal.whole:
        # Both neighbors of the center, not one of them four times.
        turn = {-1.0: math.floor, 1.0: math.ceil}.get(offset, round)
        return _clip(float(turn(math.exp(x))), goal, highest)
    # Few different loads with several trials each have verdicts of their own, too.
    return _clip(_offered(math.exp(round(x / _STEP) * _STEP), goal), goal, highest)


def _soak(points: Sequence[TrialPoint], capacity: Capacity) -> NextLoad | Capacity:
    if capacity.soak_load is None or [p for p in points if p.role == "soak"][1:]:
        return capacity
    if of_role(points, "soak") or not capacity.goal.soak_s:
        return capacity
    why = message("load-soaked")
    return NextLoad(capacity.soak_load, capacity.goal.soak_s, "soak", 0, why)


class Plan(Struct, frozen=True):
    """The number and length of trials, and seconds in all, at least and at most, without the soak.

    soak_s: of the soak with its overhead, 0 without one. The least is where the first answer is
    narrow enough, the most where none is, as on a host that is not steady.
    """

    coarse: int
    fine_least: int
    fine_most: int
    fine_s: float
    least_s: float
    most_s: float
    soak_s: float


def plan(goal: CapacityGoal, load: float, rate: float) -> Plan:
    """The expected trials where the capacity is about `load`, at `rate` transactions a second.

    The search runs against a server that passes up to that load and fails beyond.
    """
    points: list[TrialPoint] = []
    trial = step(points, goal)
    while isinstance(trial, NextLoad) and trial.role == "coarse" and len(points) < _STEPS_MOST:
        due = max(1, round(trial.seconds * rate * trial.load / load))
        missed = due if trial.load > load else 0
        points.append(TrialPoint(trial.load, "coarse", due, missed, trial.seconds, seed=trial.seed))
        trial = step(points, goal)
    spent = _spent(points)
    if not isinstance(trial, NextLoad) or trial.role != "fine":
        return Plan(len(points), 0, 0, 0.0, spent, spent, 0.0)
    most = 0 if goal.quick else _FEWEST
    while most < _MOST and _room(goal, spent + most * cost_s(trial.seconds), trial.seconds):
        most += 1
    least = min(_LEAST, most)
    least_s, most_s = (spent + count * cost_s(trial.seconds) for count in (least, most))
    soak = cost_s(goal.soak_s) if goal.soak_s else 0.0
    return Plan(len(points), least, most, trial.seconds, least_s, most_s, soak)
