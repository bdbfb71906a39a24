"""Differences of trials: in plan, data, server, settings, machine, by plain names. Digests in.

A report lists differences other than its factors; a comparison is refused where more differs than
the compared factors. Names and values are as others wrote them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from pgpaces.analysis.cells import Row
from pgpaces.analysis.digest import Digest
from pgpaces.core.units import duration_text, memory_text
from pgpaces.spec import options
from pgpaces.spec.design import Factor
from pgpaces.spec.result import Trial

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
