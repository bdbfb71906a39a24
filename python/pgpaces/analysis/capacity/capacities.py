"""The capacities of the cells of a search, which of them is the highest, and a load in other units.

Pure: searches of cells in, values out. None: unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.analysis import volume
from pgpaces.analysis.capacity.answer import Capacity, Equivalents, safely_rounded
from pgpaces.analysis.capacity.search import CellSearch
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.goal import Limit
from pgpaces.spec.costs import HOURS_A_MONTH, MonthlyCost, machines_of

_DAY_S, _MONTH_S = 86_400, HOURS_A_MONTH * 3600
_MILLION = 1e6
# Trials between these multiples of the load describe it; others differ too much.
_NEAR = (0.75, 1.1)


class Highest(Struct, frozen=True):
    """The cell with the largest capacity, of several.

    certain: `passes` is no less than `fails` of each other cell. rivals: the keys of cells that may
    pass at as high a load.
    """

    cell: str
    certain: bool
    rivals: tuple[str, ...]


class Capacities(Struct, frozen=True):
    """The answer: the capacity of each cell, and the largest; None for a single cell."""

    cells: tuple[Capacity, ...]
    most: Highest | None


def capacities(searches: Sequence[CellSearch], limits: Mapping[str, Limit | None]) -> Capacities:
    """limits: the resource that was the limit of each cell, by its key."""
    cells = tuple(_of_cell(each, limits.get(each.cell.key)) for each in searches)
    return Capacities(cells, highest(cells))


def highest(cells: Sequence[Capacity]) -> Highest | None:
    """The one with the highest `passes`. None with fewer than two, or none."""

    def rank(cell: Capacity) -> tuple[float, float]:
        return cell.passes or 0.0, cell.estimate.value if cell.estimate else 0.0

    best = max(cells, key=rank, default=None)
    if best is None or len(cells) < 2 or best.passes is None:
        return None
    others = [each for each in cells if each is not best]
    rivals = tuple(o.cell for o in others if o.fails is None or o.fails > best.passes)
    return Highest(best.cell, not rivals, rivals)


def _of_cell(search: CellSearch, limit: Limit | None) -> Capacity:
    capacity, whole = search.capacity, search.goal.whole
    passes = safely_rounded(capacity.passes, whole, -1)
    return replace(
        capacity,
        cell=search.cell.key,
        levels=dict(search.cell.levels),
        passes=passes,
        fails=safely_rounded(capacity.fails, whole, 1),
        worth=None if passes is None else _equivalents(passes, search),
        limit=limit,
        ended=search.ended,
        runs=tuple(digest.trial.id for digest in search.digests),
    )


def _equivalents(load: float, search: CellSearch) -> Equivalents | None:
    """A load in other units; None if no trial is valid."""
    # The valid trials at about this load; where there are none, all valid ones.
    valid = [trial for trial in search.trials if trial[1].valid]
    near = [t for t in valid if _NEAR[0] * load <= t[1].load <= _NEAR[1] * load] or valid
    if not near:
        return None
    kind, rate = search.goal.load, load
    if kind != "rate":
        rate = load * median(point.due / point.seconds / point.load for _, point in near)
    digests = [digest for digest, _ in near]
    plan = digests[0].trial.plan
    closed = plan.model == "closed"
    thinking = bool(closed and plan.think_ns)
    own_pace = kind == "users" or (kind == "clients" and not closed)
    users = load if own_pace or thinking else None
    means = [d.summary.latency.mean.value for d in digests if d.summary.latency.mean]
    each = _queries(digests)
    # Trials on machines of several prices have no common cost.
    kinds = {machines_of(digest.trial.host.costs) for digest in digests}
    priced = kinds.pop() if len(kinds) == 1 else ()
    machines = MonthlyCost.of(priced) if priced else None
    month = machines.month if machines else None
    return Equivalents(
        load=load,
        rate=rate,
        users=users,
        response_s=median(means) / 1e3 if thinking and means else None,
        think_s=(plan.think_ns or 0) / 1e9 if thinking else None,
        queries_per_day=None if each is None else rate * each * _DAY_S,
        currency=machines.currency if machines else "",
        month=month,
        year=machines.year if machines else None,
        per_million=None if month is None else month / (rate * _MONTH_S / _MILLION),
        per_user=None if month is None or not users else month / users,
    )


def _queries(digests: Sequence[Digest]) -> float | None:
    """Queries per transaction, the median; None if that of a trial is unknown."""
    volumes = [(d.summary.throughput.value, volume.of(d.trial, d.summary)) for d in digests]
    each = [of.per_s.value / rate for rate, of in volumes if of is not None and rate > 0]
    return median(each) if each and len(each) == len(volumes) else None
