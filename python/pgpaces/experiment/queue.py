"""Which trials of a machine come next: those of a design, or those that earlier ones call for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from msgspec import Struct

from pgpaces.answers.digest import Digest
from pgpaces.answers.sequential import Ask, Tell
from pgpaces.design import Slot
from pgpaces.errors import PgpacesError
from pgpaces.experiment.request import Request
from pgpaces.experiment.strategies import Strategy
from pgpaces.experiment.trial import Outcome


class Due(Struct, frozen=True):
    """The next trial. why: in a few words, empty for one of a design."""

    slot: Slot
    request: Request
    why: str = ""


class Queue(Protocol):
    """The trials of one machine."""

    def next(self) -> Due | None:
        """The next one, taken out; None where there is none any more."""

    def ended(self, due: Due, found: Outcome | PgpacesError) -> None:
        """What became of one, behind its last attempt."""

    @property
    def left(self) -> int:
        """How many there are still, as far as that is known."""


class Listed:
    """Trials that are known beforehand."""

    def __init__(self, slots: Iterable[Slot], requests: Mapping[tuple[int, str], Request]) -> None:
        self._due = deque(Due(slot, requests[slot.block, slot.cell.key]) for slot in slots)

    def next(self) -> Due | None:
        """In their order."""
        return self._due.popleft() if self._due else None

    def ended(self, due: Due, found: Outcome | PgpacesError) -> None:
        """Changes nothing about the others."""

    @property
    def left(self) -> int:
        """Those that were not taken."""
        return len(self._due)


class Chosen(Struct):
    """Trials that follow from what earlier ones found.

    told: of this machine, in their order. request: makes one of an ask. read: a trial's
    digest, by its id.
    """

    strategy: Strategy
    told: list[Tell]
    request: Callable[[Ask], Request]
    read: Callable[[str], Digest]

    def next(self) -> Due | None:
        """Asks the strategy."""
        ask = self.strategy.ask(self.told)
        if ask is None:
            return None
        return Due(Slot(ask.block, ask.cell), self.request(ask), ask.why)

    def ended(self, due: Due, found: Outcome | PgpacesError) -> None:
        """Remembers it."""
        if isinstance(found, Outcome):
            self.told.append(Tell.of(self.read(found.trial.id)))
            return
        place = due.request.place
        attempt = place.attempt if place else 1
        self.told.append(Tell(due.slot.cell, due.slot.block, None, found.message, attempt))

    @property
    def left(self) -> int:
        """At least."""
        return self.strategy.left(self.told)
