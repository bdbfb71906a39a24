"""An experiment from options: levels, targets and what else describes it, shared by commands."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from pgpaces import draft as drafts
from pgpaces import experiment_file, levels
from pgpaces import options as table
from pgpaces.cli import options
from pgpaces.costs import Costs
from pgpaces.design import Target
from pgpaces.errors import PlanError
from pgpaces.home import is_there
from pgpaces.units import SEED_MAX

# A conninfo string begins with one of these, so that none can be the name of a target.
_KEYWORDS = re.compile(
    r"(host|hostaddr|port|dbname|user|password|passfile|service|servicefile|ssl\w*|gss\w*|krb\w*"
    r"|options|application_name|target_session_attrs|connect_timeout|channel_binding"
    r"|require_auth|client_encoding|load_balance_hosts|keepalives\w*|tcp_user_timeout)\s*="
)
SECRET = re.compile(r"password|^[^/]*://[^@/]*:[^@/]*@", re.IGNORECASE)


class Once(options.Option):
    """Levels of one name. Taken as often as it is given, so that none is dropped in silence."""

    once = True


def level_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """An option for everything that levels may be of."""
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
    options.option(
        *("--server-set", "settings"),
        group="Target",
        multiple=True,
        metavar="NAME=LEVELS",
        help="Settings of the server, applied as mildly as each can be.",
    ),
    options.old(
        *("--set", "old_settings"),
        group="Target",
        multiple=True,
        metavar="NAME=LEVELS",
        now="--server-set",
        until="from the next release on it is a session's setting, as in `pgpaces run`",
    ),
    options.old(
        *("--scripts", "old_scripts"),
        group="Workload",
        multiple=True,
        metavar="LEVELS",
        now="--script",
    ),
    options.option(
        *("-D", "--define"),
        group="Workload",
        multiple=True,
        metavar="NAME=LEVELS",
        help="Script variables.",
    ),
    options.option(
        "--seed",
        group="Generator",
        type=options.Count(0, SEED_MAX),
        metavar="N",
        help="Seed of order, arrivals and parameters. [default: 1]",
    ),
    *options.of_trial("beside", "target_node", "observe_command"),
    *options.of("file", "from_database", "name"),
    *options.of("allow_alter_system", "restart_command", "price_per_hour"),
)

HOW = (
    options.option(
        "--resume",
        group="Workload",
        is_flag=False,
        flag_value="last",
        metavar="[EXPERIMENT]",
        help="Go on with what is missing of one that was interrupted.",
    ),
    *options.of(*options.ANSWER, *options.RUNNING),
)


def draft(given: Mapping[str, Any]) -> drafts.Draft | None:
    """The experiment that file and options describe; None where neither names one.

    given: by name; quick, missed, trials and within where the command has them.
    """
    what = given["what"]
    _check_of_target(given)
    if what is None and not given["files"]:
        if _levels(given, targets=()):
            raise PlanError("levels are given, but no workload", "name an experiment file or one")
        return None
    if what is not None and (what.endswith(".toml") or is_there(what, Path.is_file)):
        made = experiment_file.read(Path(what))
    else:
        made = drafts.Draft(workload=what, name=what.strip("./").replace("/", "-") if what else "")
    if given.get("quick"):
        made = made.quickly()
    targets = tuple(_target(text, given) for text in given["level_target"])
    if given.get("trials"):
        made = replace(made, trials=given["trials"], time_budget=None)
    if given.get("within") is not None:
        made = made.with_time_budget(given["within"])
    made = made.with_levels(_levels(given, targets))
    known = {target.name: target for target in (*made.targets, *targets)}
    missed = given.get("missed")
    return replace(
        made,
        name=given["name"] or made.name,
        seed=made.seed if given["seed"] is None else given["seed"],
        missed_max=made.missed_max if missed is None else drafts.share(missed, "--missed"),
        targets=tuple(known.values()),
        files=tuple(given["files"]) or made.files,
        from_database=given["from_database"] or made.from_database,
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
    for name in table.FACTORS:
        text = given[f"level_{name}"]
        if name == "scripts" and (*text, *given["old_scripts"]):
            _add(found, name, _together((*text, *given["old_scripts"])))
        elif name in ("latency_limit", "node"):
            found |= _by_script(name, text)
        elif name != "target":
            for levels_of in text:
                _add(found, name, levels_of)
    if "data_dir" in found:
        found["data_dir"] = tuple(str(Path(each).absolute()) for each in found["data_dir"])
    if targets:
        found["target"] = tuple(target.name for target in targets)
    _families(found, given)
    found |= levels.backgrounds(given["beside"])
    return found


def _families(found: dict[str, tuple[str, ...]], given: Mapping[str, Any]) -> None:
    """Adds levels of names of their own: settings and variables. Raises PlanError."""
    for family, word, of in (
        ("set", "--server-set", "settings"),
        ("set", "--set", "old_settings"),
        ("define", "--define", "define"),
    ):
        for text in given[of]:
            name, equals, values = text.partition("=")
            if not equals or not name.strip():
                raise PlanError(f"{word} '{text}' is not NAME=LEVELS", f"such as {name}=A,B")
            _add(found, f"{family}.{name.strip()}", values)


def _together(texts: Sequence[str]) -> str:
    """Scripts that run together, as one level; or levels of one text. Raises PlanError."""
    if len(texts) > 1 and any("," in text for text in texts):
        raise PlanError(
            f"--script is given {len(texts)} times, with levels",
            f"write the scripts of each level together: --script '{' '.join(texts)}'",
        )
    return " ".join(texts)


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
    from pgpaces.experiment import single
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
        nodes=dict(single.nodes(given["target_node"])),
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


def command(given: Mapping[str, Any]) -> str:
    """What was typed, without a password."""
    dsns = [*given["level_target"], given["from_database"] or "", given["store_path"] or ""]
    dsns += given["target_node"]
    words = ["pgpaces", *sys.argv[1:]]
    for dsn in filter(None, dsns):
        if SECRET.search(dsn):
            words = [word.replace(dsn, "DSN") for word in words]
    return shlex.join(words)


def check_folder(folder: Path) -> None:
    """Raises PlanError where the report could not be written after all the work."""
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise PlanError(f"{folder} is no folder to write the report in", "name another with -o")
