"""What a command line asks for: the spec of a run, or an experiment.

With `--like`, typed options replace those of a stored run or experiment. Programs of a workload's
folder run after consent: asked on a terminal, or granted by `--trust`.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from pgpaces.cli import options
from pgpaces.cli.output import SECRET, announce
from pgpaces.core import toml_files
from pgpaces.core.errors import PlanError
from pgpaces.core.home import is_there
from pgpaces.core.messages import message
from pgpaces.core.units import SEED_MAX
from pgpaces.show import escape
from pgpaces.spec import costs, experiment_file, trust
from pgpaces.spec import options as table
from pgpaces.spec import spec as specs
from pgpaces.spec.design import Experiment
from pgpaces.spec.load import family
from pgpaces.spec.spec import Spec, named
from pgpaces.spec.target import Target
from pgpaces.spec.trust import Action, Consent, Question
from pgpaces.spec.workload import Workload

if TYPE_CHECKING:
    from pgpaces.spec.result import Trial


def _levels_of(name: str) -> options.Decorator:
    each = table.BY_NAME[name]
    metavar = "NAME=LEVELS" if name in _FAMILIES else "LEVELS"
    return options.option(
        *filter(None, (each.short, each.word)),
        name,
        group=each.group,
        rare=each.rare,
        metavar="[NAME=]DSN" if name == "target" else metavar,
        help=each.help if each.factor and name != "target" else None,
        multiple=True,
        once=not each.several and name != "target",
    )


# Levels of settings and variables, which the user names.
_FAMILIES = ("set", "server_set", "define")
EXPERIMENT: tuple[options.Decorator, ...] = (
    *(_levels_of(name) for name in (*table.FACTORS, *_FAMILIES)),
    options.option("--seed", group="Generator", type=options.Count(0, SEED_MAX), metavar="N"),
    *options.of_trial("background", "target_node", "observe_command"),
    *options.of("file", "like", "from_database", "name"),
    *options.of("allow_alter_system", "restart_command", "price_per_hour"),
)
RESUME = (
    options.option(
        "--resume", group="Workload", is_flag=False, flag_value="last", metavar="[EXPERIMENT]"
    ),
)


def spec(params: Mapping[str, Any]) -> tuple[Spec, Trial | None]:
    """The spec of a run: what is typed, over that of the run that --like names; and this run.

    No run if something else than the run's workload is to run. Raises PlanError, StoreError.
    """
    context = click.get_current_context(silent=True)
    usual = click.core.ParameterSource.DEFAULT
    names = (name for name in (*table.BY_NAME, *specs.WHAT) if name in params)
    given = (n for n in names if not context or context.get_parameter_source(n) is not usual)
    typed = specs.named({name: params[name] for name in given})
    if params["like"] is None:
        return typed, None
    trial = _like(params)
    other = typed.keys() & {"workload", "variant", "files", "command"}
    return specs.over(trial.spec, typed), None if other else trial


def _like(params: Mapping[str, Any]) -> Trial:
    with contextlib.closing(options.open_store(params["store_path"])) as store:
        trial = store.load(store.find(params["like"]))
    if not trial.spec or trial.setup.imported is not None:
        raise PlanError("run-without-spec", run=trial.id)
    return trial


def check_unchanged(trial: Trial | None, workload: Workload, params: Mapping[str, Any]) -> None:
    """Raises PlanError if the workload of the stored run has changed since, without --anyway."""
    if trial is None or params.get("anyway") or workload.hash == trial.workload.hash:
        return
    then = {script.name: script.text for script in trial.workload.scripts}
    now = {script.name: script.text for script in workload.scripts}
    names = dict.fromkeys((*then, *now))
    changed = [name for name in names if then.get(name) != now.get(name)]
    raise PlanError("workload-changed", workload=workload.name, changed=changed or ["the data"])


def experiment(params: Mapping[str, Any]) -> Experiment | None:
    """The experiment of file and options; None where neither names one.

    params: of the command, with quick, missed and trials if it has them.
    """
    what = params["what"]
    for name in ("restart_command", "observe_command", "price_per_hour", "target_node"):
        if params[name] and not params["target"]:
            raise PlanError("needs-target", option=f"--{name.replace('_', '-')}")
    if params["like"] is not None:
        base = _experiment_like(params)
        base = replace(base, workload=what, files=()) if what else base
    elif what is None and not params["files"]:
        if params["target"] or _levels(params, targets=()):
            raise PlanError("levels-without-workload")
        return None
    elif what is not None and (what.endswith(".toml") or is_there(what, Path.is_file)):
        base = experiment_file.read(Path(what))
    else:
        base = Experiment(what.strip("./").replace("/", "-") if what else "", what)
    if params.get("quick"):
        base = base.quickly()
    targets = tuple(_target(text, params) for text in params["target"])
    base = base.with_levels(_levels(params, targets))
    counts = {"seed": params["seed"]} if params["seed"] is not None else {}
    if params.get("trials"):
        counts["trials"] = table.OF_COMMANDS["trials"].kind.read(str(params["trials"]), "--trials")
    by_name = {target.name: target for target in (*base.targets, *targets)}
    missed = params.get("missed")
    return replace(
        base,
        name=params["name"] or base.name,
        design=replace(base.design, **counts),
        missed_max=base.missed_max if missed is None else table.MISSED.read(missed, "--missed"),
        targets=tuple(by_name.values()),
        files=tuple(params["files"]) or base.files,
        from_database=params["from_database"] or base.from_database,
    )


def _experiment_like(params: Mapping[str, Any]) -> Experiment:
    from pgpaces.trial import document

    with contextlib.closing(options.open_store(params["store_path"])) as store:
        id_ = store.find_any(params["like"])
        if store.is_experiment(id_):
            return document.read(store.experiment(id_).document).experiment
    trial = _like(params)
    found = specs.experiment_of(trial.spec)
    if found.workload is not None and not found.files and params["what"] is None:
        check_unchanged(trial, trust.find(found.workload, consent(params)), params)
    return found


def _levels(params: Mapping[str, Any], targets: Sequence[Target]) -> dict[str, tuple[str, ...]]:
    names = (*table.FACTORS, *_FAMILIES, "background")
    given = {name: params[name] for name in names if name != "target"}
    own = {"target": tuple(target.name for target in targets)} if targets else {}
    return {**named(given, several=True), **own}


def _target(text: str, params: Mapping[str, Any]) -> Target:
    """A target of `NAME=DSN`, or of a DSN, which is named after its server."""
    from psycopg.pq import Conninfo

    from pgpaces.trial import sweep as pipeline
    from pgpaces.trial.request import node_addresses

    name, equals, dsn = text.partition("=")
    # The keywords that a conninfo string can begin with, so none can be the name of a target.
    keywords = {each.keyword.decode() for each in Conninfo.get_defaults()}
    if not equals or not re.fullmatch(r"[A-Za-z0-9_.-]+", name) or name in keywords:
        name, dsn = pipeline.label(text), text
    price, host_file, own = params["price_per_hour"], params["host_file"], None
    if price is not None and host_file is not None:
        raise PlanError("price-given-twice")
    if price is not None:
        own = toml_files.table(costs.Costs, {"price_per_hour": price})
    elif host_file is not None:
        own = costs.find(host_file)
    nodes = family(named({"target_node": params["target_node"]}), "target_node")
    return Target(
        name=name,
        dsn=dsn,
        costs=own,
        alter_system=params["allow_alter_system"],
        restart=params["restart_command"],
        observe_command=params["observe_command"],
        nodes=dict(node_addresses(nodes)),
    )


def typed_command(params: Mapping[str, Any]) -> str:
    """The command line, without connection strings that hold a password."""
    dsns = [
        *params["target"],
        *params["target_node"],
        params["from_database"],
        params["store_path"],
    ]
    words = ["pgpaces", *sys.argv[1:]]
    for dsn in filter(None, dsns):
        if SECRET.search(dsn):
            words = [word.replace(dsn, "DSN") for word in words]
    return shlex.join(words)


def consent(params: Mapping[str, Any]) -> Consent:
    """The consent by a command's options. Scripts that these name need none."""
    typed = {file.rpartition("@")[0] or file for file in params["files"]} | set(params["files"])
    with contextlib.suppress(ValueError):  # unpaired quotes, which are reported when it is parsed
        for word in (word for text in params["background"] for word in shlex.split(text)):
            typed |= {word, *word.partition("=")[2].split(",")}

    def answer(question: Question) -> bool:
        script = question.path.is_file() and str(question.path) in typed
        if params["trust"] or script:
            return True
        if not question.actions or not (sys.stdin.isatty() and sys.stderr.isatty()):
            return False
        announce("executes-these", path=question.path)
        for text in action_lines(question.actions):
            click.echo(text, err=True)
        announce("programs-unlisted")
        return click.confirm(message("confirm-trust"), default=False, err=True)

    return answer


def action_lines(actions: Sequence[Action]) -> Iterator[str]:
    for each in actions:
        text = escape.line(f"{each.what}, {each.file}: {each.text}".rstrip(": "))
        yield f"  {text}"
