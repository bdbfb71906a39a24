"""Differences of trials: in plan, data, server, settings, machine, by plain names. Digests in.

A report lists differences other than its factors; a comparison is refused where more differs than
the compared factors. Names and values are as others wrote them. Runs that belong to no experiment
are arranged as one: the factors are the options in which they differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.analysis.crossing import quantity
from pgpaces.analysis.digest import Digest
from pgpaces.core.units import duration_text, memory_text
from pgpaces.spec import options
from pgpaces.spec.design import Cell, Factor
from pgpaces.spec.result import Place, Trial

# The form of names of factors; names of other differences have blanks.
_FACTOR = re.compile(r"[a-z_]+(\.\S+)?")
HOST = ("hostname", "cpu", "cpus", "memory_bytes", "system", "kernel", "architecture", "python")
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
# The level of a run that lacks an option of others.
_ABSENT = "not set"
Properties = Callable[[Trial], Iterator[tuple[str, str]]]


class Difference(Struct, frozen=True):
    """A difference of groups of trials. values: those of each group; empty if it has none."""

    name: str
    values: tuple[tuple[str, ...], ...]

    @property
    def within(self) -> bool:
        """Whether trials of one group differ, so that the groups are not the reason."""
        return any(len(each) > 1 for each in self.values)


def properties(trial: Trial) -> Iterator[tuple[str, str]]:
    """Everything in which trials may differ, by name."""
    plan, load, setup, workload = trial.plan, trial.plan.load, trial.setup, trial.workload
    values = {n: getattr(plan, n) for n in plan.__struct_fields__ if n not in _OWN}
    values |= {"warmup_ns": plan.warmup, "grace_ns": plan.grace, "load_text": trial.load_text}
    values |= {"load": load.model, "rate": load.rate, "arrivals": load.arrivals}
    values |= {"shape": load.shape, "think": load.think, "think time_ns": load.think_ns}
    values |= {"clients": setup.clients, "threads": setup.threads, "poll": setup.poll}
    for name, value in values.items():
        yield name.removesuffix("_ns").replace("_", " "), shown(name, value)
    yield "workload", workload.name
    yield "scale", str(workload.scale)
    yield from of_setup(trial)
    if "data_seed" in trial.spec:
        yield "data seed", str(trial.spec["data_seed"])
    yield "scripts", ", ".join(f"{each.name}@{each.weight}" for each in workload.scripts)
    limits = (f"{name} {duration_text(ns)}" for name, ns in plan.limits if ns)
    yield "limits of scripts", ", ".join(limits)
    if len(setup.components) > 1:
        yield "nodes", "; ".join(f"{each.load} at {each.node}" for each in setup.components)
    for name, value in setup.variables:
        if not name.endswith("seed"):
            yield f"variable {name}", text(value)


def of_setup(trial: Trial) -> Iterator[tuple[str, str]]:
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


def differ(
    groups: Iterable[Iterable[Digest]],
    compared: Iterable[str] = (),
    *,
    within: bool = False,
    of: Properties = properties,
) -> tuple[Difference, ...]:
    """The differences between groups of trials, other than the compared factors, by their names.

    Consequences of a factor belong to it: other clients are another load, another server has other
    settings. Groups without trials differ in nothing. within: also what differs only between trials
    of one group; these differences come first. of: the properties that are compared.
    """
    factors = tuple(compared)
    values: dict[str, list[dict[str, None]]] = {}
    trials = [[digest.trial for digest in group] for group in groups]
    ran = [number for number, group in enumerate(trials) if group]
    for number in ran:
        for name, value in (pair for trial in trials[number] for pair in of(trial)):
            values.setdefault(name, [{} for _ in trials])[number][value] = None
    found = []
    for name, own in values.items():
        one = Difference(name, tuple(map(tuple, own)))
        apart = len({frozenset(own[number]) for number in ran}) > 1
        if (apart or (within and one.within)) and not _follows(factors, name):
            found.append(one)
    names = {each.name for each in found}
    once = (each for each in found if names.isdisjoint(_SECOND.get(each.name, ())))
    return tuple(sorted(once, key=lambda each: within and not each.within))


def check_factor(name: str) -> None:
    """Raises PlanError, with the nearest name, for a name like that of a factor that is none."""
    exists = options.follows(name.partition(".")[0]) or name in (*options.DIFFERENCES, "pgpaces")
    if _FACTOR.fullmatch(name) and not exists:
        options.check_name(name)


def _follows(factors: Sequence[str], name: str) -> bool:
    """Whether a difference is one of these factors, or a consequence of one."""
    for factor in factors:
        family, _, own = factor.partition(".")
        names, starts = (family.replace("_", " "), factor), options.follows(family)
        if own and family in ("set", "server_set", "define"):
            names, starts = (f"setting {own}", f"variable {own}"), ()
        prefixes = tuple(start for start in starts if start[-1] == " ")
        if name in (*names, *starts) or name.startswith(prefixes):
            return True
    return False


def text(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return " ".join(map(text, value))
    return "-" if value is None else str(value)


def shown(name: str, value: Any) -> str:
    if name.endswith("_bytes"):
        return memory_text(value)
    if name.endswith("_ns") and value is not None:
        return duration_text(value)
    return text(value)


def levels_of(trial: Trial) -> dict[str, str]:
    """What a run was asked for, by the names of options, with its workload, server and machine."""
    levels = {name: text(value) for name, value in trial.spec.items() if name != "seed"}
    return levels | {
        "workload": trial.workload.name,
        "scale": str(trial.workload.scale),
        "server": trial.server.version,
        "machine": trial.host.hostname or "unknown",
    }


def _ordered(levels: Sequence[str]) -> tuple[str, ...]:
    values = {level: quantity(level) for level in levels}
    if None in values.values():
        return tuple(values)
    return tuple(sorted(values, key=lambda level: values[level] or 0.0))


def place_runs(
    digests: Sequence[Digest], name: str
) -> tuple[tuple[Factor, ...], tuple[Digest, ...]]:
    """The factors by which runs differ, and the runs with their places; name: of the experiment.

    Runs that do not differ are trials of one cell.
    """
    runs = [levels_of(digest.trial) for digest in digests]
    patterns: dict[tuple[int, ...], Factor] = {}
    for factor in dict.fromkeys(name for levels in runs for name in levels):
        values = [levels.get(factor, _ABSENT) for levels in runs]
        # Which runs have the same level. Left out if another factor has the same pattern.
        seen: dict[str, int] = {}
        pattern = tuple(seen.setdefault(value, len(seen)) for value in values)
        if any(pattern):
            patterns.setdefault(pattern, Factor(factor, _ordered(values)))
    factors = tuple(patterns.values())
    blocks: dict[str, int] = {}
    placed = []
    for digest, levels in zip(digests, runs, strict=True):
        cell = Cell(tuple((factor.name, levels.get(factor.name, _ABSENT)) for factor in factors))
        blocks[cell.key] = blocks.get(cell.key, 0) + 1
        where = Place(name, cell.key, dict(cell.levels), blocks[cell.key])
        placed.append(replace(digest, trial=replace(digest.trial, place=where)))
    return factors, tuple(placed)


def cells_of(digests: Sequence[Digest]) -> list[Cell]:
    """The cells of trials, ordered by the levels of one factor after the other."""
    places = (digest.trial.place for digest in digests)
    cells = {place.cell: place.levels for place in places if place}.values()
    names = dict.fromkeys(name for levels in cells for name in levels)
    orders = {name: _ordered([each[name] for each in cells if name in each]) for name in names}

    def rank(levels: Mapping[str, str]) -> list[int]:
        return [own.index(levels[n]) if n in levels else -1 for n, own in orders.items()]

    return [Cell(tuple(levels.items())) for levels in sorted(cells, key=rank)]
