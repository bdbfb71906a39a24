"""Sequential design, as ask and tell: the next trial, and the results of those before it. Pure.

A strategy (capacity/search.py; here pairs of A against B, and `--trials auto`) is a function of the
results so far, so an interrupted experiment is resumed by asking again. The block of a trial is the
number of its pair, so both of a pair meet the same arrivals. A pair with an invalid trial is run
again, both trials: a pair is two trials next to each other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import cache

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.analysis import crossing
from pgpaces.analysis.cells import Row, row, sound
from pgpaces.analysis.compare import ComparisonGoal, Pair, Verdict, compare_pairs, trial_values
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.stopping import LOOKS_OF_CELL
from pgpaces.core.messages import message
from pgpaces.core.metrics import is_share
from pgpaces.spec.design import ROLE, Ask, Cell, Levels, place

AGAIN = "again"
# After this many invalid attempts at a pair the comparison ends.
_ROUNDS = 3
# A cell with so many trials without a result, and no more with one, is given up.
_LOST_MAX = 2
_MOST = LOOKS_OF_CELL.at[-1]


class Tell(Struct, frozen=True):
    """The result of a trial. digest: None where it could not be run; error: why.

    too_much: its load was: another may be possible. again: it does not count, and is run again.
    """

    cell: Cell
    block: int
    digest: Digest | None
    error: str = ""
    attempt: int = 1
    too_much: bool = False
    again: bool = False

    @classmethod
    def of(cls, digest: Digest) -> Tell:
        """One from the store. Raises ValueError for a trial of no experiment."""
        place = digest.trial.place
        if place is None:
            raise ValueError(f"run {digest.trial.id} belongs to no experiment")
        cell = Cell(tuple(place.levels.items()))
        return cls(cell, place.block, digest, attempt=place.attempt)


# The role of a trial whose clients do not pause: never a bound.
SATURATING = "preflight"

# The fewest trials that there will be, and the most.
Expected = tuple[Sequence[Ask], Sequence[Ask]]
_Members = list[tuple[Cell, list[Tell]]]


def cut_short(tell: Tell) -> bool:
    """Whether a trial was interrupted, or what it was for given up, so that it is run again."""
    ended = tell.digest is None or tell.digest.trial.state not in ("interrupted", "running")
    return tell.again or not ended


def last_attempts(tells: Iterable[Tell]) -> list[Tell]:
    """The last attempt of each trial that was repeated at once.

    tells: of one cell or pair, in their order. The store has every attempt, the running experiment
    the last alone, and both must come to the same answer.
    """
    last: list[Tell] = []
    for each in tells:
        if last and last[-1].block == each.block and last[-1].cell.key == each.cell.key:
            last.pop()
        last.append(each)
    return last


def role(cell: Cell) -> str:
    """The role of a trial in its experiment; empty for one of a design."""
    return dict(cell.levels).get(ROLE, "")


def without(cell: Cell, *names: str) -> Cell:
    """The cell without levels of these names, and without its role."""
    return Cell(tuple(pair for pair in cell.levels if pair[0] not in (ROLE, *names)))


class PlannedPair(Struct, frozen=True):
    """A pair to run. b_first: B, or the second A, runs first."""

    number: int
    same: bool
    b_first: bool


def next_pairs(pairs: Sequence[Pair], goal: ComparisonGoal) -> tuple[PlannedPair, ...] | Verdict:
    """The pairs to run next, in order, or the verdict: a pure function of the pairs so far.

    There is a verdict only at the looks of the goal; the first look that decides is final.
    """
    pairs = sorted(pairs, key=lambda pair: pair.number)
    real = [pair for pair in pairs if not pair.same]
    ran = {pair.number for pair in pairs}
    verdict = None
    for look, level in goal.looks:
        if missing := tuple(p for p in planned_pairs(goal, look) if p.number not in ran):
            return missing
        verdict = compare_pairs([*real[:look], *(p for p in pairs if p.same)], goal, level)
        if verdict.outcome != "unknown" or verdict.why == "unbounded":
            break
    assert verdict is not None, "a goal has a look"
    return verdict


@cache
def planned_pairs(goal: ComparisonGoal, upto: int) -> tuple[PlannedPair, ...]:
    """The pairs up to a look in their order, numbers from 1: a prefix of those up to the next.

    Between two looks half of the pairs begin with B, and those of A with itself are mixed among
    those before the first look; a hash of the seed gives the order.
    """

    def rank(at: int) -> bytes:
        return hashlib.sha256(f"{goal.seed}/{look}/{at}".encode()).digest()

    plan: list[PlannedPair] = []
    before = 0
    for look, _ in goal.looks:
        if look > upto:
            break
        kinds = [(False, n % 2 == 0) for n in range(look - before)]
        kinds += [(True, n % 2 == 0) for n in range(0 if before else goal.same)]
        for at in sorted(range(len(kinds)), key=rank):
            same, b_first = kinds[at]
            plan.append(PlannedPair(len(plan) + 1, same, b_first))
        before = look
    return tuple(plan)


class Pairing(Struct, frozen=True, tag_field="kind", tag="comparison"):
    """A and B, as levels of the same names, and the goal. Chooses the trials of all pairs."""

    a: Levels
    b: Levels
    goal: ComparisonGoal

    @property
    def cells(self) -> tuple[Cell, Cell, Cell]:
        """The cells of A, of B, and of the second A of pairs of A with itself."""
        a = tuple(self.a.items())
        return Cell(a), Cell(tuple(self.b.items())), Cell((*a, (ROLE, AGAIN)))

    def over(self, _: Sequence[Cell]) -> Pairing:
        """It has its own cells."""
        return self

    def names(self) -> tuple[str, str]:
        a, b, _ = self.cells
        return str(a), str(b)

    def pairs(self, tells: Sequence[Tell]) -> list[Pair]:
        pairs = []
        for planned in planned_pairs(self.goal, self.goal.pairs):
            done = [own for _, own in self._members(planned, tells)]
            if not done[0] or len(done[0]) != len(done[1]):
                continue
            a, b = (each[-1].digest for each in (done[::-1] if planned.b_first else done))
            if a is not None and b is not None and sound(a) and sound(b):
                both = trial_values(a.summary), trial_values(b.summary)
                pairs.append(Pair(planned.number, *both, same=planned.same))
        return pairs

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
        planned = planned_pairs(self.goal, self.goal.pairs)
        every = [Ask(c, p.number) for p in planned for c in (a, again if p.same else b)]
        return every[: self.left(())], every

    def standing(self, tells: Sequence[Tell]) -> Verdict:
        """The verdict; between two looks the estimate without an outcome.

        needed: pairs at the next look.
        """
        valid, goal = self.pairs(tells), self.goal
        result = next_pairs(valid, goal)
        if isinstance(result, Verdict):
            return result
        # A decision whenever the numbers look good is wrong more often than the level promises.
        verdict = compare_pairs(valid, goal, 0.0)
        last = result[-1].number
        needed = next(look for look, _ in goal.looks if len(planned_pairs(goal, look)) >= last)
        others = tuple(replace(each, outcome="unknown") for each in verdict.secondary)
        return replace(verdict, outcome="unknown", why="look", needed=needed, secondary=others)

    def ask(self, tells: Sequence[Tell]) -> Ask | None:
        """The next trial; None where there is a verdict, or a pair was invalid too often."""
        todo, members = self._next(tells)
        if not todo:
            return None
        cell, done = min(members, key=lambda member: len(member[1]))
        if len(done) >= _ROUNDS:
            return None
        number = todo[0].number
        attempts = (t.attempt for t in tells if (t.block, t.cell.key) == (number, cell.key))
        return Ask(cell, number, attempt=1 + max(attempts, default=0))

    def left(self, tells: Sequence[Tell]) -> int:
        todo, members = self._next(tells)
        done = [len(own) for _, own in members]
        return 2 * len(todo) - (max(done) - min(done)) if todo else 0

    def given_up(self, tells: Sequence[Tell]) -> str:
        """Why there is neither a verdict nor a next trial; empty where there is one."""
        todo, members = self._next(tells)
        if not todo or self.ask(tells) is not None:
            return ""
        reasons: list[str] = []
        for digest, error in ((own[-1].digest, own[-1].error) for _, own in members):
            invalid = digest.summary.validity.reasons if digest else ()
            reasons += invalid or filter(None, [digest.trial.error if digest else error])
        why = "; ".join(reasons)
        return message("pair-invalid", number=todo[0].number, rounds=_ROUNDS, reasons=why)

    def resumed(self, tells: Sequence[Tell]) -> list[Tell]:
        """The results so far when it is resumed: a pair that ended the comparison begins again."""
        if not self.given_up(tells):
            return list(tells)
        number = self._next(tells)[0][0].number
        return [replace(t, again=True) if t.block == number else t for t in tells]

    def _next(self, tells: Sequence[Tell]) -> tuple[tuple[PlannedPair, ...], _Members]:
        """The pairs to run until the next look and the trials of the first; both empty if none."""
        result = next_pairs(self.pairs(tells), self.goal)
        if isinstance(result, Verdict):
            return (), []
        return result, self._members(result[0], tells)

    def _members(self, planned: PlannedPair, tells: Sequence[Tell]) -> _Members:
        """The two trials of a pair in their order: the cell of each, and its results that count."""
        a, b, again = self.cells
        own = [t for t in tells if t.block == planned.number]
        # A pair that was cut short begins again: two trials with a night between them are none.
        cut = max((n for n, t in enumerate(own, 1) if cut_short(t)), default=0)
        counted = last_attempts(own[cut:])
        first, second = (
            (cell, [t for t in counted if t.cell.key == cell.key])
            for cell in (a, again if planned.same else b)
        )
        return [second, first] if planned.b_first else [first, second]


class Certainty(Struct, frozen=True, tag_field="kind", tag="certainty"):
    """Trials of each of some cells until its verdict is certain: `sweep --trials auto`.

    The n-th trial of each cell is in block n, and a cell is looked at after its first, 4th, 6th,
    8th, 12th and 16th valid trial. As in a run that stops by itself (stopping.py), each look has an
    interval of a higher level, and all looks together contain the true share with 95%. From the
    second look on the spread between trials counts; the first rests on one trial, so it is right as
    often as that only if trials differ by chance alone. Two or three trials do not show their
    spread. A trial is never cut short.

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
        return crossing.verdict(now, self.missed_max) != "unknown"

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
