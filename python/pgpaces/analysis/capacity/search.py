"""The search for a capacity, as ask and tell: the next trial of each cell, and its results. Pure.

`next_trial` has the rules: single short trials, doubled and bisected; then longer ones, spread
around the crossing of the curve through them and the threshold (curve.py); then the soak. To resume
a search is to ask again. A trial's load and its role are levels of its cell, in addition to those
of the searched cell. Several cells are searched in turn, so that a drift affects all of them alike.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.analysis import validity
from pgpaces.analysis.capacity.answer import (
    Capacity,
    claims,
    equivalent,
    judge,
    narrow,
    safely_rounded,
)
from pgpaces.analysis.capacity.curve import (
    ROLES,
    CapacityGoal,
    Kind,
    Points,
    Role,
    TrialPoint,
    clearly_misses,
    judge_load,
    load_text,
)
from pgpaces.analysis.digest import Digest, windows
from pgpaces.analysis.goal import Limit
from pgpaces.analysis.sequential import (
    SATURATING,
    Expected,
    Tell,
    cut_short,
    last_attempts,
    role,
    without,
)
from pgpaces.analysis.summary import Summary
from pgpaces.core.findings import Finding
from pgpaces.core.messages import message
from pgpaces.spec.design import ROLE, Ask, Cell

# The least seconds of a short and of a long trial, the transactions that it should have, and the
# most seconds that it takes for them.
_LENGTHS: Mapping[Role, tuple[float, float, float]] = {
    "short": (20.0, 200.0, 60.0),
    "long": (60.0, 1500.0, 1800.0),
}
# For connecting before a trial, and for transactions still due after it.
_OVERHEAD_S = 3.0
_WARM_UP, _WARM_UP_MAX_S = 0.1, 30.0
# The length of each trial of a quick search, and the most: with a second and a half for each, and
# the saturating trial, they take 90 seconds at most.
_QUICK_S, _QUICK_MOST = 5.0, 11
_SHORT_TO, _SHORT_MOST = 1.12, 40
# The fewest long trials when time is over.
_FEWEST = 8
# The fewest long trials before the search checks, every two trials, whether they are enough: to
# stop as soon as an interval is narrow prefers intervals that are too narrow by chance.
_LEAST, _MOST = 12, 20
_PATTERN = (-1.0, 1.0, -0.33, 0.33)
_STEP = 0.02
# Trials at the lowest or the highest load before any other, and their greatest length.
_EDGE, _EDGE_MAX_S = 4, 240.0
INVALID_MOST = 10
_SOAK_SHARE = 0.9
_BARRED = 2
# How many short trials a search usually has.
_SHORT_USUAL = 6
_CHOSEN = {"short": "chosen-short", "long": "chosen-long", "soak": "chosen-soak"}
# Clients without a pause that saturate a usual server.
_SATURATING_CLIENTS = 16
_SATURATING_S = 10
# A search that begins this factor below the saturated rate doubles once or twice.
_BELOW = 3.0
# A latency that was still settling does not make a trial invalid here: near its capacity a server
# never settles, and to count steady trials alone is to count those that met the goal.
_UNSETTLED = {"never-settled"}
_LATE = {"generator-late-decides", "generator-stood-still-decides"}
# Options that the saturating trial resets: with them it would have pauses. A think time of 0 makes
# it a closed load where the workload has a rate of its own.
_PACES = ("rate", "rate_per_client", "pace", "users", "start_every", "shape")
# A search ends after this many trials none of which measured anything.
_HOPELESS = 2


class NextLoad(Struct, frozen=True):
    load: float
    seconds: float
    role: Role


def next_trial(points: Points) -> NextLoad | None:
    """The next trial; None if the search has ended."""
    if (trial := _next(points)) is None:
        return None
    at = [point.valid for point in points.every if point.load == trial.load]
    # What made most trials at a load invalid would make the next one so.
    return trial if at.count(False) < max(_BARRED, at.count(True) + 1) else None


def _next(points: Points) -> NextLoad | None:
    goal, highest = points.goal, _highest(points)
    if sum(1 for p in points.every if not p.valid) >= INVALID_MOST or highest < goal.lowest:
        return None
    if goal.quick and sum(point.due > 0 for point in points.every) >= _QUICK_MOST:
        return None
    if (load := _next_short(points, highest)) is not None:
        load = min(max(load, goal.lowest), highest)
        return NextLoad(load, _length_s(points, "short", load), "short")
    if (long := _next_long(points, highest)) is not None:
        return long
    soaks = [point for point in points.every if point.role == "soak"]
    passes, _ = claims(points)
    if passes is None or not goal.soak_s or len(soaks) > 1 or any(each.valid for each in soaks):
        return None
    load = goal.offered(_SOAK_SHARE * passes, math.floor)
    return NextLoad(max(load, goal.lowest), goal.soak_s, "soak")


def _highest(points: Points) -> float:
    """The highest load below those that were repeatedly invalid, with no valid trial above."""
    goal, best = points.goal, max((p.load for p in points.every if p.valid), default=0.0)
    tries = Counter(p.load for p in points.every if not p.valid and p.load > best)
    barred = min((load for load, n in tries.items() if n >= _BARRED), default=math.inf)
    if barred > goal.highest:
        return goal.highest
    if best == 0.0:
        return goal.offered(barred / 2, math.floor)
    near = barred / best <= _SHORT_TO or (goal.whole and barred - best <= 1)
    return max(best, best if near else goal.offered(math.sqrt(best * barred), math.floor))


def _next_short(points: Points, highest: float) -> float | None:
    """The load of the next short trial; None if they have narrowed the range enough."""
    goal, short = points.goal, points.of_role("short")
    if len(short) >= _SHORT_MOST or points.of_role("long"):
        return None
    passes, fails = points.bracket
    if passes is None and fails is None:
        return goal.start
    if fails is None:
        assert passes is not None
        # Low loads first, then larger steps to get to an end.
        return None if passes >= highest else passes * (2 if len(short) < 4 else 4)
    if passes is None:
        half = float(math.floor(fails / 2)) if goal.whole else fails / 2
        return None if fails <= goal.lowest else half
    narrow = fails / passes <= _SHORT_TO or (goal.whole and fails - passes <= 1)
    if narrow or passes >= highest or fails <= goal.lowest:
        return None
    load = goal.offered(math.sqrt(passes * fails))
    return load if passes < load < fails else None


def _next_long(points: Points, highest: float) -> NextLoad | None:
    """The next long trial; None where there are enough, or the most."""
    goal, (passes, fails) = points.goal, points.bracket
    # Short trials all met the goal up to the highest load, or all missed it down to the lowest.
    if (passes is None) is not (fails is None):
        edge = highest if fails is None else goal.lowest
        at = [p for p in points.of_curve if p.load == edge]
        if len(at) < _EDGE:
            return NextLoad(edge, min(_length_s(points, "long", edge), _EDGE_MAX_S), "long")
        if edge >= highest and judge_load(at, goal).verdict == "pass":
            return None
        if edge <= goal.lowest and judge_load(at, goal).verdict == "fail":
            return None
    n = len(points.of_role("long"))
    # Spread around the center, which moves every four trials.
    center, spread = points.expected_threshold
    offset = _PATTERN[n % len(_PATTERN)]
    x = center + offset * spread
    if goal.whole:
        # Both neighbors of the center, not one of them four times.
        load = float({-1.0: math.floor, 1.0: math.ceil}.get(offset, round)(math.exp(x)))
    else:
        # Few different loads with several trials each have verdicts of their own, too.
        load = goal.offered(math.exp(round(x / _STEP) * _STEP))
    load = min(max(load, goal.lowest), highest)
    seconds = _length_s(points, "long", load)
    # A search takes 25 minutes with trials of a minute, 56 with those of a server of 7/s (214 s),
    # the soak excluded; more only if the fewest trials need it.
    least, due, _ = _LENGTHS["long"]
    budget_s = 60.0 * min(56.0, 25.0 + 31.0 * (seconds - least) / (due / 7 - least))
    room = sum(cost_s(point.seconds) for point in points.every) + cost_s(seconds) <= budget_s
    if n >= _FEWEST and (n >= _MOST or not room):
        return None
    if n >= _LEAST and n % 2 == 0 and narrow(points):
        return None
    return NextLoad(load, seconds, "long")


def _length_s(points: Points, kind: Role, load: float) -> float:
    """How long a trial is, from the transactions a second and load so far; before the first, 1."""
    if points.goal.quick:
        return _QUICK_S
    rates = sorted(p.due / p.seconds / p.load for p in points.every if p.valid)
    rate = rates[len(rates) // 2] if rates else 1.0
    least, due, most = _LENGTHS[kind]
    return float(math.ceil(min(max(least, due / (rate * load)), most)))


def cost_s(seconds: float) -> float:
    """How long a trial takes in all, from its seconds of measurement."""
    return seconds + min(_WARM_UP_MAX_S, _WARM_UP * seconds) + _OVERHEAD_S


class CellSearch(Struct, frozen=True, dict=True):
    """The search of one cell: `ask` gives its next trial.

    tells: the results so far, in the order in which the trials ran.
    """

    spec: CapacitySearch
    cell: Cell
    tells: tuple[Tell, ...] = ()

    def ask(self) -> Ask | None:
        """The next trial; None if the search has ended."""
        block = 1 + max((tell.block for tell in self.tells), default=0)
        if self.spec.each is not None and not self._saturating:
            options = dict.fromkeys(_PACES) | {
                "clients": dict(self.cell.levels).get("clients", str(self.spec.clients)),
                "think_time": "0s",
                "duration": f"{_SATURATING_S}s",
                "policy": "run",
            }
            at = Cell((*self.cell.levels, (ROLE, SATURATING)))
            return Ask(at, block, options, message("chosen-saturating"))
        if (trial := self._next) is None:
            return None
        standing = self.capacity.bounds if trial.role == "long" else ""
        number = 1 + len(self.points.of_role(trial.role))
        why = message(_CHOSEN[trial.role], number=number, standing=standing)
        at = self.spec.at(self.cell, trial.load, trial.role)
        return Ask(at, block, {"duration": f"{trial.seconds:g}s"}, why)

    @cached_property
    def goal(self) -> CapacityGoal:
        """The goal, with a first load below the throughput of the saturating trial."""
        goal, digests = self.spec.goal, (tell.digest for tell in self._saturating)
        rates = [digest.summary.throughput.value for digest in digests if digest is not None]
        if self.spec.each is None or not rates or rates[-1] <= 0:
            return goal
        start = rates[-1] / self.spec.each / _BELOW
        start = float(max(1, round(start))) if goal.whole else float(f"{start:.2g}")
        return replace(goal, start=min(max(start, goal.lowest), goal.highest))

    @cached_property
    def _told(self) -> list[tuple[Digest | None, TrialPoint]]:
        """The trials that were not cut short, but for the saturating one, in their order."""
        pairs = ((tell.digest, trial_point(tell, self.goal.load)) for tell in self.tells)
        return [(digest, point) for digest, point in pairs if point is not None]

    @cached_property
    def points(self) -> Points:
        return Points([point for _, point in self._told], self.goal)

    @cached_property
    def _next(self) -> NextLoad | None:
        return next_trial(self.points)

    @property
    def _saturating(self) -> list[Tell]:
        """The saturating trials that were not cut short: what is left of one is no rate."""
        return [t for t in self.tells if role(t.cell) == SATURATING and not cut_short(t)]

    @property
    def ended(self) -> bool:
        return self._next is None

    @cached_property
    def capacity(self) -> Capacity:
        return judge(self.points)

    def answer(self, limit: Limit | None) -> Capacity:
        """Its capacity with all that is known of the cell. limit: the resource that was it."""
        found, whole = self.capacity, self.goal.whole
        passes = safely_rounded(found.passes, whole, -1)
        load = found.estimate.value if self.goal.quick and found.estimate else passes
        return replace(
            found,
            cell=self.cell.key,
            levels=dict(self.cell.levels),
            passes=passes,
            fails=safely_rounded(found.fails, whole, 1),
            equivalents=None if load is None else equivalent(load, found.load, self.trials),
            limit=limit,
            ended=self.ended,
            runs=tuple(tell.digest.trial.id for tell in self.tells if tell.digest is not None),
        )

    @property
    def trials(self) -> list[tuple[Digest, TrialPoint]]:
        """Those that ran."""
        return [(digest, point) for digest, point in self._told if digest is not None]

    @property
    def missing(self) -> list[Digest]:
        """The long trials that missed the goal, the worst first; without any, one short trial.

        That at the lowest load that clearly missed: far above, every resource is exhausted.
        """
        allowed = self.goal.missed_max
        trials = [(d, p) for d, p in self.trials if p.valid and p.share > allowed]
        if long := [pair for pair in trials if pair[1].role == "long"]:
            return [digest for digest, _ in sorted(long, key=lambda pair: -pair[1].share)]
        clear = [pair for pair in trials if clearly_misses(pair[1], allowed)]
        return [digest for digest, _ in sorted(clear, key=lambda pair: pair[1].load)[:1]]

    @property
    def hopeless(self) -> str | None:
        """Why it ends because its first trials measured nothing; None if it goes on."""
        digests = [t.digest for t in self.tells if t.digest is not None and not cut_short(t)]
        reason = validity.no_trial(digests) if len(digests) >= _HOPELESS else None
        return None if reason is None else reason.sentence


class CapacitySearch(Struct, frozen=True, tag_field="kind", tag="capacity"):
    """A search for the capacity of each cell, in turn: the one with the fewest trials is next.

    each: transactions a second of a load of 1; with it a saturating trial comes first and sets the
    first load. None: the goal sets it. clients: of the saturating trial, where a cell has no number
    of clients.
    """

    goal: CapacityGoal
    each: float | None = None
    clients: int = _SATURATING_CLIENTS
    cells: tuple[Cell, ...] = ()

    def over(self, cells: Sequence[Cell]) -> CapacitySearch:
        return replace(self, cells=tuple(cells))

    def terms(self) -> tuple[str, ...]:
        """The goal, the range, and the soak in words."""
        goal, share = self.goal, 100 * self.goal.missed_max
        lowest, highest = (load_text(end, goal.load) for end in (goal.lowest, goal.highest))
        return (
            message("search-range", missed_percent=share, lowest=lowest, highest=highest),
            message("search-quick" if goal.quick else "search-normal"),
            *([message("search-soak", soak_s=goal.soak_s)] if goal.soak_s else ()),
        )

    def first(self, cell: Cell) -> Ask:
        """A trial at the first load of the goal, to check that such trials are possible."""
        return Ask(self.at(cell, self.goal.start, "short"), 1, {"duration": "20s"})

    def at(self, cell: Cell, load: float, name: str) -> Cell:
        kind = self.goal.load
        return Cell((*cell.levels, (kind, load_level(kind, load)), (ROLE, name)))

    def ask(self, tells: Sequence[Tell]) -> Ask | None:
        """The next trial of the cell that has the fewest and has not ended."""
        for search in sorted(self.of_cells(tells), key=lambda each: len(each.tells)):
            if not search.hopeless and (ask := search.ask()) is not None:
                return ask
        return None

    def samples(self) -> Sequence[Ask]:
        return [self.first(cell) for cell in self.cells]

    def expected(self) -> Expected:
        """The fewest and the most trials on a server that is not slow, with the soak."""
        goal = self.goal
        first = [] if self.each is None else [_SATURATING_S]
        if goal.quick:
            seconds = [*first, *[_QUICK_S] * _QUICK_MOST]
            fewest = len(seconds)
        else:
            seconds = [*first, *[_LENGTHS["short"][0]] * _SHORT_USUAL]
            seconds += [goal.soak_s] if goal.soak_s else []
            fewest = len(seconds) + _LEAST
            seconds += [_LENGTHS["long"][0]] * _MOST
        # Each with its own role: a preview identifies trials by their cells.
        every = [
            Ask(self.at(cell, goal.start, f"{n}"), n, {"duration": f"{each:g}s"})
            for cell in self.cells
            for n, each in enumerate(seconds, 1)
        ]
        return [ask for ask in every if ask.block <= fewest], every

    def left(self, tells: Sequence[Tell]) -> int:
        """0: unknown."""
        return 0

    def given_up(self, tells: Sequence[Tell]) -> str:
        """Why a search ended with a trial that could not be run, or without a measurement.

        All others have an answer, which may be "unknown".
        """
        for each in self.of_cells(tells):
            last = each.tells[-1] if each.tells else None
            refused = last is not None and last.digest is None and not last.too_much
            if each.hopeless or (refused and each.ask() is None):
                return each.hopeless or next(t.error for t in each.tells if t.digest is None)
        return ""

    def of_cells(self, tells: Sequence[Tell]) -> list[CellSearch]:
        """The search of each cell, with the last attempts of its trials."""
        own: dict[str, list[Tell]] = {cell.key: [] for cell in self.cells}
        for each in tells:
            if (key := self._key(each)) in own:
                own[key].append(each)
        return [CellSearch(self, c, tuple(last_attempts(own[c.key]))) for c in self.cells]

    def resumed(self, tells: Sequence[Tell]) -> list[Tell]:
        """The results so far when the searches are resumed: those given up begin again."""
        ended = {each.cell.key for each in self.of_cells(tells) if each.hopeless is not None}
        return [replace(t, again=True) if self._key(t) in ended else t for t in tells]

    def _key(self, tell: Tell) -> str:
        return without(tell.cell, self.goal.load).key


def load_level(kind: Kind, value: float) -> str:
    """A load as a level: `171/s`, or an integer."""
    return f"{value:.6g}/s" if kind == "rate" else f"{value:.0f}"


def trial_label(cell: Cell) -> str | None:
    """A trial of a search in a few words: `work_mem=4MB, rate=171/s`; None for any other trial."""
    if role(cell) not in (*ROLES, SATURATING):
        return None
    levels = without(cell)
    return str(levels) if levels.levels else message("trial-saturating")


def trial_point(tell: Tell, load: Kind) -> TrialPoint | None:
    """A trial as a point; None for one that was interrupted, and for the saturating one."""
    levels = dict(tell.cell.levels)
    kind = next((each for each in ROLES if each == levels.get(ROLE)), None)
    if kind is None or cut_short(tell):
        return None
    at = float(levels[load].removesuffix("/s"))
    if (digest := tell.digest) is None:
        return TrialPoint(at, kind, 0, 0, 1.0, invalid=tell.error or message("trial-not-run"))
    # All seconds after the configured warm-up, also those that are cut: these differ from the rest,
    # and near its capacity they are where a server missed.
    series = [bucket.counts for bucket in digest.series] or [digest.summary.counts]
    missed = sum(counts.missed for counts in series)
    why = "; ".join(map(str, objections(digest.summary)))
    if digest.trial.state != "finished":
        why = digest.trial.error or message("trial-unfinished")
    return TrialPoint(
        load=at,
        role=kind,
        due=sum(counts.due for counts in series),
        missed=missed,
        seconds=max(1.0, (digest.trial.measured_ns or 0) / 1e9),
        windows=windows(digest.series, "missed"),
        invalid=why,
        excused=min(digest.summary.generator.excused or 0, missed),
    )


def objections(summary: Summary) -> list[Finding]:
    """The findings that keep a finished trial from being a bound.

    A generator that was only late is no objection: the misses it may explain are known, and a load
    that passed in spite of it passes.
    """
    invalid = [each for each in summary.validity.findings if each.severity == "invalid"]
    allowed = _UNSETTLED if summary.generator.excused is None else _UNSETTLED | _LATE
    return [each for each in invalid if each.name not in allowed]
