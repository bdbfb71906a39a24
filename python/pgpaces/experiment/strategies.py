"""What the trials of an experiment are chosen for, where they are not those of a design.

A goal is stored with its experiment and read again to go on with it. Which trial is next is pure;
here is only which of them is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct, to_builtins

from pgpaces import facts
from pgpaces.answers import pairing, time_budget
from pgpaces.answers.capacity import searches
from pgpaces.answers.pairing import Pairing
from pgpaces.answers.sequential import Ask, Expected, Tell
from pgpaces.answers.time_budget import TimeBudget
from pgpaces.design import HERE, Cell
from pgpaces.errors import PlanError, StoreError

Goal = searches.Sought | Pairing | TimeBudget
_KINDS: Mapping[str, type[Goal]] = {
    "capacity": searches.Sought,
    "comparison": Pairing,
    "spending": TimeBudget,
}


class Strategy(Protocol):
    """Chooses the trials of one machine."""

    def ask(self, told: Sequence[Tell]) -> Ask | None:
        """The next one; None where there is nothing more to find out."""

    def samples(self) -> Sequence[Ask]:
        """One for each kind of trial that there will be, to check them before they begin."""

    def expected(self) -> Expected:
        """The fewest and the most trials that there will be, for a preview of time and money."""

    def left(self, told: Sequence[Tell]) -> int:
        """How many trials there are at least until something is known; 0 where nobody can say."""

    def given_up(self, told: Sequence[Tell]) -> str:
        """Why it ended without an answer; empty where it has one, or goes on."""


class Pairs(Struct, frozen=True):
    """Pairs of A and B."""

    pairing: Pairing

    def ask(self, told: Sequence[Tell]) -> Ask | None:
        """The next trial of the next pair."""
        return pairing.ask(self.pairing, told)

    def samples(self) -> Sequence[Ask]:
        """One of A and one of B."""
        return [Ask(cell, 1) for cell in self.pairing.cells[:2]]

    def expected(self) -> Expected:
        """The pairs up to the first look, and up to the last one."""
        every = pairing.every(self.pairing)
        return every[: pairing.left(self.pairing, ())], every

    def left(self, told: Sequence[Tell]) -> int:
        """Until the next look."""
        return pairing.left(self.pairing, told)

    def given_up(self, told: Sequence[Tell]) -> str:
        """Which pair could not be had."""
        return pairing.given_up(self.pairing, told)


class Budgeted(Struct, frozen=True):
    """A budget of time over the cells of a machine."""

    goal: TimeBudget
    cells: tuple[Cell, ...]

    def __post_init__(self) -> None:
        """Raises PlanError where it has no room for a trial of each cell."""
        time_budget.check(self.goal, self.cells)

    def ask(self, told: Sequence[Tell]) -> Ask | None:
        """The next one of the first pass, then of what decides."""
        return time_budget.ask(self.goal, self.cells, told)

    def samples(self) -> Sequence[Ask]:
        """The first pass."""
        return time_budget.first(self.goal, self.cells)

    def expected(self) -> Expected:
        """As many as fit."""
        found = time_budget.expected(self.goal, self.cells)
        return found, found

    def left(self, told: Sequence[Tell]) -> int:
        """How many the rest of the budget has room for."""
        return time_budget.left(self.goal, self.cells, told)

    def given_up(self, told: Sequence[Tell]) -> str:
        """Which cells have no trial."""
        return time_budget.given_up(self.goal, self.cells, told)


def strategies(
    goal: Goal, cells: Sequence[Cell], machine_of: Mapping[str, str]
) -> dict[str, Strategy]:
    """Who chooses the trials of each machine. cells: those of the design.

    machine_of: the machine of each target level. Pairs run one after the other, whatever machines
    they are of: so what changes between pairs meets both. Raises PlanError for a budget that is too
    small.
    """
    if isinstance(goal, Pairing):
        return {HERE: Pairs(goal)}
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        target = dict(cell.levels).get("target", HERE)
        found.setdefault(machine_of.get(target, HERE), []).append(cell)
    if isinstance(goal, TimeBudget):
        return {machine: Budgeted(goal, tuple(own)) for machine, own in found.items()}
    return {machine: searches.Searches(goal, tuple(own)) for machine, own in found.items()}


def asked(goal: Goal) -> tuple[str, ...]:
    """What an experiment is asked, before it begins, in words."""
    if isinstance(goal, Pairing):
        return pairing.asked(goal)
    return () if isinstance(goal, TimeBudget) else searches.asked(goal)


def write(goal: Goal) -> dict[str, Any]:
    """The goal as plain values."""
    kind = next(name for name, cls in _KINDS.items() if isinstance(goal, cls))
    return {"kind": kind, **to_builtins(goal)}


def read(document: Any) -> Goal:
    """The goal of plain values. Raises StoreError where there is none in them."""
    try:
        given = {name: value for name, value in document.items() if name != "kind"}
        found: Goal = facts.read(_KINDS[document["kind"]], given, "a goal")
    except (ValueError, PlanError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"the stored goal of an experiment is damaged: {error}") from None
    return found
