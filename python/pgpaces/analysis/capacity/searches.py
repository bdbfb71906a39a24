"""Searches for the capacity of several cells: which trial of which cell is next. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.analysis import outcome
from pgpaces.analysis.capacity import trials, words
from pgpaces.analysis.sequential import Expected, Tell, cut_short, last_attempts, without
from pgpaces.core.messages import message
from pgpaces.spec.design import Ask, Cell

SearchSpec = trials.SearchSpec
# A search ends after this many trials none of which measured anything.
_HOPELESS = 2


class Searches(Struct, frozen=True):
    """A search for the capacity of each cell, in turn: the one with the fewest trials is next."""

    spec: SearchSpec
    cells: tuple[Cell, ...]

    def ask(self, tells: Sequence[Tell]) -> Ask | None:
        """The next trial of the cell that has the fewest and has not ended."""
        own = self.own(tells)
        for cell in sorted(self.cells, key=lambda cell: len(own[cell.key])):
            if _hopeless(own[cell.key]):
                continue
            if (ask := trials.ask(self.spec, cell, own[cell.key])) is not None:
                return ask
        return None

    def samples(self) -> Sequence[Ask]:
        return [trials.first(self.spec, cell) for cell in self.cells]

    def expected(self) -> Expected:
        searches = [trials.expected(self.spec, cell) for cell in self.cells]
        least, most = (
            [ask for asks in ends for ask in asks] for ends in zip(*searches, strict=True)
        )
        return least, most

    def left(self, tells: Sequence[Tell]) -> int:
        """0: unknown."""
        return 0

    def given_up(self, tells: Sequence[Tell]) -> str:
        """Which searches ended with trials that could not be run, and why.

        All others have an answer, which may be "unknown".
        """
        own = self.own(tells)
        for of_cell in own.values():
            if (why := _hopeless(of_cell)) is not None:
                return why
        failed = [
            own[cell.key]
            for cell in self.cells
            if own[cell.key]
            and own[cell.key][-1].digest is None
            and not own[cell.key][-1].too_much
            and trials.ask(self.spec, cell, own[cell.key]) is None
        ]
        if not failed:
            return ""
        error = next(t.error for t in failed[0] if t.digest is None)
        return message("searches-ended", ended=len(failed), all=len(self.cells), error=error)

    def own(self, tells: Sequence[Tell]) -> dict[str, list[Tell]]:
        """The last attempts of the trials of each cell, by its key without a load."""
        own: dict[str, list[Tell]] = {cell.key: [] for cell in self.cells}
        for each in tells:
            if (key := self._key(each)) in own:
                own[key].append(each)
        return {key: _tried_again(last_attempts(of_cell)) for key, of_cell in own.items()}

    def resumed(self, tells: Sequence[Tell]) -> list[Tell]:
        """The results so far when the searches are resumed: those given up begin again."""
        ended = {key for key, of_cell in self.own(tells).items() if _hopeless(of_cell) is not None}
        return [replace(t, again=True) if self._key(t) in ended else t for t in tells]

    def _key(self, tell: Tell) -> str:
        return without(tell.cell, self.spec.goal.load).key


def _tried_again(tells: list[Tell]) -> list[Tell]:
    """The trials of a cell; those after which it was given up are tried again if more follow."""
    places = [n for n, t in enumerate(tells, 1) if t.digest and not cut_short(t)]
    end = places[_HOPELESS - 1] if len(places) >= _HOPELESS else len(tells)
    if end == len(tells) or _hopeless(tells[:end]) is None:
        return tells
    return [*(replace(each, again=True) for each in tells[:end]), *_tried_again(tells[end:])]


def _hopeless(tells: Sequence[Tell]) -> str | None:
    """Why a search ends where its first trials measured nothing; None where it goes on."""
    ended = (each for each in tells if not cut_short(each))
    digests = [each.digest for each in ended if each.digest is not None]
    if len(digests) < _HOPELESS:
        return None
    reason = outcome.no_trial(digests)
    return None if reason is None else reason.sentence


def terms(spec: SearchSpec) -> tuple[str, ...]:
    return words.terms(spec.goal)
