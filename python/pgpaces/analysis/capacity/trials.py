"""The trials of a search for the capacity: from digests to points, from the next load to a trial.

Pure. A trial's load and its role are levels of its cell, in addition to those of the searched cell.
Several cells are searched in turn, so that a drift affects all of them alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.analysis import sequential
from pgpaces.analysis.capacity import answer, words
from pgpaces.analysis.capacity.answer import Capacity
from pgpaces.analysis.capacity.center import bracket, clearly_misses, unless_doubtful
from pgpaces.analysis.capacity.goal import CapacityGoal, Kind, NextLoad, Role, TrialPoint, of_role
from pgpaces.analysis.capacity.search import COARSE_S, QUICK_S, plan, step
from pgpaces.analysis.digest import Digest, windows
from pgpaces.analysis.sequential import Tell, cut_short, role
from pgpaces.analysis.summary import Summary
from pgpaces.core.findings import Finding
from pgpaces.core.messages import message
from pgpaces.spec.design import ROLE, Ask, Cell
from pgpaces.spec.result import Trial

PREFLIGHT = sequential.SATURATING
ROLES: Mapping[Role, str] = {"coarse": "short", "fine": "long", "soak": "soak"}
_OF_ROLE = {name: kind for kind, name in ROLES.items()}
# Clients without a pause that saturate a usual server.
SATURATING = 16
_PREFLIGHT_S, _PREFLIGHT_QUICK_S = 10, 5
# A search that begins this factor below the saturated rate doubles once or twice.
_BELOW = 4.0
# A latency that was still settling does not make a trial invalid here: near its capacity a server
# never settles, and to count steady trials alone is to count those that met the goal.
_UNSETTLED = {"never-settled"}
_LATE = {"generator-late-decides", "generator-stood-still-decides"}
_GENERATOR = _LATE | {
    "generator-limited", "generator-late-users", "generator-lost", "generator-began-late",
    "clock-apart-decides",
}  # fmt: skip
# The transactions a second from which on a long trial takes a minute.
_RATE_USUAL = 50.0
# Options that the saturating trial resets: with them it would have pauses. A think time of 0 makes
# it a closed load where the workload has a rate of its own.
_PACES = ("rate", "rate_per_client", "pace", "users", "start_every", "shape")


class SearchSpec(Struct, frozen=True):
    """A search for the capacity of each cell.

    each: transactions a second of a load of 1; with it a saturating trial comes first and sets the
    first load. None: the goal sets it. clients: of the saturating trial, where a cell has no number
    of clients.
    """

    goal: CapacityGoal
    each: float | None = None
    clients: int = SATURATING


class CellSearch(Struct, frozen=True):
    """The search of one cell so far: its goal and its answer.

    digests: of all trials, in the order in which they ran.
    """

    cell: Cell
    goal: CapacityGoal
    capacity: Capacity
    digests: tuple[Digest, ...]
    ended: bool

    @property
    def trials(self) -> tuple[tuple[Digest, TrialPoint], ...]:
        pairs = ((digest, point(Tell.of(digest), self.goal.load)) for digest in self.digests)
        return tuple((digest, unless_doubtful(each, self.goal)) for digest, each in pairs if each)

    @property
    def missing(self) -> tuple[tuple[Digest, TrialPoint], ...]:
        """The long trials that missed the goal, the worst first; without any, one short trial.

        That at the lowest load that clearly missed: far above, every resource is exhausted.
        """
        allowed = self.goal.missed_max
        trials = [(d, p) for d, p in self.trials if p.valid and p.share > allowed]
        long = [(digest, point) for digest, point in trials if point.role == "fine"]
        if long:
            return tuple(sorted(long, key=lambda pair: -pair[1].share))
        clear = [pair for pair in trials if clearly_misses(pair[1], allowed)]
        return tuple(sorted(clear, key=lambda pair: pair[1].load)[:1])


def level(load: Kind, value: float) -> str:
    """A load as a level: `171/s`, or an integer."""
    return f"{value:.6g}/s" if load == "rate" else f"{value:.0f}"


def label(cell: Cell) -> str | None:
    """A trial of a search in a few words: `work_mem=4MB, 171/s`; None for any other trial."""
    kind = role(cell)
    if kind != PREFLIGHT and kind not in _OF_ROLE:
        return None
    *pairs, _ = cell.levels
    if kind == PREFLIGHT:
        at = "clients without a pause"
    else:
        name, value = pairs.pop()
        at = value if name == "rate" else f"{value} {name}"
    at = f"soak at {at}" if kind == ROLES["soak"] else at
    return ", ".join([*(f"{name}={value}" for name, value in pairs), at])


def point(tell: Tell, load: Kind) -> TrialPoint | None:
    """A trial as a point; None for one that was interrupted, or whose load is no number."""
    levels = dict(tell.cell.levels)
    kind = _OF_ROLE.get(levels.get(ROLE, ""))
    value = _number(levels.get(load, ""))
    if kind is None or value is None:
        return None
    if cut_short(tell):
        return None
    digest = tell.digest
    if digest is None:
        return TrialPoint(value, kind, 0, 0, 1.0, invalid=tell.error or message("trial-not-run"))
    missed, due = whole(digest)
    lateness = digest.summary.generator.excused or 0
    return TrialPoint(
        load=value,
        role=kind,
        due=due,
        missed=missed,
        seconds=max(1.0, (digest.trial.measured_ns or 0) / 1e9),
        windows=windows(digest.series, "missed"),
        invalid="; ".join(objections(digest.trial, digest.summary)),
        generator=not _GENERATOR.isdisjoint(each.name for each in invalid(digest.summary)),
        seed=digest.trial.plan.seed,
        excused=min(lateness, missed),
    )


def objections(trial: Trial, summary: Summary) -> tuple[str, ...]:
    """Why a trial is no bound; empty where it is one.

    A generator that was only late is no objection: the misses it may explain are known, and a load
    that passed in spite of it passes.
    """
    if trial.state != "finished":
        return (trial.error or message("trial-unfinished"),)
    return tuple(map(str, invalid(summary)))


def invalid(summary: Summary) -> list[Finding]:
    """The findings that keep a finished trial from being a bound."""
    invalid = [each for each in summary.validity.findings if each.severity == "invalid"]
    allowed = _UNSETTLED if summary.generator.excused is None else _UNSETTLED | _LATE
    return [each for each in invalid if each.name not in allowed]


def whole(digest: Digest) -> tuple[int, int]:
    """Missed and due transactions of a trial after its configured warm-up.

    Including the seconds that are cut: these differ from the rest, and near its capacity they
    are where a server missed.
    """
    series = [bucket.counts for bucket in digest.series] or [digest.summary.counts]
    return sum(counts.missed for counts in series), sum(counts.due for counts in series)


def _number(text: str) -> float | None:
    try:
        value = float(text.removesuffix("/s"))
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None


def cell_search(spec: SearchSpec, cell: Cell, tells: Sequence[Tell]) -> CellSearch:
    goal, points = _points(spec, tells)
    result = step(points, goal)
    capacity = result if isinstance(result, Capacity) else answer.of(points, goal)
    digests = tuple(t.digest for t in tells if t.digest is not None)
    return CellSearch(cell, goal, capacity, digests, ended=result is capacity)


def ask(spec: SearchSpec, cell: Cell, tells: Sequence[Tell]) -> Ask | None:
    """The next trial of a cell; None where the search has ended. tells: its trials so far."""
    block = 1 + max((t.block for t in tells), default=0)
    if spec.each is not None and not _preflights(tells):
        options = dict.fromkeys(_PACES) | {
            "clients": dict(cell.levels).get("clients", str(spec.clients)),
            "think_time": "0s",
            "duration": f"{_preflight_s(spec.goal)}s",
            "policy": "run",
        }
        why = message("load-saturating")
        return Ask(Cell((*cell.levels, (ROLE, PREFLIGHT))), block, options, why)
    goal, points = _points(spec, tells)
    next_load = step(points, goal)
    if not isinstance(next_load, NextLoad):
        return None
    why = next_load.why
    if next_load.role == "fine" and of_role(points, "fine"):
        why = f"{standing(points, goal)}; {why}"
    trial = _at(cell, goal, next_load.load, name=ROLES[next_load.role])
    return Ask(trial, block, {"duration": f"{next_load.seconds:g}s"}, why)


def first(spec: SearchSpec, cell: Cell) -> Ask:
    """A trial at the first load of the goal, to check that such trials are possible."""
    return Ask(_at(cell, spec.goal, spec.goal.start, name="short"), 1, {"duration": "20s"})


def expected(spec: SearchSpec, cell: Cell) -> tuple[list[Ask], list[Ask]]:
    """The fewest and the most trials of a search on a server that is not slow, with the soak."""
    goal, rate = spec.goal, max(_RATE_USUAL, spec.goal.start * (spec.each or 1.0))
    load = goal.start
    if spec.each is not None:
        load = min(max(rate / spec.each, goal.lowest), goal.highest)
        goal = _beginning(spec, rate)
    trials = plan(goal, load, rate)
    before: list[float] = [] if spec.each is None else [_preflight_s(goal)]
    before += [QUICK_S if goal.quick else COARSE_S] * trials.coarse
    after = [goal.soak_s] if trials.soak_s else []
    at = first(spec, cell).cell

    def of(fine: int) -> list[Ask]:
        # Each with its own role: a preview identifies trials by their cells.
        return [
            Ask(Cell((*at.levels, (ROLE, f"{n}"))), n, {"duration": f"{seconds:g}s"})
            for n, seconds in enumerate([*before, *[trials.fine_s] * fine, *after], 1)
        ]

    return of(trials.fine_least), of(trials.fine_most)


def _at(cell: Cell, goal: CapacityGoal, load: float, *, name: str) -> Cell:
    return Cell((*cell.levels, (goal.load, level(goal.load, load)), (ROLE, name)))


def _preflight_s(goal: CapacityGoal) -> int:
    return _PREFLIGHT_QUICK_S if goal.quick else _PREFLIGHT_S


def _preflights(tells: Sequence[Tell]) -> list[Tell]:
    """The saturating trials that were not cut short: what is left of one is no rate."""
    return [tell for tell in tells if role(tell.cell) == PREFLIGHT and not cut_short(tell)]


def _points(spec: SearchSpec, tells: Sequence[Tell]) -> tuple[CapacityGoal, list[TrialPoint]]:
    """The goal, with the first load that the saturating trial suggests, and the points."""
    runs = [t.digest for t in _preflights(tells) if t.digest is not None]
    rate = runs[0].summary.throughput.value if runs else 0.0
    goal = _beginning(spec, rate) if rate > 0 else spec.goal
    return goal, [each for t in tells if (each := point(t, goal.load)) is not None]


def _beginning(spec: SearchSpec, rate: float) -> CapacityGoal:
    """The goal with a first load below the throughput of the saturating trial."""
    goal, each = spec.goal, spec.each
    if each is None:
        return goal
    start = rate / each / _BELOW
    start = float(max(1, round(start))) if goal.whole else float(f"{start:.2g}")
    return replace(goal, start=min(max(start, goal.lowest), goal.highest))


def standing(points: Sequence[TrialPoint], goal: CapacityGoal) -> str:
    passes, fails = words.ends(answer.of(points, goal))
    parts = [
        *([message("loads-pass", load=passes)] if passes else ()),
        *([message("loads-fail", load=fails)] if fails else ()),
    ]
    if not parts:
        low, high = (end and words.load(end, goal) for end in bracket(points, goal))
        parts += [message("load-passed-short", load=low)] if low else []
        parts += [message("load-failed-short", load=high)] if high else []
    return ", ".join(parts) or message("loads-unknown")
