"""The table of options: each option of a trial, its data, its server and its topology, once.

The command line, experiment and workload files, Python keywords, names of factors, what a factor
changes with it, and the reference pages are derived from this table. Knows no files and no server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pgpaces.errors import PlanError
from pgpaces.units import COUNT_MAX, SEED_MAX, digits


@dataclass(frozen=True, slots=True)
class Kind:
    """What the values of an option may be. read: a value of a text; raises PlanError.

    python: the type of a Python keyword. choices: the texts that there are. span: the integers.
    seconds: a number in Python is a number of seconds.
    """

    read: Callable[[str], Any] = str
    python: str = "str"
    choices: tuple[str, ...] = ()
    span: tuple[int, int] | None = None
    seconds: bool = False


def _whole(low: int, high: int = COUNT_MAX) -> Kind:
    def read(text: str) -> int:
        number = digits(text.strip())
        if number is None or not low <= number <= high:
            raise PlanError(
                f"'{text}' must be an integer from {low} to {high}",
                "put a comma between levels: 1,2,4"
                if re.search(r"\d(?!\.\d)\D+\d", text)
                else None,
            )
        return number

    return Kind(read, "int", span=(low, high))


def _one_of(*names: str) -> Kind:
    def read(text: str) -> str:
        if text not in names:
            raise PlanError(f"'{text}' is none of {', '.join(names)}")
        return text

    return Kind(read, choices=names)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise PlanError(f"'{text}' is no number") from None


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


TEXT, NUMBER = Kind(), Kind(_number, "float")
DURATION, RATE = Kind(python="str | float", seconds=True), Kind(python="str | float")
SWITCH, FOLDER = Kind(_switch, "bool"), Kind(_folder, "str | Path")
SCRIPTS = Kind(_scripts, "Sequence[str]")

# What a factor may change beside what is called like it: names of differences, or how they begin.
_LOAD = (
    *("load text", "load", "model", "rate", "clients", "threads", "arrivals", "start every"),
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


@dataclass(frozen=True, slots=True)
class Option:
    """An option. help: a sentence; run_help: what `run` adds to it.

    run, factor: whether a run has it, and whether an experiment may vary it. several: a run takes
    it more than once. flag: `run` takes no value. metavar: of `run`. whole: it is of a whole trial,
    so that a background workload has none of its own. follows: what a factor changes with it.
    alone: of the options with this word one is enough, so that naming another replaces it.
    keyword, type: of Python, where they are not the name and what the kind says.
    """

    name: str
    kind: Kind
    group: str
    help: str
    short: str = ""
    metavar: str = ""
    default: Any = None
    run_help: str = ""
    run: bool = True
    factor: bool = True
    several: bool = False
    flag: bool = False
    whole: bool = False
    follows: tuple[str, ...] = ()
    alone: str = ""
    keyword: str = ""
    type: str = ""

    @property
    def python(self) -> tuple[str, str]:
        """The keyword of Python, and its type."""
        choices = ", ".join(f'"{choice}"' for choice in self.kind.choices)
        kind = f"Literal[{choices}]" if choices else self.kind.python
        several = "Sequence[str]" if self.several else kind
        none = " | None" if self.default is None and not self.several else ""
        return self.keyword or self.name, (self.type or several) + none

    @property
    def word(self) -> str:
        """As the command line has it."""
        return f"--{self.name.replace('_', '-')}"


# Factors that are typed stand in this order in designs, which are compared when one is resumed.
OPTIONS: tuple[Option, ...] = (
    Option("clients", _whole(1, 100_000), "load", "Connections.", short="-c", metavar="N",
           follows=_LOAD),
    Option("users", _whole(1, 100_000), "load", "Paced load: users with a --pace each.",
           metavar="N", follows=_LOAD, alone="load"),
    Option("rate", RATE, "load", "Open load: transactions a second in all, such as 10/s.",
           metavar="RATE", follows=_LOAD, alone="load"),
    Option("rate_per_client", RATE, "load", "Open load: this rate for each client.",
           metavar="RATE", follows=_LOAD, alone="load"),
    Option("pace", RATE, "load", "Paced load: transactions a second of each user.",
           metavar="RATE", follows=_LOAD),
    Option("think_time", DURATION, "load",
           "Closed load: mean pause of a client before each transaction; 0: none.",
           metavar="TIME", follows=_LOAD, alone="load"),
    Option("think", _one_of("exponential", "fixed"), "load", "Distribution of think times.",
           run_help="[default: exponential, or the workload's]", follows=_LOAD),
    Option("start_every", DURATION, "load",
           "Clients of a closed or paced load start this long after one another.",
           metavar="TIME", follows=_LOAD),
    Option("arrivals", _one_of("poisson", "even"), "load", "Spacing of arrivals.",
           default="poisson", follows=_LOAD),
    Option("shape", TEXT, "load",
           "How the rate changes over the trial, such as steps:0.5:1:2.",
           metavar="SHAPE", follows=_LOAD),
    Option("latency_limit", DURATION, "load",
           "A transaction that takes longer is late (ms); NAME=TIME: of one script.",
           short="-L", metavar="[SCRIPT=]TIME", several=True,
           follows=("limit", "limits of scripts", *_LOAD),
           type="str | float | Mapping[str, str | float]"),
    Option("policy", _one_of("run", "skip"), "load", "What happens to work too late to start.",
           default="run"),
    Option("duration", DURATION, "trial", "Length of a trial without its warm-up.", short="-T",
           metavar="TIME", run_help="[default: 60s]", whole=True, follows=("warmup",),
           alone="length"),
    Option("transactions", _whole(1), "trial", "Or this many transactions of each client.",
           short="-t", metavar="N", whole=True, alone="length"),
    Option("warmup", DURATION, "trial", "Load before the measured part.", metavar="TIME",
           run_help="[default: duration / 10, up to 30s]", whole=True),
    Option("grace", DURATION, "trial", "Time for the backlog at the end.", metavar="TIME",
           run_help="[default: 5s or -L]", whole=True),
    Option("protocol", _one_of("simple", "extended", "prepared"), "trial", "How SQL is sent.",
           short="-M", default="simple"),
    Option("describe", SWITCH, "trial", "Ask for result descriptions, as pgbench does.",
           default=False, flag=True),
    Option("threads", _whole(1, 1024), "trial",
           "Threads of the load generator; processes of Python users.", short="-j", metavar="N"),
    Option("poll", _one_of("auto", "epoll", "io_uring"), "trial",
           "How the load generator waits for its connections.", default="auto"),
    Option("seed", Kind(int, "int"), "trial", "Seed of the load.", default=1, factor=False),
    Option("define", TEXT, "trial", "Script variable, or variable of Python users.", short="-D",
           metavar="NAME=VALUE", several=True, factor=False, follows=("variable ",),
           keyword="variables", type="Mapping[str, object]"),
    Option("set", TEXT, "trial", "Session setting.", metavar="NAME=VALUE", several=True,
           factor=False, keyword="settings", type="Mapping[str, object]"),
    Option("on_connect", TEXT, "trial", "Every connection executes it first.", metavar="SQL",
           several=True, factor=False),
    Option("connect_each", SWITCH, "trial", "A new connection for every transaction.",
           default=False, flag=True),
    Option("max_tries", _whole(0), "trial",
           "Tries of a transaction that fails by serialization or deadlock; 0: no limit.",
           metavar="N", default=1),
    Option("on_error", _one_of("continue", "stop-client", "stop"), "trial",
           "What another failed statement ends: its transaction, its client, the run.",
           default="continue"),
    Option("verbose_errors", SWITCH, "trial", "Print every failure and retry on stderr.",
           default=False, flag=True, factor=False),
    Option("kill_switch", NUMBER, "background",
           "Stop when other sessions on the --target get this many times slower.",
           metavar="FACTOR", whole=True),
    Option("scale", _whole(1, 1_000_000), "data", "Size of the data.", short="-s",
           run_help="[default: the workload's]", follows=_DATA),
    Option("data_seed", _whole(0, SEED_MAX), "data", "Seed for data generation.", default=1,
           follows=_DATA),
    Option("variant", TEXT, "data", "A variant of the workload.", run=False, follows=_WORKLOAD),
    Option("scripts", SCRIPTS, "data", "Scripts to run, with weights: by_fk1@3 one_fk1@1.",
           run=False, follows=_WORKLOAD),
    Option("server", TEXT, "target",
           "Version to start (15, package:15), or a managed server that runs.",
           metavar="VERSION", whole=True, follows=(*_SERVER, "fingerprint of the data")),
    Option("data_dir", FOLDER, "target", "The disk for the data of a managed server: a folder.",
           metavar="DIR", follows=_SERVER),
    Option("tls", SWITCH, "target",
           "Reach a managed server by TCP on the loopback, with TLS (on) or without (off).",
           run_help="[default: its socket]", whole=True, follows=_SERVER),
    Option("target", TEXT, "target",
           "An external server: anything libpq reads. Default: a managed one.", metavar="DSN",
           whole=True, follows=(*_SERVER, "machine: ", "fingerprint of the data")),
    Option("server_set", TEXT, "target", "Setting of a managed server.", metavar="NAME=VALUE",
           several=True, factor=False, keyword="server_settings", type="Mapping[str, object]"),
    Option("observe_command", TEXT, "target",
           "Command that runs `pgpaces observe` on the machine of --target, over ssh.",
           metavar="COMMAND", factor=False),
    Option("own", TEXT, "target", "A database on the target that you hand over.",
           metavar="DBNAME", factor=False),
    Option("fresh", SWITCH, "target", "Make the data anew.", default=False, flag=True,
           factor=False),
    Option("node", TEXT, "topology",
           "Where the load, or one script, goes: primary, standbys, standby1, any, pool.",
           metavar="[SCRIPT=]NODE", several=True, follows=_LAYOUT, type="str | Mapping[str, str]"),
    Option("standbys", _whole(0, 8), "topology", "Streaming standbys of a managed server.",
           metavar="N", whole=True, follows=_LAYOUT),
    Option("pool", _one_of("none", "pgbouncer", "pgpool"), "topology",
           "Pooler in front of a managed server; pgpool sends reads to the standbys.",
           whole=True, follows=_LAYOUT),
    Option("pool_mode", _one_of("session", "transaction"), "topology",
           "How long a client keeps a connection of pgbouncer.", run_help="[default: session]",
           whole=True, follows=_LAYOUT),
    Option("pool_size", _whole(1, 10_000), "topology", "Server connections of the pool.",
           metavar="N", run_help="[default: as clients]", whole=True, follows=_LAYOUT),
    Option("profile", TEXT, "target", "Named settings of a managed server: pi-4gb, or a file.",
           metavar="NAME|FILE", whole=True, follows=_SERVER),
    Option("beside", TEXT, "background",
           "Another workload at the same time: 'reporting node=standby1 rate=1/s'.",
           metavar="'WORKLOAD NAME=LEVEL...'", several=True, factor=False, follows=_LAYOUT,
           type="Mapping[str, Mapping[str, Any]]"),
    Option("target_node", TEXT, "background",
           "A server that belongs to the --target: standby1, ..., or its pool.",
           metavar="NAME=DSN", several=True, factor=False, type="Mapping[str, str]"),
)  # fmt: skip
BY_NAME: Mapping[str, Option] = {option.name: option for option in OPTIONS}
FACTORS: Mapping[str, Option] = {option.name: option for option in OPTIONS if option.factor}
# Families of levels, each with a name of its own after the dot.
FAMILIES: Mapping[str, str] = {
    "set": "A setting of the server, applied as mildly as it can be: `set.work_mem`.",
    "define": "A variable of the scripts: `define.hot`.",
    "latency_limit": "The limit of one script: `latency_limit.by_fk1`.",
    "node": "The node that one script goes to: `node.by_fk1`.",
    "beside": "Another workload at the same time, by a name: `beside.reporting.rate`.",
}


def alone(word: str) -> tuple[str, ...]:
    """The names of options of which one is enough: kinds of load, lengths."""
    return tuple(option.name for option in OPTIONS if option.alone == word)


def follows(factor: str) -> tuple[str, ...]:
    """Names of differences that a factor makes beside its own, or how they begin."""
    known = BY_NAME.get("variant" if factor == "workload" else factor)
    return () if known is None else known.follows


def defaults() -> dict[str, Any]:
    """What is asked for where an option is not given."""
    return {option.name: () if option.several else option.default for option in OPTIONS}


def in_run(group: str) -> tuple[Option, ...]:
    """The options of a run in a group."""
    return tuple(option for option in OPTIONS if option.run and option.group == group)
