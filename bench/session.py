"""What every section of the bench gets: the place, how thorough to be, which backends there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import programs
from figures import Finding
from load import Order
from place import Place, takes_backend


@dataclass(frozen=True)
class Session:
    """One run of the bench. pairs: of runs against time; quick: short ones.

    only, trials: of coverage, words of the cells to measure and trials of each.
    """

    place: Place
    pairs: int
    quick: bool
    asked: tuple[str, ...]
    only: str = ""
    trials: int = 0

    @cached_property
    def missing(self) -> dict[str, str]:
        """Backends that were asked for and cannot be had, with the reason."""
        if not takes_backend():
            reason = "the engine that is installed has one way to wait only, epoll"
            return {name: reason for name in self.asked if name != "epoll"}
        return {name: why for name in self.asked if (why := self._refusal(name))}

    @property
    def backends(self) -> tuple[str, ...]:
        """Those that can be measured."""
        return tuple(name for name in self.asked if name not in self.missing)

    def poll(self, backend: str) -> str | None:
        """What an Order says of it: nothing to an engine that knows no choice."""
        return backend if takes_backend() else None

    def _refusal(self, backend: str) -> str:
        order = Order(str(programs.SELECT), "simple", 1, transactions=1, poll=backend)
        try:
            programs.run_ours(order, self.place.environment())
        except programs.ProgramError as error:
            return str(error)
        return ""


Section = Callable[[Session], Iterator[Finding]]
