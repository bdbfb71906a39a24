"""A new experiment of pairs, A against B: from trials to pairs, from a goal to a trial. Pure.

The block of a trial is the number of its pair, so both of a pair meet the same arrivals. A pair
with an invalid trial is run again, both trials: a pair is two trials next to each other.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.analysis import compare
from pgpaces.analysis.cells import sound
from pgpaces.analysis.compare import ComparisonGoal, Pair, PlannedPair, Verdict
from pgpaces.analysis.sequential import Expected, Tell, cut_short, last_attempts
from pgpaces.core.messages import message
from pgpaces.core.metrics import is_share
from pgpaces.spec.design import ROLE, Ask, Cell, Levels

AGAIN = "again"
# After this many invalid attempts at a pair the comparison ends.
_ROUNDS = 3


class _Member(Struct, frozen=True):
    """One of the two trials of a pair: its cell, and its results in their order.

    attempts: how often it was begun in all.
    """

    cell: Cell
    tells: tuple[Tell, ...]
    attempts: int


class Pairing(Struct, frozen=True):
    """A and B, as levels of the same names, and the goal. Chooses the trials of all pairs."""

    a: Levels
    b: Levels
    goal: ComparisonGoal

    @property
    def cells(self) -> tuple[Cell, Cell, Cell]:
        """The cells of A, of B, and of the second A of pairs of A with itself."""
        a = tuple(self.a.items())
        return Cell(a), Cell(tuple(self.b.items())), Cell((*a, (ROLE, AGAIN)))

    def names(self) -> tuple[str, str]:
        a, b, _ = self.cells
        return str(a), str(b)

    def pairs(self, tells: Sequence[Tell]) -> list[Pair]:
        planned = compare.planned(self.goal, self.goal.pairs)
        return [pair for each in planned if (pair := self._pair(each, tells)) is not None]

    def terms(self) -> tuple[str, ...]:
        goal = self.goal
        looks = ", ".join(str(look) for look, _ in goal.looks)
        margin = f"{100 * goal.margin:.3g}{' points' if is_share(goal.metric) else '%'}"
        return (
            message("pairs-terms", metric=goal.metric, margin=margin, looks=looks),
            message("pairs-of-same", count=goal.same) if goal.same else message("no-pairs-of-same"),
        )

    def samples(self) -> list[Ask]:
        return [Ask(cell, 1) for cell in self.cells[:2]]

    def expected(self) -> Expected:
        a, b, again = self.cells
        planned = compare.planned(self.goal, self.goal.pairs)
        every = [Ask(c, p.number) for p in planned for c in (a, again if p.same else b)]
        return every[: self.left(())], every

    def standing(self, tells: Sequence[Tell]) -> Verdict:
        """The verdict; before the next look the estimate of the pairs so far."""
        valid = self.pairs(tells)
        result = compare.next_pairs(valid, self.goal)
        return result if isinstance(result, Verdict) else compare.unknown(valid, self.goal)

    def ask(self, tells: Sequence[Tell]) -> Ask | None:
        """The next trial; None where there is a verdict, or a pair was invalid too often."""
        todo = self._todo(tells)
        if not todo:
            return None
        members = self._members(todo[0], tells)
        done = [len(member.tells) for member in members]
        if min(done) >= _ROUNDS:
            return None
        member = members[0] if done[0] <= done[1] else members[1]
        return Ask(member.cell, todo[0].number, attempt=1 + member.attempts)

    def left(self, tells: Sequence[Tell]) -> int:
        todo = self._todo(tells)
        if not todo:
            return 0
        first, second = self._members(todo[0], tells)
        return 2 * len(todo) - abs(len(first.tells) - len(second.tells))

    def given_up(self, tells: Sequence[Tell]) -> str:
        """Why there is neither a verdict nor a next trial; empty where there is one."""
        todo = self._todo(tells)
        if not todo or self.ask(tells) is not None:
            return ""
        last = (member.tells[-1] for member in self._members(todo[0], tells))
        reasons = "; ".join(reason for each in last if (reason := _reason(each)))
        return message("pair-invalid", number=todo[0].number, rounds=_ROUNDS, reasons=reasons)

    def resumed(self, tells: Sequence[Tell]) -> list[Tell]:
        """The results so far when it is resumed: a pair that ended the comparison begins again."""
        if not self.given_up(tells):
            return list(tells)
        number = self._todo(tells)[0].number
        return [replace(t, again=True) if t.block == number else t for t in tells]

    def _todo(self, tells: Sequence[Tell]) -> tuple[PlannedPair, ...]:
        """The pairs to run until the next look; empty where there is a verdict."""
        result = compare.next_pairs(self.pairs(tells), self.goal)
        return () if isinstance(result, Verdict) else result

    def _members(self, planned: PlannedPair, tells: Sequence[Tell]) -> tuple[_Member, _Member]:
        a, b, again = self.cells
        cells = (a, again if planned.same else b)
        own = [t for t in tells if t.block == planned.number]
        # A pair that was cut short begins again: two trials with a night between them are none.
        cut = max((n for n, t in enumerate(own, 1) if cut_short(t)), default=0)
        counted = last_attempts(own[cut:])

        def member(cell: Cell) -> _Member:
            attempts = max((t.attempt for t in own if t.cell.key == cell.key), default=0)
            return _Member(cell, tuple(t for t in counted if t.cell.key == cell.key), attempts)

        first, second = (member(cell) for cell in cells)
        return (second, first) if planned.b_first else (first, second)

    def _pair(self, planned: PlannedPair, tells: Sequence[Tell]) -> Pair | None:
        members = self._members(planned, tells)
        if not members[0].tells or len(members[0].tells) != len(members[1].tells):
            return None
        first, second = (member.tells[-1].digest for member in members)
        if first is None or second is None or not (sound(first) and sound(second)):
            return None
        a, b = (second, first) if planned.b_first else (first, second)
        return Pair(
            planned.number, compare.side(a.summary), compare.side(b.summary), same=planned.same
        )


def _reason(tell: Tell) -> str:
    if tell.digest is None:
        return tell.error
    return "; ".join(tell.digest.summary.validity.reasons) or (tell.digest.trial.error or "")
