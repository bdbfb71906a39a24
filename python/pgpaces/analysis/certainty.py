"""Trials of a cell until its verdict is certain: `sweep --trials auto`, as ask and tell. Pure.

A cell is looked at after its first, second, third, 4th, 6th, 8th, 12th and 16th trial. As in a run
that stops by itself (stopping.py), each look has an interval of a higher level, and all looks
together contain the true share with 95%. A trial is never cut short.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from msgspec import Struct

from pgpaces.analysis import goal
from pgpaces.analysis.cells import row
from pgpaces.analysis.sequential import Expected, Tell, cut_short, last_attempts
from pgpaces.core.messages import message
from pgpaces.spec.design import Ask, Cell, place

# After how many valid trials a cell is looked at. ERRORS: of the intervals whose lower and upper
# end are those of each look, as in stopping.py: FAIL spends 2.5% in all, PASS 0.75%.
LOOKS = (1, 2, 3, 4, 6, 8, 12, 16)
ERRORS = (
    (0.00020, 0.00006),
    (0.00062, 0.00018),
    (0.00120, 0.00035),
    (0.00195, 0.00056),
    (0.00494, 0.00142),
    (0.00829, 0.00234),
    (0.02096, 0.00596),
    (0.03619, 0.01005),
)
# A cell whose first trials are all invalid is given up: the next one would be invalid, too.
_INVALID_MAX = 2


def errors(trials: int) -> tuple[float, float]:
    """The errors of the lower and the upper end of a cell's interval after so many valid trials."""
    return ERRORS[max(0, bisect_right(LOOKS, trials) - 1)]


class Certainty(Struct, frozen=True):
    """The goal: the verdict of each cell. missed_max: the share that may miss. seed: of the order
    within a block.
    """

    missed_max: float
    seed: int

    def terms(self) -> tuple[str, ...]:
        return (message("certainty-terms", missed_percent=100 * self.missed_max, most=LOOKS[-1]),)


class UntilCertain(Struct, frozen=True):
    """The trials of some cells. The n-th trial of each cell is in block n."""

    goal: Certainty
    cells: tuple[Cell, ...]

    def samples(self) -> Sequence[Ask]:
        return self._order([Ask(cell, 1) for cell in self.cells])

    def expected(self) -> Expected:
        return self.samples(), [Ask(c, n) for n in range(1, LOOKS[-1] + 1) for c in self.cells]

    def ask(self, tells: Sequence[Tell]) -> Ask | None:
        """The next trial: of the lowest block that an uncertain cell lacks."""
        asks = self._order([ask for ask in self._next(tells).values() if ask])
        return asks[0] if asks else None

    def left(self, tells: Sequence[Tell]) -> int:
        return sum(ask is not None for ask in self._next(tells).values())

    def given_up(self, tells: Sequence[Tell]) -> str:
        """Which cells could not be measured; empty if all were."""
        ended = [cell for cell, ask in self._next(tells).items() if ask is None]
        own = {cell: [t for t in tells if t.cell.key == cell.key] for cell in ended}
        failed = [cell for cell, all_ in own.items() if all(t.digest is None for t in all_)]
        if not failed:
            return ""
        error = next((t.error for t in own[failed[0]] if t.error), "")
        return message("cells-not-measured", cells=[str(cell) for cell in failed], error=error)

    def resumed(self, tells: Sequence[Tell]) -> list[Tell]:
        """Trials that could not be run are run again."""
        return [tell for tell in tells if tell.digest is not None]

    def _order(self, asks: Sequence[Ask]) -> list[Ask]:
        return sorted(asks, key=lambda ask: (ask.block, place(self.goal.seed, ask.block, ask.cell)))

    def _next(self, tells: Sequence[Tell]) -> Mapping[Cell, Ask | None]:
        by_cell: dict[str, list[Tell]] = {cell.key: [] for cell in self.cells}
        for tell in tells:
            by_cell[tell.cell.key].append(tell)
        return {cell: self._of_cell(cell, by_cell[cell.key]) for cell in self.cells}

    def _of_cell(self, cell: Cell, tells: Sequence[Tell]) -> Ask | None:
        done = last_attempts(tells)
        if done and cut_short(done[-1]):
            return Ask(cell, done[-1].block, attempt=done[-1].attempt + 1)
        now = row(cell, [tell.digest for tell in done if tell.digest], errors=errors)
        valid = len(now.trials) if now.sound else 0
        certain = valid in LOOKS and goal.verdict(now.missed, self.goal.missed_max) != "unknown"
        if certain or len(done) >= LOOKS[-1] or (not valid and len(done) >= _INVALID_MAX):
            return None
        return Ask(cell, len(done) + 1)
