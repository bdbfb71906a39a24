"""Runs that belong to no experiment, laid out as one: what differs between them is the factors.

Pure: digests in, digests with a place, factors and cells out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from pgpaces.answers.crossing import quantity
from pgpaces.answers.digest import Digest
from pgpaces.design import Cell, Design, Factor
from pgpaces.result import Place, Trial

_PLAN = ("clients", "policy", "protocol", "arrivals", "max_tries", "connect_each")
_DURATIONS = {"latency_limit": "limit_ns", "duration": "duration_ns", "think_time": "think_ns"}
_UNITS = (("h", 3.6e12), ("min", 6e10), ("s", 1e9), ("ms", 1e6), ("us", 1e3))


def _duration(ns: float) -> str:
    unit, size = next((pair for pair in _UNITS if ns >= pair[1]), ("us", 1e3))
    return f"{ns / size:g}{unit}"


def _scripts(trial: Trial) -> str:
    return " ".join(f"{script.name}@{script.weight}" for script in trial.workload.scripts)


def levels_of(trial: Trial) -> dict[str, str]:
    """What was asked of a trial, as an experiment would name it."""
    plan = trial.plan
    found = {
        "workload": trial.workload.name,
        "scale": str(trial.workload.scale),
        "scripts": _scripts(trial),
        "load": plan.model,
        "server": trial.server.version,
        "machine": trial.host.hostname or "",
    }
    asked = dict(plan.items())
    found |= {name: str(asked[name]) for name in _PLAN if asked[name] is not None}
    if plan.rate:
        found["pace" if plan.model == "paced" else "rate"] = f"{plan.rate:g}/s"
    if plan.model == "paced" and "clients" in found:
        found["users"] = found.pop("clients")
    found |= {
        name: _duration(asked[key]) for name, key in _DURATIONS.items() if asked[key] is not None
    }
    found |= _layout(trial)
    found |= {f"set.{name}": value for name, value in plan.settings.items()}
    return found


def _layout(trial: Trial) -> dict[str, str]:
    """Standbys, pool, where the load went, and what ran beside it."""
    components, pool = trial.plan.components, trial.server.pool
    own = dict.fromkeys(component.node for component in trial.plan.own)
    found = {
        "standbys": str(trial.server.standbys),
        "pool": pool.pooler or "none",
        "node": " ".join(own) or "primary",
    }
    if pool:
        found |= {"pool_mode": pool.mode, "pool_size": str(pool.size)}
    for component in components:
        if component.of:
            load = f"{component.workload}, {component.load_text} on {component.node}"
            found[f"beside.{component.of}"] = load
    return found


def _ordered(levels: Sequence[str]) -> tuple[str, ...]:
    unique = list(dict.fromkeys(levels))
    values = [quantity(level) for level in unique]
    if None in values:
        return tuple(unique)
    return tuple(sorted(unique, key=lambda level: quantity(level) or 0.0))


def _same(asked: Sequence[Mapping[str, str]], one: str, other: str) -> bool:
    """Whether each level of one goes with one level of the other: they cannot be told apart."""
    pairs = {(levels.get(one, ""), levels.get(other, "")) for levels in asked}
    return len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})


def place(digests: Sequence[Digest], name: str) -> tuple[tuple[Factor, ...], tuple[Digest, ...]]:
    """The factors by which runs differ, and the runs with their places; name: of the whole.

    Runs that do not differ are trials of one cell.
    """
    asked = [levels_of(digest.trial) for digest in digests]
    names = list(dict.fromkeys(each for levels in asked for each in levels))
    factors: list[Factor] = []
    for factor in names:
        had = [levels.get(factor, "") for levels in asked]
        if len(set(had)) > 1 and not any(_same(asked, factor, other.name) for other in factors):
            factors.append(Factor(factor, _ordered(had)))
    blocks: dict[str, int] = {}
    placed = []
    for digest, levels in zip(digests, asked, strict=True):
        cell = Cell(tuple((factor.name, levels.get(factor.name, "")) for factor in factors))
        blocks[cell.key] = blocks.get(cell.key, 0) + 1
        where = Place(name, cell.key, dict(cell.levels), blocks[cell.key])
        placed.append(replace(digest, trial=replace(digest.trial, place=where)))
    return tuple(factors), tuple(placed)


def as_chosen(design: Design, digests: Sequence[Digest]) -> Design:
    """The design with the cells that trials were chosen of as it went, in place of its own."""
    found = cells(digests)
    every: dict[str, list[str]] = {}
    for cell in found:
        for name, level in cell.levels:
            every.setdefault(name, []).append(level)
    order = {name: _ordered(had) for name, had in every.items()}

    def place(cell: Cell) -> tuple[int, ...]:
        own = dict(cell.levels)
        return tuple(had.index(own[name]) if name in own else -1 for name, had in order.items())

    extra = tuple(dict(cell.levels) for cell in sorted(found, key=place))
    return replace(design, factors=(), exclude=(), extra=extra)


def cells(digests: Sequence[Digest], order: Callable[[Cell], Any] | None = None) -> list[Cell]:
    """The cells that trials were run of, each once."""
    found = {
        digest.trial.place.cell: Cell(tuple(digest.trial.place.levels.items()))
        for digest in digests
        if digest.trial.place
    }
    return sorted(found.values(), key=order) if order else list(found.values())
