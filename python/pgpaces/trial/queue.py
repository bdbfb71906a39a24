"""Which trials of a machine come next: those of a design, or ones chosen from earlier results."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from pgpaces.analysis.digest import Digest
from pgpaces.analysis.sequential import Ask, Tell
from pgpaces.core.errors import ConnectionsError, PgpacesError
from pgpaces.spec.design import Slot
from pgpaces.trial.request import Request
from pgpaces.trial.strategies import Strategy
from pgpaces.trial.trial import Outcome


class Due(Struct, frozen=True):
    """The next trial. why: the reason in a few words; empty for one of a design."""

    slot: Slot
    request: Request
    why: str = ""


class ListedTrials:
    def __init__(self, slots: Iterable[Slot], requests: Mapping[tuple[int, str], Request]) -> None:
        self._due = deque(Due(slot, requests[slot.block, slot.cell.key]) for slot in slots)

    def next(self) -> Due | None:
        """Removes and returns the next one; None if there is no more."""
        return self._due.popleft() if self._due else None

    def ended(self, due: Due, outcome: Outcome | PgpacesError) -> None:
        """Does nothing: the other trials do not depend on it."""

    @property
    def left(self) -> int:
        """The number of trials that remain, as far as that is known."""
        return len(self._due)


class ChosenTrials(Struct):
    """Trials that a strategy chooses from earlier results.

    results: of this machine, in their order. request: makes the request of an ask. read: a
    trial's digest, by its id.
    """

    strategy: Strategy
    results: list[Tell]
    request: Callable[[Ask], Request]
    read: Callable[[str], Digest]

    def next(self) -> Due | None:
        ask = self.strategy.ask(self.results)
        if ask is None:
            return None
        return Due(Slot(ask.block, ask.cell), self.request(ask), ask.why)

    def ended(self, due: Due, outcome: Outcome | PgpacesError) -> None:
        if isinstance(outcome, Outcome):
            self.results.append(Tell.of(self.read(outcome.trial.id)))
            return
        place = due.request.place
        attempt = place.attempt if place else 1
        too_much = isinstance(outcome, ConnectionsError)
        tell = Tell(due.slot.cell, due.slot.block, None, outcome.message, attempt, too_much)
        self.results.append(tell)

    @property
    def left(self) -> int:
        return self.strategy.left(self.results)


Queue = ListedTrials | ChosenTrials
