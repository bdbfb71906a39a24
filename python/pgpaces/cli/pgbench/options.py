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
from msgspec.structs import fields

from pgpaces.core.redaction import Redacted

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

    @property
    def description(self) -> str:
        return BUILTINS[self.name] if self.builtin else self.name


class Options(Redacted, frozen=True):
    """All options; None for one that is absent and has no default.

    limit_us: 0 for none. dbname: also a connection string. defines: names and values as typed.
    """

    REDACTED: ClassVar = ("dbname",)
    seed: int
    initialize: bool = False
    dbname: str = ""  # a connection string may hold a password
    host: str | None = None
    port: str | None = None
    user: str | None = None
    debug: bool = False
    scripts: tuple[ScriptOption, ...] = ()
    clients: int = 1
    jobs: int = 1
    connect_each: bool = False
    defines: tuple[tuple[str, str], ...] = ()
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
# and the value. An exception ends the parsing.
Told = Callable[[str, Any], None]


class _Line(Struct):
    command: str
    tell: Told
    values: dict[str, Any] = field(default_factory=dict)
    scripts: list[ScriptOption] = field(default_factory=list)
    defines: dict[str, str] = field(default_factory=dict)
    operands: list[str] = field(default_factory=list)
    modes: set[str] = field(default_factory=set)

    def get(self, name: str) -> Any:
        return self.values.get(name, _DEFAULTS.get(name))

    def usage_error(self, message: str, level: str = "info") -> OptionError:
        hint = f'Try "{self.command} --help" for more information.'
        return OptionError(message, ("hint", hint), level=level)


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


_DEFAULTS = {f.name: f.default for f in fields(Options)}
_Set = Callable[[_Line, str], None]


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


def _flag(name: str, value: bool = True) -> _Set:
    return lambda line, _text: line.values.update({name: value})


def _text(name: str) -> _Set:
    return lambda line, text: line.values.update({name: text})


def _count(name: str, shown: str, low: int = 1, *, high: int = INT_MAX) -> _Set:
    return lambda line, text: line.values.update({name: whole(text, shown, low, high=high)})


def _checked(
    name: str, what: str, read: Callable[[str], Any], *, holds: Callable[[Any], bool]
) -> _Set:
    def put(line: _Line, text: str) -> None:
        value = read(text)
        if not holds(value):
            raise OptionError(f'{what}: "{text}"')
        line.values[name] = value

    return put


def _clients(line: _Line, text: str) -> None:
    line.values["clients"] = whole(text, "-c/--client", 1)
    line.tell("clients", line.values["clients"])


def _define(line: _Line, text: str) -> None:
    name, _, value = text.partition("=")
    if not name or not value:
        raise OptionError(f'invalid variable definition: "{text}"')
    if not _VARIABLE.fullmatch(name):
        raise OptionError(f'option: invalid variable name: "{name}"')
    line.defines[name] = value


def _add_script(line: _Line, script: ScriptOption) -> None:
    line.tell("script", script)
    if len(line.scripts) >= _SCRIPTS_MAX:
        raise OptionError(f"at most {_SCRIPTS_MAX} SQL scripts are allowed")
    line.scripts.append(script)


def _builtin(line: _Line, text: str) -> None:
    if text == "list":
        raise AnsweredError(_list_of_builtins() + "\n")
    name, weight = weighted(text)
    _add_script(line, ScriptOption(_find_builtin(name), weight, builtin=True))


def _named_builtin(name: str) -> _Set:
    return lambda line, _text: _add_script(line, ScriptOption(name, builtin=True))


def _file(line: _Line, text: str) -> None:
    _add_script(line, ScriptOption(*weighted(text)))


def _show_script(_line: _Line, text: str) -> None:
    name = _find_builtin(text)
    raise AnsweredError(f"-- {name}: {BUILTINS[name]}\n{builtin_text(name)}\n")


def _init_steps(line: _Line, text: str) -> None:
    if not text:
        raise OptionError("no initialization steps specified")
    for step in text:
        if step not in _ALL_STEPS + " ":
            raise OptionError(
                f'unrecognized initialization step "{step}"',
                ("detail", f'Allowed step characters are: "{_ALL_STEPS}".'),
            )
    line.values["steps"] = text


def _latency_limit(line: _Line, text: str) -> None:
    limit_ms = real(text)
    if limit_ms <= 0:
        raise OptionError(f'invalid latency limit: "{text}"')
    line.values["limit_us"] = int(limit_ms * 1000)


def _random_seed(line: _Line, text: str, where: str = "--random-seed option") -> None:
    try:
        line.values["seed"] = random_seed(text)
    except OptionError as error:
        last = ("error", f"error while setting random seed from {where}")
        raise OptionError(str(error), *error.lines[1:], last) from None
    line.tell("seed", line.values["seed"])


class PgbenchOption(Struct, frozen=True):
    """An option: its names, its mode, its effect, and whether it takes a value.

    extra: not an option of today's pgbench, so no abbreviation matches it.
    """

    long: str
    short: str
    mode: Literal["init", "run", "both"]
    put: _Set
    takes: bool = True
    extra: bool = False


_MODES, _METHODS = ("simple", "extended", "prepared"), ("range", "hash")
_GOT = 'invalid partition method, expecting "range" or "hash", got'
_RATE = _checked("rate", "invalid rate limit", real, holds=lambda v: v > 0)
_SAMPLING_RATE = _checked(
    "sampling_rate", "invalid sampling rate", real, holds=lambda v: 0 < v <= 1
)
_MAX_TRIES = _checked(
    "max_tries", "invalid number of maximum tries", narrowed, holds=lambda v: v >= 0
)
_PROTOCOL = _checked("protocol", "invalid query mode (-M)", str, holds=_MODES.__contains__)
_PARTITION_METHOD = _checked("partition_method", _GOT, str.lower, holds=_METHODS.__contains__)
# In pgbench's order, in which the possibilities of an ambiguous abbreviation are listed.
OPTIONS = (
    PgbenchOption("builtin", "b", "run", _builtin),
    PgbenchOption("client", "c", "run", _clients),
    PgbenchOption("connect", "C", "run", _flag("connect_each"), takes=False),
    PgbenchOption("dbname", "d", "both", _text("dbname")),
    PgbenchOption("define", "D", "run", _define),
    PgbenchOption("file", "f", "run", _file),
    PgbenchOption("fillfactor", "F", "init", _count("fillfactor", "-F/--fillfactor", 10, high=100)),
    PgbenchOption("host", "h", "both", _text("host")),
    PgbenchOption("initialize", "i", "both", _flag("initialize"), takes=False),
    PgbenchOption("init-steps", "I", "init", _init_steps),
    PgbenchOption("jobs", "j", "run", _count("jobs", "-j/--jobs")),
    PgbenchOption("log", "l", "run", _flag("log"), takes=False),
    PgbenchOption("latency-limit", "L", "run", _latency_limit),
    PgbenchOption("no-vacuum", "n", "both", _flag("no_vacuum"), takes=False),
    PgbenchOption("port", "p", "both", _text("port")),
    PgbenchOption("progress", "P", "run", _count("progress_s", "-P/--progress")),
    PgbenchOption("protocol", "M", "run", _PROTOCOL),
    PgbenchOption("quiet", "q", "init", _flag("quiet"), takes=False),
    PgbenchOption("report-per-command", "r", "run", _flag("per_command"), takes=False),
    PgbenchOption("rate", "R", "run", _RATE),
    PgbenchOption("scale", "s", "both", _count("scale", "-s/--scale")),
    PgbenchOption("select-only", "S", "run", _named_builtin("select-only"), takes=False),
    PgbenchOption("skip-some-updates", "N", "run", _named_builtin("simple-update"), takes=False),
    PgbenchOption("time", "T", "run", _count("duration_s", "-T/--time")),
    PgbenchOption("transactions", "t", "run", _count("transactions", "-t/--transactions")),
    PgbenchOption("username", "U", "both", _text("user")),
    PgbenchOption("vacuum-all", "v", "run", _flag("vacuum_all"), takes=False),
    PgbenchOption("unlogged-tables", "", "init", _flag("unlogged"), takes=False),
    PgbenchOption("tablespace", "", "init", _text("tablespace")),
    PgbenchOption("index-tablespace", "", "init", _text("index_tablespace")),
    PgbenchOption("sampling-rate", "", "run", _SAMPLING_RATE),
    PgbenchOption("aggregate-interval", "", "run", _count("aggregate_s", "--aggregate-interval")),
    PgbenchOption("progress-timestamp", "", "run", _flag("progress_timestamp"), takes=False),
    PgbenchOption("log-prefix", "", "run", _text("log_prefix")),
    PgbenchOption("foreign-keys", "", "init", _flag("foreign_keys"), takes=False),
    PgbenchOption("random-seed", "", "run", _random_seed),
    PgbenchOption("show-script", "", "both", _show_script),
    PgbenchOption("partitions", "", "init", _count("partitions", "--partitions", 0)),
    PgbenchOption("partition-method", "", "init", _PARTITION_METHOD),
    PgbenchOption("failures-detailed", "", "run", _flag("failures_detailed"), takes=False),
    PgbenchOption("max-tries", "", "run", _MAX_TRIES),
    PgbenchOption("verbose-errors", "", "run", _flag("verbose_errors"), takes=False),
    PgbenchOption("exit-on-abort", "", "run", _flag("exit_on_abort"), takes=False),
    PgbenchOption("debug", "", "both", _flag("debug"), takes=False),
    PgbenchOption("continue-on-error", "", "run", _flag("continue_on_error"), takes=False),
    PgbenchOption("no-store", "", "run", _flag("store", False), takes=False, extra=True),
    # The name of --report-per-command in old versions of pgbench.
    PgbenchOption("report-latencies", "", "run", _flag("per_command"), takes=False, extra=True),
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
    if not option.takes:
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
        if not option.takes:
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


def _check_initialization(line: _Line) -> None:
    if "run" in line.modes:
        raise OptionError(
            "some of the specified options cannot be used in initialization (-i) mode"
        )
    method = line.get("partition_method")
    if method is not None and not line.get("partitions"):
        raise OptionError("--partition-method requires greater than zero --partitions")
    if line.get("no_vacuum"):
        line.values["steps"] = line.get("steps").replace("v", " ")


def _check_run(line: _Line) -> None:
    if "init" in line.modes:
        raise OptionError("some of the specified options cannot be used in benchmarking mode")
    transactions, duration = line.get("transactions"), line.get("duration_s")
    if transactions and duration:
        raise OptionError(
            "specify either a number of transactions (-t) or a duration (-T), not both"
        )
    if not transactions and not duration:
        line.values["transactions"] = _DEFAULT_TRANSACTIONS
    sampling, aggregate = line.get("sampling_rate") is not None, line.get("aggregate_s")
    seconds, logged = duration or 0, line.get("log")
    problems = {
        "log sampling (--sampling-rate) is allowed only when logging transactions (-l)": (
            sampling and not logged
        ),
        "log sampling (--sampling-rate) and aggregation (--aggregate-interval)"
        " cannot be used at the same time": sampling and aggregate,
        "log aggregation is allowed only when actually logging transactions": (
            aggregate and not logged
        ),
        "log file prefix (--log-prefix) is allowed only when logging transactions (-l)": (
            line.get("log_prefix") is not None and not logged
        ),
        f"number of seconds for aggregation ({aggregate}) must not be higher than"
        f" test duration ({seconds})": seconds and aggregate > seconds,
        f"duration ({seconds}) must be a multiple of aggregation interval ({aggregate})": (
            seconds and aggregate and seconds % aggregate
        ),
    }
    for message, holds in problems.items():
        if holds:
            raise OptionError(message)
    if line.get("progress_timestamp") and not line.get("progress_s"):
        raise OptionError("--progress-timestamp is allowed only under --progress")
    if not line.get("max_tries") and not line.get("limit_us") and not duration:
        raise OptionError(
            "an unlimited number of transaction tries can only be used with"
            " --latency-limit or a duration (-T)"
        )


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
    line = _Line(command, tell)
    if (seed := environ.get("PGBENCH_RANDOM_SEED")) is not None:
        _random_seed(line, seed, "PGBENCH_RANDOM_SEED environment variable")
    for option, value in _parsed(line, argv):
        option.put(line, value)
        line.modes.add(option.mode)
    initialize = line.get("initialize")
    if not line.scripts and not initialize:
        line.scripts.append(ScriptOption("tpcb-like", builtin=True))
    if not initialize and not sum(script.weight for script in line.scripts):
        raise OptionError("total script weight must not be zero")
    line.values["jobs"] = min(line.get("jobs"), line.get("clients"))
    if "dbname" not in line.values:
        line.values["dbname"] = line.operands.pop(0) if line.operands else _database(environ)
    if line.operands:
        first = line.operands[0]
        raise line.usage_error(f'too many command-line arguments (first is "{first}")', "error")
    (_check_initialization if initialize else _check_run)(line)
    line.values.setdefault("seed", random_seed("time"))
    return Options(**line.values, scripts=tuple(line.scripts), defines=tuple(line.defines.items()))
