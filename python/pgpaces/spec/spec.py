"""The spec of a trial: the values of its options by name, the only form in which a request exists.

The names are those of the table in options.py. Some have a second name after a dot:
`set.work_mem`, `define.hot`, `latency_limit.by_fk1`, `background.reporting.rate`. The command line,
files, Python, stored runs, and cells of experiments all become specs here. A spec is stored with
its trial, has no password, and repeats the trial with `--like RUN`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pgpaces.core.errors import PlanError
from pgpaces.core.units import exact, whole
from pgpaces.spec.design import Design, Experiment
from pgpaces.spec.load import AUTO, TrialPlan, family
from pgpaces.spec.options import (
    BY_NAME,
    FACTORS,
    FOLDER,
    OF_COMMANDS,
    OPTIONS,
    check_name,
    replaced,
)
from pgpaces.spec.target import Target

Spec = Mapping[str, Any]
# Names of a spec that are not in the table: what runs, and the goal.
WHAT = ("workload", "files", "from_database", "missed", "command", "input", "rows")
# Names that --like ignores.
_LEFT_OUT = frozenset(("costs", "on_store_error", "fresh"))
# Options whose values are NAME=VALUE texts; of the first two, VALUE alone is for all names.
_PAIRS = ("latency_limit", "node", "define", "set", "server_set", "target_node")
# Options of one run, which an experiment does not have.
_OF_A_RUN = ("own", "on_connect", "command")
_KINDS_OF_LOAD = ("users", "pace", "rate", "rate_per_client", "think_time")
# What a workload may suggest, in this order, unless the spec has it or one of the others.
_SUGGESTED: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("latency_limit", "warmup", "grace"), ()),
    "start_every": ("rate", "rate_per_client", "shape"),
    "transactions": ("duration",),
    **dict.fromkeys(("rate", "think_time"), _KINDS_OF_LOAD),
    "clients": ("users", "pace", "rate_per_client"),
}


def named(values: Mapping[str, Any], *, several: bool = False) -> dict[str, Any]:
    """Options under their full names: `{"define": ("hot=3",)}` as `{"define.hot": "3"}`.

    values: as the command line and Python have them, by the names of the table. several: each text
    is a list of levels, and the result has tuples of them. Raises PlanError.
    """
    found: dict[str, Any] = {}
    for option, value in values.items():
        if value is None or value == ():
            continue
        if option == "background":
            own = backgrounds(value)
            for factor, levels in own.items() if not several else ():
                if len(levels) != 1:
                    raise PlanError("several-levels", factor=factor, levels=levels)
            found |= own if several else {each: level for each, (level,) in own.items()}
            continue
        for name, text in _each(option, value, several=several):
            if several and name in found:
                raise PlanError("given-twice", what=name, levels=",".join((*found[name], text)))
            if name in found and option in _PAIRS[:2]:
                what = f"{BY_NAME[option].word} {name.partition('.')[2]}".rstrip()
                raise PlanError("given-twice", what=what)
            found[name] = _levels(name, text) if several else text
    return found


def _each(option: str, value: Any, *, several: bool) -> Iterator[tuple[str, Any]]:
    """The full names of an option's values."""
    if option == "on_connect":
        yield from ((f"on_connect.{at}", sql) for at, sql in enumerate(value))
    elif option == "scripts":
        if several and len(value) > 1 and any("," in text for text in value):
            scripts = " ".join(value)
            raise PlanError("scripts-given-twice", count=len(value), scripts=scripts)
        yield option, " ".join(value)
    elif option in _PAIRS:
        yield from (_pair(option, text, several=several) for text in value)
    elif several:
        yield from ((option, text) for text in value)
    else:
        is_folder = option in BY_NAME and BY_NAME[option].kind is FOLDER
        yield option, str(Path(value).absolute()) if is_folder else value


def _levels(name: str, text: str) -> tuple[str, ...]:
    several = split(text)
    if name in FACTORS and "" in several:
        every = ",".join(filter(None, several)) or "A,B"
        raise PlanError("empty-level", option=FACTORS[name].word, value=text, levels=every)
    if name == "data_dir":
        return tuple(str(Path(each).absolute()) for each in several)
    return several


def _pair(option: str, text: str, *, several: bool) -> tuple[str, str]:
    """The full name and the value of a NAME=VALUE text."""
    if option in _PAIRS[:2]:
        name, _, value = text.rpartition("=")
        return (f"{option}.{name}" if name else option), value
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        word = BY_NAME[option].word
        if several:
            raise PlanError("not-levels", option=word, value=text, factor=name)
        raise PlanError("not-a-pair", option=word, value=text, key=name)
    return f"{option}.{name.strip()}", value


def read(spec: Spec) -> dict[str, Any]:
    """A spec with values in place of texts, each in the one form that it has: `60s` is `1min`.

    Raises PlanError for unknown names and wrong values.
    """
    for name in spec:
        option, _, rest = name.partition(".")
        alone = name in BY_NAME and name not in (*_PAIRS[2:], "on_connect")
        if not (alone or name in WHAT or (rest and option in (*_PAIRS, "on_connect"))):
            check_name(name)
    return {name: value_of(name, value) for name, value in spec.items() if value is not None}


def value_of(name: str, value: Any, what: str = "") -> Any:
    """The value of an option. what: its name in errors. Raises PlanError."""
    option = BY_NAME.get(name if name in BY_NAME else name.partition(".")[0])
    option = OF_COMMANDS["missed"] if name == "missed" else option
    plain = name.startswith("background.") or (name, value) == ("duration", AUTO)
    if option is None or plain:
        return value
    if isinstance(value, str):
        return option.kind.read(value, what or option.word)
    span = option.kind.span
    return value if span is None else whole(value, option.name, span[0], high=span[1])


def complete(spec: Spec, defaults: Mapping[str, str], *, auto: bool = False) -> dict[str, Any]:
    """A spec that has been read, with the default of every option that it leaves open.

    defaults: of the workload. Those of its load apply unless the spec has a load of another kind.
    auto: with a latency limit, it ends by default as soon as its verdict is certain.
    """
    found = dict(spec)
    for name, others in _SUGGESTED.items():
        if name in defaults and found.keys().isdisjoint((name, *others)):
            found[name] = value_of(name, defaults[name], f"the workload's {name.replace('_', ' ')}")
    if found.keys().isdisjoint(_KINDS_OF_LOAD[:-1]):
        found = {"clients": 1, "think_time": "0s"} | found
        if found["think_time"] != "0s":
            found.setdefault("think", defaults.get("think", "exponential"))
    if "transactions" not in found:
        certain = auto and "latency_limit" in found and "shape" not in found
        found.setdefault("duration", AUTO if certain else "1min")
    if found.get("duration") == AUTO:
        _check_auto(found, auto=auto)
    if found.get("pool", "none") != "none":
        found.setdefault("pool_mode", "session")
    usual = {o.name: o.default for o in OPTIONS if o.default not in (None, False)}
    if "think_time" in found:
        del usual["arrivals"]
    if "target" not in found:
        del usual["guard"]
    return usual | found


def _check_auto(found: Spec, *, auto: bool) -> None:
    if not auto:
        raise PlanError("only-of-a-run", option="-T auto")
    if "latency_limit" not in found:
        raise PlanError("option-needs", option="-T auto", needed="--latency-limit TIME")
    if "shape" in found:
        raise PlanError("cannot-combine", options=["-T auto", "--shape"])


def over(stored: Spec, typed: Spec) -> dict[str, Any]:
    """A stored spec with the typed one in its place. Raises PlanError for an unknown option."""
    gone = replaced(typed) | {"on_connect" for name in typed if name.startswith("on_connect.")}
    gone |= {".".join(n.split(".")[:2]) for n in typed if n.startswith("background.")}
    if "shape" in typed and stored.get("duration") == AUTO:
        gone.add("duration")
    kept = {}
    left_out = _LEFT_OUT | (set(TrialPlan.__struct_fields__) - BY_NAME.keys())
    for name, value in stored.items():
        option, _, rest = name.partition(".")
        if option not in BY_NAME and name not in (*WHAT, *left_out):
            raise PlanError("stored-option-unknown", option=name)
        whole = f"{option}.{rest.partition('.')[0]}" if option == "background" else option
        if not {name, whole} & (gone | left_out):
            kept[name] = value
    return {**kept, **typed}


def experiment_of(spec: Spec) -> Experiment:
    """The experiment of one cell with the load of a stored spec. Raises PlanError."""
    known = over(spec, {})
    for name in known:
        if (option := name.partition(".")[0]) in _OF_A_RUN:
            raise PlanError("only-of-a-run", option=f"--{option.replace('_', '-')}")
    own = {}
    for name, value in known.items():
        option = name.partition(".")[0]
        usual = name in BY_NAME and value == BY_NAME[name].default
        usual = usual or (name, value) == ("duration", AUTO)
        if (option in FACTORS or option in _PAIRS[:5] or option == "background") and not usual:
            own[name] = (level_of(value),)
    targets: tuple[Target, ...] = ()
    if dsn := known.get("target"):
        nodes, observe = family(known, "target_node"), known.get("observe_command")
        targets = (Target(name="target", dsn=dsn, observe_command=observe, nodes=nodes),)
        own["target"] = ("target",)
    workload = known.get("workload")
    return Experiment(
        name=(workload or "").strip("./").replace("/", "-"),
        workload=workload,
        files=tuple(known.get("files", ())),
        from_database=known.get("from_database"),
        design=Design(own, seed=known.get("seed", 1)),
        targets=targets,
        **({"missed_max": spec["missed"]} if "missed" in spec else {}),
    )


def backgrounds(given: Iterable[str] | Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The levels of background workloads, from texts or Python values.

    Raises PlanError if two texts have one name.
    """
    levels: dict[str, tuple[str, ...]] = {}
    if isinstance(given, Mapping):
        levels |= of_values({"background": given})
        for of in given:
            levels.setdefault(f"background.{of}.workload", (of,))
    else:
        for text in given:
            more = background(text)
            if twice := sorted(levels.keys() & more.keys()):
                name = twice[0].split(".")[1]
                of = more[f"background.{name}.workload"][0]
                raise PlanError("background-twice", background=name, workload=of)
            levels |= more
    for name in levels:
        check_name(name)
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
    own: dict[str, tuple[str, ...]] = {"workload": (first,)}
    for word in words:
        key, equals, level = word.partition("=")
        if not equals:
            raise PlanError("background-level", text=text, word=word)
        own[key] = split(level)
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", first).strip("-")
    return {f"background.{name}.{key}": level for key, level in own.items()}


def flat(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """`set = {a = 1}` as `set.a`, at any depth."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", level) for inner, level in flat(value))
        else:
            yield name, value


def of_values(values: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Levels from Python values, one or a list of them, by name.

    Families are mappings: `set={"work_mem": ["4MB", "64MB"]}`. Times are in seconds.
    """
    levels: dict[str, tuple[str, ...]] = {}
    for name, value in flat(values):
        several = value if isinstance(value, list | tuple | range | set) else (value,)
        at = 2 if name.startswith("background.") else 0
        option = BY_NAME.get("".join(name.split(".")[at : at + 1]))
        seconds = option is not None and option.kind.seconds
        if value is not None:
            levels[name] = tuple(level_of(each, seconds=seconds) for each in several)
    return levels


def level_of(level: object, *, seconds: bool = False) -> str:
    """A level as one types it. seconds: the unit of a number that is not 0."""
    if isinstance(level, bool):
        return "true" if level else "false"
    text = exact(level) if isinstance(level, float) else str(level)
    return f"{text}s" if seconds and level and isinstance(level, int | float) else text


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
