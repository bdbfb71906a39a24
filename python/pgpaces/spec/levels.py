"""Levels of an experiment: options by name, as texts, and the options of a cell.

Turns them into the values of `plan.py`. Knows no files and no server.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any, cast

from msgspec import Struct, field

from pgpaces.core.errors import PlanError, similar
from pgpaces.core.units import exact
from pgpaces.spec import options
from pgpaces.spec.design import Cell, Levels
from pgpaces.spec.options import FACTORS, FAMILIES
from pgpaces.spec.plan import TrialPlan, pairs, trial_plan
from pgpaces.spec.target_plan import Pooler, PoolMode, PoolPlan

BACKGROUND_NAME = re.compile(r"[A-Za-z0-9_-]{1,63}")


_POOLERS = "--pool pgbouncer or --pool pgpool"
# Options of a cell in addition to those of its trial.
_OWN = (
    *("scale", "data_seed", "variant", "scripts", "server", "data_dir", "tls", "target"),
    *("profile", "standbys", "pool", "pool_mode", "pool_size"),
)


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


class CellOptions(Struct, frozen=True):
    """The options of a cell.

    settings: of the server, applied with the least possible interruption. node: where the load
    goes; nodes: where individual scripts go. background: the levels of each background workload,
    by its name.
    """

    trial: TrialPlan
    scale: int | None = None
    data_seed: int = 1
    variant: str | None = None
    scripts: tuple[tuple[str, int | None], ...] = ()
    server: str | None = None
    data_dir: str | None = None
    tls: bool | None = None
    target: str | None = None
    profile: str | None = None
    settings: tuple[tuple[str, str], ...] = ()
    node: str | None = None
    nodes: tuple[tuple[str, str], ...] = ()
    standbys: int = 0
    pool: str | None = None
    pool_mode: str | None = None
    pool_size: int | None = None
    background: Mapping[str, Levels] = field(default_factory=dict)

    @property
    def pool_plan(self) -> PoolPlan | None:
        """The requested pooler. Raises PlanError if it is invalid."""
        if self.pool in (None, "none"):
            if self.pool_mode or self.pool_size:
                name = "pool_mode" if self.pool_mode else "pool_size"
                word = options.BY_NAME[name].word
                raise PlanError("option-needs", option=word, needed=_POOLERS)
            return None
        mode = self.pool_mode or "session"
        return PoolPlan(cast("Pooler", self.pool), cast("PoolMode", mode), self.pool_size)


def _family(levels: Levels, family: str) -> tuple[tuple[str, str], ...]:
    prefix = f"{family}."
    return tuple((k.removeprefix(prefix), v) for k, v in levels.items() if k.startswith(prefix))


def options_of(levels: Levels, defaults: Mapping[str, str], seed: int = 1) -> CellOptions:
    """The options of these levels, over the workload's defaults. Raises PlanError."""
    for name in levels:
        check_name(name)
    values = {**options.defaults(), "seed": seed}
    for name, text in levels.items():
        try:
            if name in FACTORS:
                values[name] = FACTORS[name].kind.read(text)
        except PlanError as error:
            raise error.at(name) from None
    for several in ("latency_limit", "node"):
        values[several] = (levels[several],) if several in levels else ()
    for family in ("latency_limit", "define", "set"):
        values[family] += tuple(f"{name}={text}" for name, text in _family(levels, family))
    own = {"settings": _family(levels, "server_set"), "nodes": _family(levels, "node")}
    return cell_options(values, defaults, **own, background=background_of(levels))


def cell_options(
    values: Mapping[str, Any], defaults: Mapping[str, str], **more: Any
) -> CellOptions:
    """The options of a cell. values: of options by name, as `options.defaults` has them.

    more: fields of CellOptions that are not options. Raises PlanError.
    """
    trial = trial_plan(values, defaults)
    own = {name: values[name] for name in _OWN if values[name] is not None}
    # [SCRIPT=]NODE texts: the node of all, and of individual scripts.
    of_all = [value for value in values["node"] if "=" not in value]
    if len(of_all) > 1:
        raise PlanError("node-twice", nodes=of_all)
    own["node"] = of_all[0] if of_all else None
    own["nodes"] = pairs([value for value in values["node"] if "=" in value], "--node")
    return CellOptions(trial, **own | more)


def background_of(levels: Levels) -> dict[str, dict[str, str]]:
    """The levels of each background workload, by its name, except for a workload `none`."""
    workloads: dict[str, dict[str, str]] = {}
    for rest, level in _family(levels, "background"):
        of, _, name = rest.partition(".")
        workloads.setdefault(of, {})[name] = level
    return {of: own for of, own in workloads.items() if own.get("workload") != "none"}


def backgrounds(texts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The levels of several texts of `background`. Raises PlanError if two have one name."""
    levels: dict[str, tuple[str, ...]] = {}
    for text in texts:
        more = background(text)
        if twice := sorted(levels.keys() & more.keys()):
            name = twice[0].split(".")[1]
            of = more[f"background.{name}.workload"][0]
            raise PlanError("background-twice", background=name, workload=of)
        levels |= more
    return levels


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
