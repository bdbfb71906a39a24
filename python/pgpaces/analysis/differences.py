"""Differences of trials: in plan, data, server, settings, machine, by plain names. Digests in.

A report lists differences other than its factors; a comparison is refused where more differs than
the compared factors. Names and values are as others wrote them. Runs that belong to no experiment
are arranged as one: the factors are what differs between them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.analysis.cells import Row
from pgpaces.analysis.crossing import quantity
from pgpaces.analysis.digest import Digest
from pgpaces.core.units import duration_text, memory_text
from pgpaces.spec import options
from pgpaces.spec.design import Cell, Design, Factor
from pgpaces.spec.result import Place, Trial

# The form of names of factors; names of other differences have blanks.
_FACTOR = re.compile(r"[a-z_]+(\.\S+)?")
HOST = ("hostname", "cpu", "cpus", "memory_bytes", "system", "kernel", "architecture", "python")
# `think` is the distribution of think times.
_RENAMED = {"think_ns": "think time"}
# Fields of the plan that differ between any two trials, or that have names of their own here.
_OWN = frozenset(("seed", "log", "load", "limits", "variables", "settings", "on_connect"))

# Second names of differences: left out where one that says the same is listed.
_SECOND = {
    "load text": ("load", "rate", "think", "think time", "arrivals", "shape"),
    **dict.fromkeys(("rate", "think", "think time"), ("load",)),
    "hash of the workload": ("workload", "scripts"),
    "scripts": ("workload",),
    "fingerprint of the data": ("scale",),
    "variable scale": ("scale",),
}

_PLAN = ("policy", "protocol", "max_tries", "connect_each")
# The level of a run that lacks an option of others.
_ABSENT = "not set"


class Difference(Struct, frozen=True):
    """A difference of trials: each value with the cells that had it.

    within: trials of one cell differ in it, so the design is not the reason.
    """

    name: str
    values: tuple[tuple[str, tuple[Row, ...]], ...]
    within: bool


class Between(Struct, frozen=True):
    """A difference between the trials of A and of B: the values of each, empty if absent."""

    name: str
    a: tuple[str, ...]
    b: tuple[str, ...]


class Varied(Struct, frozen=True):
    """A difference of some trials: each value, and how many had it."""

    name: str
    values: tuple[tuple[str, int], ...]


T = TypeVar("T", Between, Varied)


def of_cells(rows: Sequence[Row], factors: Sequence[Factor]) -> tuple[Difference, ...]:
    names = {factor.name for factor in factors}
    hidden = names | {name.partition(".")[2] for name in names}
    values: dict[str, dict[str, dict[str, Row]]] = {}
    for row in rows:
        for name, value in (pair for digest in row.every for pair in _flat(digest.trial)):
            values.setdefault(name, {}).setdefault(value, {})[row.cell.key] = row
    result = []
    for name, per_value in values.items():
        if len(per_value) < 2 or name.removeprefix("setting ") in hidden:
            continue
        cells = [key for by_cell in per_value.values() for key in by_cell]
        pairs = tuple((value, tuple(by_cell.values())) for value, by_cell in per_value.items())
        result.append(Difference(name, pairs, len(cells) > len(set(cells))))
    return tuple(sorted(result, key=lambda each: not each.within))


def between(
    a: Iterable[Digest], b: Iterable[Digest], compared: Iterable[str] = ()
) -> tuple[Between, ...]:
    """The differences between A and B, other than the compared factors, by their names.

    Consequences of a factor belong to it: other clients are another load, another server has other
    settings. Empty: A and B have no other known difference.
    """
    factors = tuple(compared)
    of_a, of_b = _counts(a), _counts(b)
    if not of_a or not of_b:  # no trial, nothing to differ in
        return ()
    pairs = ((name, of_a.get(name, {}), of_b.get(name, {})) for name in {**of_a, **of_b})
    return _once(
        Between(name, tuple(own), tuple(other))
        for name, own, other in pairs
        if own.keys() != other.keys() and not _follows(factors, name)
    )


def of_setup(a: Digest, b: Digest) -> tuple[Between, ...]:
    """The differences between two trials that no option names: server, data, machine, version."""
    names = {name for digest in (a, b) for name, _ in _setup(digest.trial)}
    return tuple(each for each in between([a], [b]) if each.name in names)


def among(digests: Sequence[Digest], compared: Iterable[str] = ()) -> tuple[Varied, ...]:
    """The differences of all of them, other than those of factors, as above."""
    factors = tuple(compared)
    return _once(
        Varied(name, tuple(counts.items()))
        for name, counts in _counts(digests).items()
        if (len(counts) > 1 or sum(counts.values()) < len(digests)) and not _follows(factors, name)
    )


def _once(differences: Iterable[T]) -> tuple[T, ...]:
    """The differences without second names of others among them."""
    every = tuple(differences)
    names = {each.name for each in every}
    return tuple(each for each in every if names.isdisjoint(_SECOND.get(each.name, ())))


def _counts(digests: Iterable[Digest]) -> dict[str, dict[str, int]]:
    """How many trials had each value, by the name of a difference and the value."""
    values: dict[str, dict[str, int]] = {}
    for digest in digests:
        for name, value in dict.fromkeys((*_flat(digest.trial), *_parts(digest.trial))):
            counts = values.setdefault(name, {})
            counts[value] = counts.get(value, 0) + 1
    return values


def check_factor(name: str) -> None:
    """Raises PlanError, with the nearest name, for a name like that of a factor that is none."""
    exists = options.follows(name.partition(".")[0]) or name in (*options.DIFFERENCES, "pgpaces")
    if _FACTOR.fullmatch(name) and not exists:
        options.check_name(name)


def _follows(factors: Sequence[str], name: str) -> bool:
    """Whether a difference is one of these factors, or a consequence of one."""
    for factor in factors:
        family, _, own = factor.partition(".")
        if own and family in ("set", "server_set", "define"):
            if name in (f"setting {own}", f"variable {own}"):
                return True
            continue
        starts = options.follows(family)
        if name in (family.replace("_", " "), factor) or any(
            name == start or (start[-1] == " " and name.startswith(start)) for start in starts
        ):
            return True
    return False


def _flat(trial: Trial) -> Iterator[tuple[str, str]]:
    plan, load, setup = trial.plan, trial.plan.load, trial.setup
    values = {n: getattr(plan, n) for n in plan.__struct_fields__ if n not in _OWN}
    values |= {"warmup_ns": plan.warmup, "grace_ns": plan.grace, "load_text": trial.load_text}
    values |= {"load": load.model, "rate": load.rate, "arrivals": load.arrivals}
    values |= {"shape": load.shape, "think": load.think, "think_ns": load.think_ns}
    values |= {"clients": setup.clients, "threads": setup.threads, "poll": setup.poll}
    for name, value in values.items():
        called = _RENAMED.get(name, name.removesuffix("_ns").replace("_", " "))
        yield called, shown(name, value)
    yield "workload", trial.workload.name
    yield "scale", str(trial.workload.scale)
    yield from _setup(trial)


def _setup(trial: Trial) -> Iterator[tuple[str, str]]:
    """What no option names: server, data, machine, and version."""
    yield "hash of the workload", trial.workload.hash[:12]
    if (prepared := trial.workload.prepared) is not None:
        yield "fingerprint of the data", prepared.fingerprint
    yield "PostgreSQL", trial.server.version_text
    if trial.server.build:
        yield "build of PostgreSQL", trial.server.build
    for name, value in trial.server.settings.items():
        yield f"setting {name}", value
    for name in HOST:
        if (fact := getattr(trial.host, name)) is not None:
            yield f"machine: {name.removesuffix('_bytes')}", shown(name, fact)
    yield "pgpaces", trial.version


def _parts(trial: Trial) -> Iterator[tuple[str, str]]:
    setup, workload = trial.setup, trial.workload
    if "data_seed" in trial.spec:
        yield "data seed", str(trial.spec["data_seed"])
    yield "scripts", ", ".join(f"{each.name}@{each.weight}" for each in workload.scripts)
    limits = (f"{name} {duration_text(ns)}" for name, ns in trial.plan.limits if ns)
    yield "limits of scripts", ", ".join(limits)
    if len(setup.components) > 1:
        yield "nodes", "; ".join(f"{each.load} at {each.node}" for each in setup.components)
    for name, value in setup.variables:
        if not name.endswith("seed"):
            yield f"variable {name}", text(value)


def text(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}"
    return "-" if value is None else str(value)


def shown(name: str, value: Any) -> str:
    if name.endswith("_bytes"):
        return memory_text(value)
    if name.endswith("_ns") and value is not None:
        return duration_text(value)
    return text(value)


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
    levels |= {name: duration_text(ns) for name, ns in durations.items() if ns is not None}
    pool, own = trial.server.pool, dict.fromkeys(component.node for component in setup.own)
    levels |= {"standbys": str(trial.server.standbys), "pool": pool.pooler or "none"}
    levels["node"] = " ".join(own) or "primary"
    if pool:
        levels |= {"pool_mode": pool.mode, "pool_size": str(pool.size)}
    for each in setup.components:
        if each.of:
            name = setup.background[each.of].name
            levels[f"background.{each.of}"] = f"{name}, {each.load} on {each.node}"
    levels |= {f"set.{name}": value for name, value in plan.settings}
    return levels


def _ordered(levels: Sequence[str]) -> tuple[str, ...]:
    unique = list(dict.fromkeys(levels))
    values = [quantity(level) for level in unique]
    if None in values:
        return tuple(unique)
    return tuple(sorted(unique, key=lambda level: quantity(level) or 0.0))


def place_runs(
    digests: Sequence[Digest], name: str
) -> tuple[tuple[Factor, ...], tuple[Digest, ...]]:
    """The factors by which runs differ, and the runs with their places; name: of the experiment.

    Runs that do not differ are trials of one cell.
    """
    runs = [levels_of(digest.trial) for digest in digests]
    factors: list[Factor] = []
    chosen: list[list[str]] = []
    for factor in dict.fromkeys(name for levels in runs for name in levels):
        values = [levels.get(factor, _ABSENT) for levels in runs]
        # Left out if each of its levels goes with one level of another factor in all runs.
        pairs = ({*zip(values, others, strict=True)} for others in chosen)
        as_other = any(
            len(both) == len({a for a, _ in both}) == len({b for _, b in both}) for both in pairs
        )
        if len(set(values)) > 1 and not as_other:
            factors.append(Factor(factor, _ordered(values)))
            chosen.append(values)
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
    chosen = cells_of(digests)
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


def cells_of(digests: Sequence[Digest], order: Callable[[Cell], Any] | None = None) -> list[Cell]:
    places = (digest.trial.place for digest in digests)
    unique = {place.cell: Cell(tuple(place.levels.items())) for place in places if place}
    return sorted(unique.values(), key=order) if order else list(unique.values())
