"""Trials of a cell until its verdict is certain: `sweep --trials auto`, as ask and tell. Pure.

A cell is looked at after its first, 4th, 6th, 8th, 12th and 16th valid trial. As in a run that
stops by itself (stopping.py), each look has an interval of a higher level, and all looks together
contain the true share with 95%. From the second look on the spread between trials counts; the
first rests on one trial, so it is right as often as that only if trials differ by chance alone.
Two or three trials do not show their spread. A trial is never cut short.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.analysis import goal
from pgpaces.analysis.cells import Row, row
from pgpaces.analysis.sequential import Expected, Tell, cut_short, last_attempts
from pgpaces.analysis.stopping import LOOKS_OF_CELL
from pgpaces.core.messages import message
from pgpaces.spec.design import Ask, Cell, place

_MOST = LOOKS_OF_CELL.at[-1]
# A cell with so many trials without a result, and no more with one, is given up.
_LOST_MAX = 2


class Certainty(Struct, frozen=True, tag_field="kind", tag="certainty"):
    """The verdict of each of some cells. The n-th trial of each cell is in block n.

    missed_max: the share that may miss. seed: of the order within a block.
    """

    missed_max: float
    seed: int
    cells: tuple[Cell, ...] = ()

    def over(self, cells: Sequence[Cell]) -> Certainty:
        return replace(self, cells=tuple(cells))

    def terms(self) -> tuple[str, ...]:
        return (message("certainty-terms", missed_percent=100 * self.missed_max, most=_MOST),)

    def samples(self) -> Sequence[Ask]:
        return self._order([Ask(cell, 1) for cell in self.cells])

    def expected(self) -> Expected:
        return self.samples(), [Ask(c, n) for n in range(1, _MOST + 1) for c in self.cells]

    def ask(self, tells: Sequence[Tell]) -> Ask | None:
        """The next trial: of the lowest block that an uncertain cell lacks."""
        asks = self._order([ask for cell in self.cells if (ask := self._next(cell, tells))])
        return asks[0] if asks else None

    def left(self, tells: Sequence[Tell]) -> int:
        return sum(self._next(cell, tells) is not None for cell in self.cells)

    def given_up(self, tells: Sequence[Tell]) -> str:
        """The cells without a verdict for want of trials that ran; empty if there are none."""
        own = {cell: self._done(cell, tells) for cell in self.cells}
        failed = [
            cell
            for cell, done in own.items()
            if any(not _ran(tell) for tell in done)
            and self._next(cell, tells) is None
            and not self._certain(self._row(cell, done))
        ]
        if not failed:
            return ""
        error = next((t.error for t in own[failed[0]] if t.error), "")
        return message("cells-not-measured", cells=[str(cell) for cell in failed], error=error)

    def resumed(self, tells: Sequence[Tell]) -> list[Tell]:
        """Without trials that failed, or that an outage made invalid: these are run again."""
        return [
            tell
            for tell in tells
            if cut_short(tell)
            or (_ran(tell) and tell.digest and not tell.digest.summary.validity.outage)
        ]

    def _order(self, asks: Sequence[Ask]) -> list[Ask]:
        return sorted(asks, key=lambda ask: (ask.block, place(self.seed, ask.block, ask.cell)))

    def _done(self, cell: Cell, tells: Iterable[Tell]) -> list[Tell]:
        """The last attempt of each block of a cell."""
        own = (tell for tell in tells if tell.cell.key == cell.key)
        return last_attempts(sorted(own, key=lambda tell: tell.block))

    def _row(self, cell: Cell, done: Iterable[Tell]) -> Row:
        return row(cell, [tell.digest for tell in done if tell.digest], looks=LOOKS_OF_CELL)

    def _certain(self, now: Row) -> bool:
        """Whether it has a verdict at its last look. Between looks there is no other one."""
        return now.sound and goal.verdict(now.estimate("missed"), self.missed_max) != "unknown"

    def _next(self, cell: Cell, tells: Iterable[Tell]) -> Ask | None:
        done = self._done(cell, tells)
        if cut := next((tell for tell in done if cut_short(tell)), None):
            return Ask(cell, cut.block, attempt=cut.attempt + 1)
        now = self._row(cell, done)
        valid = len(now.trials) if now.sound else 0
        lost = len(done) - valid
        if valid >= _MOST or lost >= max(_LOST_MAX, valid + 1) or self._certain(now):
            return None
        run = {tell.block for tell in done}
        return Ask(cell, next(n for n in range(1, len(run) + 2) if n not in run))


def _ran(tell: Tell) -> bool:
    return tell.digest is not None and tell.digest.trial.state == "finished"
