"""Searches for the capacity of several cells: which trial of which cell is next. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from pgpaces.answers import outcome
from pgpaces.answers.capacity import trials, words
from pgpaces.answers.sequential import Ask, Expected, Tell, settled
from pgpaces.design import Cell

Sought = trials.Sought
# After so many trials of a search none of which measured anything it ends.
_HOPELESS = 2


class Searches(Struct, frozen=True):
    """A search for the capacity of each cell, in turn: the one with the fewest trials is next."""

    sought: Sought
    cells: tuple[Cell, ...]

    def ask(self, told: Sequence[Tell]) -> Ask | None:
        """The next trial of the cell that has the fewest and has not ended."""
        own = self.own(told)
        for cell in sorted(self.cells, key=lambda cell: len(own[cell.key])):
            if _hopeless(own[cell.key]):
                continue
            if (found := trials.ask(self.sought, cell, own[cell.key])) is not None:
                return found
        return None

    def samples(self) -> Sequence[Ask]:
        """A load trial of each cell."""
        return [trials.first(self.sought, cell) for cell in self.cells]

    def expected(self) -> Expected:
        """What a search takes on a server that is not slow."""
        found = [trials.expected(self.sought, cell) for cell in self.cells]
        least, most = ([each for own in found for each in own[end]] for end in (0, 1))
        return least, most

    def left(self, told: Sequence[Tell]) -> int:
        """Nobody can say."""
        return 0

    def given_up(self, told: Sequence[Tell]) -> str:
        """Which searches ended with trials that could not be run, and why.

        All others have an answer, be it that nothing is known.
        """
        own = self.own(told)
        for found in own.values():
            if (why := _hopeless(found)) is not None:
                return why
        failed = [
            own[cell.key]
            for cell in self.cells
            if own[cell.key]
            and own[cell.key][-1].digest is None
            and trials.ask(self.sought, cell, own[cell.key]) is None
        ]
        if not failed:
            return ""
        error = next(t.error for t in failed[0] if t.digest is None)
        if not any(each.digest for each in told):
            return f"no trial could be run: {error}"
        what = (
            "the search" if len(self.cells) == 1 else f"{len(failed)} of {len(self.cells)} searches"
        )
        return f"{what} could not go on: {error}"

    def own(self, told: Sequence[Tell]) -> dict[str, list[Tell]]:
        """The trials of each cell, by its key, without its load."""
        found: dict[str, list[Tell]] = {cell.key: [] for cell in self.cells}
        for each in told:
            key = trials.base_of(each.cell, self.sought.goal.load).key
            if key in found:
                found[key].append(each)
        return {key: settled(own) for key, own in found.items()}


def _hopeless(told: Sequence[Tell]) -> str | None:
    """Why a search ends where its first trials measured nothing; None where it goes on."""
    digests = [each.digest for each in told if each.digest is not None]
    if len(digests) < _HOPELESS:
        return None
    found = outcome.no_trial(digest.summary for digest in digests)
    return None if found is None else found[0]


def asked(sought: Sought) -> tuple[str, ...]:
    """What a search is asked, before it begins, in words."""
    return words.asked(sought.goal)
