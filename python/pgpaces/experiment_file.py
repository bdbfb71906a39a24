"""Experiment files: TOML in, a draft of an experiment out; their JSON Schema; a new one.

Reads files; knows no server and no results.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pgpaces import costs, levels, options
from pgpaces.design import Target
from pgpaces.draft import Draft, share
from pgpaces.errors import PlanError
from pgpaces.units import COUNT_MAX, SEED_MAX

if TYPE_CHECKING:
    from pydantic import BaseModel

TEMPLATE = Path(__file__).parent / "experiments" / "new.toml"
# Tables of levels that have names of their own.
TABLES = ("set", "define")

_HINTS = {
    "factors": "factors are lists of levels: clients = [1, 2, 4]",
    "missed": 'write a percentage as text: missed = "5%"',
}

KEYS = {
    "name": "What the experiment is called. Default: the file's name without its ending.",
    "question": "What it is to answer, in a sentence, for the page.",
    "workload": "A shipped workload, or a folder (relative to this file).",
    "files": "Scripts that run instead of the workload's: FILE or FILE@WEIGHT.",
    "from_database": "A database whose copy is measured, instead of the workload's own data.",
    "trials": "How often each cell is run, once in each block.",
    "within": "Instead of `trials`: the time of each machine, spent on trials where they decide.",
    "seed": "Everything random follows from it: the order, arrivals, script parameters.",
    "missed": "The share that may miss the limit.",
    "factors": "What varies: a list of levels for each name. Default: the full grid of them.",
    "exclude": "Cells of the grid that are left out: those with all these levels.",
    "cells": "Cells beside the grid. A factor that one does not name takes all its levels.",
    "targets": "External servers, by the name that `target` uses.",
    "targets.dsn": "Anything libpq reads. Leave the password to a password file.",
    "targets.kind": "Machines of one kind are replicates of each other.",
    **{f"targets.{name}": text for name, text in costs.KEYS.items()},
    "targets.alter_system": "Settings of the whole server may be changed; they are put back.",
    "targets.restart": "A shell command that restarts the server, for settings that need it.",
    "targets.observe_command": "A shell command that runs `pgpaces observe` there, over ssh.",
    "targets.nodes": "DSNs of servers that belong to it: standby1, standby2, ..., pool.",
    "profiles": "Named sets of settings, by the name that `profile` uses.",
    "quick": "What `--quick` changes: levels, and `trials`.",
    "set": "Settings that all cells share.",
    "define": "Script variables that all cells share.",
}


def _model() -> type[BaseModel]:
    """The model of the file; pydantic is imported only where one is read."""
    from pydantic import BaseModel, ConfigDict, Field

    from pgpaces.host_toml import CostTable

    level = str | bool | int | float
    many = Annotated[list[level], Field(min_length=1, max_length=10_000)]
    # As deep as beside.NAME.define.VARIABLE.
    one = dict[str, level | dict[str, level | dict[str, level | dict[str, level]]]]
    several = dict[str, many | dict[str, many | dict[str, many | dict[str, many]]]]

    def key(name: str, default: Any) -> Any:
        return Field(default, description=KEYS[name])

    class TargetTable(CostTable):
        dsn: str = key("targets.dsn", ...)
        kind: str | None = key("targets.kind", None)
        alter_system: bool = key("targets.alter_system", False)
        restart: str | None = key("targets.restart", None)
        observe_command: str | None = key("targets.observe_command", None)
        nodes: dict[str, str] = key("targets.nodes", {})

    class ExperimentFile(BaseModel):
        model_config = ConfigDict(extra="allow", strict=True)
        name: str = key("name", "")
        question: str = key("question", "")
        workload: str | None = key("workload", None)
        files: list[str] = key("files", [])
        from_database: str | None = key("from_database", None)
        trials: Annotated[int, Field(ge=1, le=COUNT_MAX)] = key("trials", 1)
        within: str | None = key("within", None)
        seed: Annotated[int, Field(ge=0, le=SEED_MAX)] = key("seed", 1)
        missed: str = key("missed", "5%")
        factors: several = key("factors", {})
        exclude: list[one] = key("exclude", [])
        cells: list[one] = key("cells", [])
        targets: dict[str, TargetTable] = key("targets", {})
        profiles: dict[str, dict[str, level]] = key("profiles", {})
        quick: one = key("quick", {})

    return ExperimentFile


def read(path: Path) -> Draft:
    """The draft that a file describes. Raises PlanError with the key and what is wrong."""
    from pydantic import ValidationError

    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PlanError(f"{path} is not TOML: {error}") from None
    except OSError as error:
        raise PlanError(
            f"{path} cannot be read: {error.strerror}", f"`pgpaces sweep --new {path}` writes one"
        ) from None
    model = _model()
    try:
        found = model.model_validate(raw)
    except ValidationError as error:
        raise _explained(path, _first(error.errors()), model) from None
    try:
        keys = {**found.model_dump(), "given": found.model_fields_set}
        return _draft(path, keys, found.model_extra or {})
    except PlanError as error:
        raise PlanError(f"{path}: {error.message}", error.hint) from None


def _first(errors: Sequence[Any]) -> Any:
    """What is to be said first: a key that does not exist is why another one is missing."""
    return next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])


def _explained(path: Path, error: Any, model: type[BaseModel]) -> PlanError:
    parts = [str(part) for part in error["loc"] if "[" not in str(part)]
    key = ".".join(parts[:1] + [p for p in parts[1:] if p not in ("str", "bool", "int", "float")])
    text = error["msg"][:1].lower() + error["msg"][1:]
    if error["type"] == "extra_forbidden":
        fields = [k.removeprefix("targets.") for k in KEYS if k.startswith("targets.")]
        near = difflib.get_close_matches(parts[-1], fields, n=1)
        return PlanError(
            f"{path}: there is no key '{key}'",
            f"did you mean {near[0]}?" if near else f"keys there are {', '.join(fields)}",
        )
    if error["type"] == "too_short":
        text = "it has no level"
    return PlanError(f"{path}: key '{key}': {text}", _HINTS.get(parts[0]))


def _draft(path: Path, keys: Mapping[str, Any], others: Mapping[str, Any]) -> Draft:
    single = {name: (_found(path, name, level),) for name, level in _flat(others)}
    factors = {
        name: [_found(path, name, level) for level in found]
        for name, found in _flat(keys["factors"])
    }
    for name in single:
        _check_key(name)
    for name in (*factors, *(name for name, _ in _flat(keys["quick"]) if name != "trials")):
        levels.check_name(name)
    twice = [name for name in factors if name in single]
    if twice:
        raise PlanError(f"{twice[0]} is given for all and under [factors]", "choose one")
    if keys["within"] is not None and "trials" in keys["given"]:
        raise PlanError("within says how many trials there are", "leave out trials, or within")
    workload = keys["workload"]
    return Draft(
        name=keys["name"] or path.stem,
        workload=_near(path, workload) if workload else None,
        question=keys["question"],
        missed_max=share(keys["missed"], "missed"),
        trials=keys["trials"],
        seed=keys["seed"],
        levels={**_texts(factors), **_texts(single)},
        factors=frozenset(factors),
        exclude=tuple(_one(part) for part in keys["exclude"]),
        extra=tuple(_one(part) for part in keys["cells"]),
        targets=tuple(_target(name, found) for name, found in keys["targets"].items()),
        profiles={name: _one(found) for name, found in keys["profiles"].items()},
        files=tuple(_near(path, file, script=True) for file in keys["files"]),
        from_database=keys["from_database"],
        quick=_one(keys["quick"]),
        time_budget=keys["within"],
    )


def _target(name: str, keys: Mapping[str, Any]) -> Target:
    """Raises PlanError for costs that cannot be."""
    rest = {key: found for key, found in keys.items() if key not in costs.KEYS}
    try:
        found = costs.Costs(**{key: keys[key] for key in costs.KEYS})
    except PlanError as error:
        raise PlanError(f"[targets.{name}]: {error.message}", error.hint) from None
    return Target(name=name, costs=found if found.plain() else None, **rest)


def _check_key(name: str) -> None:
    """Raises PlanError, with the nearest key, for one that does not exist."""
    try:
        levels.check_name(name)
    except PlanError:
        keys = [key for key in KEYS if "." not in key]
        near = difflib.get_close_matches(name, [*keys, *levels.names()], n=1)
        hint = (
            f"did you mean {near[0]}?" if near else "docs/reference/experiment-toml.md lists them"
        )
        raise PlanError(f"there is no key '{name}'", hint) from None


def _flat(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """`set = {a = 1}` as `set.a`, however deep."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", found) for inner, found in _flat(value))
        else:
            yield name, value


def _text(level: object) -> str:
    """A level as a person would write it on a command line."""
    if isinstance(level, bool):
        return "true" if level else "false"
    return f"{level:g}" if isinstance(level, float) else str(level)


def _texts(found: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    for name, value in found.items():
        if isinstance(value, tuple) and isinstance(value[0], list | dict):
            raise PlanError(f"{name} cannot be {value[0]!r}", "several levels go under [factors]")
    return {name: tuple(_text(level) for level in value) for name, value in found.items()}


def _one(part: Mapping[str, Any]) -> dict[str, str]:
    return {name: _text(level) for name, level in _flat(part)}


def _found(path: Path, name: str, level: Any) -> Any:
    """A level; a workload beside another one as seen from the folder of the file."""
    if name.startswith("beside.") and name.endswith(".workload") and isinstance(level, str):
        return _near(path, level, script=level.endswith(".sql"))
    return level


def _near(path: Path, name: str, *, script: bool = False) -> str:
    """A file or folder as seen from the folder of the experiment file."""
    if not script and "/" not in name:
        return name
    return str((path.parent / Path(name).expanduser()).resolve())


def schema() -> dict[str, Any]:
    """The JSON Schema of the file, for editors."""
    found = _model().model_json_schema()
    level: dict[str, Any] = {"type": ["string", "boolean", "integer", "number"]}
    many: dict[str, Any] = {"type": "array", "items": level, "minItems": 1}
    about = {name: option.help for name, option in options.FACTORS.items()}
    families = "^({})\\..+$".format("|".join(options.FAMILIES))
    single = {name: {**level, "description": text} for name, text in about.items()}
    several = {name: {**many, "description": text} for name, text in about.items()}
    for table in TABLES:
        text = options.FAMILIES[table]
        single[table] = {"type": "object", "additionalProperties": level, "description": text}
        several[table] = {"type": "object", "additionalProperties": many, "description": text}
    inner: dict[str, Any] = {"type": "object", "description": options.FAMILIES["beside"]}
    single["beside"] = several["beside"] = {**inner, "additionalProperties": {"type": "object"}}
    one_each = {"type": "object", "additionalProperties": level}
    single["node"] = {"anyOf": [single["node"], one_each], "description": about["node"]}
    part = {
        "type": "object",
        "properties": single,
        "patternProperties": {families: level},
        "additionalProperties": False,
    }
    own = found["properties"]
    own["factors"] = {
        "type": "object",
        "description": KEYS["factors"],
        "properties": several,
        "patternProperties": {families: many},
        "additionalProperties": False,
    }
    for key in ("exclude", "cells"):
        own[key] = {"type": "array", "items": part, "description": KEYS[key]}
    quick = {**single, "trials": {"type": "integer", "minimum": 1}}
    own["quick"] = {**part, "properties": quick, "description": KEYS["quick"]}
    own.update(single)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **found,
        "title": "An experiment of pgpaces",
        "patternProperties": {families: level},
        "additionalProperties": False,
    }


def create(path: Path) -> None:
    """Writes a commented file to start from. Raises PlanError where there is one already."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(TEMPLATE.read_text(encoding="utf-8"))
    except FileExistsError:
        raise PlanError(f"{path} exists", "name a new file") from None
    except OSError as error:
        raise PlanError(f"{path} cannot be written: {error.strerror}") from None


def named(draft: Draft, name: str | None) -> Draft:
    """With another name, if one is given."""
    return draft if name is None else replace(draft, name=name)
