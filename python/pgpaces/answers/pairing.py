"""A new experiment of pairs, A against B: from trials to pairs, from a question to a trial. Pure.

The block of a trial is the number of its pair, so both of a pair meet the same arrivals. A pair of
which a trial was not valid is run again, both of them: a pair is two trials beside each other.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from pgpaces.answers import compare
from pgpaces.answers.cells import sound
from pgpaces.answers.compare import ComparisonGoal, NextPairs, Pair, PlannedPair, Verdict
from pgpaces.answers.sequential import Ask, Tell, last_attempts
from pgpaces.design import ROLE, Cell, Levels

AGAIN = "again"
# So often a pair is run before it is given up, and with it the comparison.
_ROUNDS = 3


class Pairing(Struct, frozen=True):
    """A and B, as levels of the same names, and what is asked."""

    a: Levels
    b: Levels
    goal: ComparisonGoal

    @property
    def cells(self) -> tuple[Cell, Cell, Cell]:
        """Those of A, of B, and of A where it runs beside itself."""
        a = tuple(self.a.items())
        return Cell(a), Cell(tuple(self.b.items())), Cell((*a, (ROLE, AGAIN)))


def names(pairing: Pairing) -> tuple[str, str]:
    """What A and B are called: their levels."""
    a, b, _ = pairing.cells
    return str(a), str(b)


class _Member(Struct, frozen=True):
    """A trial of a pair: its cell, and those that were run of it, in their order.

    attempts: how often it was begun in all.
    """

    cell: Cell
    tells: tuple[Tell, ...]
    attempts: int


def pairs(pairing: Pairing, tells: Sequence[Tell]) -> list[Pair]:
    """The pairs both of whose trials are valid."""
    every = compare.planned(pairing.goal, pairing.goal.pairs)
    found = [_pair(pairing, planned, tells) for planned in every]
    return [pair for pair in found if pair is not None]


def terms(pairing: Pairing) -> tuple[str, ...]:
    """What a comparison is asked, before it begins."""
    goal = pairing.goal
    looks = ", ".join(str(look) for look, _ in goal.looks)
    margin = f"{100 * goal.margin:.3g} {'%' if goal.primary.scale == 'ratio' else 'points'}"
    return (
        f"by {goal.metric}, where {margin} do not matter; pairs are looked at after {looks}",
        f"{goal.same} pairs of A with itself" if goal.same else "no pairs of A with itself",
    )


def every(pairing: Pairing) -> list[Ask]:
    """The trials of all pairs up to the last look."""
    a, b, again = pairing.cells
    planned = compare.planned(pairing.goal, pairing.goal.pairs)
    return [Ask(c, p.number) for p in planned for c in (a, again if p.same else b)]


def standing(pairing: Pairing, tells: Sequence[Tell]) -> Verdict:
    """The verdict; before the next look what the pairs so far allow to say."""
    found = pairs(pairing, tells)
    said = compare.next_pairs(found, pairing.goal)
    if isinstance(said, Verdict):
        return said
    return compare.undecided(found, pairing.goal)


def ask(pairing: Pairing, tells: Sequence[Tell]) -> Ask | None:
    """The next trial; None where there is a verdict, or a pair was not valid too often."""
    said = compare.next_pairs(pairs(pairing, tells), pairing.goal)
    if not isinstance(said, NextPairs):
        return None
    planned = said.pairs[0]
    members = _members(pairing, planned, tells)
    done = [len(member.tells) for member in members]
    if min(done) >= _ROUNDS:
        return None
    member = members[0] if done[0] <= done[1] else members[1]
    return Ask(
        cell=member.cell,
        block=planned.number,
        attempt=1 + member.attempts,
    )


def left(pairing: Pairing, tells: Sequence[Tell]) -> int:
    """How many trials there are at least until the next look."""
    said = compare.next_pairs(pairs(pairing, tells), pairing.goal)
    if not isinstance(said, NextPairs):
        return 0
    first = _members(pairing, said.pairs[0], tells)
    half = abs(len(first[0].tells) - len(first[1].tells))
    return 2 * len(said.pairs) - half


def given_up(pairing: Pairing, tells: Sequence[Tell]) -> str:
    """Why there is no verdict and no next trial; empty where that is not so."""
    said = compare.next_pairs(pairs(pairing, tells), pairing.goal)
    if not isinstance(said, NextPairs) or ask(pairing, tells) is not None:
        return ""
    last = [m.tells[-1] for m in _members(pairing, said.pairs[0], tells)]
    why = [reason for each in last if (reason := _reason(each))]
    return f"pair {said.pairs[0].number} was not valid {_ROUNDS} times: {'; '.join(why)}"


def _reason(tells: Tell) -> str:
    if tells.digest is None:
        return tells.error
    return "; ".join(tells.digest.summary.validity.reasons) or (tells.digest.trial.error or "")


def _members(
    pairing: Pairing, planned: PlannedPair, tells: Sequence[Tell]
) -> tuple[_Member, _Member]:
    """The trials of a pair in the order in which they run."""
    a, b, again = pairing.cells
    cells = (a, again if planned.same else b)
    own = [t for t in tells if t.block == planned.number]
    # Who goes on with a comparison that was interrupted in a pair begins the pair again: two trials
    # with a night between them are no pair.
    cut = max((n for n, t in enumerate(own, 1) if _interrupted(t)), default=0)
    found = tuple(_member(cell, last_attempts(own[cut:]), own) for cell in cells)
    return (found[1], found[0]) if planned.b_first else (found[0], found[1])


def _member(cell: Cell, counted: Sequence[Tell], every: Sequence[Tell]) -> _Member:
    attempts = max((t.attempt for t in every if t.cell.key == cell.key), default=0)
    return _Member(cell, tuple(t for t in counted if t.cell.key == cell.key), attempts)


def _interrupted(tells: Tell) -> bool:
    return tells.digest is not None and tells.digest.trial.state == "interrupted"


def _pair(pairing: Pairing, planned: PlannedPair, tells: Sequence[Tell]) -> Pair | None:
    members = _members(pairing, planned, tells)
    if not members[0].tells or len(members[0].tells) != len(members[1].tells):
        return None
    first, second = (member.tells[-1].digest for member in members)
    if first is None or second is None or not (sound(first) and sound(second)):
        return None
    a, b = (second, first) if planned.b_first else (first, second)
    return Pair(planned.number, compare.side(a.summary), compare.side(b.summary), same=planned.same)
