"""The goals of adaptive experiments, and the strategies that choose their trials.

A goal is stored with its experiment and read again to resume it. The choice itself is pure; this
module only dispatches to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import to_builtins

from pgpaces.analysis.capacity import searches
from pgpaces.analysis.pairing import Pairing
from pgpaces.analysis.sequential import Ask, Expected, Tell
from pgpaces.core.errors import PlanError, StoreError
from pgpaces.spec import facts
from pgpaces.spec.design import HERE, Cell

Goal = searches.SearchSpec | Pairing
_KINDS: Mapping[str, type[Goal]] = {
    "capacity": searches.SearchSpec,
    "comparison": Pairing,
}


class Strategy(Protocol):
    def ask(self, results: Sequence[Tell]) -> Ask | None:
        """The next trial; None when the experiment is complete."""

    def samples(self) -> Sequence[Ask]:
        """One for each kind of trial, to check them before the experiment begins."""

    def expected(self) -> Expected:
        """The fewest and the most trials, for a preview of time and money."""

    def left(self, results: Sequence[Tell]) -> int:
        """A lower bound of the trials until an answer is known; 0 if there is no bound."""

    def given_up(self, results: Sequence[Tell]) -> str:
        """Why it ended without an answer; empty if it has one, or continues."""


def strategies(
    goal: Goal, cells: Sequence[Cell], machine_of: Mapping[str, str]
) -> dict[str, Strategy]:
    """The strategy of each machine. cells: those of the design.

    machine_of: the machine of each target level. Pairs run one after the other, whatever their
    machines, so that drift between pairs affects both members.
    """
    if isinstance(goal, Pairing):
        return {HERE: goal}
    of_machines: dict[str, list[Cell]] = {}
    for cell in cells:
        target = dict(cell.levels).get("target", HERE)
        of_machines.setdefault(machine_of.get(target, HERE), []).append(cell)
    return {machine: searches.Searches(goal, tuple(own)) for machine, own in of_machines.items()}


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
        raise StoreError(f"the stored goal of an experiment is damaged: {error}") from None
    return goal
