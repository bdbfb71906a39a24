"""`pgpaces sweep`: an experiment from a file or from the command line, to its page."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pgpaces import draft as drafts
from pgpaces import experiment_file, levels
from pgpaces.cli import options
from pgpaces.costs import Costs
from pgpaces.design import Target
from pgpaces.errors import PlanError, RunError, ServerError

if TYPE_CHECKING:
    from pgpaces.design import Experiment
    from pgpaces.experiment.sweep import Planned, Swept

INTERRUPTED_EXIT = 130
TRIALS_MAX = 10_000
_SHORT = {
    "clients": "-c",
    "latency_limit": "-L",
    "duration": "-T",
    "transactions": "-t",
    "protocol": "-M",
    "threads": "-j",
    "scale": "-s",
}
# A conninfo string begins with one of these, so that none can be the name of a target.
_KEYWORDS = re.compile(
    r"(host|hostaddr|port|dbname|user|password|passfile|service|servicefile|ssl\w*|gss\w*|krb\w*"
    r"|options|application_name|target_session_attrs|connect_timeout|channel_binding"
    r"|require_auth|client_encoding|load_balance_hosts|keepalives\w*|tcp_user_timeout)\s*="
)
_SECRET = re.compile(r"password|^[^/]*://[^@/]*:[^@/]*@", re.IGNORECASE)

EXAMPLES = """\b
Examples:
  pgpaces sweep reporting --clients 1,2,4,8 --rate-per-client 1/s -L 500ms --policy skip \\
      --set max_parallel_workers_per_gather=0,2,4 --trials 2 -o report.html
  pgpaces sweep experiment.toml --dry-run
  pgpaces sweep experiment.toml --quick
  pgpaces sweep --resume
  pgpaces sweep --new experiment.toml
  pgpaces sweep experiment.toml --server 15,18
"""


class Once(click.Option):
    """Levels of one name. Taken as often as it is given, so that none is dropped in silence."""

    once = True


def _level_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """An option for everything that levels may be of."""
    several = ("target", "latency_limit", "node")
    for name, kind in reversed([*levels.TRIAL.items(), *levels.OTHERS.items()]):
        words = [f"--{name.replace('_', '-')}", f"level_{name}"]
        words += [_SHORT[name]] if name in _SHORT else []
        text = kind.about.replace("`", "")
        metavar = "[NAME=]DSN" if name == "target" else "LEVELS"
        made = click.option(
            *words,
            metavar=metavar,
            help=text,
            multiple=True,
            cls=click.Option if name in several else Once,
        )
        function = made(function)
    return function


@click.command(epilog=EXAMPLES)
@click.argument("what", required=False, metavar="[FILE.toml|WORKLOAD]")
@click.option("-f", "--file", "files", multiple=True, metavar="FILE[@WEIGHT]", help="A script.")
@_level_options
@click.option("--set", "settings", multiple=True, metavar="NAME=LEVELS", help="Server settings.")
@click.option("-D", "--define", multiple=True, metavar="NAME=LEVELS", help="Script variables.")
@options.options(options.TOPOLOGY)
@click.option("--trials", type=click.IntRange(1), metavar="N", help="Of each cell. [default: 1]")
@click.option("--seed", type=click.IntRange(0), help="Of order, arrivals, parameters. [default: 1]")
@click.option("--missed", metavar="SHARE", help="Up to this share, a cell holds. [default: 5%]")
@click.option("--name", help="What the experiment is called.")
@click.option(
    "--from-database", metavar="NAME|DSN", help="Measure a copy of this database, not our data."
)
@click.option("--allow-alter-system", is_flag=True, help="On --target; settings are put back.")
@click.option("--restart-command", metavar="COMMAND", help="Restarts the server of --target.")
@click.option(
    "--observe-command",
    metavar="COMMAND",
    help="Runs `pgpaces observe` on the --target's machine, over ssh.",
)
@click.option("--price-per-hour", type=float, metavar="PRICE", help="Of the machine of --target.")
@click.option("--quick", is_flag=True, help="Seconds instead of minutes: does all of it work?")
@click.option("--dry-run", is_flag=True, help="Say what it would take, and stop.")
@click.option("--yes", is_flag=True, help=f"Also with more than {TRIALS_MAX} trials.")
@click.option(
    "--resume",
    is_flag=False,
    flag_value="last",
    metavar="[EXPERIMENT]",
    help="Go on with what is missing of one that was interrupted.",
)
@click.option("-o", "--output", metavar="FILE", help="Write the report: .html, .md, .json, ...")
@click.option("--json", "as_json", is_flag=True, help="The answer, or the preview, as JSON.")
@click.option(
    "-P", "--progress", type=click.IntRange(0), metavar="SECONDS", help="How often; 0: never."
)
@click.option("--new", metavar="FILE", help="Write a commented experiment file, and stop.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of experiment files, and stop.")
@click.option(
    "--on-store-error",
    type=click.Choice(["continue", "stop"]),
    default="continue",
    show_default=True,
    help="While the store takes nothing: go on in memory, or end the trial.",
)
@options.options(options.MACHINE, (options.STORE,))
def sweep(**given: Any) -> int:
    """Run every combination of levels, in random blocks, and say from where on it breaks.

    An option with several LEVELS, separated by commas, is a factor (a comma within a level is
    written \\,). A FILE describes the same; options on the command line go before it.
    """
    from pgpaces.cli.main import put

    if given["new"]:
        experiment_file.create(Path(given["new"]))
        click.echo(f"wrote {given['new']}; next: pgpaces sweep {given['new']} --dry-run", err=True)
        return 0
    if given["schema"]:
        from pgpaces.report import escape

        put(escape.json_text(experiment_file.schema()))
        return 0
    planned = _planned(given)
    if planned.slots or given["as_json"]:
        _preview(planned, given)
    else:
        click.echo("nothing is missing: every trial was run", err=True)
    if given["dry_run"]:
        return 0
    return _run(planned, given)


def _planned(given: Mapping[str, Any]) -> Planned:
    """The experiment, checked; also the form of its report, before hours are spent."""
    if given["output"]:
        from pgpaces.report import render

        render.form_of(given["output"])
        _check_folder(Path(given["output"]).resolve().parent)
    from pgpaces import host_file
    from pgpaces.experiment import sweep as pipeline

    resume, experiment = None, None
    given = _of_file(given)
    draft = _draft(given)
    if draft is None and given["resume"] is not None:
        _check_unchanged(given)
    if given["resume"] is not None:
        by_file = draft is not None and given["resume"] == "last"
        name = draft.name if draft is not None and by_file else given["resume"]
        resume, experiment = pipeline.find(name, given["store_path"])
    if draft is not None:
        from pgpaces.servers import profiles

        experiment = draft.experiment(profiles.ready_made)
    if experiment is None:
        raise PlanError(
            "nothing to sweep was named",
            "name an experiment file or a workload; `pgpaces sweep --new FILE` writes a file",
        )
    _check_size(experiment, given)
    order = pipeline.Order(
        experiment=experiment,
        store=given["store_path"],
        resume=resume,
        on_store_error=given["on_store_error"],
        command=_command(given),
        costs=host_file.find(given["host_file"]),
    )
    return pipeline.plan(order)


def _of_file(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """`--resume FILE` as `FILE --resume`: no experiment is called like a file that is there."""
    file = given["resume"] or ""
    if given["what"] is None and file.endswith(".toml") and Path(file).is_file():
        return {**given, "what": file, "resume": "last"}
    return given


def _check_unchanged(given: Mapping[str, Any]) -> None:
    """Raises PlanError for options that an experiment from the store would not follow."""
    names = ("quick", "trials", "seed", "missed", "name", "from_database")
    asked = [f"--{name.replace('_', '-')}" for name in names if _is_given(given[name])]
    if asked:
        raise PlanError(
            f"{asked[0]} does not change an experiment that is gone on with",
            "leave it out; what the experiment is stands in the store",
        )


def _is_given(value: object) -> bool:
    return value is not None and value is not False


def _check_folder(folder: Path) -> None:
    """Raises PlanError where the report could not be written after all the work."""
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise PlanError(f"{folder} is no folder to write the report in", "name another with -o")


def _check_size(experiment: Experiment, given: Mapping[str, Any]) -> None:
    trials = len(experiment.design.cells()) * experiment.design.trials
    if trials > TRIALS_MAX and not given["yes"]:
        raise PlanError(
            f"the grid has {trials} trials", f"more than {TRIALS_MAX} need --yes, or fewer levels"
        )


def _draft(given: Mapping[str, Any]) -> drafts.Draft | None:
    """The experiment that file and options describe; None where neither names one."""
    what = given["what"]
    _check_of_target(given)
    if what is None and not given["files"]:
        if _levels(given, targets=()):
            raise PlanError("levels are given, but no workload", "name an experiment file or one")
        return None
    if what is not None and (what.endswith(".toml") or Path(what).is_file()):
        draft = experiment_file.read(Path(what))
    else:
        draft = drafts.Draft(workload=what, name=what.strip("./").replace("/", "-") if what else "")
    if given["quick"]:
        draft = draft.quickly()
    targets = tuple(_target(text, given) for text in given["level_target"])
    draft = draft.with_levels(_levels(given, targets))
    known = {target.name: target for target in (*draft.targets, *targets)}
    missed = given["missed"]
    return replace(
        draft,
        name=given["name"] or draft.name,
        trials=given["trials"] or draft.trials,
        seed=draft.seed if given["seed"] is None else given["seed"],
        missed_max=drafts.share(missed, "--missed") if missed else draft.missed_max,
        targets=tuple(known.values()),
        files=tuple(given["files"]) or draft.files,
        from_database=given["from_database"] or draft.from_database,
    )


def _check_of_target(given: Mapping[str, Any]) -> None:
    """Raises PlanError for options of a --target where none is given."""
    for name in ("restart_command", "observe_command", "price_per_hour"):
        if given[name] is not None and not given["level_target"]:
            raise PlanError(
                f"--{name.replace('_', '-')} is for the machine of a --target",
                "name that, or write it below [targets.NAME] of the file",
            )


def _levels(given: Mapping[str, Any], targets: Sequence[Target]) -> dict[str, tuple[str, ...]]:
    """The levels that options give, by name."""
    found: dict[str, tuple[str, ...]] = {}
    for name in (*levels.TRIAL, *levels.OTHERS):
        text = given[f"level_{name}"]
        if name in ("latency_limit", "node"):
            found |= _by_script(name, text)
        elif name != "target":
            for levels_of in text:
                _add(found, name, levels_of)
    if "data_dir" in found:
        found["data_dir"] = tuple(str(Path(each).absolute()) for each in found["data_dir"])
    if targets:
        found["target"] = tuple(target.name for target in targets)
    _families(found, given)
    found |= levels.every_beside(given["beside"])
    return found


def _families(found: dict[str, tuple[str, ...]], given: Mapping[str, Any]) -> None:
    """Adds levels of names of their own: settings and variables. Raises PlanError."""
    for family, option in (("set", "settings"), ("define", "define")):
        for text in given[option]:
            name, equals, values = text.partition("=")
            if not equals or not name.strip():
                raise PlanError(f"--{family} '{text}' is not NAME=LEVELS")
            _add(found, f"{family}.{name.strip()}", values)


def _add(found: dict[str, tuple[str, ...]], name: str, text: str) -> None:
    """Levels of a name. Raises PlanError where it has some: which of them were meant?"""
    if name in found:
        both = ",".join((*found[name], text))
        raise PlanError(f"{name} is given twice", f"put a comma between levels: {both}")
    found[name] = levels.split(text)


def _by_script(family: str, texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """`500ms,250ms` for all scripts, `NAME=100ms` for one."""
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        script, equals, values = text.rpartition("=")
        _add(found, f"{family}.{script}" if equals else family, values)
    return found


def _target(text: str, given: Mapping[str, Any]) -> Target:
    """A target of `NAME=DSN`, or of a DSN that is called after its server."""
    from pgpaces.experiment import sweep as pipeline

    name, equals, dsn = text.partition("=")
    named = equals and re.fullmatch(r"[A-Za-z0-9_.-]+", name) and not _KEYWORDS.match(text)
    if not named:
        name, dsn = pipeline.label(text), text
    return Target(
        name=name,
        dsn=dsn,
        costs=_costs(given),
        alter_system=given["allow_alter_system"],
        restart=given["restart_command"],
        observe_command=given["observe_command"],
        nodes=dict(options.nodes(given["target_node"])),
    )


def _costs(given: Mapping[str, Any]) -> Costs | None:
    """Of the machine of --target; None: not given. Raises PlanError."""
    from pgpaces import host_file

    if given["price_per_hour"] is not None:
        if given["host_file"] is not None:
            raise PlanError(
                "--price-per-hour and --host-file are of the same machine",
                "choose one; a host file has the key price_per_h",
            )
        return Costs(price_per_h=given["price_per_hour"])
    return host_file.read(Path(given["host_file"])) if given["host_file"] is not None else None


def _command(given: Mapping[str, Any]) -> str:
    """What was typed, without a password."""
    dsns = [*given["level_target"], given["from_database"] or "", given["store_path"] or ""]
    dsns += given["target_node"]
    words = ["pgpaces", *sys.argv[1:]]
    for dsn in filter(None, dsns):
        if _SECRET.search(dsn):
            words = [word.replace(dsn, "DSN") for word in words]
    return shlex.join(words)


def _report(swept: Swept, given: Mapping[str, Any]) -> None:
    """The answer so far, on stdout and where the user wants it."""
    from pgpaces.cli import report
    from pgpaces.cli.main import put
    from pgpaces.experiment.reporting import page_of
    from pgpaces.report import render
    from pgpaces.store import Store

    page = page_of(Store.open(given["store_path"]), (swept.id,))
    put(render.render(page, "json").decode() if given["as_json"] else report.text(page))
    if given["output"]:
        written = report.write(page, render.form_of(given["output"]), Path(given["output"]))
        click.echo(f"written: {written}", err=True)


def _preview(planned: Planned, given: Mapping[str, Any]) -> None:
    from pgpaces.cli.main import put
    from pgpaces.report import escape
    from pgpaces.report.preview import as_json, lines

    for note in (*_mixed(planned.order.experiment), *_misspelled(planned)):
        click.echo(f"note: {escape.line(note)}", err=True)
    if given["dry_run"] and given["as_json"]:
        put(escape.json_text(as_json(planned.order.experiment, planned.preview)))
        return
    text = "".join(
        f"{escape.line(line)}\n" for line in lines(planned.order.experiment, planned.preview)
    )
    if given["dry_run"]:
        put(text)
    elif given["progress"] != 0:
        click.echo(text, err=True, nl=False)


def _mixed(experiment: Experiment) -> Iterator[str]:
    """A sentence where versions of different builds are compared."""
    from pgpaces.servers import packages

    factors = {factor.name: factor.levels for factor in experiment.design.factors}
    said = packages.mixed(factors["server"]) if "server" in factors else None
    yield from () if said is None else (said,)


def _misspelled(planned: Planned) -> Iterator[str]:
    """A sentence for each setting that a version which is here does not list by this name."""
    from pgpaces.servers import binaries, describe

    asked: dict[str | None, set[str]] = {}
    for request in planned.requests.values():
        if request.target.dsn is None and request.trial.settings:
            names = {name for name, _ in request.trial.settings}
            asked.setdefault(request.target.server, set()).update(names)
    for server, names in asked.items():
        try:
            found = binaries.find(server)
        except ServerError:
            continue  # to be fetched, or one that runs
        for name, near in describe.misspelled(found, sorted(names)):
            yield f"PostgreSQL {found.version} lists no setting {name}; did you mean {near}?"


def _run(planned: Planned, given: Mapping[str, Any]) -> int:
    from pgpaces.cli.main import fail
    from pgpaces.cli.progress import SweepProgress
    from pgpaces.experiment import sweep as pipeline

    progress = SweepProgress(given["progress"])
    try:
        swept = pipeline.run(planned, progress)
    finally:
        progress.teller.done()
    _report(swept, given)
    if swept.interrupted:
        click.echo(
            f"missing: {_count(swept.missing)}; go on with: {_resume(swept.id, given)}",
            err=True,
        )
        return INTERRUPTED_EXIT
    if swept.missing:
        fail(
            RunError(
                f"{_count(swept.missing)} could not be run",
                f"once the reason is gone: {_resume(swept.id, given)}",
            )
        )
        return RunError.exit_code
    return 0


def _count(trials: int) -> str:
    return "1 trial" if trials == 1 else f"{trials} trials"


def _resume(experiment_id: str, given: Mapping[str, Any]) -> str:
    """The command that goes on with it, from the store that was named, without a password."""
    words = ["pgpaces", "sweep", "--resume", experiment_id]
    source = click.get_current_context().get_parameter_source("store_path")
    if source is click.core.ParameterSource.COMMANDLINE:
        words += ["--store", "DSN" if _SECRET.search(given["store_path"]) else given["store_path"]]
    return shlex.join(words)
