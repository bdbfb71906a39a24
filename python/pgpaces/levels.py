"""What a level of an experiment may be: every option of a trial by its name, as a text.

Turns the levels of a cell into the values of `plan.py`. Knows no files and no server.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from pgpaces.design import Cell, Design, Levels
from pgpaces.errors import PlanError
from pgpaces.plan import ON_ERROR, Pooler, PoolMode, PoolPlan, TrialPlan, trial_plan
from pgpaces.units import COUNT_MAX, SEED_MAX, digits

# Families of levels, each with a name of its own behind the dot.
FAMILIES = {
    "set": "A setting of the server, applied as mildly as it can be: `set.work_mem`.",
    "define": "A variable of the scripts: `define.hot`.",
    "latency_limit": "The limit of one script: `latency_limit.by_fk1`.",
    "node": "The node that one script goes to: `node.by_fk1`.",
    "beside": "Another workload at the same time, by a name: `beside.reporting.rate`.",
}


def _whole(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        number = digits(text.strip())
        if number is None or not low <= number <= high:
            raise PlanError(
                f"'{text}' is no whole number from {low} to {high}",
                "put a comma between levels: 1,2,4"
                if re.search(r"\d(?!\.\d)\D+\d", text)
                else None,
            )
        return number

    return read


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise PlanError(f"'{text}' is no number") from None


def _one_of(*names: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in names:
            raise PlanError(f"'{text}' is none of {', '.join(names)}")
        return text

    return read


def _switch(text: str) -> bool:
    if text not in ("true", "false", "on", "off"):
        raise PlanError(f"'{text}' is neither true nor false")
    return text in ("true", "on")


def _folder(text: str) -> str:
    if not text.startswith("/"):
        raise PlanError(
            f"'{text}' is no folder from / on", "an experiment may be gone on elsewhere"
        )
    return text


def _scripts(text: str) -> tuple[tuple[str, int | None], ...]:
    """`by_fk1@3 one_fk1@1`, or names alone."""
    found = []
    for word in text.split():
        name, at, weight = word.rpartition("@")
        if at and digits(weight) is None:
            raise PlanError(f"'{word}': the weight '{weight}' is no number")
        found.append((name, digits(weight)) if at else (word, None))
    if not found:
        raise PlanError("no script is named")
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Kind:
    """One name that levels may be of: how a text is read, and what it means."""

    read: Callable[[str], Any]
    about: str


# The trial's: read here where the option has a type, else by plan.py from the text.
TRIAL: Mapping[str, Kind] = {
    "clients": Kind(_whole(1, 100_000), "Connections."),
    "users": Kind(_whole(1, 100_000), "Paced load: users with a `pace` each."),
    "rate": Kind(str, "Open load: transactions a second in all, such as `10/s`."),
    "rate_per_client": Kind(str, "Open load: this for each client, on one schedule."),
    "pace": Kind(str, "Paced load: transactions a second of each user."),
    "think_time": Kind(str, "Closed load: mean pause before each transaction."),
    "think": Kind(_one_of("exponential", "fixed"), "How think times are spread."),
    "start_every": Kind(str, "Clients of a closed or paced load come so long after one another."),
    "arrivals": Kind(_one_of("poisson", "even"), "How arrivals are spaced."),
    "shape": Kind(str, "How the rate changes over the trial: `steps:0.5:1:2`."),
    "latency_limit": Kind(str, "Later than this is late."),
    "policy": Kind(_one_of("run", "skip"), "What happens to work that is too late to start."),
    "duration": Kind(str, "How long a trial is, warm-up apart."),
    "transactions": Kind(_whole(1, COUNT_MAX), "Or so many of each client."),
    "warmup": Kind(str, "Load before it counts."),
    "grace": Kind(str, "Time for the backlog at the end."),
    "protocol": Kind(_one_of("simple", "extended", "prepared"), "How SQL is sent."),
    "describe": Kind(_switch, "Ask for result descriptions, as pgbench does."),
    "threads": Kind(_whole(1, 1024), "Threads of the load generator; processes of Python users."),
    "poll": Kind(_one_of("auto", "epoll", "io_uring"), "How the generator waits."),
    "connect_each": Kind(_switch, "A connection of its own for every transaction."),
    "max_tries": Kind(_whole(0, COUNT_MAX), "Of a transaction that fails by serialization."),
    "on_error": Kind(_one_of(*ON_ERROR), "What another failed statement ends."),
    "kill_switch": Kind(_number, "Stop when other sessions get so many times slower."),
}
# Of what, and where.
OTHERS: Mapping[str, Kind] = {
    "scale": Kind(_whole(1, 1_000_000), "Size of the data."),
    "data_seed": Kind(_whole(0, SEED_MAX), "Seed of the data."),
    "variant": Kind(str, "A variant of the workload."),
    "scripts": Kind(_scripts, "Scripts to run, with weights: `by_fk1@3 one_fk1@1`."),
    "server": Kind(str, "A version to start, such as `15` or `package:15`, or its folder."),
    "data_dir": Kind(_folder, "The disk for the data of servers of ours: a folder on it."),
    "tls": Kind(
        _switch, "A server of ours by TCP on the loopback, with TLS (on) or without (off)."
    ),
    "target": Kind(str, "Somebody's server: a name of `[targets]`, or a DSN."),
    "node": Kind(
        str, "Where the load goes: primary, standbys (all of them), standby1, any, or pool."
    ),
    "standbys": Kind(_whole(0, 8), "So many standbys of a server of ours, by streaming."),
    "pool": Kind(_one_of("none", "pgbouncer", "pgpool"), "A pooler before a server of ours."),
    "pool_mode": Kind(
        _one_of("session", "transaction"), "Of pgbouncer: how long a client keeps a connection."
    ),
    "pool_size": Kind(_whole(1, 10_000), "Server connections of the pool."),
    "profile": Kind(str, "Settings: a name of `[profiles]`, a shipped profile, or a TOML file."),
}
# What a workload beside another one shares with it.
_SHARED = frozenset(
    (
        *("duration", "transactions", "warmup", "grace", "kill_switch"),
        *("server", "tls", "target", "standbys", "pool", "pool_mode", "pool_size", "profile"),
    )
)
# Of these a number is seconds where Python gives it.
_SECONDS = ("duration", "warmup", "grace", "think_time", "start_every", "latency_limit")
BESIDE_NAME = re.compile(r"[A-Za-z0-9_-]{1,63}")
_DEFAULTS: Mapping[str, Any] = {
    **dict.fromkeys(TRIAL),
    "arrivals": "poisson",
    "policy": "run",
    "protocol": "simple",
    "describe": False,
    "poll": "auto",
    "connect_each": False,
    "max_tries": 1,
    "on_error": "continue",
    "on_connect": (),
    "verbose_errors": False,
    "define": (),
    "settings": (),
    "seed": 1,
}


def names() -> list[str]:
    """Every name that levels may be of; of families with a dot at the end."""
    return [*TRIAL, *OTHERS, *(f"{family}." for family in FAMILIES)]


def check_name(name: str) -> None:
    """Raises PlanError, with the nearest name, where levels cannot be of this name."""
    family, dot, rest = name.partition(".")
    if dot and family == "beside":
        return _check_beside(name, rest)
    if name in TRIAL or name in OTHERS or (dot and rest and family in FAMILIES):
        return None
    near = difflib.get_close_matches(name, names(), n=1)
    known = ", ".join(sorted(names()))
    raise PlanError(
        f"there is no factor '{name}'",
        f"did you mean {near[0]}?" if near else f"factors are {known}",
    )


def _check_beside(name: str, rest: str) -> None:
    """Raises PlanError for what cannot be said of a workload beside another one."""
    of, dot, level = rest.partition(".")
    if not dot or not level or not BESIDE_NAME.fullmatch(of):
        raise PlanError(
            f"'{name}' is not beside.NAME.LEVEL", "such as beside.reporting.rate; NAME is any word"
        )
    family = level.partition(".")[0]
    if level in _SHARED or family in ("beside", "set"):
        raise PlanError(f"{name}: {level} is of the whole trial", f"give {level} by itself")
    if level != "workload":
        check_name(level)


@dataclass(frozen=True, slots=True)
class CellOptions:
    """What the levels of a cell ask for.

    settings: of the server or of the session, to be applied as mildly as it can be. node: where the
    load goes; nodes: where scripts go that are told apart. beside: the levels of each workload that
    runs at the same time, by its name.
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
    beside: Mapping[str, Levels] = field(default_factory=dict)

    @property
    def pool_plan(self) -> PoolPlan | None:
        """The pooler asked for. Raises PlanError for what cannot be."""
        if self.pool in (None, "none"):
            if self.pool_mode or self.pool_size:
                word = "pool_mode" if self.pool_mode else "pool_size"
                raise PlanError(f"{word} needs a pool", "add pool: pgbouncer or pgpool")
            return None
        mode = self.pool_mode or "session"
        return PoolPlan(cast("Pooler", self.pool), cast("PoolMode", mode), self.pool_size)


def _read(name: str, text: str) -> Any:
    try:
        return {**TRIAL, **OTHERS}[name].read(text)
    except PlanError as error:
        raise PlanError(f"{name}: {error.message}", error.hint) from None


def _family(levels: Levels, family: str) -> tuple[tuple[str, str], ...]:
    prefix = f"{family}."
    found = {k.removeprefix(prefix): v for k, v in levels.items() if k.startswith(prefix)}
    return tuple(found.items())


def asked(levels: Levels, defaults: Mapping[str, str], seed: int = 1) -> CellOptions:
    """What these levels ask for, over the workload's defaults. Raises PlanError."""
    for name in levels:
        check_name(name)
    given: dict[str, Any] = {**_DEFAULTS, "seed": seed}
    others: dict[str, Any] = {}
    for name, text in levels.items():
        if name in TRIAL:
            given[name] = _read(name, text)
        elif name in OTHERS:
            others[name] = _read(name, text)
    own = (f"{name}={limit}" for name, limit in _family(levels, "latency_limit"))
    general = given["latency_limit"]
    given["latency_limit"] = (*(() if general is None else (general,)), *own)
    trial = trial_plan(given, defaults)
    trial = replace(trial, variables=_family(levels, "define"))
    return CellOptions(
        trial,
        **others,
        settings=_family(levels, "set"),
        nodes=_family(levels, "node"),
        beside=beside_of(levels),
    )


def beside_of(levels: Levels) -> dict[str, dict[str, str]]:
    """The levels of each workload beside another one, by its name; not of one that is `none`."""
    found: dict[str, dict[str, str]] = {}
    for rest, level in _family(levels, "beside"):
        of, _, name = rest.partition(".")
        found.setdefault(of, {})[name] = level
    return {of: given for of, given in found.items() if given.get("workload") != "none"}


def every_beside(texts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Several of `beside`. Raises PlanError where two have one name."""
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        more = beside(text)
        if twice := sorted(found.keys() & more.keys()):
            name = twice[0].split(".")[1]
            of = more[f"beside.{name}.workload"][0]
            raise PlanError(
                f"there are two workloads called {name} beside the load",
                f"call one something else: '{name}-2 workload={of} ...'",
            )
        found |= more
    return found


def beside(text: str) -> dict[str, tuple[str, ...]]:
    """`reporting node=standby1 rate=1/s,2/s` as levels: beside.reporting.rate, and so on.

    The first word is a workload, and what it is called, unless `workload=` names another. Raises
    PlanError.
    """
    try:
        parts = shlex.split(text)
    except ValueError as error:
        raise PlanError(f"beside '{text}': {error}", "quotes come in pairs") from None
    if not parts:
        raise PlanError(f"beside '{text}' names no workload", "such as 'reporting rate=1/s'")
    first, *words = parts
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", first).strip("-")
    given: dict[str, tuple[str, ...]] = {"workload": (first,)}
    for word in words:
        key, equals, level = word.partition("=")
        if not equals:
            raise PlanError(
                f"beside '{text}': '{word}' is not NAME=LEVEL",
                "such as 'reporting node=standby1 rate=1/s latency_limit=500ms'",
            )
        given[key] = split(level)
    found = {f"beside.{name}.{key}": level for key, level in given.items()}
    for each in found:
        check_name(each)
    return found


def of_values(given: Mapping[str, Any], prefix: str = "") -> dict[str, tuple[str, ...]]:
    """Levels of Python's values, one or a list of them, by name.

    Those of families come as mappings: `set={"work_mem": ["4MB", "64MB"]}`. Times are seconds.
    """
    found: dict[str, tuple[str, ...]] = {}
    for key, value in given.items():
        name = prefix + {"limits": "latency_limit"}.get(key, key)
        if isinstance(value, Mapping):
            found |= of_values(value, f"{name}.")
        elif value is not None:
            several = value if isinstance(value, list | tuple | range | set) else (value,)
            found[name] = tuple(_of_value(name, each) for each in several)
    return found


def _of_value(name: str, level: object) -> str:
    parts = name.split(".")
    kind = parts[2] if parts[0] == "beside" and len(parts) > 2 else parts[0]
    if kind in _SECONDS and isinstance(level, int | float) and level:
        return f"{level:g}s"
    if isinstance(level, bool):
        return "true" if level else "false"
    return f"{level:g}" if isinstance(level, float) else str(level)


def in_cell(error: PlanError, cell: Cell) -> PlanError:
    """The same error, with the cell it is of."""
    where = f" (in cell {cell})" if cell.levels else ""
    return PlanError(f"{error.message}{where}", error.hint)


def check(design: Design, defaults: Mapping[str, str]) -> None:
    """Raises PlanError, naming the cell, where its levels cannot be together."""
    for cell in design.cells():
        try:
            asked({**design.fixed, **dict(cell.levels)}, defaults)
        except PlanError as error:
            raise in_cell(error, cell) from None


def split(text: str) -> tuple[str, ...]:
    r"""The levels in `a,b,c`; a comma that belongs to a level is written `\,`."""
    parts = re.split(r"(?<!\\),", text)
    return tuple(part.strip().replace("\\,", ",") for part in parts)


def varied(given: Mapping[str, Iterable[str]]) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """What has one level, and what has several."""
    levels = {name: tuple(found) for name, found in given.items()}
    fixed = {name: found[0] for name, found in levels.items() if len(found) == 1}
    return fixed, {name: found for name, found in levels.items() if len(found) != 1}
