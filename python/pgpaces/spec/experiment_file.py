"""Experiment files: TOML in, an experiment out; their JSON Schema; a new one.

Reads files; knows no server and no results.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec.structs import replace

from pgpaces.core import toml_files
from pgpaces.core.errors import PlanError, similar
from pgpaces.core.home import expanded
from pgpaces.core.units import COUNT_MAX, SEED_MAX
from pgpaces.spec import costs, options, workload
from pgpaces.spec.design import Design, Experiment
from pgpaces.spec.spec import flat, level_of, of_values
from pgpaces.spec.target import Target

TEMPLATE = Path(__file__).parent / "new.toml"
# Tables of levels with free names.
TABLES = ("set", "server_set", "define")

_EXAMPLES = {"factors": "clients = [1, 2, 4]", "missed": 'missed = "5%"'}

KEYS = {
    "name": "Name of the experiment. Default: the file's name without its extension.",
    "question": "The question that it is to answer, in a sentence, for the page.",
    "workload": "A shipped workload, or a folder (relative to this file).",
    "files": "Scripts that run instead of the workload's: FILE or FILE@WEIGHT.",
    "from_database": "A database whose copy is measured, instead of the workload's own data.",
    "trials": 'How often each cell is run, once in each block; or "auto".',
    "seed": "Seed of everything random: the order, arrivals, script parameters.",
    "missed": "The share that may miss the limit.",
    "factors": "A list of levels for each name that varies. Default: the full grid of them.",
    "exclude": "Cells of the grid that are left out: those with all these levels.",
    "cells": "Cells outside the grid. A factor that one does not name takes all its levels.",
    "targets": "External servers, by the name that `target` uses.",
    "targets.dsn": "Anything libpq reads. Leave the password to a password file.",
    "targets.kind": "Machines of one kind are replicates of each other.",
    **{f"targets.{name}": text for name, text in costs.KEYS.items()},
    "targets.alter_system": "Settings of the whole server may be changed; they are put back.",
    "targets.restart": "A shell command that restarts the server, for settings that need it.",
    "targets.observe_command": "A shell command that runs `pgpaces observe` there, over ssh.",
    "targets.nodes": "DSNs of servers that belong to it: standby1, standby2, ..., pool.",
    "profiles": "Named sets of settings, by the name that `profile` uses.",
    "quick": "Levels, and `trials`, of `--quick`.",
    "set": "Settings of the sessions that all cells share.",
    "server_set": "Settings of the server that all cells share.",
    "define": "Script variables that all cells share.",
}


class _Target(costs.Costs, frozen=True, kw_only=True):
    """`[targets.NAME]`."""

    dsn: str
    kind: str | None = None
    alter_system: bool = False
    restart: str | None = None
    observe_command: str | None = None
    nodes: dict[str, str] = msgspec.field(default_factory=dict)


class _File(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of a file that are not levels."""

    name: str = ""
    question: str = ""
    workload: str | None = None
    files: list[str] = []
    from_database: str | None = None
    trials: Annotated[int, msgspec.Meta(ge=1, le=COUNT_MAX)] | Literal["auto"] = 1
    seed: Annotated[int, msgspec.Meta(ge=0, le=SEED_MAX)] = 1
    missed: str = "5%"
    factors: dict[str, Any] = {}
    exclude: list[dict[str, Any]] = []
    cells: list[dict[str, Any]] = []
    profiles: dict[str, dict[str, Any]] = {}
    quick: dict[str, Any] = {}
    targets: dict[str, _Target] = {}


def read(path: Path) -> Experiment:
    """The experiment in a file, unchecked as a whole. Raises PlanError with the wrong key."""
    raw = toml_files.document(path, PlanError, new=path)
    try:
        return _experiment(path, toml_files.table(_File, raw, examples=_EXAMPLES), raw)
    except PlanError as error:
        raise error.at(str(path)) from None


def _experiment(path: Path, keys: _File, raw: Mapping[str, Any]) -> Experiment:
    others = {name: level for name, level in raw.items() if name not in keys.__struct_fields__}
    single, factors = _texts(path, others), _texts(path, keys.factors, lists=True)
    for name in single:
        try:
            options.check_name(name)
        except PlanError:
            near = similar(name, [*(key for key in KEYS if "." not in key), *options.level_names()])
            raise PlanError("unknown-key", key=name, near=near) from None
    for name in (*factors, *(name for name, _ in flat(keys.quick) if name != "trials")):
        options.check_name(name)
    twice = [name for name in factors if name in single]
    if twice:
        raise PlanError("factor-twice", factor=twice[0])
    extra = tuple(_one(path, part) for part in keys.cells)
    if factors and extra and all(len(own) == 1 for own in factors.values()):
        # Without a factor that has several levels a design has no grid beside its extra cells.
        extra = ({name: level for name, (level,) in factors.items()}, *extra)
    return Experiment(
        name=keys.name or path.stem,
        workload=_near(path, keys.workload) if keys.workload else None,
        question=keys.question,
        missed_max=options.MISSED.read(keys.missed, "missed"),
        design=Design(
            {**factors, **single},
            exclude=tuple(_one(path, part) for part in keys.exclude),
            extra=extra,
            trials=keys.trials,
            seed=keys.seed,
        ),
        targets=tuple(_target(name, table) for name, table in keys.targets.items()),
        profiles={name: _one(path, table) for name, table in keys.profiles.items()},
        files=tuple(_near(path, file, script=True) for file in keys.files),
        from_database=keys.from_database,
        quick=_one(path, keys.quick),
    )


def _target(name: str, keys: _Target) -> Target:
    rest = {key: getattr(keys, key) for key in _Target.__annotations__}
    own = costs.Costs(**{key: getattr(keys, key) for key in costs.KEYS})
    return Target(name=name, costs=own if own.plain() else None, **rest)


def _texts(
    path: Path, table: Mapping[str, Any], *, lists: bool = False
) -> dict[str, tuple[str, ...]]:
    """Levels as one writes them on a command line. lists: each name has a list of them."""
    found = {}
    for name, value in flat(table):
        if isinstance(value, list) is not lists:
            if lists:
                raise PlanError("factor-not-a-list", factor=name, value=value)
            raise PlanError("levels-outside-factors", key=name, value=value)
        found[name] = tuple(_text(path, name, level) for level in (value if lists else [value]))
    return found


def _one(path: Path, part: Mapping[str, Any]) -> dict[str, str]:
    return {name: level for name, (level,) in _texts(path, part).items()}


def _text(path: Path, name: str, level: Any) -> str:
    if not isinstance(level, str | bool | int | float):
        raise PlanError("not-a-level", key=name, value=level)
    if name.startswith("background.") and name.endswith(".workload") and isinstance(level, str):
        return _near(path, level, script=level.endswith(".sql"))
    return level_of(level)


def _near(path: Path, name: str, *, script: bool = False) -> str:
    base = name.partition("/")[0]
    # NAME/VARIANT is of a shipped workload, unless a folder of that name is here.
    if not script and (
        "/" not in name or (base in workload.shipped() and not (path.parent / base).exists())
    ):
        return name
    return str((path.parent / expanded(name)).resolve())


def create(path: Path) -> None:
    """Writes a commented file to start from. Raises PlanError if the file exists."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(TEMPLATE.read_text(encoding="utf-8"))
    except FileExistsError:
        raise PlanError("file-exists", path=path) from None
    except OSError as error:
        raise PlanError("cannot-write", path=path, why=error.strerror) from None


def of_arguments(
    what: str | Path,
    levels: Mapping[str, Any],
    targets: Mapping[str, str | Target] | None,
    *,
    quick: bool = False,
) -> Experiment:
    """The experiment that arguments describe. Raises PlanError."""
    text = str(what)
    found = read(Path(text)) if text.endswith(".toml") else Experiment(workload=text)
    found = (found.quickly() if quick else found).with_levels(of_values(levels))
    own = [
        target if isinstance(target, Target) else Target(name, target)
        for name, target in (targets or {}).items()
    ]
    return replace(found, targets=(*found.targets, *own))
