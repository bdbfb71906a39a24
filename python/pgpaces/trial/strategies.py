"""Which trials an experiment runs: those of its design, or those that a goal needs.

The choice itself is pure; this module only dispatches to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from pgpaces.analysis.capacity.search import CapacitySearch
from pgpaces.analysis.sequential import Certainty, Expected, Pairing, Tell
from pgpaces.spec.design import HERE, Ask, Design, by_machine


class Listed(Struct, frozen=True):
    """The trials of a design, in their order; each result is of the next one."""

    asks: tuple[Ask, ...]

    def samples(self) -> Sequence[Ask]:
        return self.asks

    def expected(self) -> Expected:
        return self.asks, self.asks

    def ask(self, tells: Sequence[Tell]) -> Ask | None:
        return self.asks[len(tells)] if self.left(tells) else None

    def left(self, tells: Sequence[Tell]) -> int:
        return len(self.asks) - len(tells)

    def given_up(self, tells: Sequence[Tell]) -> str:
        return ""


# The goal of an adaptive experiment chooses the trials of the cells that it is given.
Goal = CapacitySearch | Pairing | Certainty
# samples: trials of every kind, to check them in advance; left: a lower bound of the trials until
# an answer is known, 0 if there is none; given_up: why it ended without an answer, else empty.
Strategy = Goal | Listed


def strategies(
    goal: Goal | None,
    design: Design,
    machine_of: Mapping[str, str],
    *,
    done: Iterable[tuple[int, str]] = (),
) -> dict[str, Strategy]:
    """The strategy of each machine. Without a goal the trials are those of the design.

    machine_of: the machine of each target level. done: block and cell key of trials of the design
    that are not run again. Pairs run one after the other, whatever their machines, so that drift
    between pairs affects both members.
    """
    if isinstance(goal, Pairing):
        return {HERE: goal}
    if goal is None:
        finished = set(done)
        missing = (ask for ask in design.asks() if (ask.block, ask.cell.key) not in finished)
        return {name: Listed(tuple(own)) for name, own in by_machine(missing, machine_of).items()}
    of_machines = by_machine((Ask(cell, 1) for cell in design.cells()), machine_of)
    return {name: goal.over([ask.cell for ask in own]) for name, own in of_machines.items()}
