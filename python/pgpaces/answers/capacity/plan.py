"""How long a search for the capacity will take, before it begins: by running it in thought."""

from __future__ import annotations

from msgspec import Struct

from pgpaces.answers.capacity.goal import CapacityGoal, NextLoad, TrialPoint, cost_s
from pgpaces.answers.capacity.search import LEAST, fine_most, step

_STEPS_MOST = 100


class Plan(Struct, frozen=True):
    """How many trials of which length, and seconds in all, at least and at most, without the soak.

    soak_s: of the soak with all that belongs to it, 0 where there is none. The least is where the
    first answer is narrow enough, the most where none is: a host that is not steady takes it.
    """

    coarse: int
    fine_least: int
    fine_most: int
    fine_s: float
    least_s: float
    most_s: float
    soak_s: float


def plan(goal: CapacityGoal, load: float, rate: float) -> Plan:
    """What to expect where the capacity is about `load`, at `rate` transactions a second there.

    The search runs against a server that holds everything up to that load and nothing beyond.
    """
    points: list[TrialPoint] = []
    next_load = step(points, goal)
    while (
        isinstance(next_load, NextLoad) and next_load.role == "coarse" and len(points) < _STEPS_MOST
    ):
        due = max(1, round(next_load.seconds * rate * next_load.load / load))
        missed = due if next_load.load > load else 0
        points.append(
            TrialPoint(
                next_load.load, "coarse", due, missed, next_load.seconds, seed=next_load.seed
            )
        )
        next_load = step(points, goal)
    spent = sum(cost_s(point.seconds) for point in points)
    if not isinstance(next_load, NextLoad) or next_load.role != "fine":
        return Plan(len(points), 0, 0, 0.0, spent, spent, 0.0)
    most = fine_most(goal, spent, next_load.seconds)
    least = min(LEAST[goal.mode], most)
    each = cost_s(next_load.seconds)
    soak = cost_s(goal.soak_s) if goal.soak_s else 0.0
    return Plan(
        len(points), least, most, next_load.seconds, spent + least * each, spent + most * each, soak
    )
