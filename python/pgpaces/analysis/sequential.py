"""Sequential design, as ask and tell: the next trial, and the results of those before it. Pure.

A strategy (capacity/search.py, pairing.py) is a function of the results so far, so an interrupted
experiment is resumed by asking again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from pgpaces.analysis.digest import Digest
from pgpaces.spec.design import ROLE, Ask, Cell


class Tell(Struct, frozen=True):
    """The result of a trial. digest: None where it could not be run; error: why.

    too_much: its load was: another may be possible. again: it does not count, and is run again.
    """

    cell: Cell
    block: int
    digest: Digest | None
    error: str = ""
    attempt: int = 1
    too_much: bool = False
    again: bool = False

    @classmethod
    def of(cls, digest: Digest) -> Tell:
        """One from the store. Raises ValueError for a trial of no experiment."""
        place = digest.trial.place
        if place is None:
            raise ValueError(f"run {digest.trial.id} belongs to no experiment")
        cell = Cell(tuple(place.levels.items()))
        return cls(cell, place.block, digest, attempt=place.attempt)


# The role of a trial whose clients do not pause: never a bound.
SATURATING = "preflight"

# The fewest trials that there will be, and the most.
Expected = tuple[Sequence[Ask], Sequence[Ask]]


def cut_short(tell: Tell) -> bool:
    """Whether a trial was interrupted, or what it was for given up, so that it is run again."""
    ended = tell.digest is None or tell.digest.trial.state not in ("interrupted", "running")
    return tell.again or not ended


def last_attempts(tells: Iterable[Tell]) -> list[Tell]:
    """The last attempt of each trial that was repeated at once.

    tells: of one cell or pair, in their order. The store has every attempt, the running experiment
    the last alone, and both must come to the same answer.
    """
    last: list[Tell] = []
    for each in tells:
        if last and last[-1].block == each.block and last[-1].cell.key == each.cell.key:
            last.pop()
        last.append(each)
    return last


def role(cell: Cell) -> str:
    """The role of a trial in its experiment; empty for one of a design."""
    return dict(cell.levels).get(ROLE, "")


def without(cell: Cell, *names: str) -> Cell:
    """The cell without levels of these names, and without its role."""
    return Cell(tuple(pair for pair in cell.levels if pair[0] not in (ROLE, *names)))
