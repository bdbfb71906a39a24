"""How long a search for the capacity will take, before it begins: by simulating it."""

from __future__ import annotations

from msgspec import Struct

from pgpaces.answers.capacity.goal import CapacityGoal, NextLoad, TrialPoint, cost_s
from pgpaces.answers.capacity.search import LEAST, fine_most, step

_STEPS_MOST = 100


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

    The search runs against a server that meets the goal up to that load and misses all beyond.
    """
    points: list[TrialPoint] = []
    trial = step(points, goal)
    while isinstance(trial, NextLoad) and trial.role == "coarse" and len(points) < _STEPS_MOST:
        due = max(1, round(trial.seconds * rate * trial.load / load))
        missed = due if trial.load > load else 0
        points.append(TrialPoint(trial.load, "coarse", due, missed, trial.seconds, seed=trial.seed))
        trial = step(points, goal)
    spent = sum(cost_s(point.seconds) for point in points)
    if not isinstance(trial, NextLoad) or trial.role != "fine":
        return Plan(len(points), 0, 0, 0.0, spent, spent, 0.0)
    most = fine_most(goal, spent, trial.seconds)
    least = min(LEAST[goal.mode], most)
    least_s, most_s = (spent + count * cost_s(trial.seconds) for count in (least, most))
    soak = cost_s(goal.soak_s) if goal.soak_s else 0.0
    return Plan(len(points), least, most, trial.seconds, least_s, most_s, soak)
