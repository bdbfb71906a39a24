"""The goals of adaptive experiments, and the strategies that choose their trials.

A goal is stored with its experiment and read again to resume it. The choice itself is pure; this
module only dispatches to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import to_builtins

from pgpaces.analysis.capacity import searches
from pgpaces.analysis.pairing import Pairing
from pgpaces.analysis.sequential import Tell
from pgpaces.core.errors import PlanError, StoreError
from pgpaces.spec import facts
from pgpaces.spec.design import HERE, Cell, Slot, by_machine

Goal = searches.SearchSpec | Pairing
# samples: one trial of each kind, to check them in advance; left: a lower bound of the trials until
# an answer is known, 0 if there is none; given_up: why it ended without an answer, else empty.
Strategy = searches.Searches | Pairing
_KINDS: Mapping[str, type[Goal]] = {
    "capacity": searches.SearchSpec,
    "comparison": Pairing,
}


def strategies(
    goal: Goal, cells: Sequence[Cell], machine_of: Mapping[str, str]
) -> dict[str, Strategy]:
    """The strategy of each machine. cells: those of the design.

    machine_of: the machine of each target level. Pairs run one after the other, whatever their
    machines, so that drift between pairs affects both members.
    """
    if isinstance(goal, Pairing):
        return {HERE: goal}
    of_machines = by_machine((Slot(1, cell) for cell in cells), machine_of)
    return {
        machine: searches.Searches(goal, tuple(slot.cell for slot in own))
        for machine, own in of_machines.items()
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
