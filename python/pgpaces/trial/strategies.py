"""Which trials an experiment runs: those of its design, or those that a goal needs.

A goal is stored with its experiment and read again to resume it. The choice itself is pure; this
module only dispatches to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, to_builtins

from pgpaces.analysis.capacity import searches
from pgpaces.analysis.pairing import Pairing
from pgpaces.analysis.sequential import Expected, Tell
from pgpaces.core.errors import PlanError, StoreError
from pgpaces.spec import facts
from pgpaces.spec.design import HERE, Ask, Cell, Design, by_machine


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


Goal = searches.SearchSpec | Pairing
# samples: trials of every kind, to check them in advance; left: a lower bound of the trials until
# an answer is known, 0 if there is none; given_up: why it ended without an answer, else empty.
Strategy = searches.Searches | Pairing | Listed
_KINDS: Mapping[str, type[Goal]] = {
    "capacity": searches.SearchSpec,
    "comparison": Pairing,
}


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
    return {
        name: searches.Searches(goal, tuple(ask.cell for ask in own))
        for name, own in of_machines.items()
    }


def resumed(goal: Goal, cells: Sequence[Cell], results: Sequence[Tell]) -> list[Tell]:
    """The results so far when it is resumed: the search or pair that ended it begins again."""
    of = goal if isinstance(goal, Pairing) else searches.Searches(goal, tuple(cells))
    return of.resumed(results)


def question(goal: Goal) -> tuple[str, ...]:
    return goal.terms() if isinstance(goal, Pairing) else searches.terms(goal)


def write(goal: Goal) -> dict[str, Any]:
    kind = next(name for name, cls in _KINDS.items() if isinstance(goal, cls))
    return {"kind": kind, **to_builtins(goal)}


def read(document: Any) -> Goal:
    """The goal of plain values. Raises StoreError if they are damaged."""
    try:
        fields = {name: value for name, value in document.items() if name != "kind"}
        goal: Goal = facts.read(_KINDS[document["kind"]], fields, "a goal")
    except (ValueError, PlanError, KeyError, TypeError, AttributeError) as error:
        raise StoreError("experiment-damaged", why=str(error)) from None
    return goal
