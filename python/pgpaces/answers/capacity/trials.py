"""The trials of a search for the capacity: from digests to points, from a question to a trial.

Pure. A trial's load stands in its cell, beside the levels of the cell that is asked about; what it
was for is its role. Several cells are searched in turn, so that what drifts meets them all alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.answers.capacity import answer, words
from pgpaces.answers.capacity.answer import Capacity
from pgpaces.answers.capacity.centre import doubted
from pgpaces.answers.capacity.goal import CapacityGoal, Kind, NextLoad, Role, TrialPoint, of_role
from pgpaces.answers.capacity.plan import plan
from pgpaces.answers.capacity.search import COARSE_S, QUICK_S, step
from pgpaces.answers.digest import Digest
from pgpaces.answers.sequential import Ask, Tell, role, without
from pgpaces.answers.summary import Summary
from pgpaces.design import ROLE, Cell
from pgpaces.result import Trial

PREFLIGHT = "preflight"
ROLES: Mapping[Role, str] = {"coarse": "short", "fine": "long", "soak": "soak"}
_OF_ROLE = {name: kind for kind, name in ROLES.items()}
# So many clients without a pause show what a server can do at the most, if it can do anything.
SATURATING = 16
_PREFLIGHT_S, _PREFLIGHT_QUICK_S = 10, 5
# A search that begins so far below what was done without a pause doubles once or twice.
_BELOW = 4.0
_WINDOW_S = 10
# That the latency was still settling is no reason to leave a trial out here: near what a server
# holds it never settles, and who keeps the steady trials alone keeps those that held.
_UNSETTLED = "warm-up"
# Of a server that does so many a second a long trial takes a minute.
_RATE_USUAL = 50.0
# With one of these the saturating trial would not be without a pause. The pause of none makes it a
# closed load where the workload has a rate of its own.
_PACES = ("rate", "rate_per_client", "pace", "users", "start_every", "shape")


class Sought(Struct, frozen=True):
    """How much each cell holds.

    each: how many transactions a second a load of 1 brings; with it a saturating trial comes first
    and says where to begin. None: the search begins where the goal says. clients: of the saturating
    trial, where a cell does not say how many there are.
    """

    goal: CapacityGoal
    each: float | None = None
    clients: int = SATURATING


class Found(Struct, frozen=True):
    """What is known of one cell so far: the question as it was put, and the answer.

    digests: of all trials, in the order in which they ran.
    """

    cell: Cell
    goal: CapacityGoal
    capacity: Capacity
    digests: tuple[Digest, ...]
    ended: bool

    @property
    def trials(self) -> tuple[tuple[Digest, TrialPoint], ...]:
        """Those that the answer is made of, with what they found."""
        found = ((digest, point(Tell.of(digest), self.goal.load)) for digest in self.digests)
        return tuple((digest, doubted(each, self.goal)) for digest, each in found if each)


def level(load: Kind, value: float) -> str:
    """A load as a level: `171/s`, or a whole number."""
    return f"{value:.6g}/s" if load == "rate" else f"{value:.0f}"


def label(cell: Cell) -> str | None:
    """A trial of a search in a few words: `work_mem=4MB, 171/s`; None for one of no search."""
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


def base_of(cell: Cell, load: Kind) -> Cell:
    """The cell that a trial's capacity is asked of: without its load."""
    return without(cell, load)


def point(told: Tell, load: Kind) -> TrialPoint | None:
    """What a trial found; None for one that was interrupted, or whose load is no number."""
    levels = dict(told.cell.levels)
    kind = _OF_ROLE.get(levels.get(ROLE, ""))
    value = _number(levels.get(load, ""))
    if kind is None or value is None:
        return None
    digest = told.digest
    if digest is None:
        return TrialPoint(value, kind, 0, 0, 1.0, invalid=told.error or "it could not be run")
    if digest.trial.state in ("interrupted", "running"):
        return None
    missed, due = whole(digest)
    lateness = digest.summary.generator.excused or 0
    return TrialPoint(
        load=value,
        role=kind,
        due=due,
        missed=missed,
        seconds=max(1.0, (digest.trial.measured_ns or 0) / 1e9),
        windows=_windows(digest),
        invalid="; ".join(objections(digest.trial, digest.summary)),
        seed=digest.trial.plan.seed,
        excused=min(lateness, missed),
    )


def objections(trial: Trial, summary: Summary) -> tuple[str, ...]:
    """Why a trial is no bound; none where it is one.

    A generator that was late itself, and no more, is no reason: what it may explain is known, and
    what held in spite of it holds.
    """
    if trial.state != "finished":
        return (trial.error or "it did not come to its end",)
    known = {_UNSETTLED} if summary.generator.excused is None else {_UNSETTLED, "generator"}
    wrong = [f for f in summary.validity.findings if f.severity == "invalid"]
    return tuple(finding.text for finding in wrong if finding.source not in known)


def whole(digest: Digest) -> tuple[int, int]:
    """What missed and was due in a whole trial, behind the warm-up that was asked for.

    Not behind what MSER-5 cuts as well: that is what looks unlike the rest, and near what a server
    holds it is where it missed.
    """
    every = [bucket.counts for bucket in digest.series] or [digest.summary.counts]
    return sum(counts.missed for counts in every), sum(counts.due for counts in every)


def _number(text: str) -> float | None:
    try:
        value = float(text.removesuffix("/s"))
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None


def _windows(digest: Digest) -> tuple[tuple[int, int], ...]:
    """What missed and was due, by ten seconds."""
    used = digest.series
    if not used:
        return ()
    size = max(1, -(-_WINDOW_S // used[0].seconds))
    parts = [used[at : at + size] for at in range(0, len(used), size)]
    return tuple((sum(b.counts.missed for b in p), sum(b.counts.due for b in p)) for p in parts)


def found(sought: Sought, cell: Cell, told: Sequence[Tell]) -> Found:
    """What the trials of a cell say so far."""
    goal, points = _of(sought, told)
    said = step(points, goal)
    ended = isinstance(said, Capacity)
    capacity = said if isinstance(said, Capacity) else answer.of(points, goal)
    digests = tuple(t.digest for t in told if t.digest is not None)
    return Found(cell, goal, capacity, digests, ended)


def ask(sought: Sought, cell: Cell, told: Sequence[Tell]) -> Ask | None:
    """The next trial of a cell; None where the search has ended. told: its trials so far."""
    block = 1 + max((t.block for t in told), default=0)
    if sought.each is not None and not any(role(t.cell) == PREFLIGHT for t in told):
        return _preflight(sought, cell, block)
    goal, points = _of(sought, told)
    next_load = step(points, goal)
    if not isinstance(next_load, NextLoad):
        return None
    return Ask(
        cell=_at(cell, goal, next_load.load, ROLES[next_load.role]),
        block=block,
        given={"duration": f"{next_load.seconds:g}s"},
        why=_why(points, goal, next_load),
    )


def first(sought: Sought, cell: Cell) -> Ask:
    """A trial at the load at which the goal says that it begins, to check that there can be one."""
    return Ask(_at(cell, sought.goal, sought.goal.start, "short"), 1, {"duration": "20s"})


def expected(sought: Sought, cell: Cell) -> tuple[list[Ask], list[Ask]]:
    """The fewest and the most trials of a search on a server that is not slow, with the soak."""
    goal, rate = sought.goal, max(_RATE_USUAL, sought.goal.start * (sought.each or 1.0))
    load = goal.start
    if sought.each is not None:
        load = min(max(rate / sought.each, goal.lowest), goal.highest)
        goal = _beginning(sought, rate)
    takes = plan(goal, load, rate)
    before: list[float] = [] if sought.each is None else [_preflight_s(goal)]
    before += [QUICK_S if goal.mode == "quick" else COARSE_S] * takes.coarse
    behind = [goal.soak_s] if takes.soak_s else []
    at = first(sought, cell).cell

    def of(fine: int) -> list[Ask]:
        # Each with a role of its own: trials of a preview are told apart by their cells.
        return [
            Ask(Cell((*at.levels, (ROLE, f"{n}"))), n, {"duration": f"{seconds:g}s"})
            for n, seconds in enumerate([*before, *[takes.fine_s] * fine, *behind], 1)
        ]

    return of(takes.fine_least), of(takes.fine_most)


def _at(cell: Cell, goal: CapacityGoal, load: float, name: str) -> Cell:
    return Cell((*cell.levels, (goal.load, level(goal.load, load)), (ROLE, name)))


def _preflight_s(goal: CapacityGoal) -> int:
    return _PREFLIGHT_QUICK_S if goal.mode == "quick" else _PREFLIGHT_S


def _preflight(sought: Sought, cell: Cell, block: int) -> Ask:
    given: dict[str, str | None] = dict.fromkeys(_PACES)
    clients = dict(cell.levels).get("clients", str(sought.clients))
    given |= {
        "clients": clients,
        "think_time": "0s",
        "duration": f"{_preflight_s(sought.goal)}s",
        "policy": "run",
    }
    why = "to know where to begin"
    return Ask(Cell((*cell.levels, (ROLE, PREFLIGHT))), block, given, why)


def _of(sought: Sought, told: Sequence[Tell]) -> tuple[CapacityGoal, list[TrialPoint]]:
    goal = _begun(sought, told)
    found = (point(t, goal.load) for t in told)
    return goal, [each for each in found if each is not None]


def _begun(sought: Sought, told: Sequence[Tell]) -> CapacityGoal:
    """The goal with the beginning that the saturating trial suggests."""
    runs = [t.digest for t in told if role(t.cell) == PREFLIGHT and t.digest is not None]
    rate = runs[0].summary.rate.value if runs else 0.0
    return _beginning(sought, rate) if rate > 0 else sought.goal


def _beginning(sought: Sought, rate: float) -> CapacityGoal:
    """The goal with a beginning below what was done without a pause."""
    goal, each = sought.goal, sought.each
    if each is None:
        return goal
    start = rate / each / _BELOW
    start = float(max(1, round(start))) if goal.whole else float(f"{start:.2g}")
    return replace(goal, start=min(max(start, goal.lowest), goal.highest))


def _why(points: Sequence[TrialPoint], goal: CapacityGoal, next_load: NextLoad) -> str:
    """Why this trial, and how far the bracket is closed."""
    if next_load.role != "fine" or not of_role(points, "fine"):
        return next_load.why
    return f"{standing(points, goal)}; {next_load.why}"


def standing(points: Sequence[TrialPoint], goal: CapacityGoal) -> str:
    """What is known so far in a few words."""
    so_far = answer.of(points, goal)
    said = words.standing(so_far)
    held, broke = so_far.indicative
    if not said:
        said += [] if held is None else [f"{words.load(held, goal)} held in a short trial"]
        said += [] if broke is None else [f"{words.load(broke, goal)} did not"]
    return ", ".join(said) or "nothing is known yet"
