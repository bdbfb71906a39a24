"""The answer of a search as plain values, which of several holds most, and a load in other units.

Pure: searches of cells in, values out. None: unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from msgspec import Struct

from pgpaces.analysis.capacity import words
from pgpaces.analysis.capacity.answer import Capacity, Load, Soak
from pgpaces.analysis.capacity.goal import CapacityGoal, Kind, TrialPoint
from pgpaces.analysis.capacity.trials import CellSearch
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.goal import Limit
from pgpaces.analysis.volume import volume_of
from pgpaces.spec.costs import HOURS_A_MONTH, MonthlyCost, machines_of
from pgpaces.spec.result import Estimate

# The unit of a load.
UNITS: Mapping[Kind, str] = {"rate": "1/s", "users": "users", "clients": "clients"}
_DAY_S = 86_400
_MONTH_S = HOURS_A_MONTH * 3600
_MILLION = 1e6
# Trials between these multiples of the load describe it; others differ too much.
_NEAR = (0.75, 1.1)

Trials = Sequence[tuple[Digest, TrialPoint]]


class SearchGoal(Struct, frozen=True):
    missed_max: float
    quick: bool
    lowest: float
    highest: float
    soak_s: float


class Worth(Struct, frozen=True):
    """A load in other units; None: unknown.

    rate: transactions a second at it. users: that it serves, where they have a pace or think
    between transactions: N = X (R + Z). response_s, think_s: R and Z of such a closed load.
    month, year: the cost of the machines in `currency`; per_million transactions and per_user: the
    month's.
    """

    load: float
    rate: float
    users: float | None = None
    response_s: float | None = None
    think_s: float | None = None
    queries_per_day: float | None = None
    currency: str = ""
    month: float | None = None
    year: float | None = None
    per_million: float | None = None
    per_user: float | None = None

    @property
    def per_day(self) -> float:
        return self.rate * _DAY_S


class Holds(Struct, frozen=True):
    """The capacity of one cell, in `unit`.

    cell: its key. passes, fails: rounded to three digits, to the safe side; None: unknown.
    estimate: the load at which the allowed share misses. can_hold: a load passes, and so did the
    soak. flags: names of findings. speed_spread: how much the server's speed differs from trial to
    trial, sd as a share. more: about how many more long trials would narrow it to 4%; 0: none;
    None: unknown. trials: their number; invalid: why some do not count. loads: those with long
    trials. worth: `passes` in other units. limit: the resource that was the limit where it failed.
    ended: the search is complete. runs: their ids.
    """

    cell: str
    levels: dict[str, str]
    load: Kind
    unit: str
    goal: SearchGoal
    passes: float | None
    fails: float | None
    estimate: Estimate | None
    can_hold: bool
    soak: Soak | None
    flags: tuple[str, ...]
    speed_spread: float | None
    more: int | None
    trials: int
    invalid: tuple[str, ...]
    loads: tuple[Load, ...]
    worth: Worth | None
    limit: Limit | None
    ended: bool
    runs: tuple[str, ...]


class Most(Struct, frozen=True):
    """The cell with the largest capacity, of several.

    certain: `passes` is no less than `fails` of each other cell. rivals: the keys
    of cells that may hold as much.
    """

    cell: str
    certain: bool
    rivals: tuple[str, ...]


class Capacities(Struct, frozen=True):
    """The answer: the capacity of each cell, and the largest; None for a single cell."""

    cells: tuple[Holds, ...]
    most: Most | None


def of(searches: Sequence[CellSearch], limits: Mapping[str, Limit | None]) -> Capacities:
    cells = tuple(_holds(each, limits.get(each.cell.key)) for each in searches)
    return Capacities(cells, most(cells))


def most(cells: Sequence[Holds]) -> Most | None:
    """Which holds most: the one with the highest `passes`. None with fewer than two, or none."""

    def rank(cell: Holds) -> tuple[float, float]:
        return cell.passes or 0.0, cell.estimate.value if cell.estimate else 0.0

    able = [each for each in cells if each.passes is not None]
    if len(cells) < 2 or not able:
        return None
    best = max(able, key=rank)
    highest = best.passes or 0.0
    others = [each for each in cells if each is not best]
    rivals = tuple(o.cell for o in others if o.fails is None or o.fails > highest)
    return Most(best.cell, not rivals, rivals)


def _safe(bound: float | None, goal: CapacityGoal, turn: int) -> float | None:
    return None if bound is None else words.safe(bound, goal, turn)


def _holds(search: CellSearch, limit: Limit | None) -> Holds:
    capacity, goal = search.capacity, search.capacity.goal
    return Holds(
        cell=search.cell.key,
        levels=dict(search.cell.levels),
        load=goal.load,
        unit=UNITS[goal.load],
        goal=SearchGoal(goal.missed_max, goal.quick, goal.lowest, goal.highest, goal.soak_s),
        passes=_safe(capacity.passes, goal, -1),
        fails=_safe(capacity.fails, goal, 1),
        estimate=capacity.estimate,
        can_hold=capacity.can_hold,
        soak=capacity.soak,
        flags=capacity.flags,
        speed_spread=capacity.speed_spread,
        more=capacity.more,
        trials=capacity.trials,
        invalid=capacity.invalid,
        loads=capacity.loads,
        worth=_worth(capacity, search.trials),
        limit=limit,
        ended=search.ended,
        runs=tuple(digest.trial.id for digest in search.digests),
    )


def size(capacity: Capacity) -> float | None:
    return _safe(capacity.passes, capacity.goal, -1)


def _worth(capacity: Capacity, trials: Trials) -> Worth | None:
    """A capacity in other units; None if no load passes, or no trial is valid."""
    load = size(capacity)
    if load is None:
        return None
    # The valid trials at about this load; where there are none, all valid ones.
    valid = [trial for trial in trials if trial[1].valid]
    near = [t for t in valid if _NEAR[0] * load <= t[1].load <= _NEAR[1] * load] or valid
    if not near:
        return None
    rate = load
    if capacity.goal.load != "rate":
        rate = load * median(point.due / point.seconds / point.load for _, point in near)
    plan = near[0][0].trial.plan
    think_ns, closed = plan.think_ns, plan.model == "closed"
    own_pace = capacity.goal.load == "users" or (capacity.goal.load == "clients" and not closed)
    users = load if own_pace or (closed and think_ns) else None
    means = [d.summary.latency.mean.value for d, _ in near if d.summary.latency.mean]
    each = _queries([digest for digest, _ in near])
    # Trials on machines of several prices have no common cost.
    kinds = {machines_of(digest.trial.host.costs) for digest, _ in near}
    of_kind = kinds.pop() if len(kinds) == 1 else ()
    machines = MonthlyCost.of(of_kind) if of_kind else None
    month = machines.month if machines else None
    return Worth(
        load=load,
        rate=rate,
        users=users,
        response_s=median(means) / 1e3 if closed and think_ns and means else None,
        think_s=think_ns / 1e9 if closed and think_ns else None,
        queries_per_day=None if each is None else rate * each * _DAY_S,
        currency=machines.currency if machines else "",
        month=month,
        year=machines.year if machines else None,
        per_million=None if month is None else month / (rate * _MONTH_S / _MILLION),
        per_user=None if month is None or not users else month / users,
    )


def _queries(digests: Sequence[Digest]) -> float | None:
    """Queries per transaction, the median; None where that of a trial is unknown."""
    volumes = [(d.summary.throughput.value, volume_of(d.trial, d.summary)) for d in digests]
    each = [of.per_s.value / rate for rate, of in volumes if of is not None and rate > 0]
    return median(each) if each and len(each) == len(volumes) else None
