"""pgbench's command line: words in, values out, errors in pgbench's own words and order.

Values are read as by C's strtol, atof and scanf. Prints nothing and reads no script. Options are
parsed one after the other, as by getopt_long: the first wrong one ends it, and a script is read
when its option is parsed. Python's getopt parses the whole line first, so it is not used.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from pgpaces.core.hidden_fields import Redacted

VERSION = "20devel"
_SCRIPTS_MAX = 128
_DEFAULT_STEPS, _ALL_STEPS = "dtgvp", "dtgGvpf"
_DEFAULT_TRANSACTIONS = 10

INT_MAX = 2**31 - 1
_UINT64_MAX = 2**64 - 1
_INT64_MAX = 2**63 - 1

# White space and numbers of C's isspace, strtol and atof.
_SPACE = " \t\n\v\f\r"
_INTEGER = re.compile(r"[ \t-\r]*([+-]?[0-9]+)")
_REAL = re.compile(
    r"[ \t-\r]*([+-]?(?:0x[0-9a-f]+\.?[0-9a-f]*(?:p[+-]?[0-9]+)?"
    r"|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?))",
    re.I,
)

# A line of a message: error, detail, hint, warning, info (the program's name before it), or plain
# (nothing before it).
Line = tuple[str, str]
_VARIABLE = re.compile(r"[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_\x80-\U0010ffff]*")

BUILTINS = {
    "tpcb-like": "<builtin: TPC-B (sort of)>",
    "simple-update": "<builtin: simple update>",
    "select-only": "<builtin: select only>",
}


class PgbenchError(Exception):
    """An error that ends the program; `lines`: its messages in pgbench's words."""

    exit_code = 1

    def __init__(self, message: str, *more: Line, level: str = "error") -> None:
        super().__init__(message)
        self.lines: tuple[Line, ...] = ((level, message), *more)


class OptionError(PgbenchError):
    """An error in the command line."""


class AnsweredError(Exception):
    """An option that prints a text in place of a run, before the options after it are parsed."""

    def __init__(self, text: str, stream: Literal["stdout", "stderr"] = "stderr") -> None:
        super().__init__()
        self.text, self.stream = text, stream


class ScriptOption(Struct, frozen=True):
    """A script of the command line: a builtin's name, or the name of a file ("-": stdin)."""

    name: str
    weight: int = 1
    builtin: bool = False
    content: str = ""

    @property
    def text(self) -> str:
        return builtin_text(self.name) if self.builtin else self.content

    @property
    def description(self) -> str:
        return BUILTINS[self.name] if self.builtin else self.name


class Options(Redacted, frozen=True):
    """All options; None for one that is absent and has no default.

    limit_us: 0 for none. dbname: also a connection string. defines: values by name, as typed.
    """

    REDACTED: ClassVar = ("dbname",)
    seed: int
    initialize: bool = False
    dbname: str | None = None  # a connection string may hold a password
    host: str | None = None
    port: str | None = None
    user: str | None = None
    debug: bool = False
    scripts: tuple[ScriptOption, ...] = ()
    clients: int = 1
    jobs: int = 1
    connect_each: bool = False
    defines: Mapping[str, str] = field(default_factory=dict)
    protocol: Literal["simple", "extended", "prepared"] = "simple"
    scale: int | None = None
    no_vacuum: bool = False
    vacuum_all: bool = False
    transactions: int | None = None
    duration_s: int | None = None
    rate: float | None = None
    limit_us: int = 0
    max_tries: int = 1
    continue_on_error: bool = False
    exit_on_abort: bool = False
    verbose_errors: bool = False
    failures_detailed: bool = False
    per_command: bool = False
    progress_s: int = 0
    progress_timestamp: bool = False
    log: bool = False
    log_prefix: str | None = None
    sampling_rate: float | None = None
    aggregate_s: int = 0
    steps: str = _DEFAULT_STEPS
    fillfactor: int = 100
    quiet: bool = False
    foreign_keys: bool = False
    unlogged: bool = False
    tablespace: str | None = None
    index_tablespace: str | None = None
    partitions: int = 0
    partition_method: Literal["range", "hash"] | None = None
    store: bool = True

    @property
    def builtin_used(self) -> bool:
        return any(script.builtin for script in self.scripts)


# Called for options whose order matters, as they are parsed: with `seed`, `clients` or `script`,
# and the value; returns the content of a script. An exception ends the parsing.
Told = Callable[[str, Any], str | None]


class _Line(Struct):
    command: str
    tell: Told
    options: Options
    operands: list[str] = field(default_factory=list)
    modes: set[str] = field(default_factory=set)

    def usage_error(self, message: str, level: str = "info") -> OptionError:
        hint = f'Try "{self.command} --help" for more information.'
        return OptionError(message, ("hint", hint), level=level)

    def put(self, option: PgbenchOption, text: str) -> None:
        """Takes an option with its text, in the order of the command line."""
        self.modes.add(option.mode)
        value, before = option.value(text), self.options
        if isinstance(value, ScriptOption):
            value = replace(value, content=self.tell("script", value) or "")
            if len(before.scripts) >= _SCRIPTS_MAX:
                raise OptionError(f"at most {_SCRIPTS_MAX} SQL scripts are allowed")
            value = (*before.scripts, value)
        elif option.field == "defines":
            value = {**before.defines, **value}
        self.options = replace(before, **{option.field: value})
        if option.field in ("seed", "clients"):
            self.tell(option.field, value)


def whole(text: str, name: str, low: int, *, high: int = INT_MAX) -> int:
    """An integer in a range, with white space around it; an empty text is 0."""
    match = _INTEGER.match(text)
    if text[match.end() if match else 0 :].strip(_SPACE):
        raise OptionError(f'invalid value "{text}" for option {name}')
    value = _integer(match[1]) if match else 0
    if not low <= value <= high:
        raise OptionError(f"{name} must be in range {low}..{high}")
    return value


def _integer(text: str) -> int:
    value = int(text.lstrip("+-").lstrip("0")[:21] or "0")  # Python refuses thousands of digits
    return -value if text.startswith("-") else value


def real(text: str) -> float:
    """The number at the start of a text, as by atof; 0 if there is none.

    Infinity and NaN are 0 too: pgbench accepts them, and then measures nonsense.
    """
    match = _REAL.match(text)
    if not match:
        return 0.0
    try:
        value = float.fromhex(match[1]) if "x" in match[1].lower() else float(match[1])
    except OverflowError:
        return 0.0
    return value if math.isfinite(value) else 0.0


def weighted(text: str) -> tuple[str, int]:
    name, at, digits = text.rpartition("@")
    if not at:
        return text, 1
    match = _INTEGER.fullmatch(digits)
    if not match or abs(weight := _integer(match[1])) > _INT64_MAX:
        raise OptionError(f"invalid weight specification: @{digits}")
    if not 0 <= weight <= INT_MAX:
        raise OptionError(f"weight specification out of range (0 .. {INT_MAX}): {weight}")
    return name, weight


def random_seed(text: str) -> int:
    """A random seed: a number as scanf reads an unsigned one, `time` or `rand`."""
    if text == "time":
        return time.time_ns() // 1000
    if text == "rand":
        return int.from_bytes(os.urandom(8), "little")
    match = _INTEGER.fullmatch(text)
    if not match:
        expected = 'Expecting an unsigned integer, "time" or "rand".'
        raise OptionError(f'unrecognized random seed option "{text}"', ("detail", expected))
    value = _integer(match[1])
    return _UINT64_MAX if abs(value) > _UINT64_MAX else value % 2**64


def narrowed(text: str) -> int:
    """The integer at the start of a text, as by atoi; 0 if there is none."""
    match = _INTEGER.match(text)
    value = max(-_INT64_MAX - 1, min(_INT64_MAX, _integer(match[1]))) if match else 0
    return (value + 2**31) % 2**32 - 2**31


def _list_of_builtins() -> str:
    lines = [f"  {name:>13}: {description}\n" for name, description in BUILTINS.items()]
    return "Available builtin scripts:\n" + "".join(lines)


def _find_builtin(prefix: str) -> str:
    names = [name for name in BUILTINS if name.startswith(prefix)]
    if len(names) == 1:
        return names[0]
    message = f'no builtin script found for name "{prefix}"'
    if names:
        message = (
            f'ambiguous builtin name: {len(names)} builtin scripts found for prefix "{prefix}"'
        )
    raise OptionError(message, ("plain", _list_of_builtins()))


def builtin_text(name: str) -> str:
    from pgpaces.spec.workload import SHIPPED

    return (SHIPPED / name / f"{name}.sql").read_text(encoding="utf-8")


def _checked(
    what: str, read: Callable[[str], Any], *, holds: Callable[[Any], bool]
) -> Callable[[str], Any]:
    def checked(text: str) -> Any:
        value = read(text)
        if not holds(value):
            raise OptionError(f'{what}: "{text}"')
        return value

    return checked


def _define(text: str) -> dict[str, str]:
    name, _, value = text.partition("=")
    if not name or not value:
        raise OptionError(f'invalid variable definition: "{text}"')
    if not _VARIABLE.fullmatch(name):
        raise OptionError(f'option: invalid variable name: "{name}"')
    return {name: value}


def _builtin(text: str) -> ScriptOption:
    if text == "list":
        raise AnsweredError(_list_of_builtins() + "\n")
    name, weight = weighted(text)
    return ScriptOption(_find_builtin(name), weight, builtin=True)


def _show_script(text: str) -> None:
    name = _find_builtin(text)
    raise AnsweredError(f"-- {name}: {BUILTINS[name]}\n{builtin_text(name)}\n")


def _init_steps(text: str) -> str:
    if not text:
        raise OptionError("no initialization steps specified")
    for step in text:
        if step not in _ALL_STEPS + " ":
            raise OptionError(
                f'unrecognized initialization step "{step}"',
                ("detail", f'Allowed step characters are: "{_ALL_STEPS}".'),
            )
    return text


def _random_seed(text: str, where: str = "--random-seed option") -> int:
    try:
        return random_seed(text)
    except OptionError as error:
        last = ("error", f"error while setting random seed from {where}")
        raise OptionError(str(error), *error.lines[1:], last) from None


class PgbenchOption(Struct, frozen=True):
    """An option: its names, its mode, its field of Options, and how its text is read.

    read: converts the text, or is the range of an integer; None: it takes no value, and puts `flag`
    into the field. extra: not an option of today's pgbench, so no abbreviation matches it.
    """

    long: str
    short: str
    mode: Literal["init", "run", "both"]
    field: str
    read: Callable[[str], Any] | tuple[int, int] | None = None
    flag: bool | ScriptOption = True
    extra: bool = False

    def value(self, text: str) -> Any:
        if isinstance(self.read, tuple):
            shown = f"-{self.short}/--{self.long}" if self.short else f"--{self.long}"
            return whole(text, shown, self.read[0], high=self.read[1])
        return self.read(text) if self.read else self.flag


_COUNT = (1, INT_MAX)
_MODES, _METHODS = ("simple", "extended", "prepared"), ("range", "hash")
_GOT = 'invalid partition method, expecting "range" or "hash", got'
_LIMIT = _checked("invalid latency limit", real, holds=lambda ms: ms > 0)
_RATE = _checked("invalid rate limit", real, holds=lambda v: v > 0)
_SAMPLING_RATE = _checked("invalid sampling rate", real, holds=lambda v: 0 < v <= 1)
_MAX_TRIES = _checked("invalid number of maximum tries", narrowed, holds=lambda v: v >= 0)
_PROTOCOL = _checked("invalid query mode (-M)", str, holds=_MODES.__contains__)
_PARTITION_METHOD = _checked(_GOT, str.lower, holds=_METHODS.__contains__)
_SELECT_ONLY, _SIMPLE_UPDATE = (
    ScriptOption(name, builtin=True) for name in ("select-only", "simple-update")
)
# In pgbench's order, in which the possibilities of an ambiguous abbreviation are listed.
OPTIONS = (
    PgbenchOption("builtin", "b", "run", "scripts", _builtin),
    PgbenchOption("client", "c", "run", "clients", _COUNT),
    PgbenchOption("connect", "C", "run", "connect_each"),
    PgbenchOption("dbname", "d", "both", "dbname", str),
    PgbenchOption("define", "D", "run", "defines", _define),
    PgbenchOption("file", "f", "run", "scripts", lambda text: ScriptOption(*weighted(text))),
    PgbenchOption("fillfactor", "F", "init", "fillfactor", (10, 100)),
    PgbenchOption("host", "h", "both", "host", str),
    PgbenchOption("initialize", "i", "both", "initialize"),
    PgbenchOption("init-steps", "I", "init", "steps", _init_steps),
    PgbenchOption("jobs", "j", "run", "jobs", _COUNT),
    PgbenchOption("log", "l", "run", "log"),
    PgbenchOption("latency-limit", "L", "run", "limit_us", lambda ms: int(_LIMIT(ms) * 1000)),
    PgbenchOption("no-vacuum", "n", "both", "no_vacuum"),
    PgbenchOption("port", "p", "both", "port", str),
    PgbenchOption("progress", "P", "run", "progress_s", _COUNT),
    PgbenchOption("protocol", "M", "run", "protocol", _PROTOCOL),
    PgbenchOption("quiet", "q", "init", "quiet"),
    PgbenchOption("report-per-command", "r", "run", "per_command"),
    PgbenchOption("rate", "R", "run", "rate", _RATE),
    PgbenchOption("scale", "s", "both", "scale", _COUNT),
    PgbenchOption("select-only", "S", "run", "scripts", flag=_SELECT_ONLY),
    PgbenchOption("skip-some-updates", "N", "run", "scripts", flag=_SIMPLE_UPDATE),
    PgbenchOption("time", "T", "run", "duration_s", _COUNT),
    PgbenchOption("transactions", "t", "run", "transactions", _COUNT),
    PgbenchOption("username", "U", "both", "user", str),
    PgbenchOption("vacuum-all", "v", "run", "vacuum_all"),
    PgbenchOption("unlogged-tables", "", "init", "unlogged"),
    PgbenchOption("tablespace", "", "init", "tablespace", str),
    PgbenchOption("index-tablespace", "", "init", "index_tablespace", str),
    PgbenchOption("sampling-rate", "", "run", "sampling_rate", _SAMPLING_RATE),
    PgbenchOption("aggregate-interval", "", "run", "aggregate_s", _COUNT),
    PgbenchOption("progress-timestamp", "", "run", "progress_timestamp"),
    PgbenchOption("log-prefix", "", "run", "log_prefix", str),
    PgbenchOption("foreign-keys", "", "init", "foreign_keys"),
    PgbenchOption("random-seed", "", "run", "seed", _random_seed),
    PgbenchOption("show-script", "", "both", "", _show_script),
    PgbenchOption("partitions", "", "init", "partitions", (0, INT_MAX)),
    PgbenchOption("partition-method", "", "init", "partition_method", _PARTITION_METHOD),
    PgbenchOption("failures-detailed", "", "run", "failures_detailed"),
    PgbenchOption("max-tries", "", "run", "max_tries", _MAX_TRIES),
    PgbenchOption("verbose-errors", "", "run", "verbose_errors"),
    PgbenchOption("exit-on-abort", "", "run", "exit_on_abort"),
    PgbenchOption("debug", "", "both", "debug"),
    PgbenchOption("continue-on-error", "", "run", "continue_on_error"),
    PgbenchOption("no-store", "", "run", "store", flag=False, extra=True),
    # The name of --report-per-command in old versions of pgbench.
    PgbenchOption("report-latencies", "", "run", "per_command", extra=True),
)
_SHORT = {option.short: option for option in OPTIONS if option.short}
(_DEBUG,) = (option for option in OPTIONS if option.long == "debug")


def _parsed(line: _Line, words: Sequence[str]) -> Iterator[tuple[PgbenchOption, str]]:
    """The options in order, each with its value; operands are gathered on the way."""
    left = iter(words)
    for word in left:
        if word == "--":
            line.operands += left
        elif word.startswith("--"):
            yield _long(line, word[2:], left)
        elif word.startswith("-") and word != "-":
            yield from _cluster(line, word[1:], left)
        else:
            line.operands.append(word)


def _long(line: _Line, word: str, left: Iterator[str]) -> tuple[PgbenchOption, str]:
    """--NAME, --NAME=VALUE or --NAME VALUE; the name may be abbreviated."""
    name, equals, value = word.partition("=")
    matches = [option for option in OPTIONS if option.long == name]
    matches = matches or [o for o in OPTIONS if o.long.startswith(name) and not o.extra]
    if not matches:
        raise line.usage_error(f"unrecognized option '--{word}'")
    if len(matches) > 1:
        names = " ".join(f"'--{option.long}'" for option in matches)
        raise line.usage_error(f"option '--{word}' is ambiguous; possibilities: {names}")
    option = matches[0]
    if option.read is None:
        if equals:
            raise line.usage_error(f"option '--{option.long}' doesn't allow an argument")
        return option, ""
    follows = value if equals else next(left, None)
    if follows is None:
        raise line.usage_error(f"option '--{option.long}' requires an argument")
    return option, follows


def _cluster(line: _Line, letters: str, left: Iterator[str]) -> Iterator[tuple[PgbenchOption, str]]:
    """-abc: options of one letter; the value of the last is the rest or the next word."""
    for at, letter in enumerate(letters):
        option = _SHORT.get(letter)
        if option is None:
            # getopt reads a letter of several bytes as several options, and reports the first.
            byte = letter.encode("utf-8", "surrogateescape")[:1]
            shown = byte.decode("utf-8", "surrogateescape")
            raise line.usage_error(f"invalid option -- '{shown}'")
        if option.read is None:
            yield option, ""
            continue
        rest = letters[at + 1 :]
        follows = rest or next(left, None)
        if follows is None:
            raise line.usage_error(f"option requires an argument -- '{letter}'")
        if option.long == "dbname" and not rest and re.match("-.", follows):
            # Up to version 16, -d was --debug and took no value; no database has such a name.
            yield _DEBUG, ""
            yield from _parsed(line, [follows, *left])
            return
        yield option, follows
        return


def _initialization(options: Options, modes: set[str]) -> Options:
    if "run" in modes:
        raise OptionError(
            "some of the specified options cannot be used in initialization (-i) mode"
        )
    if options.partition_method is not None and not options.partitions:
        raise OptionError("--partition-method requires greater than zero --partitions")
    return replace(options, steps=options.steps.replace("v", " ")) if options.no_vacuum else options


def _run(options: Options, modes: set[str]) -> Options:
    if not options.scripts:
        options = replace(options, scripts=(ScriptOption("tpcb-like", builtin=True),))
    logged, sampling = options.log, options.sampling_rate is not None
    seconds, aggregate = options.duration_s or 0, options.aggregate_s
    problems = {
        "some of the specified options cannot be used in benchmarking mode": "init" in modes,
        "specify either a number of transactions (-t) or a duration (-T), not both": (
            options.transactions and seconds
        ),
        "log sampling (--sampling-rate) is allowed only when logging transactions (-l)": (
            sampling and not logged
        ),
        "log sampling (--sampling-rate) and aggregation (--aggregate-interval)"
        " cannot be used at the same time": sampling and aggregate,
        "log aggregation is allowed only when actually logging transactions": (
            aggregate and not logged
        ),
        "log file prefix (--log-prefix) is allowed only when logging transactions (-l)": (
            options.log_prefix is not None and not logged
        ),
        f"number of seconds for aggregation ({aggregate}) must not be higher than"
        f" test duration ({seconds})": seconds and aggregate > seconds,
        f"duration ({seconds}) must be a multiple of aggregation interval ({aggregate})": (
            seconds and aggregate and seconds % aggregate
        ),
        "--progress-timestamp is allowed only under --progress": (
            options.progress_timestamp and not options.progress_s
        ),
        "an unlimited number of transaction tries can only be used with"
        " --latency-limit or a duration (-T)": (
            not options.max_tries and not options.limit_us and not seconds
        ),
    }
    for message, holds in problems.items():
        if holds:
            raise OptionError(message)
    if options.transactions or seconds:
        return options
    return replace(options, transactions=_DEFAULT_TRANSACTIONS)


def _database(environ: Mapping[str, str]) -> str:
    import pwd

    name = environ.get("PGDATABASE") or environ.get("PGUSER")
    if name:
        return name
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        message = f"could not look up effective user ID {os.geteuid()}: user does not exist"
        raise OptionError(message) from None


def parse(
    argv: Sequence[str],
    environ: Mapping[str, str],
    tell: Told = lambda name, value: None,
    *,
    command: str = "pgbench",
) -> Options:
    """The options of the words after the program's name. command: the program's name in help.

    Raises OptionError, AnsweredError, and the exceptions of `tell`.
    """
    if argv[:1] in (["--help"], ["-?"]):
        text = Path(__file__).with_name("help.txt").read_text("utf-8")
        raise AnsweredError(text.replace("{command}", command), "stdout")
    if argv[:1] in (["--version"], ["-V"]):
        from importlib.metadata import version

        text = f"pgbench (PostgreSQL) {VERSION}, by pgpaces {version('pgpaces')}\n"
        raise AnsweredError(text, "stdout")
    line = _Line(command, tell, Options(seed=random_seed("time")))
    if (chosen := environ.get("PGBENCH_RANDOM_SEED")) is not None:
        seed = _random_seed(chosen, "PGBENCH_RANDOM_SEED environment variable")
        line.options = replace(line.options, seed=seed)
        tell("seed", seed)
    for option, text in _parsed(line, argv):
        line.put(option, text)
    options, operands = line.options, line.operands
    if options.scripts and not options.initialize and not sum(s.weight for s in options.scripts):
        raise OptionError("total script weight must not be zero")
    if options.dbname is None:
        options = replace(options, dbname=operands.pop(0) if operands else _database(environ))
    if operands:
        first = operands[0]
        raise line.usage_error(f'too many command-line arguments (first is "{first}")', "error")
    options = replace(options, jobs=min(options.jobs, options.clients))
    return (_initialization if options.initialize else _run)(options, line.modes)
