"""An experiment from options: levels, targets and the rest, shared by commands."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from pgpaces.cli import like, options
from pgpaces.cli.output import SECRET
from pgpaces.core.errors import PlanError
from pgpaces.core.home import is_there
from pgpaces.core.units import SEED_MAX
from pgpaces.spec import draft as drafts
from pgpaces.spec import experiment_file, levels
from pgpaces.spec import options as table
from pgpaces.spec.costs import Costs
from pgpaces.spec.design import Target

# The keywords that a conninfo string can begin with, so none can be the name of a target.
_KEYWORDS = re.compile(
    r"(host|hostaddr|port|dbname|user|password|passfile|service|servicefile|ssl\w*|gss\w*|krb\w*"
    r"|options|application_name|target_session_attrs|connect_timeout|channel_binding"
    r"|require_auth|client_encoding|load_balance_hosts|keepalives\w*|tcp_user_timeout)\s*="
)


class Once(options.Option):
    """Levels of one name. Accepted several times, so that a repetition is an error, not ignored."""

    once = True


def level_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for each in reversed(list(table.FACTORS.values())):
        words = [*filter(None, (each.short, each.word)), f"level_{each.name}"]
        several = each.several or each.name == "target"
        function = options.option(
            *words,
            group=each.group,
            rare=each.rare,
            metavar="[NAME=]DSN" if each.name == "target" else "LEVELS",
            help=each.help,
            multiple=True,
            cls=options.Option if several else Once,
        )(function)
    return function


OF_WHAT: tuple[options.Decorator, ...] = (
    level_options,
    options.option(*("--set", "settings"), group="Target", multiple=True, metavar="NAME=LEVELS"),
    options.option(
        *("--server-set", "server_settings"), group="Target", multiple=True, metavar="NAME=LEVELS"
    ),
    options.option(*("-D", "--define"), group="Workload", multiple=True, metavar="NAME=LEVELS"),
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
        if params[name] and not params["level_target"]:
            raise PlanError("needs-target", option=f"--{name.replace('_', '-')}")
    if params["like"] is not None:
        base = like.draft(params)
        base = replace(base, workload=what, files=()) if what else base
    elif what is None and not params["files"]:
        if params["level_target"] or _levels(params, targets=()):
            raise PlanError("levels-without-workload")
        return None
    elif what is not None and (what.endswith(".toml") or is_there(what, Path.is_file)):
        base = experiment_file.read(Path(what))
    else:
        base = drafts.Draft(workload=what, name=what.strip("./").replace("/", "-") if what else "")
    if params.get("quick"):
        base = base.quickly()
    targets = tuple(_target(text, params) for text in params["level_target"])
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
    by_name: dict[str, tuple[str, ...]] = {}
    for name in table.FACTORS:
        texts = params[f"level_{name}"]
        if name == "scripts" and texts:
            if len(texts) > 1 and any("," in text for text in texts):
                scripts = " ".join(texts)
                raise PlanError("scripts-given-twice", count=len(texts), scripts=scripts)
            _add(by_name, name, " ".join(texts))
        elif name in ("latency_limit", "node"):
            for text in texts:  # `500ms,250ms` for all scripts, `NAME=100ms` for one
                script, equals, values = text.rpartition("=")
                _add(by_name, f"{name}.{script}" if equals else name, values)
        elif name != "target":
            for text in texts:
                _add(by_name, name, text)
    if "data_dir" in by_name:
        by_name["data_dir"] = tuple(str(Path(each).absolute()) for each in by_name["data_dir"])
    if targets:
        by_name["target"] = tuple(target.name for target in targets)
    _families(by_name, params)
    by_name |= levels.backgrounds(params["background"])
    return by_name


def _families(by_name: dict[str, tuple[str, ...]], params: Mapping[str, Any]) -> None:
    """Adds levels of settings and variables, which the user names. Raises PlanError."""
    for family, word, of in (
        ("set", "--set", "settings"),
        ("server_set", "--server-set", "server_settings"),
        ("define", "--define", "define"),
    ):
        for text in params[of]:
            name, equals, values = text.partition("=")
            if not equals or not name.strip():
                raise PlanError("not-levels", option=word, value=text, factor=name)
            _add(by_name, f"{family}.{name.strip()}", values)


def _add(by_name: dict[str, tuple[str, ...]], name: str, text: str) -> None:
    """Adds the levels of a name. Raises PlanError if it has levels already."""
    if name in by_name:
        both = ",".join((*by_name[name], text))
        raise PlanError("given-twice", what=name, levels=both)
    by_name[name] = levels.split(text)
    if name in table.FACTORS and "" in by_name[name]:
        every = ",".join(filter(None, by_name[name])) or "A,B"
        word = table.FACTORS[name].word
        raise PlanError("empty-level", option=word, value=text, levels=every)


def _target(text: str, params: Mapping[str, Any]) -> Target:
    """A target of `NAME=DSN`, or of a DSN, which is named after its server."""
    from pgpaces.spec import host_file
    from pgpaces.trial import sweep as pipeline
    from pgpaces.trial.request import node_addresses

    name, equals, dsn = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z0-9_.-]+", name) or _KEYWORDS.match(text):
        name, dsn = pipeline.label(text), text
    costs = None
    if params["price_per_hour"] is not None:
        if params["host_file"] is not None:
            raise PlanError("price-given-twice")
        costs = Costs(price_per_h=params["price_per_hour"])
    elif params["host_file"] is not None:
        costs = host_file.read(Path(params["host_file"]))
    return Target(
        name=name,
        dsn=dsn,
        costs=costs,
        alter_system=params["allow_alter_system"],
        restart=params["restart_command"],
        observe_command=params["observe_command"],
        nodes=dict(node_addresses(params["target_node"])),
    )


def command(params: Mapping[str, Any]) -> str:
    dsns = [*params["level_target"], params["from_database"] or "", params["store_path"] or ""]
    dsns += params["target_node"]
    words = ["pgpaces", *sys.argv[1:]]
    for dsn in filter(None, dsns):
        if SECRET.search(dsn):
            words = [word.replace(dsn, "DSN") for word in words]
    return shlex.join(words)
