"""The table of options: each option of a trial, its data, its server and its topology, once.

The command line, experiment and workload files, Python keywords, names of factors, what a factor
changes with it, and the reference pages are derived from this table. Knows no files and no server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from pgpaces.core.errors import PlanError, similar
from pgpaces.core.metrics import COMPARED
from pgpaces.core.units import COUNT_MAX, SEED_MAX, digits


class Kind(Struct, frozen=True):
    """The values of an option. read: converts a text; raises PlanError.

    python: the type of a Python keyword. choices: the valid texts. span: the range of integers.
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
            several = re.search(r"\d(?!\.\d)\D+\d", text) and ",".join(re.findall(r"\d+", text))
            raise PlanError(
                "not-an-integer", what="level", value=text, low=low, high=high, levels=several
            )
        return number

    return Kind(read, "int", span=(low, high))


def _one_of(*names: str) -> Kind:
    def read(text: str) -> str:
        if text not in names:
            near = similar(text, names)
            raise PlanError("not-a-choice", what="level", value=text, choices=names, near=near)
        return text

    return Kind(read, choices=names)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise PlanError("not-a-number", what="level", value=text) from None


def _switch(text: str) -> bool:
    if text not in (choices := ("true", "false", "on", "off")):
        raise PlanError("not-a-choice", what="level", value=text, choices=choices)
    return text in ("true", "on")


def _folder(text: str) -> str:
    if not text.startswith("/"):
        raise PlanError("relative-path", path=text)
    return text


def _scripts(text: str) -> tuple[tuple[str, int | None], ...]:
    scripts = []
    for word in text.split():
        name, at, weight = word.rpartition("@")
        if at and digits(weight) is None:
            raise PlanError("not-a-number", what="weight", value=weight).at(word)
        scripts.append((name, digits(weight)) if at else (word, None))
    if not scripts:
        raise PlanError("no-scripts")
    return tuple(scripts)


# Groups of options, in the order of help and reference.
GROUPS = (WORKLOAD, LOAD, GOAL, TARGET, OUTPUT, SERVER, TOPOLOGY, BACKGROUND, GENERATOR, STORE) = (
    *("Workload", "Load", "Goal", "Target", "Output"),
    *("Server", "Topology", "Background load", "Generator", "Store"),
)
# The groups in `--help` of a command with more than SHORT options.
USUAL, SHORT = GROUPS[:5], 30

TEXT, NUMBER = Kind(), Kind(_number, "float")
DURATION, RATE = Kind(python="str | float", seconds=True), Kind(python="str | float")
SWITCH, FOLDER = Kind(_switch, "bool"), Kind(_folder, "str | Path")
SCRIPTS = Kind(_scripts, "Sequence[str]")

# Differences that a factor implies, in addition to its own: their names, or prefixes of them.
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


class Option(Struct, frozen=True):
    """An option. help: a sentence; run_help: an addition for `run`. group: one of GROUPS.

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
    help: str
    short: str = ""
    metavar: str = ""
    default: Any = None
    run_help: str = ""
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
    def word(self) -> str:
        return f"--{(self.typed or self.name).replace('_', '-')}"


# Factors from the command line have this order in designs, which are compared on resuming.
OPTIONS: tuple[Option, ...] = (
    Option("clients", _whole(1, 100_000), LOAD, "Connections.", short="-c", metavar="N",
           follows=_LOAD),
    Option("users", _whole(1, 100_000), LOAD, "Paced load: users with a --pace each.",
           metavar="N", follows=_LOAD, alone="load"),
    Option("rate", RATE, LOAD, "Open load: transactions a second in all, such as 10/s.",
           metavar="RATE", follows=_LOAD, alone="load"),
    Option("rate_per_client", RATE, LOAD, "Open load: this rate for each client.",
           metavar="RATE", follows=_LOAD, alone="load"),
    Option("pace", RATE, LOAD, "Paced load: transactions a second of each user.",
           metavar="RATE", follows=_LOAD),
    Option("think_time", DURATION, LOAD,
           "Closed load: mean pause of a client before each transaction; 0: none.",
           metavar="TIME", follows=_LOAD, alone="load"),
    Option("think", _one_of("exponential", "fixed"), LOAD, "Distribution of think times.",
           run_help="[default: exponential, or the workload's]", follows=_LOAD, rare=True),
    Option("start_every", DURATION, LOAD,
           "Clients of a closed or paced load start this long after one another.",
           metavar="TIME", follows=_LOAD, rare=True),
    Option("arrivals", _one_of("poisson", "even"), LOAD, "Spacing of arrivals.",
           default="poisson", follows=_LOAD, rare=True),
    Option("shape", TEXT, LOAD,
           "How the rate changes over the trial, such as steps:0.5:1:2.",
           metavar="SHAPE", follows=_LOAD, rare=True),
    Option("latency_limit", DURATION, GOAL,
           "A transaction that takes longer is late (ms); NAME=TIME: for one script.",
           short="-L", metavar="[SCRIPT=]TIME", several=True,
           follows=("limit", "limits of scripts", *_LOAD),
           type="str | float | Mapping[str, str | float]"),
    Option("policy", _one_of("run", "skip"), GOAL, "What happens to work too late to start.",
           default="run"),
    Option("duration", DURATION, LOAD, "Length of a trial without its warm-up.", short="-T",
           metavar="TIME", run_help="[default: 60s]", whole=True, follows=("warmup",),
           alone="length"),
    Option("transactions", _whole(1), LOAD, "Or this many transactions of each client.",
           short="-t", metavar="N", whole=True, alone="length"),
    Option("warmup", DURATION, LOAD, "Load before the measured part.", metavar="TIME",
           run_help="[default: duration / 10, up to 30s]", whole=True, rare=True),
    Option("grace", DURATION, LOAD, "Time for the backlog at the end.", metavar="TIME",
           run_help="[default: 5s or -L]", whole=True, rare=True),
    Option("protocol", _one_of("simple", "extended", "prepared"), GENERATOR, "How SQL is sent.",
           short="-M", default="simple"),
    Option("describe", SWITCH, GENERATOR, "Ask for result descriptions, as pgbench does.",
           default=False, flag=True),
    Option("threads", _whole(1, 1024), GENERATOR,
           "Threads of the load generator; processes of Python users.", short="-j", metavar="N"),
    Option("poll", _one_of("auto", "epoll", "io_uring"), GENERATOR,
           "How the load generator waits for its connections.", default="auto"),
    Option("generators", Kind(python="int | str"), GENERATOR,
           "Processes that generate the load, or hosts that do: ssh:HOST,HOST.",
           metavar="N|ssh:HOST,...", whole=True, rare=True, follows=("threads", "poll", "clients")),
    Option("cluster", TEXT, GENERATOR,
           "The workers of this Dask cluster generate the load: tls://HOST:8786.",
           metavar="ADDRESS", whole=True, rare=True, follows=("threads", "poll", "clients")),
    Option("insecure_cluster", SWITCH, GENERATOR,
           "Reach a --cluster on other machines without encryption.", default=False, flag=True,
           whole=True, rare=True),
    Option("seed", Kind(int, "int"), GENERATOR, "Seed of the load.", metavar="N", default=1,
           factor=False),
    Option("define", TEXT, WORKLOAD, "Script variable, or variable of Python users.", short="-D",
           metavar="NAME=VALUE", several=True, factor=False, follows=("variable ",),
           keyword="variables", type="Mapping[str, object]"),
    Option("on_connect", TEXT, GENERATOR, "SQL of every connection at its start.", metavar="SQL",
           several=True, factor=False),
    Option("connect_each", SWITCH, GENERATOR, "A new connection for every transaction.",
           default=False, flag=True),
    Option("max_tries", _whole(0), GENERATOR,
           "Tries, within its latency limit, of a transaction that fails by serialization or"
           " deadlock; 0: any number.",
           metavar="N", default=1),
    Option("on_error", _one_of("continue", "stop-client", "stop"), GENERATOR,
           "What another failed statement ends: its transaction, its client, the run.",
           default="continue"),
    Option("verbose_errors", SWITCH, GENERATOR, "Print every failure and retry on stderr.",
           default=False, flag=True, factor=False),
    Option("keep_going", SWITCH, GENERATOR,
           "Go on although the first transactions of a script all fail.",
           default=False, flag=True),
    Option("guard", SWITCH, BACKGROUND,
           "Stop when the load harms other sessions of the --target.",
           default=True, flag=True, whole=True),
    Option("scale", _whole(1, 1_000_000), WORKLOAD, "Size of the data.", short="-s",
           metavar="N", run_help="[default: the workload's]", follows=_DATA),
    Option("data_seed", _whole(0, SEED_MAX), WORKLOAD, "Seed for data generation.",
           metavar="N", default=1, follows=_DATA, rare=True),
    Option("variant", TEXT, WORKLOAD, "A variant of the workload, as in WORKLOAD/VARIANT.",
           metavar="NAME", run=False, follows=_WORKLOAD),
    Option("scripts", SCRIPTS, WORKLOAD, "Run only these scripts: by_fk1@3 one_fk1@1.", run=False,
           metavar="NAME[@WEIGHT]", several=True, follows=_WORKLOAD, typed="script"),
    Option("server", TEXT, TARGET,
           "Version to start (15, package:15), or a managed server that runs.",
           metavar="VERSION", whole=True, follows=(*_SERVER, "fingerprint of the data")),
    Option("data_dir", FOLDER, SERVER, "The disk for the data of a managed server: a folder.",
           metavar="DIR", follows=_SERVER),
    Option("tls", SWITCH, SERVER,
           "Reach a managed server by TCP on the loopback, with TLS (on) or without (off).",
           run_help="[default: its socket]", whole=True, follows=_SERVER),
    Option("target", TEXT, TARGET,
           "An external server: anything libpq reads. Default: a managed one.", metavar="DSN",
           whole=True, follows=(*_SERVER, "machine: ", "fingerprint of the data")),
    Option("set", TEXT, TARGET, "Setting of each session.", metavar="NAME=VALUE", several=True,
           factor=False, keyword="settings", type="Mapping[str, object]"),
    Option("server_set", TEXT, TARGET, "Setting of the server.", metavar="NAME=VALUE",
           several=True, factor=False, keyword="server_settings", type="Mapping[str, object]"),
    Option("observe_command", TEXT, SERVER,
           "Command that runs `pgpaces observe` on the machine of --target, over ssh.",
           metavar="COMMAND", factor=False),
    Option("own", TEXT, TARGET, "A database on the target that you hand over.",
           metavar="DBNAME", factor=False, rare=True),
    Option("fresh", SWITCH, WORKLOAD, "Make the data anew.", default=False, flag=True,
           factor=False),
    Option("node", TEXT, TOPOLOGY,
           "Where the load, or one script, goes: primary, standbys, standby1, any, pool.",
           metavar="[SCRIPT=]NODE", several=True, follows=_LAYOUT, type="str | Mapping[str, str]"),
    Option("standbys", _whole(0, 8), TOPOLOGY, "Streaming standbys of a managed server.",
           metavar="N", whole=True, follows=_LAYOUT),
    Option("pool", _one_of("none", "pgbouncer", "pgpool"), TOPOLOGY,
           "Pooler in front of a managed server; pgpool sends reads to the standbys.",
           whole=True, follows=_LAYOUT),
    Option("pool_mode", _one_of("session", "transaction"), TOPOLOGY,
           "How long a client keeps a connection of pgbouncer.", run_help="[default: session]",
           whole=True, follows=_LAYOUT),
    Option("pool_size", _whole(1, 10_000), TOPOLOGY, "Server connections of the pool.",
           metavar="N", run_help="[default: as clients]", whole=True, follows=_LAYOUT),
    Option("profile", TEXT, SERVER, "Named settings of a managed server: pi-4gb, or a file.",
           metavar="NAME|FILE", whole=True, follows=_SERVER),
    Option("background", TEXT, BACKGROUND,
           "Background workload: 'reporting node=standby1 rate=1/s'.",
           metavar="'WORKLOAD NAME=LEVEL...'", several=True, factor=False, follows=_LAYOUT,
           type="Mapping[str, Mapping[str, Any]]"),
    Option("target_node", TEXT, TOPOLOGY,
           "A server that belongs to the --target: standby1, ..., or its pool.",
           metavar="NAME=DSN", several=True, factor=False, type="Mapping[str, str]"),
)  # fmt: skip
# Options of commands that do not belong to a trial. keyword: the command's name of the value.
OF_COMMANDS: Mapping[str, Option] = {option.name: option for option in (
    Option("file", TEXT, WORKLOAD,
           "A script of pgbench's language; -: the standard input. Without a workload it runs in"
           " the database of --target as it stands.", short="-f", metavar="FILE[@WEIGHT]",
           several=True, keyword="files"),
    Option("input", TEXT, WORKLOAD, "Files that the command reads; their bytes are counted.",
           metavar="PATTERN", several=True, keyword="inputs"),
    Option("rows", TEXT, WORKLOAD, "A query that counts what the command has loaded.",
           metavar="SQL"),
    Option("from_database", TEXT, WORKLOAD, "Measure a copy of this database, not generated data.",
           metavar="NAME|DSN"),
    Option("trust", SWITCH, WORKLOAD, "The folders of workloads may execute programs; their content"
           " is not asked about again.", flag=True, rare=True),
    Option("new", TEXT, WORKLOAD, "Write a commented experiment file, and stop.", metavar="FILE"),
    Option("schema", SWITCH, WORKLOAD, "Print the JSON Schema of experiment files, and stop.",
           flag=True, rare=True),
    Option("in", TEXT, WORKLOAD, "The experiment with A and B, if they are levels.",
           metavar="EXPERIMENT", default="last", keyword="of"),
    Option("experiment", TEXT, WORKLOAD, "Only runs of this experiment: name, id, last.",
           metavar="NAME"),
    Option("experiments", SWITCH, WORKLOAD, "List experiments, not runs.", short="-E", flag=True),
    Option("seventh", _one_of("lag", "retries"), WORKLOAD,
           "Meaning of the 7th column, if a log has 7 columns."),
    Option("log", TEXT, WORKLOAD,
           "A log of the server, whose parameters are used: stderr's, .csv or .json.",
           metavar="FILE", several=True, keyword="logs"),
    Option("top", _whole(1, 1000), WORKLOAD,
           "Maximum number of statements; the most important ones.", metavar="N", default=100),
    Option("size", TEXT, LOAD, "Size of the file. [default: 256MB; 32MB with --quick]",
           metavar="SIZE"),
    Option("runs", _whole(3, 99), LOAD, "Runs of each job of the card.", metavar="N", default=3),
    Option("trials", _whole(1), LOAD, "Trials of each cell. [default: 1]", metavar="N"),
    Option("quick", SWITCH, LOAD, "Seconds instead of minutes, for an indicative answer.",
           flag=True),
    Option("soak", DURATION, LOAD,
           "Length of the final trial at 0.9 of the highest pass; 0: none.", metavar="TIME",
           default="10min", rare=True),
    Option("pairs", _whole(8), LOAD,
           "Maximum number of pairs; from 24 on with three interim analyses. [default: 24]",
           metavar="N"),
    Option("same", _whole(0), LOAD,
           "Pairs of A with itself, which show the noise of the machine. [default: 8]", metavar="N",
           rare=True),
    Option("yes", SWITCH, LOAD, "Do not ask.", flag=True, rare=True),
    Option("missed", TEXT, GOAL, "The share that may miss -L. [default: 5%]", metavar="SHARE"),
    Option("goal", TEXT, GOAL, "Or a bound on a quantile: 'p99 <= 250ms'.", metavar="GOAL",
           keyword="quantile"),
    Option("by", _one_of("rate", "users", "clients"), GOAL, "Unit of the load. [default:"
           " users with --pace, clients with --rate-per-client or --think-time, else rate]"),
    Option("fail_if", TEXT, GOAL, "Exit with code 30 if this is true.", metavar="CONDITION",
           several=True),
    Option("metric", _one_of(*COMPARED), GOAL, f"Metric to compare: {', '.join(COMPARED)}."
           " [default: p95 of a load with a planned rate or pace, else throughput]",
           metavar="METRIC"),
    Option("also", TEXT, GOAL, "Additional metrics, separated by commas.", metavar="METRICS",
           rare=True),
    Option("delta", TEXT, GOAL,
           "A difference that does not matter. [default: 2%; missed 0.5%]", metavar="SHARE"),
    Option("factor", TEXT, GOAL,
           "Factor to compare, of runs: variant, set.work_mem, server, ...", metavar="NAME",
           several=True, keyword="factors"),
    Option("anyway", SWITCH, GOAL, "Compare even if they differ in other factors.", flag=True,
           rare=True),
    Option("output", TEXT, OUTPUT, "Write the report too: .html, .md, .json, ...", short="-o",
           metavar="FILE"),
    Option("gate", SWITCH, GOAL,
           "Exit code 30 if B is worse than A, 32 if that is unknown, as of `check`.",
           flag=True, rare=True),
    Option("junit", TEXT, OUTPUT, "Write the verdict as JUnit's XML too.", metavar="FILE",
           rare=True),
    Option("summary", TEXT, OUTPUT,
           "Append the verdict to FILE as Markdown, such as $GITHUB_STEP_SUMMARY.", metavar="FILE",
           rare=True),
    Option("limit", _whole(1), OUTPUT, "Maximum number.", short="-n", metavar="N", default=20),
    Option("count", _whole(1), OUTPUT, "End after N lines.", short="-n", metavar="N"),
    Option("no_values", SWITCH, OUTPUT, "Write no values of the database except numbers.",
           flag=True),
    Option("json", SWITCH, OUTPUT, "Print JSON on stdout.", flag=True, keyword="as_json"),
    Option("verbose", SWITCH, OUTPUT, "Print every sentence and table, not one screen.", short="-v",
           flag=True),
    Option("dry_run", SWITCH, OUTPUT, "Print the expected time and size, and stop.", flag=True),
    Option("progress", _whole(0), OUTPUT, "Interval between progress reports; 0: none.",
           short="-P", metavar="SECONDS"),
    Option("live", SWITCH, OUTPUT, "Print the link of a page that follows the load.", flag=True,
           rare=True),
    Option("metrics", TEXT, OUTPUT,
           "Export metrics: prometheus, prometheus=ADDRESS:PORT, or otlp=URL.", metavar="FORM",
           several=True, rare=True),
    Option("version", TEXT, SERVER, "As --server of run: 15, package:15.", metavar="VERSION",
           keyword="wanted"),
    Option("host_file", TEXT, SERVER,
           "File with the price of the server's machine. [default, on this machine:"
           " $PGPACES_HOST_FILE, else host.toml in the data folder]", metavar="FILE"),
    Option("allow_alter_system", SWITCH, SERVER, "On --target; settings are put back.", flag=True),
    Option("restart_command", TEXT, SERVER, "Restarts the server of --target.", metavar="COMMAND"),
    Option("price_per_hour", NUMBER, SERVER, "Price of the machine of --target.", metavar="PRICE"),
    Option("store", TEXT, STORE,
           "The file of results, or a PostgreSQL server: anything libpq reads. [default:"
           " $PGPACES_STORE, else results.db in the data folder]", metavar="FILE|DSN",
           keyword="store_path"),
    Option("on_store_error", _one_of("continue", "stop"), STORE,
           "While the store refuses writes: go on in memory, or end the trial.",
           default="continue"),
    Option("name", TEXT, STORE, "Name of the experiment.", metavar="NAME"),
    Option("remove", SWITCH, STORE, "Remove the tag from these runs, or from all.", flag=True),
    Option("tag", TEXT, STORE, "Give the run this tag.", metavar="NAME"),
)}  # fmt: skip
BY_NAME: Mapping[str, Option] = {option.name: option for option in OPTIONS}
FACTORS: Mapping[str, Option] = {option.name: option for option in OPTIONS if option.factor}
# Families of levels, with a free name after the dot.
FAMILIES: Mapping[str, str] = {
    "set": "A setting of the server, applied in the least intrusive way: `set.work_mem`.",
    "define": "A variable of the scripts: `define.hot`.",
    "latency_limit": "The limit of one script: `latency_limit.by_fk1`.",
    "node": "The node that one script goes to: `node.by_fk1`.",
    "background": "A background workload, by a name: `background.reporting.rate`.",
}


def alone(word: str) -> tuple[str, ...]:
    """The names of options that replace each other: kinds of load, lengths."""
    return tuple(option.name for option in OPTIONS if option.alone == word)


def follows(factor: str) -> tuple[str, ...]:
    option = BY_NAME.get("variant" if factor == "workload" else factor)
    return () if option is None else option.follows


def defaults() -> dict[str, Any]:
    return {option.name: () if option.several else option.default for option in OPTIONS}
