"""An experiment from options: levels, targets and the rest, shared by commands."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from pgpaces.cli import like, options
from pgpaces.cli.output import SECRET
from pgpaces.core.errors import PlanError
from pgpaces.core.home import is_there
from pgpaces.core.units import SEED_MAX
from pgpaces.spec import design as drafts
from pgpaces.spec import experiment_file
from pgpaces.spec import options as table
from pgpaces.spec.costs import Costs, read_file
from pgpaces.spec.load import family
from pgpaces.spec.spec import named
from pgpaces.spec.target import Target

# The keywords that a conninfo string can begin with, so none can be the name of a target.
_KEYWORDS = re.compile(
    r"(host|hostaddr|port|dbname|user|password|passfile|service|servicefile|ssl\w*|gss\w*|krb\w*"
    r"|options|application_name|target_session_attrs|connect_timeout|channel_binding"
    r"|require_auth|client_encoding|load_balance_hosts|keepalives\w*|tcp_user_timeout)\s*="
)


class Once(options.Option):
    """Levels of one name. Accepted several times, so that a repetition is an error, not ignored."""

    once = True


def _levels_of(name: str) -> options.Decorator:
    each = table.BY_NAME[name]
    return options.option(
        *filter(None, (each.short, each.word)),
        name,
        group=each.group,
        rare=each.rare,
        metavar={"target": "[NAME=]DSN", **dict.fromkeys(_FAMILIES, "NAME=LEVELS")}.get(
            name, "LEVELS"
        ),
        help=each.help if each.factor else None,
        multiple=True,
        cls=options.Option if each.several or name == "target" else Once,
    )


# Levels of settings and variables, which the user names.
_FAMILIES = ("set", "server_set", "define")
OF_WHAT: tuple[options.Decorator, ...] = (
    *(_levels_of(name) for name in (*table.FACTORS, *_FAMILIES)),
    options.option("--seed", group="Generator", type=options.Count(0, SEED_MAX), metavar="N"),
    *options.of_trial("background", "target_node", "observe_command"),
    *options.of("file", "like", "from_database", "name"),
    *options.of("allow_alter_system", "restart_command", "price_per_hour"),
)

HOW = (
    options.option(
        "--resume",
        group="Workload",
        is_flag=False,
        flag_value="last",
        metavar="[EXPERIMENT]",
    ),
    *options.of(*options.ANSWER, *options.RUNNING),
)


def draft(params: Mapping[str, Any]) -> drafts.Draft | None:
    """The experiment of file and options; None where neither names one.

    params: of the command, with quick, missed and trials if it has them.
    """
    what = params["what"]
    for name in ("restart_command", "observe_command", "price_per_hour", "target_node"):
        if params[name] and not params["target"]:
            raise PlanError("needs-target", option=f"--{name.replace('_', '-')}")
    if params["like"] is not None:
        base = like.draft(params)
        base = replace(base, workload=what, files=()) if what else base
    elif what is None and not params["files"]:
        if params["target"] or _levels(params, targets=()):
            raise PlanError("levels-without-workload")
        return None
    elif what is not None and (what.endswith(".toml") or is_there(what, Path.is_file)):
        base = experiment_file.read(Path(what))
    else:
        base = drafts.Draft(workload=what, name=what.strip("./").replace("/", "-") if what else "")
    if params.get("quick"):
        base = base.quickly()
    targets = tuple(_target(text, params) for text in params["target"])
    if params.get("trials"):
        base = replace(base, trials=params["trials"])
    base = base.with_levels(_levels(params, targets))
    by_name = {target.name: target for target in (*base.targets, *targets)}
    missed = params.get("missed")
    return replace(
        base,
        name=params["name"] or base.name,
        seed=base.seed if params["seed"] is None else params["seed"],
        missed_max=base.missed_max if missed is None else drafts.share(missed, "--missed"),
        targets=tuple(by_name.values()),
        files=tuple(params["files"]) or base.files,
        from_database=params["from_database"] or base.from_database,
    )


def _levels(params: Mapping[str, Any], targets: Sequence[Target]) -> dict[str, tuple[str, ...]]:
    names = (*table.FACTORS, *_FAMILIES, "background")
    given = {name: params[name] for name in names if name != "target"}
    own = {"target": tuple(target.name for target in targets)} if targets else {}
    return {**named(given, several=True), **own}


def _target(text: str, params: Mapping[str, Any]) -> Target:
    """A target of `NAME=DSN`, or of a DSN, which is named after its server."""
    from pgpaces.trial import sweep as pipeline
    from pgpaces.trial.request import node_addresses

    name, equals, dsn = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z0-9_.-]+", name) or _KEYWORDS.match(text):
        name, dsn = pipeline.label(text), text
    costs = None
    if params["price_per_hour"] is not None:
        if params["host_file"] is not None:
            raise PlanError("price-given-twice")
        costs = Costs(price_per_hour=params["price_per_hour"])
    elif params["host_file"] is not None:
        costs = read_file(Path(params["host_file"]))
    return Target(
        name=name,
        dsn=dsn,
        costs=costs,
        alter_system=params["allow_alter_system"],
        restart=params["restart_command"],
        observe_command=params["observe_command"],
        nodes=dict(
            node_addresses(family(named({"target_node": params["target_node"]}), "target_node"))
        ),
    )


def command(params: Mapping[str, Any]) -> str:
    dsns = [*params["target"], params["from_database"] or "", params["store_path"] or ""]
    dsns += params["target_node"]
    words = ["pgpaces", *sys.argv[1:]]
    for dsn in filter(None, dsns):
        if SECRET.search(dsn):
            words = [word.replace(dsn, "DSN") for word in words]
    return shlex.join(words)
