"""The search for a capacity, as ask and tell: the next trial of each cell, and its results. Pure.

`next_trial` has the rules: single short trials, doubled and bisected; then longer ones, spread
around the crossing of the curve through them and the threshold (curve.py); then the soak. To resume
a search is to ask again. A trial's load and its role are levels of its cell, in addition to those
of the searched cell. Several cells are searched in turn, so that a drift affects all of them alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
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
    Role,
    TrialPoint,
    bracket,
    clearly_misses,
    expected_threshold,
    load_text,
    load_verdict,
    of_curve,
    of_role,
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
_SATURATING_S, _SATURATING_QUICK_S = 10, 5
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


def next_trial(points: Sequence[TrialPoint], goal: CapacityGoal) -> NextLoad | None:
    """The next trial; None if the search has ended. points: all trials so far, in their order."""
    if (trial := _next(points, goal)) is None:
        return None
    at = [point.valid for point in points if point.load == trial.load]
    # What made most trials at a load invalid would make the next one so.
    return trial if at.count(False) < max(_BARRED, at.count(True) + 1) else None


def _next(points: Sequence[TrialPoint], goal: CapacityGoal) -> NextLoad | None:
    highest = _highest(points, goal)
    if sum(1 for p in points if not p.valid) >= INVALID_MOST or highest < goal.lowest:
        return None
    if goal.quick and len(points) >= _QUICK_MOST:
        return None
    if (load := _next_short(points, goal, highest)) is not None:
        return NextLoad(load, _length_s(points, goal, "short", load=load), "short")
    if (long := _next_long(points, goal, highest)) is not None:
        return long
    soaks = [point for point in points if point.role == "soak"]
    passes, _ = claims(points, goal)
    if passes is None or not goal.soak_s or len(soaks) > 1 or any(each.valid for each in soaks):
        return None
    load = _offered(_SOAK_SHARE * passes, goal, math.floor)
    return NextLoad(max(load, goal.lowest), goal.soak_s, "soak")


def _highest(points: Sequence[TrialPoint], goal: CapacityGoal) -> float:
    """The highest load below those that were repeatedly invalid, with no valid trial above."""
    best = max((p.load for p in points if p.valid), default=0.0)
    tries: dict[float, int] = {}
    for point in points:
        if not point.valid and point.load > best:
            tries[point.load] = tries.get(point.load, 0) + 1
    barred = min((load for load, n in tries.items() if n >= _BARRED), default=math.inf)
    if barred > goal.highest:
        return goal.highest
    if best == 0.0:
        return _offered(barred / 2, goal, math.floor)
    near = barred / best <= _SHORT_TO or (goal.whole and barred - best <= 1)
    return max(best, best if near else _offered(math.sqrt(best * barred), goal, math.floor))


def _offered(load: float, goal: CapacityGoal, turn: Callable[[float], int] = round) -> float:
    """A load rounded to three digits, or to an integer."""
    if goal.whole:
        return float(turn(load))
    return float(f"{load:.3g}") if load > 0 else load


def _clip(load: float, goal: CapacityGoal, highest: float) -> float:
    return min(max(load, goal.lowest), highest)


def _next_short(points: Sequence[TrialPoint], goal: CapacityGoal, highest: float) -> float | None:
    """The load of the next short trial; None if they have narrowed the range enough."""
    short = of_role(points, "short")
    if len(short) >= _SHORT_MOST or of_role(points, "long"):
        return None
    passes, fails = bracket(points, goal)
    if fails is None:
        if passes is None:
            return _clip(goal.start, goal, highest)
        # Low loads first, then larger steps to get to an end.
        factor = 2 if len(short) < 4 else 4
        return None if passes >= highest else _clip(passes * factor, goal, highest)
    if passes is None:
        half = float(math.floor(fails / 2)) if goal.whole else fails / 2
        return None if fails <= goal.lowest else _clip(half, goal, highest)
    narrow = fails / passes <= _SHORT_TO or (goal.whole and fails - passes <= 1)
    if narrow or passes >= highest or fails <= goal.lowest:
        return None
    load = _offered(math.sqrt(passes * fails), goal)
    return _clip(load, goal, highest) if passes < load < fails else None


def _next_long(points: Sequence[TrialPoint], goal: CapacityGoal, highest: float) -> NextLoad | None:
    """The next long trial; None where there are enough, or the most."""
    passes, fails = bracket(points, goal)
    # Short trials all met the goal up to the highest load, or all missed it down to the lowest.
    if (passes is None) is not (fails is None):
        edge = highest if fails is None else goal.lowest
        at = [p for p in of_curve(points, goal) if p.load == edge]
        if len(at) < _EDGE:
            seconds = min(_length_s(points, goal, "long", load=edge), _EDGE_MAX_S)
            return NextLoad(edge, seconds, "long")
        if edge >= highest and load_verdict(at, goal) == "pass":
            return None
        if edge <= goal.lowest and load_verdict(at, goal) == "fail":
            return None
    n = len(of_role(points, "long"))
    # Spread around the center, which moves every four trials.
    center, spread = expected_threshold(points, goal)
    offset = _PATTERN[n % len(_PATTERN)]
    x = center + offset * spread
    if goal.whole:
        # Both neighbors of the center, not one of them four times.
        turn = {-1.0: math.floor, 1.0: math.ceil}.get(offset, round)
        load = _clip(float(turn(math.exp(x))), goal, highest)
    else:
        # Few different loads with several trials each have verdicts of their own, too.
        load = _clip(_offered(math.exp(round(x / _STEP) * _STEP), goal), goal, highest)
    seconds = _length_s(points, goal, "long", load=load)
    # A search takes 25 minutes with trials of a minute, 56 with those of a server of 7/s (214 s),
    # the soak excluded; more only if the fewest trials need it.
    least, due, _ = _LENGTHS["long"]
    budget_s = 60.0 * min(56.0, 25.0 + 31.0 * (seconds - least) / (due / 7 - least))
    room = sum(cost_s(point.seconds) for point in points) + cost_s(seconds) <= budget_s
    if n >= _FEWEST and (n >= _MOST or not room):
        return None
    if n >= _LEAST and n % 2 == 0 and narrow(points, goal):
        return None
    return NextLoad(load, seconds, "long")


def _length_s(
    points: Sequence[TrialPoint], goal: CapacityGoal, kind: Role, *, load: float
) -> float:
    """How long a trial is, from the transactions a second and load so far; before the first, 1."""
    if goal.quick:
        return _QUICK_S
    rates = sorted(p.due / p.seconds / p.load for p in points if p.valid)
    rate = rates[len(rates) // 2] if rates else 1.0
    least, due, most = _LENGTHS[kind]
    return float(math.ceil(min(max(least, due / (rate * load)), most)))


def cost_s(seconds: float) -> float:
    """How long a trial takes in all, from its seconds of measurement."""
    return seconds + min(_WARM_UP_MAX_S, _WARM_UP * seconds) + _OVERHEAD_S


class SearchSpec(Struct, frozen=True, tag_field="kind", tag="capacity"):
    """A search for the capacity of each cell.

    each: transactions a second of a load of 1; with it a saturating trial comes first and sets the
    first load. None: the goal sets it. clients: of the saturating trial, where a cell has no number
    of clients.
    """

    goal: CapacityGoal
    each: float | None = None
    clients: int = _SATURATING_CLIENTS

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

    @property
    def saturating_s(self) -> int:
        return _SATURATING_QUICK_S if self.goal.quick else _SATURATING_S


class CellSearch(Struct, frozen=True, dict=True):
    """The search of one cell: `ask` gives its next trial.

    tells: the results so far, in the order in which the trials ran.
    """

    spec: SearchSpec
    cell: Cell
    tells: tuple[Tell, ...] = ()

    def ask(self) -> Ask | None:
        """The next trial; None if the search has ended."""
        block = 1 + max((tell.block for tell in self.tells), default=0)
        if self.spec.each is not None and not self._saturating:
            options = dict.fromkeys(_PACES) | {
                "clients": dict(self.cell.levels).get("clients", str(self.spec.clients)),
                "think_time": "0s",
                "duration": f"{self.spec.saturating_s}s",
                "policy": "run",
            }
            at = Cell((*self.cell.levels, (ROLE, SATURATING)))
            return Ask(at, block, options, message("chosen-saturating"))
        if (trial := self._next) is None:
            return None
        standing = self.capacity.bounds if trial.role == "long" else ""
        number = 1 + len(of_role(self.points, trial.role))
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
    def points(self) -> list[TrialPoint]:
        return [p for t in self.tells if (p := trial_point(t, self.goal.load)) is not None]

    @cached_property
    def _next(self) -> NextLoad | None:
        return next_trial(self.points, self.goal)

    @property
    def _saturating(self) -> list[Tell]:
        """The saturating trials that were not cut short: what is left of one is no rate."""
        return [t for t in self.tells if role(t.cell) == SATURATING and not cut_short(t)]

    @property
    def ended(self) -> bool:
        return self._next is None

    @cached_property
    def capacity(self) -> Capacity:
        return judge(self.points, self.goal)

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

    @cached_property
    def trials(self) -> tuple[tuple[Digest, TrialPoint], ...]:
        """Those that ran, but for the saturating one, in their order."""
        pairs = ((tell.digest, trial_point(tell, self.goal.load)) for tell in self.tells)
        return tuple((digest, point) for digest, point in pairs if digest and point)

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


class CapacitySearch(Struct, frozen=True):
    """A search for the capacity of each cell, in turn: the one with the fewest trials is next."""

    spec: SearchSpec
    cells: tuple[Cell, ...]

    def ask(self, tells: Sequence[Tell]) -> Ask | None:
        """The next trial of the cell that has the fewest and has not ended."""
        for search in sorted(self.of_cells(tells), key=lambda each: len(each.tells)):
            if not search.hopeless and (ask := search.ask()) is not None:
                return ask
        return None

    def samples(self) -> Sequence[Ask]:
        return [self.spec.first(cell) for cell in self.cells]

    def expected(self) -> Expected:
        """The fewest and the most trials on a server that is not slow, with the soak."""
        goal = self.spec.goal
        first = [] if self.spec.each is None else [self.spec.saturating_s]
        if goal.quick:
            seconds = [*first, *[_QUICK_S] * _QUICK_MOST]
            fewest = len(seconds)
        else:
            seconds = [*first, *[_LENGTHS["short"][0]] * _SHORT_USUAL]
            seconds += [goal.soak_s] if goal.soak_s else []
            fewest = len(seconds) + _LEAST
            seconds += [_LENGTHS["long"][0]] * _MOST
        # Each with its own role: a preview identifies trials by their cells.
        asks = [
            [Ask(self.spec.at(cell, goal.start, f"{n}"), n, {"duration": f"{each:g}s"})
             for n, each in enumerate(seconds, 1)]
            for cell in self.cells
        ]  # fmt: skip
        return [ask for own in asks for ask in own[:fewest]], [ask for own in asks for ask in own]

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
        return [CellSearch(self.spec, c, tuple(last_attempts(own[c.key]))) for c in self.cells]

    def resumed(self, tells: Sequence[Tell]) -> list[Tell]:
        """The results so far when the searches are resumed: those given up begin again."""
        ended = {each.cell.key for each in self.of_cells(tells) if each.hopeless is not None}
        return [replace(t, again=True) if self._key(t) in ended else t for t in tells]

    def _key(self, tell: Tell) -> str:
        return without(tell.cell, self.spec.goal.load).key


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
