"""Sequential design, as ask and tell: the next trial, and what became of those before it. Pure.

Whoever chooses (capacity/trials.py, pairing.py) is a function of what it was told, so an experiment
that was interrupted goes on by asking it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field

from pgpaces.answers.digest import Digest
from pgpaces.design import ROLE, Cell


class Tell(Struct, frozen=True):
    """What became of a trial; of one that could not be run no digest, and why is in error."""

    cell: Cell
    block: int
    digest: Digest | None
    error: str = ""
    attempt: int = 1

    @classmethod
    def of(cls, digest: Digest) -> Tell:
        """One from the store. Raises ValueError for a trial of no experiment."""
        place = digest.trial.place
        if place is None:
            raise ValueError(f"run {digest.trial.id} belongs to no experiment")
        cell = Cell(tuple(place.levels.items()))
        return cls(cell, place.block, digest, attempt=place.attempt)


class Ask(Struct, frozen=True):
    """The next trial. given: levels of it alone, that tell no cells apart; None: without this one.

    why: in a few words, for whoever waits for it.
    """

    cell: Cell
    block: int
    given: Mapping[str, str | None] = field(default_factory=dict)
    why: str = ""
    attempt: int = 1


# The fewest trials that there will be, and the most.
Expected = tuple[Sequence[Ask], Sequence[Ask]]


def settled(told: Iterable[Tell]) -> list[Tell]:
    """Without attempts behind which the same trial was run again at once: the last one counts.

    told: of one cell or pair, in their order. The store has every attempt; whoever runs them hears
    of the last alone, and both must come to the same answer.
    """
    found: list[Tell] = []
    for each in told:
        if found and found[-1].block == each.block and found[-1].cell.key == each.cell.key:
            found.pop()
        found.append(each)
    return found


def role(cell: Cell) -> str:
    """What a trial was for; empty for one of a design."""
    return dict(cell.levels).get(ROLE, "")


def without(cell: Cell, *names: str) -> Cell:
    """The cell without levels of these names, and without its role."""
    return Cell(tuple(pair for pair in cell.levels if pair[0] not in (ROLE, *names)))
