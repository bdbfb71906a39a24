"""Runs that belong to no experiment, arranged as one: the factors are what differs between them.

Pure: digests in, digests with a place, factors and cells out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from pgpaces.analysis.crossing import quantity
from pgpaces.analysis.digest import Digest
from pgpaces.spec.design import Cell, Design, Factor
from pgpaces.spec.result import Place, Trial

_PLAN = ("policy", "protocol", "max_tries", "connect_each")
_UNITS = (("h", 3.6e12), ("min", 6e10), ("s", 1e9), ("ms", 1e6), ("us", 1e3))
# The level of a run that lacks an option of others.
_ABSENT = "not set"


def levels_of(trial: Trial) -> dict[str, str]:
    plan, load, setup = trial.plan, trial.plan.load, trial.setup
    levels = {
        "workload": trial.workload.name,
        "scale": str(trial.workload.scale),
        "scripts": " ".join(f"{script.name}@{script.weight}" for script in trial.workload.scripts),
        "load": load.model,
        "server": trial.server.version,
        "machine": trial.host.hostname or "unknown",
    }
    levels["users" if load.model == "paced" else "clients"] = str(setup.clients)
    levels |= {name: str(getattr(plan, name)) for name in _PLAN}
    if load.rate:
        levels |= {"pace" if load.model == "paced" else "rate": f"{load.rate:g}/s"}
        levels["arrivals"] = load.arrivals
    durations = {"latency_limit": plan.limit_ns, "duration": plan.duration_ns}
    if load.think_ns:
        durations["think_time"] = load.think_ns
    for name, ns in durations.items():
        if ns is not None:
            unit, size = next((pair for pair in _UNITS if ns >= pair[1]), _UNITS[-1])
            levels[name] = f"{ns / size:g}{unit}"
    pool, own = trial.server.pool, dict.fromkeys(component.node for component in setup.own)
    levels |= {"standbys": str(trial.server.standbys), "pool": pool.pooler or "none"}
    levels["node"] = " ".join(own) or "primary"
    if pool:
        levels |= {"pool_mode": pool.mode, "pool_size": str(pool.size)}
    for each in setup.components:
        if each.of:
            levels[f"background.{each.of}"] = (
                f"{setup.background[each.of].name}, {each.load} on {each.node}"
            )
    levels |= {f"set.{name}": value for name, value in plan.settings}
    return levels


def _ordered(levels: Sequence[str]) -> tuple[str, ...]:
    unique = list(dict.fromkeys(levels))
    values = [quantity(level) for level in unique]
    if None in values:
        return tuple(unique)
    return tuple(sorted(unique, key=lambda level: quantity(level) or 0.0))


def _same(runs: Sequence[Mapping[str, str]], one: str, other: str) -> bool:
    """Whether each level of one factor goes with one level of the other in all runs."""
    pairs = {(levels.get(one, ""), levels.get(other, "")) for levels in runs}
    return len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})


def place_runs(
    digests: Sequence[Digest], name: str
) -> tuple[tuple[Factor, ...], tuple[Digest, ...]]:
    """The factors by which runs differ, and the runs with their places; name: of the experiment.

    Runs that do not differ are trials of one cell.
    """
    runs = [levels_of(digest.trial) for digest in digests]
    factors: list[Factor] = []
    for factor in dict.fromkeys(name for levels in runs for name in levels):
        values = [levels.get(factor, _ABSENT) for levels in runs]
        if len(set(values)) > 1 and not any(_same(runs, factor, other.name) for other in factors):
            factors.append(Factor(factor, _ordered(values)))
    blocks: dict[str, int] = {}
    placed = []
    for digest, levels in zip(digests, runs, strict=True):
        cell = Cell(tuple((factor.name, levels.get(factor.name, _ABSENT)) for factor in factors))
        blocks[cell.key] = blocks.get(cell.key, 0) + 1
        where = Place(name, cell.key, dict(cell.levels), blocks[cell.key])
        placed.append(replace(digest, trial=replace(digest.trial, place=where)))
    return tuple(factors), tuple(placed)


def as_chosen(design: Design, digests: Sequence[Digest]) -> Design:
    """The design with the cells of the trials that a strategy chose, in place of its own."""
    chosen = cells(digests)
    levels: dict[str, list[str]] = {}
    for cell in chosen:
        for name, level in cell.levels:
            levels.setdefault(name, []).append(level)
    order = {name: _ordered(values) for name, values in levels.items()}

    def place(cell: Cell) -> tuple[int, ...]:
        own = dict(cell.levels)
        return tuple(all_.index(own[name]) if name in own else -1 for name, all_ in order.items())

    extra = tuple(dict(cell.levels) for cell in sorted(chosen, key=place))
    return replace(design, factors=(), exclude=(), extra=extra)


def cells(digests: Sequence[Digest], order: Callable[[Cell], Any] | None = None) -> list[Cell]:
    places = (digest.trial.place for digest in digests)
    unique = {place.cell: Cell(tuple(place.levels.items())) for place in places if place}
    return sorted(unique.values(), key=order) if order else list(unique.values())
