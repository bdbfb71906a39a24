"""A time budget over the cells of a design: which trial is worth its time. Pure.

A first pass runs every cell once, in trials short enough that most of the budget is left. What is
left goes where a trial decides, in turn: to the cell of which it is not known whether it holds, and
which takes least to know it; to the cell that is most in the way of an order of all cells by what
they missed. The k-th trial of a cell is of block k, so all cells meet the same arrivals in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from pgpaces.answers import crossing
from pgpaces.answers.cells import Row, row
from pgpaces.answers.digest import Digest
from pgpaces.answers.distributions import normal_cdf
from pgpaces.answers.sequential import Ask, Tell, last_attempts
from pgpaces.design import Cell, place
from pgpaces.errors import PlanError

# Of the budget that the first pass takes, if trials may be as long as that.
FIRST = 0.4
# Shorter trials say next to nothing, and are spent on connecting.
SHORTEST_S = 5
# What a trial takes about beside its load: connecting, looking at the data, storing its answer.
_AROUND_S = 1.0
# Where there was a longer pause between two trials, nobody worked on the experiment.
_PAUSE_MAX_S = 60.0
# So many trials of a cell, none of them valid, and there is no point in another one.
_VAIN = 3
# Of a trial that somebody ended, or that a crash did.
_CUT = ("interrupted", "running")
# A pair is in order where the chance that it is not is no more than this.
_WRONG = 0.025


class TimeBudget(Struct, frozen=True):
    """A time budget: how the time of a machine is spent.

    budget_s: of each machine, from its first trial on. missed_max: up to this share missed a cell
    holds. seed: of the design. trial_s: how long a trial is, warm-up apart; None: so long that the
    first pass leaves most of the budget. warmup_s: of each trial; None: a tenth, at most 30 s.
    """

    budget_s: float
    missed_max: float
    seed: int = 1
    trial_s: float | None = None
    warmup_s: float | None = None


class _Open(Struct, frozen=True):
    """What a trial of a cell helps to know. rank, then need: what comes first."""

    cell: Cell
    rank: int
    need: float
    why: str


def trial_s(goal: TimeBudget, cells: Sequence[Cell]) -> float:
    """How long each trial of these cells is, warm-up apart, in whole seconds where it is chosen."""
    if goal.trial_s is not None:
        return goal.trial_s
    each = FIRST * goal.budget_s / len(cells) - _AROUND_S
    if goal.warmup_s is not None:
        return max(SHORTEST_S, math.floor(each - goal.warmup_s))
    return max(SHORTEST_S, math.floor(max(each / 1.1, each - 30)))


def takes_s(goal: TimeBudget, cells: Sequence[Cell]) -> float:
    """What a trial takes about, with all that is around it."""
    length = trial_s(goal, cells)
    warmup_s = min(length / 10, 30) if goal.warmup_s is None else goal.warmup_s
    return length + warmup_s + _AROUND_S


def check(goal: TimeBudget, cells: Sequence[Cell]) -> None:
    """Raises PlanError where the budget does not even allow a trial of each cell."""
    first_s = takes_s(goal, cells) * len(cells)
    if first_s <= goal.budget_s:
        return
    length = trial_s(goal, cells)
    least = "" if goal.trial_s is not None else ", the shortest there are,"
    raise PlanError(
        f"one trial of {length:g} s{least} of each of {len(cells)} cells takes"
        f" {math.ceil(first_s)} s, and within {goal.budget_s:g} s it is to be done",
        f"allow {math.ceil(first_s)} s or, to have trials left for what is not clear then,"
        f" {math.ceil(first_s / FIRST)} s; or name fewer levels"
        + ("" if goal.trial_s is None else ", or shorter trials"),
    )


def ask(goal: TimeBudget, cells: Sequence[Cell], tells: Sequence[Tell]) -> Ask | None:
    """The next trial; None where the budget has no room for it, or nothing is open."""
    every = _own(cells, tells)
    own = {key: last_attempts(trials) for key, trials in every.items()}
    length = trial_s(goal, cells)
    left_s = goal.budget_s - spent_s(goal, cells, tells)
    untried = [cell for cell in cells if not own[cell.key]]
    if untried:
        cell = min(untried, key=lambda cell: place(goal.seed, 1, cell))
        return _next(cell, (), length, "") if takes_s(goal, cells) <= left_s else None
    # Of these cells: those of other machines were run at the same time.
    pauses_s = _usual_pause_s([t for trials in every.values() for t in trials])
    for each in _open(goal, cells, own, left_s):
        trials = own[each.cell.key]
        took = [_took_s(goal, cells, one) for one in trials]
        if sum(took) / len(took) + pauses_s <= left_s:
            return _next(each.cell, trials, length, each.why)
    return None


def first(goal: TimeBudget, cells: Sequence[Cell]) -> list[Ask]:
    """The first pass."""
    ordered = sorted(cells, key=lambda cell: place(goal.seed, 1, cell))
    return [_next(cell, (), trial_s(goal, cells), "") for cell in ordered]


def expected(goal: TimeBudget, cells: Sequence[Cell]) -> list[Ask]:
    """The first pass, and as many more trials as fit: nobody knows of which cells."""
    count = int(goal.budget_s / takes_s(goal, cells))
    passes = [
        Ask(each.cell, block, each.options)
        for block in range(1, 2 + count // len(cells))
        for each in first(goal, cells)
    ]
    return passes[:count]


def left(goal: TimeBudget, cells: Sequence[Cell], tells: Sequence[Tell]) -> int:
    """How many trials the rest of the budget has room for; 0 where none is next."""
    if ask(goal, cells, tells) is None:
        return 0
    rest = goal.budget_s - spent_s(goal, cells, tells)
    return max(1, int(rest / takes_s(goal, cells)))


def given_up(goal: TimeBudget, cells: Sequence[Cell], tells: Sequence[Tell]) -> str:
    """Which cells have no trial that ended; empty where each has one."""
    own = _own(cells, tells)
    without = [cell for cell in cells if not any(_ended(t) for t in own[cell.key])]
    if not without or ask(goal, cells, tells) is not None:
        return ""
    errors = [t.error for cell in without for t in own[cell.key] if t.error]
    why = f": {errors[0]}" if errors else f": {goal.budget_s:g} s were over before"
    return f"{len(without)} of {len(cells)} cells have no trial that ended{why}"


def spent_s(goal: TimeBudget, cells: Sequence[Cell], tells: Sequence[Tell]) -> float:
    """What the trials of these cells took of the budget, with the pauses between them."""
    own = [t for found in _own(cells, tells).values() for t in found]
    return sum(_took_s(goal, cells, t) for t in own) + sum(_pauses_s(own))


def took_s(digests: Iterable[Digest]) -> float:
    """What trials took, with the pauses between them; machines work at the same time."""
    total, last = 0.0, -math.inf
    for each in sorted(digests, key=lambda digest: digest.trial.started_at):
        start = each.trial.started_at.timestamp()
        end = start + _lasted_s(each)
        total += max(0.0, end - max(start, last))
        if last > -math.inf:
            total += min(_PAUSE_MAX_S, max(0.0, start - last))
        last = max(last, end)
    return total


def _own(cells: Sequence[Cell], tells: Sequence[Tell]) -> dict[str, list[Tell]]:
    found: dict[str, list[Tell]] = {cell.key: [] for cell in cells}
    for each in tells:
        if each.cell.key in found:
            found[each.cell.key].append(each)
    return found


def _ended(tells: Tell) -> bool:
    return tells.digest is not None and tells.digest.trial.state == "finished"


def _lasted_s(digest: Digest) -> float:
    """Of one that nobody ended, what was measured."""
    trial = digest.trial
    if trial.ended_at is None:
        return (trial.measured_ns or 0) / 1e9
    return max(0.0, (trial.ended_at - trial.started_at).total_seconds())


def _took_s(goal: TimeBudget, cells: Sequence[Cell], tells: Tell) -> float:
    """What a trial took; one that could not be run is taken for as long as any."""
    return takes_s(goal, cells) if tells.digest is None else _lasted_s(tells.digest)


def _pauses_s(tells: Iterable[Tell]) -> list[float]:
    """Between the end of a trial and the start of the next one: copies of data, servers."""
    trials = sorted((t.digest.trial for t in tells if t.digest), key=lambda t: t.started_at)
    return [
        min(_PAUSE_MAX_S, pause)
        for before, after in pairwise(trials)
        if before.ended_at is not None
        and (pause := (after.started_at - before.ended_at).total_seconds()) > 0
    ]


def _usual_pause_s(tells: Sequence[Tell]) -> float:
    """The median: making data once is not usual."""
    pauses = sorted(_pauses_s(tells))
    return pauses[len(pauses) // 2] if pauses else 0.0


def _next(cell: Cell, trials: Sequence[Tell], length: float, why: str) -> Ask:
    """The next trial of a cell; one that was interrupted is run again."""
    block = max((t.block for t in trials), default=0)
    last = [t for t in trials if t.block == block]
    again = last and all(t.digest and t.digest.trial.state in _CUT for t in last)
    attempt = 1 + max(t.attempt for t in last) if again else 1
    block = block if again else block + 1
    return Ask(cell, block, {"duration": f"{length:g}s"}, why, attempt)


def _open(
    goal: TimeBudget, cells: Sequence[Cell], own: Mapping[str, Sequence[Tell]], left_s: float
) -> list[_Open]:
    """What is not known, what is worth most first. Verdicts and orders have every other trial.

    A verdict that takes more than there is left comes last.
    """
    rows = [row(cell, [t.digest for t in own[cell.key] if t.digest is not None]) for cell in cells]
    known = [each for each in rows if _counts(each)]
    found = [
        _Open(each.cell, 0, float(len(own[each.cell.key])), "it has no valid trial")
        for each in rows
        if not _counts(each) and len(own[each.cell.key]) < _VAIN
    ]
    turn = (sum(len(trials) for trials in own.values()) - len(cells)) % 2
    length, takes = trial_s(goal, cells), takes_s(goal, cells)
    for cell, load_s in _verdicts(known, goal.missed_max):
        need_s = load_s * takes / length
        rank = 1 + turn if need_s <= left_s else 3
        found.append(_Open(cell, rank, need_s, "does it hold?"))
    for cell, worth, other in _orders(known, length):
        found.append(_Open(cell, 2 - turn, -worth, f"does it miss more than {other}?"))
    found.sort(key=lambda each: (each.rank, each.need, place(goal.seed, 1, each.cell)))
    return found


def _counts(of: Row) -> bool:
    return of.sound and of.missed is not None


def _seconds(of: Row) -> float:
    return sum(digest.summary.seconds for digest in of.trials)


def _verdicts(rows: Iterable[Row], missed_max: float) -> Iterable[tuple[Cell, float]]:
    """Cells of which it is not known whether they hold, and seconds of load that would tell."""
    for each in rows:
        if crossing.verdict(each, missed_max) == "unknown":
            needed = crossing.needed_s(each, missed_max)
            yield each.cell, math.inf if needed is None else max(1.0, needed - _seconds(each))


def _orders(rows: Sequence[Row], length: float) -> Iterable[tuple[Cell, float, Cell]]:
    """Cells whose order to another one is open, what a trial of one is worth, and that other one.

    The worth is how many pairs fewer are expected in the wrong order. A pair is in it with a
    chance that the distance of its shares in standard errors gives; of that each cell has its part
    of the variance, which a trial takes down as it adds to its time.
    """
    import numpy as np

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
    """Of the share missed: with a hit and a miss more than were seen, so that it is never 0."""
    due = of.counts.due
    phi = sum(digest.summary.phi * digest.summary.counts.due for digest in of.trials) / due
    share = (of.counts.missed + 1) / (due + 2)
    return phi * share * (1 - share) / due
