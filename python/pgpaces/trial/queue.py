"""The trials of one machine: which is next follows from the results so far."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from pgpaces.analysis.digest import Digest
from pgpaces.analysis.sequential import Ask, Tell
from pgpaces.core.errors import ConnectionsError, PgpacesError
from pgpaces.trial.request import Request
from pgpaces.trial.strategies import Listed, Strategy
from pgpaces.trial.trial import Outcome


class Queue(Struct):
    """The trials that a strategy asks for.

    results: of this machine, in their order. request: makes the request of an ask. read: a
    trial's digest, by its id.
    """

    strategy: Strategy
    results: list[Tell]
    request: Callable[[Ask], Request]
    read: Callable[[str], Digest]

    def next(self) -> tuple[Ask, Request] | None:
        ask = self.strategy.ask(self.results)
        return None if ask is None else (ask, self.request(ask))

    def ended(self, ask: Ask, request: Request, outcome: Outcome | PgpacesError) -> None:
        if isinstance(outcome, PgpacesError):
            too_much = isinstance(outcome, ConnectionsError)
            attempt = request.place.attempt if request.place else 1
            tell = Tell(ask.cell, ask.block, None, outcome.message, attempt, too_much)
        elif isinstance(self.strategy, Listed):  # the digests of a whole experiment need memory
            tell = Tell(ask.cell, ask.block, None)
        else:
            tell = Tell.of(self.read(outcome.trial.id))
        self.results.append(tell)

    @property
    def left(self) -> int:
        """The number of trials that remain, as far as that is known."""
        return self.strategy.left(self.results)
