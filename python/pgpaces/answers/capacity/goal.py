"""What is asked of a search for the capacity, what its trials found, and what it wants next.

Values alone. A threshold on a quantile is one on a share: p99 <= 250 ms says that at most 1 % may
miss a limit of 250 ms; whoever asks does that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.errors import PlanError

Kind = Literal["rate", "users", "clients"]
Mode = Literal["normal", "quick", "strict"]
Role = Literal["coarse", "fine", "soak"]

# Behind a trial comes the wait for what is due still, before it the connections.
_OVERHEAD_S = 3.0
_WARM_UP = 0.1
_WARM_UP_MAX_S = 30.0


class CapacityGoal(Struct, frozen=True):
    """The most that may miss (a share between 0 and 1), and which loads can be offered.

    load: transactions a second, users with a pace each, or clients in a closed loop; the latter
    two are whole numbers. start: where the search begins. soak_s: how long 0.9 of what is proved
    runs at the end, 0 for not at all. Raises PlanError for what cannot be.
    """

    missed_max: float
    start: float
    lowest: float
    highest: float
    load: Kind = "rate"
    mode: Mode = "normal"
    soak_s: float = 600.0

    def __post_init__(self) -> None:
        if not 0 < self.missed_max < 1:
            raise PlanError(
                f"a threshold of {self.missed_max:.4g} is not a share between 0 and 1",
                "nothing shows that nothing ever misses: say a small share, such as 0.1 %",
            )
        loads = (self.lowest, self.start, self.highest)
        if not all(math.isfinite(load) and load > 0 for load in loads):
            raise PlanError(f"loads must be above 0 and finite, not {loads}")
        if not self.lowest <= self.start <= self.highest:
            raise PlanError(
                f"the search would begin at {self.start:g}, outside of {self.lowest:g} to"
                f" {self.highest:g}",
                "begin between the lowest and the highest load that can be offered",
            )
        if self.whole and not all(load == round(load) for load in loads):
            raise PlanError(f"{self.load} are whole numbers, not {loads}")
        if not 0 <= self.soak_s < math.inf:
            raise PlanError(f"a soak of {self.soak_s:g} s cannot be", "say 0 for none")

    @property
    def whole(self) -> bool:
        """Whether a load is a whole number."""
        return self.load != "rate"


class TrialPoint(Struct, frozen=True):
    """What a trial at a load found. windows: (missed, due) by 10 s, in order.

    excused: of what missed, so much as may be the fault of a generator that was late itself: it
    counts where a load is proved, and not where one is refuted. invalid: why its numbers are no
    bound, such as "generator-limited"; empty where they are one.
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

    @property
    def valid(self) -> bool:
        """Whether it can be a bound: nobody objected, and its numbers can be those of a trial."""
        return not self.invalid and self.possible and self.due > 0

    @property
    def possible(self) -> bool:
        """Whether its numbers can be those of a trial at all."""
        sizes = math.isfinite(self.load) and math.isfinite(self.seconds)
        counts = 0 <= self.excused <= self.missed <= self.due
        return sizes and self.load > 0 and self.seconds > 0 and counts

    @property
    def share(self) -> float:
        """Missed of due."""
        return self.missed / self.due


class NextLoad(Struct, frozen=True):
    """The next trial: a load, for so many seconds without its warm-up, and why."""

    load: float
    seconds: float
    role: Role
    seed: int
    why: str


def cost_s(seconds: float) -> float:
    """How long a trial of so many seconds takes in all."""
    return seconds + min(_WARM_UP_MAX_S, _WARM_UP * seconds) + _OVERHEAD_S


def own(points: Iterable[TrialPoint], goal: CapacityGoal) -> list[TrialPoint]:
    """Without trials at loads that the goal cannot ask for: those are of another search."""
    return [
        point
        for point in points
        if not point.possible
        or (
            goal.lowest <= point.load <= goal.highest
            and (not goal.whole or point.load == int(point.load))
        )
    ]


def of_role(points: Iterable[TrialPoint], role: Role) -> list[TrialPoint]:
    """The valid ones of a role, in the order in which they ran."""
    return [point for point in points if point.role == role and point.valid]


def excused(points: Iterable[TrialPoint]) -> list[TrialPoint]:
    """As if nothing had missed that the generator's own lateness may explain."""
    return [replace(p, missed=p.missed - p.excused, excused=0) if p.excused else p for p in points]
