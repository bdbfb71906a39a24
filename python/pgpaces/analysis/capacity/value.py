"""The answer of a search as plain values, for Python and JSON, and which of several holds most.

Pure: searches of cells in, values out. None: unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from pgpaces.analysis.capacity import words, worth
from pgpaces.analysis.capacity.answer import Flag, Load, Soak
from pgpaces.analysis.capacity.goal import CapacityGoal, Kind
from pgpaces.analysis.capacity.trials import CellSearch
from pgpaces.analysis.capacity.worth import Worth
from pgpaces.analysis.goal import Limit
from pgpaces.spec.result import Estimate

# The unit of a load.
UNITS: Mapping[Kind, str] = {"rate": "1/s", "users": "users", "clients": "clients"}


class SearchGoal(Struct, frozen=True):
    """The goal: at most missed_max, a share, may miss; and how it was searched."""

    missed_max: float
    quick: bool
    lowest: float
    highest: float
    soak_s: float


class Holds(Struct, frozen=True):
    """The capacity of one cell, in `unit`.

    cell: its key. proved, refuted: rounded to three digits, to the safe side; None: unknown.
    estimate: the load at which the allowed share misses. can_hold: proved, and the soak met it.
    flags: cautions. speed_spread: how much the server's speed differs from trial to trial, sd as a
    share. more: about how many more long trials would narrow it to 4%; 0: none; None: unknown.
    trials: their number; invalid: why some do not count. loads: those with long trials. worth:
    the proved load in other units. limit: the resource that was the limit where it missed. ended:
    the search is complete. runs: their ids.
    """

    cell: str
    levels: dict[str, str]
    load: Kind
    unit: str
    goal: SearchGoal
    proved: float | None
    refuted: float | None
    estimate: Estimate | None
    can_hold: bool
    soak: Soak | None
    flags: tuple[Flag, ...]
    speed_spread: float | None
    more: int | None
    trials: int
    invalid: tuple[str, ...]
    loads: tuple[Load, ...]
    worth: Worth | None
    limit: Limit | None
    ended: bool
    runs: tuple[str, ...]


class Most(Struct, frozen=True):
    """The cell with the largest capacity, of several.

    certain: its proved load is no less than the refuted load of each other cell. rivals: the keys
    of cells that may hold as much.
    """

    cell: str
    certain: bool
    rivals: tuple[str, ...]


class Capacities(Struct, frozen=True):
    """The answer: the capacity of each cell, and the largest; None for a single cell."""

    cells: tuple[Holds, ...]
    most: Most | None


def of(searches: Sequence[CellSearch], limits: Mapping[str, Limit | None]) -> Capacities:
    """The answer as values. limits: by the key of a cell."""
    cells = tuple(_holds(each, limits.get(each.cell.key)) for each in searches)
    return Capacities(cells, most(cells))


def most(cells: Sequence[Holds]) -> Most | None:
    """Which holds most: the one with the highest proved load. None with fewer than two, or none."""

    def rank(cell: Holds) -> tuple[float, float]:
        return cell.proved or 0.0, cell.estimate.value if cell.estimate else 0.0

    able = [each for each in cells if each.proved is not None]
    if len(cells) < 2 or not able:
        return None
    best = max(able, key=rank)
    meets = best.proved or 0.0
    others = [each for each in cells if each is not best]
    rivals = tuple(o.cell for o in others if o.refuted is None or o.refuted > meets)
    return Most(best.cell, not rivals, rivals)


def _safe(bound: float | None, goal: CapacityGoal, turn: int) -> float | None:
    return None if bound is None else words.safe(bound, goal, turn)


def _holds(search: CellSearch, limit: Limit | None) -> Holds:
    capacity, goal = search.capacity, search.capacity.goal
    return Holds(
        cell=search.cell.key,
        levels=dict(search.cell.levels),
        load=goal.load,
        unit=UNITS[goal.load],
        goal=SearchGoal(goal.missed_max, goal.quick, goal.lowest, goal.highest, goal.soak_s),
        proved=_safe(capacity.proved, goal, -1),
        refuted=_safe(capacity.refuted, goal, 1),
        estimate=capacity.estimate,
        can_hold=capacity.can_hold,
        soak=capacity.soak,
        flags=capacity.flags,
        speed_spread=capacity.speed_spread,
        more=capacity.more,
        trials=capacity.trials,
        invalid=capacity.invalid,
        loads=capacity.loads,
        worth=worth.of(capacity, search.trials),
        limit=limit,
        ended=search.ended,
        runs=tuple(digest.trial.id for digest in search.digests),
    )
