"""A time budget over the cells of a design: which trial is worth its time. Pure.

A first pass runs every cell once, in trials short enough that most of the budget is left. The rest
goes, in turn, to the cell whose verdict is unknown and takes the least time to decide, and to the
cell that contributes most to a wrong order of all cells by missed share. The k-th trial of a cell
is of block k, so all cells meet the same arrivals in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from msgspec import Struct

from pgpaces.answers import crossing
from pgpaces.answers.arrays import np
from pgpaces.answers.cells import Row, row
from pgpaces.answers.digest import Digest
from pgpaces.answers.distributions import normal_cdf
from pgpaces.answers.sequential import Ask, Expected, Tell, cut_short, last_attempts
from pgpaces.design import Cell, place
from pgpaces.errors import PlanError

# The share of the budget for the first pass.
FIRST = 0.4
# Shorter trials measure next to nothing, and consist mostly of connecting.
SHORTEST_S = 5
# Approximate overhead of a trial: connecting, checking the data, storing its answer.
_OVERHEAD_S = 1.0
# In a longer pause between two trials the experiment was not running.
_PAUSE_MAX_S = 60.0
# After this many trials of a cell, none of them valid, it gets no more.
_VAIN = 3
# The largest probability that two cells are in the wrong order for their order to count as known.
_WRONG = 0.025


class TimeBudget(Struct, frozen=True):
    """A time budget: how the time of a machine is spent.

    budget_s: of each machine, from its first trial on. missed_max: the largest missed share that
    meets the goal. seed: of the design. trial_s: the length of a trial without warm-up; None: so
    that the first pass leaves most of the budget. warmup_s: of each trial; None: a tenth, at most
    30 s.
    """

    budget_s: float
    missed_max: float
    seed: int = 1
    trial_s: float | None = None
    warmup_s: float | None = None


class _Open(Struct, frozen=True):
    """A question that a trial of a cell may answer. rank, then need: their order."""

    cell: Cell
    rank: int
    need: float
    why: str


class Budgeted(Struct, frozen=True):
    """A time budget over the cells of a machine: chooses their trials."""

    goal: TimeBudget
    cells: tuple[Cell, ...]

    def __post_init__(self) -> None:
        """Raises PlanError where the budget does not allow a trial of each cell."""
        first_s = self.takes_s * len(self.cells)
        if first_s <= self.goal.budget_s:
            return
        length = self.trial_s
        least = "" if self.goal.trial_s is not None else ", the shortest possible,"
        raise PlanError(
            f"one trial of {length:g} s{least} of each of {len(self.cells)} cells takes"
            f" {math.ceil(first_s)} s, and the time budget is {self.goal.budget_s:g} s",
            f"allow {math.ceil(first_s)} s or, for more trials where the answer is unknown,"
            f" {math.ceil(first_s / FIRST)} s; or name fewer levels"
            + ("" if self.goal.trial_s is None else ", or shorter trials"),
        )

    @property
    def trial_s(self) -> float:
        """The length of each trial without warm-up; in whole seconds if it is not set."""
        if self.goal.trial_s is not None:
            return self.goal.trial_s
        each = FIRST * self.goal.budget_s / len(self.cells) - _OVERHEAD_S
        if self.goal.warmup_s is not None:
            return max(SHORTEST_S, math.floor(each - self.goal.warmup_s))
        return max(SHORTEST_S, math.floor(max(each / 1.1, each - 30)))

    @property
    def takes_s(self) -> float:
        """The approximate time of a trial, with warm-up and overhead."""
        length = self.trial_s
        warmup_s = min(length / 10, 30) if self.goal.warmup_s is None else self.goal.warmup_s
        return length + warmup_s + _OVERHEAD_S

    def ask(self, tells: Sequence[Tell]) -> Ask | None:
        """The next trial; None where the budget has no room for it, or no question is open."""
        attempts = self._by_cell(tells)
        own = {key: last_attempts(trials) for key, trials in attempts.items()}
        length = self.trial_s
        left_s = self.goal.budget_s - self.spent_s(tells)
        new = [cell for cell in self.cells if not own[cell.key]]
        if new:
            cell = min(new, key=lambda cell: place(self.goal.seed, 1, cell))
            return _next(cell, (), length, "") if self.takes_s <= left_s else None
        # The median, as creating the data once is unusual. Only of these cells: those of other
        # machines ran at the same time.
        pauses = sorted(_pauses_s([t for trials in attempts.values() for t in trials]))
        pause_s = pauses[len(pauses) // 2] if pauses else 0.0
        for each in self._open(own, left_s):
            trials = own[each.cell.key]
            mean_s = fmean(self._took_s(one) for one in trials)
            if mean_s + pause_s <= left_s:
                return _next(each.cell, trials, length, each.why)
        return None

    def samples(self) -> list[Ask]:
        """The first pass."""
        ordered = sorted(self.cells, key=lambda cell: place(self.goal.seed, 1, cell))
        return [_next(cell, (), self.trial_s, "") for cell in ordered]

    def expected(self) -> Expected:
        """The first pass, and as many more trials as fit, of cells not yet known."""
        count = int(self.goal.budget_s / self.takes_s)
        passes = [
            Ask(each.cell, block, each.options)
            for block in range(1, 2 + count // len(self.cells))
            for each in self.samples()
        ]
        return passes[:count], passes[:count]

    def left(self, tells: Sequence[Tell]) -> int:
        """The trials for which the rest of the budget has room; 0 where none is next."""
        if self.ask(tells) is None:
            return 0
        rest = self.goal.budget_s - self.spent_s(tells)
        return max(1, int(rest / self.takes_s))

    def given_up(self, tells: Sequence[Tell]) -> str:
        """Which cells have no trial that ended; empty where each has one."""
        own = self._by_cell(tells)
        without = [
            cell
            for cell in self.cells
            if not any(t.digest and t.digest.trial.state == "finished" for t in own[cell.key])
        ]
        if not without or self.ask(tells) is not None:
            return ""
        errors = [t.error for cell in without for t in own[cell.key] if t.error]
        why = f": {errors[0]}" if errors else f": {self.goal.budget_s:g} s were over before"
        return f"{len(without)} of {len(self.cells)} cells have no trial that ended{why}"

    def spent_s(self, tells: Sequence[Tell]) -> float:
        """The time of the trials of these cells, with the pauses between them."""
        own = [t for trials in self._by_cell(tells).values() for t in trials]
        return sum(self._took_s(t) for t in own) + sum(_pauses_s(own))

    def _by_cell(self, tells: Sequence[Tell]) -> dict[str, list[Tell]]:
        own: dict[str, list[Tell]] = {cell.key: [] for cell in self.cells}
        for each in tells:
            if each.cell.key in own:
                own[each.cell.key].append(each)
        return own

    def _took_s(self, tell: Tell) -> float:
        """The time of a trial; the expected one where it could not be run."""
        return self.takes_s if tell.digest is None else _lasted_s(tell.digest)

    def _open(self, own: Mapping[str, Sequence[Tell]], left_s: float) -> list[_Open]:
        """Open questions, the most valuable first. Verdicts and orders alternate.

        A verdict that takes more time than is left comes last.
        """
        rows = [
            row(cell, [t.digest for t in own[cell.key] if t.digest is not None])
            for cell in self.cells
        ]
        measured = [each for each in rows if _counts(each)]
        questions = [
            _Open(each.cell, 0, float(len(own[each.cell.key])), "it has no valid trial")
            for each in rows
            if not _counts(each) and len(own[each.cell.key]) < _VAIN
        ]
        turn = (sum(len(trials) for trials in own.values()) - len(self.cells)) % 2
        length, takes = self.trial_s, self.takes_s
        for cell, load_s in _verdicts(measured, self.goal.missed_max):
            need_s = load_s * takes / length
            rank = 1 + turn if need_s <= left_s else 3
            questions.append(_Open(cell, rank, need_s, "does it meet the limit?"))
        for cell, worth, other in _orders(measured, length):
            questions.append(_Open(cell, 2 - turn, -worth, f"does it miss more than {other}?"))
        questions.sort(key=lambda each: (each.rank, each.need, place(self.goal.seed, 1, each.cell)))
        return questions


def took_s(digests: Iterable[Digest]) -> float:
    """The time of trials, with the pauses between them; machines work at the same time."""
    total, last = 0.0, -math.inf
    for each in sorted(digests, key=lambda digest: digest.trial.started_at):
        start = each.trial.started_at.timestamp()
        end = start + _lasted_s(each)
        total += max(0.0, end - max(start, last))
        if last > -math.inf:
            total += min(_PAUSE_MAX_S, max(0.0, start - last))
        last = max(last, end)
    return total


def _lasted_s(digest: Digest) -> float:
    """The time of a trial; the measured time where its end is unknown."""
    trial = digest.trial
    if trial.ended_at is None:
        return (trial.measured_ns or 0) / 1e9
    return max(0.0, (trial.ended_at - trial.started_at).total_seconds())


def _pauses_s(tells: Iterable[Tell]) -> list[float]:
    """The times between the end of a trial and the start of the next: copies of data, servers."""
    trials = sorted((t.digest.trial for t in tells if t.digest), key=lambda t: t.started_at)
    return [
        min(_PAUSE_MAX_S, pause)
        for before, after in pairwise(trials)
        if before.ended_at is not None
        and (pause := (after.started_at - before.ended_at).total_seconds()) > 0
    ]


def _next(cell: Cell, trials: Sequence[Tell], length: float, why: str) -> Ask:
    """The next trial of a cell; one that was interrupted is run again."""
    block = max((t.block for t in trials), default=0)
    last = [t for t in trials if t.block == block]
    again = last and all(cut_short(t) for t in last)
    attempt = 1 + max(t.attempt for t in last) if again else 1
    block = block if again else block + 1
    return Ask(cell, block, {"duration": f"{length:g}s"}, why, attempt)


def _counts(of: Row) -> bool:
    return of.sound and of.missed is not None


def _seconds(of: Row) -> float:
    return sum(digest.summary.seconds for digest in of.trials)


def _verdicts(rows: Iterable[Row], missed_max: float) -> Iterable[tuple[Cell, float]]:
    """Cells whose verdict is unknown, and the seconds of load that would decide it."""
    for each in rows:
        if crossing.verdict(each, missed_max) == "unknown":
            needed = crossing.needed_s(each, missed_max)
            yield each.cell, math.inf if needed is None else max(1.0, needed - _seconds(each))


def _orders(rows: Sequence[Row], length: float) -> Iterable[tuple[Cell, float, Cell]]:
    """Cells whose order to another one is open, the worth of a trial of each, and the other cell.

    The worth is the expected decrease of pairs in the wrong order. The probability that a pair is
    follows from the difference of its shares in standard errors; each cell has its part of it by
    its part of the variance, which a trial decreases in proportion to the added time.
    """
    if len(rows) < 2:
        return
    shares = np.array([each.missed.value if each.missed else 0.0 for each in rows])
    spread = np.array([_variance(each) for each in rows])
    both = spread[:, None] + spread[None, :]
    apart = abs(shares[:, None] - shares[None, :]) / np.sqrt(both)
    wrong = np.vectorize(normal_cdf)(-apart)
    np.fill_diagonal(wrong, 0.0)
    wrong[wrong <= _WRONG] = 0.0
    own = wrong * spread[:, None] / both
    for n, each in enumerate(rows):
        if own[n].any():
            worth = float(own[n].sum()) * length / (length + _seconds(each))
            yield each.cell, worth, rows[int(own[n].argmax())].cell


def _variance(of: Row) -> float:
    """Of the missed share, with one hit and one miss added, so that it is never 0."""
    due = of.counts.due
    phi = sum(digest.summary.phi * digest.summary.counts.due for digest in of.trials) / due
    share = (of.counts.missed + 1) / (due + 2)
    return phi * share * (1 - share) / due
