"""The goal of a search for a capacity, and its trials as points. Values alone.

A threshold on a quantile is one on a share: p99 <= 250 ms means that at most 1% may miss a limit
of 250 ms; the caller converts it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.core.errors import PlanError
from pgpaces.core.findings import finding
from pgpaces.core.messages import message

Kind = Literal["rate", "users", "clients"]
# short: a short trial, which narrows the range. long: a long one near the threshold.
Role = Literal["short", "long", "soak"]
ROLES: tuple[Role, ...] = ("short", "long", "soak")
UNITS: Mapping[Kind, str] = {"rate": "1/s", "users": "users", "clients": "clients"}
_TEXTS = {"rate": "load-rate", "users": "load-users", "clients": "load-clients"}


class CapacityGoal(Struct, frozen=True):
    """The most that may miss (a share between 0 and 1), and which loads can be offered.

    load: transactions a second, users with a pace each, or clients in a closed loop; the latter
    two are integers. start: the first load. quick: with short trials, in three minutes. soak_s: how
    long 0.9 of the highest pass runs at the end, 0 for no soak. Raises PlanError for values out of
    range.
    """

    missed_max: float
    start: float
    lowest: float
    highest: float
    load: Kind = "rate"
    quick: bool = False
    soak_s: float = 600.0

    def __post_init__(self) -> None:
        if not 0 < self.missed_max < 1:
            raise PlanError("not-a-share-that-may-miss", value=self.missed_max)
        loads = (self.lowest, self.start, self.highest)
        if not all(math.isfinite(load) and load > 0 for load in loads):
            raise PlanError("loads-out-of-range", loads=loads)
        if not self.lowest <= self.start <= self.highest:
            raise PlanError(
                "start-out-of-range", start=self.start, low=self.lowest, high=self.highest
            )
        if self.whole and not all(load == round(load) for load in loads):
            raise PlanError("loads-not-integers", load=self.load, loads=loads)
        if not 0 <= self.soak_s < math.inf:
            raise PlanError("soak-out-of-range", soak_s=self.soak_s)

    @property
    def whole(self) -> bool:
        return self.load != "rate"


class TrialPoint(Struct, frozen=True):
    """The result of a trial at a load. windows: (missed, due) by 10 s, in order.

    excused: how many of the missed may be the fault of a late generator: these count for proving a
    load, and not for refuting one. invalid: why its numbers are not a bound; empty if they are.
    generator: the load generator is the reason.
    """

    load: float
    role: Role
    due: int
    missed: int
    seconds: float
    windows: tuple[tuple[int, int], ...] = ()
    invalid: str = ""
    seed: int = 0
    excused: int = 0
    generator: bool = False

    @property
    def valid(self) -> bool:
        """Whether it can be a bound: no objection, and possible numbers."""
        return not self.invalid and self.possible and self.due > 0

    @property
    def possible(self) -> bool:
        sizes = 0 < self.load < math.inf and 0 < self.seconds < math.inf
        return sizes and 0 <= self.excused <= self.missed <= self.due

    @property
    def share(self) -> float:
        return self.missed / self.due


def load_text(load: float, kind: Kind) -> str:
    return message(_TEXTS[kind], load=load)


def countable(points: Iterable[TrialPoint], goal: CapacityGoal) -> list[TrialPoint]:
    """The points at loads of this goal, without short ones that prove nothing."""
    return [
        unless_doubtful(point, goal)
        for point in points
        if not point.possible
        or (
            goal.lowest <= point.load <= goal.highest
            and (not goal.whole or point.load == int(point.load))
        )
    ]


def unless_doubtful(point: TrialPoint, goal: CapacityGoal) -> TrialPoint:
    """A short trial is invalid if its misses may be the fault of the server or the generator.

    Of a trial of the curve both numbers count, each for the bound that it makes safer.
    """
    if goal.quick or point.role != "short" or not (point.valid and point.excused):
        return point
    (without,) = excused([point])
    if not clearly_misses(point, goal.missed_max) or clearly_misses(without, goal.missed_max):
        return point
    return replace(point, invalid=str(finding("generator-late-short")), generator=True)


def of_role(points: Iterable[TrialPoint], role: Role) -> list[TrialPoint]:
    """The valid points of a role, in the order in which they ran."""
    return [point for point in points if point.role == role and point.valid]


def of_curve(points: Iterable[TrialPoint], goal: CapacityGoal) -> list[TrialPoint]:
    """The valid points of the curve: long trials. In a quick search all trials are equally long."""
    roles = ("long", "short") if goal.quick else ("long",)
    return [point for point in points if point.role in roles and point.valid]


def excused(points: Iterable[TrialPoint]) -> list[TrialPoint]:
    """The points without the misses that a late generator may explain."""
    return [replace(p, missed=p.missed - p.excused, excused=0) if p.excused else p for p in points]


def bracket(points: Sequence[TrialPoint], goal: CapacityGoal) -> tuple[float | None, float | None]:
    """The highest load that did not clearly miss in a short trial, and the lowest that did."""
    loads: dict[bool, list[float]] = {True: [], False: []}
    for point in of_role(points, "short"):
        loads[clearly_misses(point, goal.missed_max)].append(point.load)
    return max(loads[False], default=None), min(loads[True], default=None)


def clearly_misses(point: TrialPoint, share: float) -> bool:
    """Whether more missed than the threshold plus two standard deviations.

    Otherwise a server that always misses a little would seem to fail at a low load.
    """
    most = share * point.due + 2 * math.sqrt(share * (1 - share) * point.due)
    return point.missed > min(most, (1 + share) / 2 * point.due)
