"""The table of options: each option of a trial, its data, its server and its topology, once.

The command line, experiment and workload files, Python keywords, names of factors, what a factor
changes with it, and the reference pages are derived from this table. Knows no server.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from pgpaces.core.errors import PlanError, similar
from pgpaces.core.metrics import COMPARED
from pgpaces.core.units import (
    COUNT_MAX,
    SEED_MAX,
    digits,
    duration_ns,
    duration_text,
    exact,
    rate_per_s,
)


class Kind(Struct, frozen=True):
    """The values of an option. read: makes one of a text and its name in errors, or raises
    PlanError; durations and rates remain texts, in the one form that each has.

    python: the type of a Python keyword. choices: the valid texts. span: the range of integers.
    seconds: a number in Python is a number of seconds.
    """

    read: Callable[[str, str], Any] = lambda text, _: text
    python: str = "str"
    choices: tuple[str, ...] = ()
    span: tuple[int, int] | None = None
    seconds: bool = False


def _whole(low: int, high: int = COUNT_MAX) -> Kind:
    def read(text: str, what: str) -> int:
        number = digits(text.strip())
        if number is None or not low <= number <= high:
            several = re.search(r"\d(?!\.\d)\D+\d", text) and ",".join(re.findall(r"\d+", text))
            raise PlanError(
                "not-an-integer", what=what, value=text, low=low, high=high, levels=several
            )
        return number

    return Kind(read, "int", span=(low, high))


def _one_of(*names: str) -> Kind:
    def read(text: str, what: str) -> str:
        if text not in names:
            near = similar(text, names)
            raise PlanError("not-a-choice", what=what, value=text, choices=names, near=near)
        return text

    return Kind(read, choices=names)


def _duration(*, zero: bool = False, bare: str = "s") -> Kind:
    def read(text: str, what: str) -> str:
        return duration_text(duration_ns(text, what, zero=zero, bare=bare))

    return Kind(read, "str | float", seconds=True)


def _share(*, zero: bool = False) -> Kind:
    def read(text: str, what: str) -> float:
        """0.05 of `5%` or `0.05`."""
        number, percent = text.strip().removesuffix("%"), text.strip().endswith("%")
        try:
            value = float(number) / (100 if percent else 1)
        except ValueError:
            value = -1.0
        if not 0 <= value < 1:
            percentage = f"{number}%" if not percent and 1 <= value < 100 else "5%"
            raise PlanError("not-a-share", what=what, value=text, example=percentage)
        if not (value or zero):
            raise PlanError("zero-share", what=what, value=text)
        return value

    return Kind(read)


def _trials(text: str, what: str) -> int | str:
    return text if text == "auto" else int(_whole(1).read(text, what))


def _switch(text: str, what: str) -> bool:
    if text not in (choices := ("true", "false", "on", "off")):
        raise PlanError("not-a-choice", what=what, value=text, choices=choices)
    return text in ("true", "on")


def _folder(text: str, what: str) -> str:
    if not text.startswith("/"):
        raise PlanError("relative-path", path=text).at(what)
    return text


def _count_or_text(text: str, _: str) -> int | str:
    return text if (count := digits(text)) is None else count


def weighted(text: str) -> tuple[str, int | None]:
    """The name and the weight of NAME or NAME@WEIGHT. Raises PlanError."""
    name, at, weight = text.rpartition("@")
    if at and digits(weight) is None:
        raise PlanError("not-a-number", what="weight", value=weight).at(text)
    return (name, digits(weight)) if at else (text, None)


def _scripts(text: str, what: str) -> str:
    words = text.split()
    if not words:
        raise PlanError("no-scripts").at(what)
    for word in words:
        try:
            weighted(word)
        except PlanError as error:
            raise error.at(what) from None
    return " ".join(words)


# Groups of options, in the order of help and reference.
GROUPS = (
    *(GENERAL := "General", WORKLOAD := "Workload", MIGRATION := "Migration", LOAD := "Load"),
    *(GOAL := "Goal",),
    *(TARGET := "Target", OUTPUT := "Output", SERVER := "Server", TOPOLOGY := "Topology"),
    *(BACKGROUND := "Background load", GENERATOR := "Generator", STORE := "Store"),
)
# The groups in `--help` of a command with more than SHORT options.
USUAL, SHORT = GROUPS[:7], 30

TEXT, NUMBER = Kind(), Kind(python="float")
DURATION, PAUSE, LIMIT = _duration(), _duration(zero=True), _duration(bare="ms")
RATE = Kind(lambda text, what: f"{exact(rate_per_s(text, what))}/s", "str | float")
SHARE, MISSED = _share(zero=True), _share()
SWITCH, FOLDER = Kind(_switch, "bool"), Kind(_folder, "str | Path")
SCRIPTS = Kind(_scripts, "Sequence[str]")

# Differences that a factor implies, in addition to its own: their names, or prefixes of them.
_LOAD = (
    *("load text", "load", "rate", "clients", "threads", "arrivals", "start every"),
    "poll",
)
_SERVER = ("PostgreSQL", "build of PostgreSQL", "setting ")
_WORKLOAD = (
    *("workload", "hash of the workload", "scripts", "limits of scripts", "variable ", "poll"),
    "fingerprint of the data",
)
DIFFERENCES = frozenset((*_LOAD, *_SERVER))
_LAYOUT = ("nodes", "clients", "threads", "load text", "rate", "setting ")
_DATA = ("fingerprint of the data", "variable ")


@functools.cache
def texts() -> Mapping[str, Mapping[str, str]]:
    """The help of each option and family, by its name."""
    return tomllib.loads(Path(__file__).with_name("options.toml").read_text("utf-8"))


class Option(Struct, frozen=True):
    """An option; its help is in options.toml. group: one of GROUPS.

    rare: only in `--help-all` of commands with many options. run, factor: whether a run has it, and
    whether an experiment may vary it. several: a run takes it more than once. flag: `run` takes no
    value. metavar: of `run`. whole: it applies to a whole trial, not to a background workload.
    follows: differences that a factor implies. alone: options with the same word replace each
    other. typed: the name on the command line; keyword, type: of Python; all three only if they
    differ from the name and the type of the kind.
    """

    name: str
    kind: Kind
    group: str
    short: str = ""
    metavar: str = ""
    default: Any = None
    run: bool = True
    factor: bool = True
    rare: bool = False
    several: bool = False
    flag: bool = False
    whole: bool = False
    follows: tuple[str, ...] = ()
    alone: str = ""
    typed: str = ""
    keyword: str = ""
    type: str = ""

    @property
    def python(self) -> tuple[str, str]:
        choices = ", ".join(f'"{choice}"' for choice in self.kind.choices)
        kind = f"Literal[{choices}]" if choices else self.kind.python
        several = "Sequence[str]" if self.several else kind
        none = " | None" if self.default is None and not self.several else ""
        return self.keyword or self.name, (self.type or several) + none

    @property
    def help(self) -> str:
        return texts()[self.name]["help"]

    @property
    def word(self) -> str:
        return f"--{(self.typed or self.name).replace('_', '-')}"


# Factors from the command line have this order in designs, which are compared on resuming.
OPTIONS: tuple[Option, ...] = (
    Option("clients", _whole(1, 100_000), LOAD, short="-c", metavar="N", follows=_LOAD),
    Option("users", _whole(1, 100_000), LOAD, metavar="N", follows=_LOAD, alone="load"),
    Option("rate", RATE, LOAD, metavar="RATE", follows=_LOAD, alone="load"),
    Option("rate_per_client", RATE, LOAD, metavar="RATE", follows=_LOAD, alone="load"),
    Option("pace", RATE, LOAD, metavar="RATE", follows=_LOAD),
    Option("think_time", PAUSE, LOAD, metavar="TIME", follows=_LOAD, alone="load"),
    Option("think", _one_of("exponential", "fixed"), LOAD, follows=_LOAD, rare=True),
    Option("start_every", PAUSE, LOAD, metavar="TIME", follows=_LOAD, rare=True),
    Option("arrivals", _one_of("poisson", "even"), LOAD, default="poisson", follows=_LOAD,
           rare=True),
    Option("shape", TEXT, LOAD, metavar="SHAPE", follows=_LOAD, rare=True),
    Option("latency_limit", LIMIT, GOAL, short="-L", metavar="[SCRIPT=]TIME", several=True,
           follows=("limit", "limits of scripts", *_LOAD),
           type="str | float | Mapping[str, str | float]"),
    Option("policy", _one_of("run", "skip"), GOAL, default="run"),
    Option("duration", DURATION, LOAD, short="-T", metavar="TIME", whole=True, follows=("warmup",),
           alone="length"),
    Option("transactions", _whole(1), LOAD, short="-t", metavar="N", whole=True, alone="length"),
    Option("warmup", PAUSE, LOAD, metavar="TIME", whole=True, rare=True),
    Option("grace", PAUSE, LOAD, metavar="TIME", whole=True, rare=True),
    Option("protocol", _one_of("simple", "extended", "prepared"), GENERATOR, short="-M",
           default="simple"),
    Option("describe", SWITCH, GENERATOR, default=False, flag=True),
    Option("threads", _whole(1, 1024), GENERATOR, short="-j", metavar="N"),
    Option("poll", _one_of("auto", "epoll", "io_uring"), GENERATOR, default="auto"),
    Option("generators", Kind(_count_or_text, "int | str"), GENERATOR, metavar="N|ssh:HOST,...",
           whole=True, rare=True, follows=("threads", "poll", "clients")),
    Option("cluster", TEXT, GENERATOR, metavar="ADDRESS", whole=True, rare=True,
           follows=("threads", "poll", "clients")),
    Option("insecure_cluster", SWITCH, GENERATOR, default=False, flag=True, whole=True, rare=True),
    Option("seed", _whole(0, 2**64 - 1), GENERATOR, metavar="N", default=1, factor=False),
    Option("define", TEXT, WORKLOAD, short="-D", metavar="NAME=VALUE", several=True, factor=False,
           follows=("variable ",), type="Mapping[str, object]"),
    Option("on_connect", TEXT, GENERATOR, metavar="SQL", several=True, factor=False),
    Option("connect_each", SWITCH, GENERATOR, default=False, flag=True),
    Option("max_tries", _whole(0), GENERATOR, metavar="N", default=1),
    Option("on_error", _one_of("continue", "stop-client", "stop"), GENERATOR, default="continue"),
    Option("verbose_errors", SWITCH, GENERATOR, default=False, flag=True, factor=False),
    Option("keep_going", SWITCH, GENERATOR, default=False, flag=True),
    Option("guard", SWITCH, TARGET, default=True, flag=True, whole=True, rare=True),
    Option("scale", _whole(1, 2**31 - 1), WORKLOAD, short="-s", metavar="N", follows=_DATA),
    Option("data_seed", _whole(0, SEED_MAX), WORKLOAD, metavar="N", default=1, follows=_DATA,
           rare=True),
    Option("variant", TEXT, WORKLOAD, rare=True, metavar="NAME", run=False, follows=_WORKLOAD),
    Option("scripts", SCRIPTS, WORKLOAD, run=False, metavar="NAME[@WEIGHT]", several=True,
           follows=_WORKLOAD, typed="script"),
    Option("server", TEXT, TARGET, metavar="VERSION", whole=True,
           follows=(*_SERVER, "fingerprint of the data")),
    Option("data_dir", FOLDER, SERVER, metavar="DIR", follows=_SERVER),
    Option("tls", SWITCH, SERVER, whole=True, follows=_SERVER),
    Option("target", TEXT, TARGET, metavar="DSN", whole=True,
           follows=(*_SERVER, "machine: ", "fingerprint of the data")),
    Option("set", TEXT, TARGET, metavar="NAME=VALUE", several=True, factor=False,
           type="Mapping[str, object]"),
    Option("server_set", TEXT, TARGET, metavar="NAME=VALUE", several=True, factor=False,
           type="Mapping[str, object]"),
    Option("observe_command", TEXT, SERVER, metavar="COMMAND", factor=False),
    Option("own", TEXT, TARGET, metavar="DBNAME", factor=False, rare=True),
    Option("fresh", SWITCH, WORKLOAD, default=False, flag=True, factor=False),
    Option("node", TEXT, TOPOLOGY, metavar="[SCRIPT=]NODE", several=True, follows=_LAYOUT,
           type="str | Mapping[str, str]"),
    Option("standbys", _whole(0, 8), TOPOLOGY, metavar="N", whole=True, follows=_LAYOUT),
    Option("pool", _one_of("none", "pgbouncer", "pgpool"), TOPOLOGY, whole=True, follows=_LAYOUT),
    Option("pool_mode", _one_of("session", "transaction"), TOPOLOGY, whole=True, follows=_LAYOUT),
    Option("pool_size", _whole(1, 10_000), TOPOLOGY, metavar="N", whole=True, follows=_LAYOUT),
    Option("profile", TEXT, SERVER, metavar="NAME|FILE", whole=True, follows=_SERVER),
    Option("background", TEXT, BACKGROUND, metavar="'WORKLOAD NAME=LEVEL...'", several=True,
           factor=False, follows=_LAYOUT, type="Mapping[str, Mapping[str, Any]]"),
    Option("target_node", TEXT, TOPOLOGY, metavar="NAME=DSN", several=True, factor=False,
           type="Mapping[str, str]"),
)  # fmt: skip
# Options of commands that do not belong to a trial. keyword: the command's name of the value.
OF_COMMANDS: Mapping[str, Option] = {option.name: option for option in (
    Option("file", TEXT, WORKLOAD, short="-f", metavar="FILE[@WEIGHT]", several=True,
           keyword="files"),
    Option("like", TEXT, GENERAL, metavar="RUN"),
    Option("input", TEXT, WORKLOAD, metavar="PATTERN", several=True),
    Option("rows", TEXT, WORKLOAD, metavar="SQL"),
    Option("from_database", TEXT, WORKLOAD, metavar="NAME|DSN"),
    Option("event", TEXT, MIGRATION, metavar="restart|crash|failover|checkpoint|COMMAND"),
    Option("run", TEXT, WORKLOAD, metavar="COMMAND", keyword="program"),
    Option("open_transaction", PAUSE, MIGRATION, metavar="TIME", default="3s"),
    Option("autovacuum", SWITCH, MIGRATION, flag=True, rare=True),
    Option("production_rows", TEXT, WORKLOAD, metavar="TABLE=N", several=True, rare=True,
           typed="rows"),
    Option("lock_timeout", DURATION, MIGRATION, metavar="TIME"),
    Option("retries", _whole(0, 10_000), MIGRATION, metavar="N", default=0),
    Option("single_transaction", SWITCH, MIGRATION, short="-1", flag=True),
    Option("safer", SWITCH, MIGRATION, default=True, flag=True),
    Option("safer_file", TEXT, OUTPUT, metavar="FILE"),
    Option("timeout", DURATION, MIGRATION, metavar="TIME", default="10min"),
    Option("trust", SWITCH, WORKLOAD, flag=True, rare=True),
    Option("new", TEXT, WORKLOAD, metavar="FILE"),
    Option("in", TEXT, WORKLOAD, metavar="EXPERIMENT", default="last", keyword="of"),
    Option("experiment", TEXT, GENERAL, metavar="NAME"),
    Option("experiments", SWITCH, GENERAL, short="-E", flag=True),
    Option("seventh", _one_of("lag", "retries"), GENERAL),
    Option("log", TEXT, WORKLOAD, metavar="FILE", several=True, keyword="logs"),
    Option("top", _whole(1, 1000), WORKLOAD, metavar="N", default=100),
    Option("size", TEXT, GENERAL, metavar="SIZE"),
    Option("runs", _whole(3, 99), GENERAL, metavar="N", default=3),
    Option("trials", Kind(_trials, "int | str"), LOAD, metavar="N"),
    Option("quick", SWITCH, GENERAL, flag=True),
    Option("soak", DURATION, LOAD, metavar="TIME", default="10min", rare=True),
    Option("pairs", _whole(8), LOAD, metavar="N"),
    Option("same", _whole(0), LOAD, metavar="N", rare=True),
    Option("yes", SWITCH, GENERAL, flag=True, rare=True),
    Option("missed", MISSED, GOAL, metavar="SHARE"),
    Option("goal", TEXT, GOAL, metavar="GOAL", keyword="quantile"),
    Option("by", _one_of("rate", "users", "clients"), GOAL),
    Option("fail_if", TEXT, GOAL, metavar="CONDITION", several=True),
    Option("allow_fail", SWITCH, GOAL, flag=True, rare=True),
    Option("metric", _one_of(*COMPARED), GOAL, metavar="METRIC"),
    Option("also", TEXT, GOAL, metavar="METRICS", rare=True),
    Option("delta", SHARE, GOAL, metavar="SHARE"),
    Option("factor", TEXT, GOAL, metavar="NAME", several=True, keyword="factors"),
    Option("anyway", SWITCH, GENERAL, flag=True, rare=True),
    Option("output", TEXT, OUTPUT, short="-o", metavar="FILE"),
    Option("gate", SWITCH, GOAL, flag=True, rare=True),
    Option("junit", TEXT, OUTPUT, metavar="FILE", rare=True),
    Option("summary", TEXT, OUTPUT, metavar="FILE", rare=True),
    Option("limit", _whole(1), OUTPUT, short="-n", metavar="N", default=20),
    Option("count", _whole(1), OUTPUT, short="-n", metavar="N"),
    Option("no_values", SWITCH, WORKLOAD, flag=True),
    Option("json", SWITCH, OUTPUT, flag=True, keyword="as_json"),
    Option("verbose", SWITCH, OUTPUT, short="-v", flag=True),
    Option("dry_run", SWITCH, GENERAL, flag=True),
    Option("progress", _whole(0), OUTPUT, short="-P", metavar="SECONDS", rare=True),
    Option("live", SWITCH, OUTPUT, flag=True, rare=True),
    Option("metrics", TEXT, OUTPUT, metavar="FORM", several=True, rare=True),
    Option("version", TEXT, SERVER, metavar="VERSION", keyword="wanted"),
    Option("host_file", TEXT, SERVER, metavar="FILE"),
    Option("allow_alter_system", SWITCH, SERVER, flag=True),
    Option("restart_command", TEXT, SERVER, metavar="COMMAND"),
    Option("price_per_hour", NUMBER, SERVER, metavar="PRICE"),
    Option("store", TEXT, STORE, metavar="FILE|DSN", keyword="store_path"),
    Option("on_store_error", _one_of("continue", "stop"), STORE, default="continue"),
    Option("name", TEXT, STORE, metavar="NAME"),
    Option("remove", SWITCH, STORE, flag=True),
    Option("tag", TEXT, GENERAL, metavar="NAME"),
)}  # fmt: skip
BY_NAME: Mapping[str, Option] = {option.name: option for option in OPTIONS}
FACTORS: Mapping[str, Option] = {option.name: option for option in OPTIONS if option.factor}
_BACKGROUND_NAME = re.compile(r"[A-Za-z0-9_-]{1,63}")
# Families of levels, with a free name after the dot.
FAMILIES = ("set", "server_set", "define", "latency_limit", "node", "background")


def replaced(typed: Iterable[str]) -> set[str]:
    """The options that these replace: of another kind of load, of another length, and so on."""
    new, gone = set(typed), set[str]()
    for word in ("load", "length"):
        group = {option.name for option in OPTIONS if option.alone == word}
        gone |= group if new & group else set()
    if "users" in new:
        gone.add("clients")
    if "clients" in new:
        gone |= {"users", "pace"}
    if new & {"rate", "rate_per_client", "think_time"}:
        gone.add("pace")
    if "workload" in new:
        gone |= {"files", "scripts"}
    return gone - new


def follows(factor: str) -> tuple[str, ...]:
    option = BY_NAME.get("variant" if factor == "workload" else factor)
    return () if option is None else option.follows


def level_names() -> list[str]:
    return [*FACTORS, *(f"{family}." for family in FAMILIES)]


def check_name(name: str) -> None:
    """Raises PlanError, with the most similar name, if levels cannot have this name."""
    family, dot, rest = name.partition(".")
    if dot and family == "background":
        of, dot, level = rest.partition(".")
        if not dot or not level or not _BACKGROUND_NAME.fullmatch(of):
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
    raise PlanError("unknown-factor", factor=name, near=similar(name, [*level_names(), *ending]))
