"""Levels of an experiment: options by name, as texts. Knows no files and no server."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from pgpaces.core.errors import PlanError, similar
from pgpaces.core.units import exact
from pgpaces.spec import options
from pgpaces.spec.design import Cell
from pgpaces.spec.options import FACTORS, FAMILIES

BACKGROUND_NAME = re.compile(r"[A-Za-z0-9_-]{1,63}")


def names() -> list[str]:
    return [*FACTORS, *(f"{family}." for family in FAMILIES)]


def check_name(name: str) -> None:
    """Raises PlanError, with the most similar name, if levels cannot have this name."""
    family, dot, rest = name.partition(".")
    if dot and family == "background":
        of, dot, level = rest.partition(".")
        if not dot or not level or not BACKGROUND_NAME.fullmatch(of):
            raise PlanError("background-name", level=name)
        family = level.partition(".")[0]
        if (level in FACTORS and FACTORS[level].whole) or family in (
            "background",
            "set",
            "server_set",
        ):
            raise PlanError("whole-trial-only", factor=name, level=level)
        if level != "workload":
            check_name(level)
        return
    if name in FACTORS or (dot and rest and family in FAMILIES):
        return
    ending = [f"{each}.{rest}" for each in FAMILIES if rest]
    raise PlanError("unknown-factor", factor=name, near=similar(name, [*names(), *ending]))


def backgrounds(given: Iterable[str] | Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The levels of background workloads, from texts or Python values.

    Raises PlanError if two texts have one name.
    """
    if isinstance(given, Mapping):
        found = of_values(given, "background.")
        usual = {f"background.{of}.workload": (of,) for of in given}
        return found | {name: own for name, own in usual.items() if name not in found}
    levels: dict[str, tuple[str, ...]] = {}
    for text in given:
        more = background(text)
        if twice := sorted(levels.keys() & more.keys()):
            name = twice[0].split(".")[1]
            of = more[f"background.{name}.workload"][0]
            raise PlanError("background-twice", background=name, workload=of)
        levels |= more
    return levels


def single(several: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """The levels of background workloads of a run, which has one of each. Raises PlanError."""
    for name, texts in several.items():
        check_name(name)
        if len(texts) != 1:
            raise PlanError("several-levels", factor=name, levels=texts)
    return {name: texts[0] for name, texts in several.items()}


def background(text: str) -> dict[str, tuple[str, ...]]:
    """`reporting node=standby1 rate=1/s,2/s` as levels: background.reporting.rate, and so on.

    The first word is a workload, and its name in the trial, unless `workload=` names another.
    Raises PlanError.
    """
    try:
        parts = shlex.split(text)
    except ValueError as error:
        raise PlanError("background-quotes", text=text, why=str(error)) from None
    if not parts:
        raise PlanError("background-empty", text=text)
    first, *words = parts
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", first).strip("-")
    own: dict[str, tuple[str, ...]] = {"workload": (first,)}
    for word in words:
        key, equals, level = word.partition("=")
        if not equals:
            raise PlanError("background-level", text=text, word=word)
        own[key] = split(level)
    levels = {f"background.{name}.{key}": level for key, level in own.items()}
    for each in levels:
        check_name(each)
    return levels


def of_values(values: Mapping[str, Any], prefix: str = "") -> dict[str, tuple[str, ...]]:
    """Levels from Python values, one or a list of them, by name.

    Families are mappings: `set={"work_mem": ["4MB", "64MB"]}`. Times are in seconds.
    """
    levels: dict[str, tuple[str, ...]] = {}
    for key, value in values.items():
        name = prefix + key
        if isinstance(value, Mapping):
            levels |= of_values(value, f"{name}.")
        elif value is not None:
            several = value if isinstance(value, list | tuple | range | set) else (value,)
            parts = name.split(".")
            kind = parts[2] if parts[0] == "background" and len(parts) > 2 else parts[0]
            option = options.BY_NAME.get(kind)
            is_time = option is not None and option.kind.seconds
            levels[name] = tuple(
                f"{exact(each)}s"
                if is_time and isinstance(each, int | float) and each
                else text(each)
                for each in several
            )
    return levels


def text(level: object) -> str:
    if isinstance(level, bool):
        return "true" if level else "false"
    return exact(level) if isinstance(level, float) else str(level)


def in_cell(error: PlanError, cell: Cell) -> PlanError:
    return error.at(f"cell {cell}") if cell.levels else error


def split(text: str) -> tuple[str, ...]:
    r"""The levels in `a,b,c`; a comma that belongs to a level is written `\,`.

    The hosts of `ssh:a,b` are one level.
    """
    levels: list[str] = []
    hosts = False
    for part in re.split(r"(?<!\\),", text):
        level = part.strip().replace("\\,", ",")
        if hosts and not re.search("^ssh:|^[0-9]+$|=", level):
            levels[-1] += f",{level}"
        else:
            levels.append(level)
            hosts = re.search("(^|=)ssh:", level) is not None
    return tuple(levels)
