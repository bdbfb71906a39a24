"""The next experiment for a cause: advice in words, and a command that can be typed. Pure.

Commands have options that there are (a test parses each of them). What cannot be known here, such
as a folder, is a word in capitals. A run's own options are told as its plan has them.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pgpaces.result import Trial
from pgpaces.units import duration_text


@dataclass(frozen=True, slots=True)
class Following:
    """What to do next. command: one line for a shell."""

    advice: str
    command: str


@dataclass(frozen=True, slots=True)
class _Cause:
    """title: as in "associated with ...". advice: before the experiment. sweep: its factor; without

    one the run is done once more, and compared with this one.
    """

    title: str
    advice: str
    sweep: Callable[[Trial], str] | None = None
    apart: str = ""


def _set(name: str, *levels: str) -> Callable[[Trial], str]:
    return lambda _: f"--set {name}={','.join(levels)}"


def _more_threads(trial: Trial) -> str:
    now = int(trial.plan.get("threads") or 1)
    return f"--threads {now},{2 * now},{4 * now}"


def _rates(trial: Trial) -> str:
    now = float(trial.plan.get("rate") or 1)
    return f"--rate {','.join(f'{now * each:g}/s' for each in (0.5, 0.75, 1))}"


def _clients(*times: float) -> Callable[[Trial], str]:
    """As many as there were, and multiples of it: of a load of users, of these."""

    def levels(trial: Trial) -> str:
        now = int(trial.plan.get("clients") or 1)
        found = sorted({max(1, round(now * each)) for each in times})
        option = "--users" if trial.plan.get("model") == "paced" else "--clients"
        return f"{option} {','.join(map(str, found))}"

    return levels


def _buffers(trial: Trial) -> str:
    settings: Mapping[str, Any] = trial.server.get("settings") or {}
    return f"--set shared_buffers={settings.get('shared_buffers', '128MB')},1GB"


# What is told only where it is not as usual.
_USUAL = (("policy", "run"), ("protocol", "simple"), ("shape", "constant"), ("max_tries", 1))
_AGAIN = "Then the same run once more, and the two compared"
CAUSES: Mapping[str, _Cause] = {
    "failed": _Cause(
        "transactions that failed",
        "See the messages; serialization failures and deadlocks may be tried again.",
        lambda _: "--max-tries 1,10",
    ),
    "freeze": _Cause(
        "the server standing still",
        "Look for what stops it: a paused virtual machine, a stopped process, a hanging disk. Does"
        " it come again in a longer run?",
    ),
    "quota": _Cause(
        "the server's CPU quota",
        f"Raise or lift it. {_AGAIN}.",
    ),
    "generator": _Cause(
        "the load generator itself",
        "Give it a CPU of its own, or a machine. Does it go away with more threads?",
        _more_threads,
    ),
    "lock": _Cause(
        "locks that another session held",
        f"End that session, or let it commit earlier. {_AGAIN}.",
    ),
    "contention": _Cause(
        "transactions of the load waiting for each other's locks",
        "Does it go away with fewer clients? Then shorten what is done while a row is locked.",
        _clients(0.5, 1, 2),
    ),
    "standby": _Cause(
        "waiting for a standby's confirmation",
        "Does it go away where commits do not wait for standbys?",
        _set("synchronous_commit", "on", "local"),
    ),
    "checkpoint": _Cause(
        "checkpoints",
        "Does it go away with fewer of them?",
        _set("max_wal_size", "1GB", "8GB"),
    ),
    "disk": _Cause(
        "the disk",
        "Is it commits that wait? Then it goes away without waiting for WAL; what the disk can do"
        " says `pgpaces disk`.",
        _set("synchronous_commit", "on", "off"),
        "pgpaces disk FOLDER",
    ),
    "cache": _Cause(
        "data that was not in the server's cache",
        "Does it go away with a larger cache?",
        _buffers,
    ),
    "latch": _Cause(
        "contention inside the server",
        "Does it go away with fewer clients?",
        _clients(0.5, 1, 2),
    ),
    "plan": _Cause(
        "whole tables read for a few rows",
        f"Create the index that is missing, or ANALYZE the table. {_AGAIN}.",
    ),
    "network": _Cause(
        "the way between generator and server",
        f"Run pgpaces on the server's own machine. {_AGAIN}.",
    ),
    "connections": _Cause(
        "too few clients",
        "Does it go away with more of them?",
        _clients(1, 2, 4),
    ),
    "steal": _Cause(
        "CPU time that other virtual machines had",
        f"Take a machine of your own, or another hour. {_AGAIN}.",
    ),
    "slowed": _Cause(
        "a machine that slowed itself down",
        f"Cool it, or feed it well. {_AGAIN}.",
    ),
    "cpu": _Cause(
        "the CPUs of the server's machine, used up",
        "Does it go away with less load?",
        _rates,
    ),
    "autovacuum": _Cause(
        "autovacuum at work",
        "Does it go away without? To find out, not to stay so.",
        _set("autovacuum", "on", "off"),
    ),
    "others": _Cause(
        "other sessions at work on the server",
        f"See who they are in pg_stat_activity. {_AGAIN} when they are away.",
    ),
}


def following(key: str, trial: Trial) -> Following:
    """What to do next about a cause that a trial shows."""
    cause = CAUSES[key]
    if key == "cpu" and trial.plan.get("model") != "open":
        sweep: str | None = _clients(0.5, 0.75, 1)(trial)
    else:
        sweep = cause.sweep(trial) if cause.sweep else None
    if sweep is None:
        command = f"pgpaces run {asked(trial)} && pgpaces compare {trial.id} last --metric missed"
    else:
        command = f"pgpaces sweep {asked(trial, sweep)} {sweep} --trials 8"
    return Following(cause.advice, f"{command}; {cause.apart}" if cause.apart else command)


def asked(trial: Trial, sweep: str = "") -> str:
    """The options of a run that make its load again, as one types them.

    sweep: an option with several levels, which stands beside them.
    """
    plan, model = trial.plan, trial.plan.get("model")
    factor, _, named = sweep.partition(" ")
    rate = None if plan.get("rate") is None else f"{plan['rate']:g}/s"
    found: dict[str, Any] = {"--clients": plan.get("clients")}
    if model == "paced":
        found = {"--users": plan.get("clients"), "--pace": rate}
    elif model == "open":
        found = {"--rate": rate, "--clients": plan.get("clients")}
    elif plan.get("think_ns"):
        found["--think-time"] = duration_text(plan["think_ns"])
    for name, usual in _USUAL:
        if plan.get(name) != usual:
            found[f"--{name.replace('_', '-')}"] = _level(plan.get(name), sweep)
    found |= _server(trial.server)
    found["--scale"] = trial.workload.get("scale")
    for option, name in (("--latency-limit", "limit_ns"), ("--duration", "duration_ns")):
        if plan.get(name):
            found[option] = duration_text(plan[name])
    name = str(trial.workload.get("name") or "")
    # Of scripts that were given as files only their texts are kept.
    words = [name] if name and name != "scripts" else ["-f", "FILE"]
    for option, value in found.items():
        if value is not None and option != factor:
            words += [option, str(value)]
    words += _many(plan, sweep)
    return shlex.join([*words, *_settings(plan, named if factor == "--set" else "", sweep)])


def _server(server: Mapping[str, Any]) -> dict[str, str]:
    """Where the trial ran, unless it is where a run goes that says nothing of it; no password."""
    target = server.get("target") or {}
    if not server.get("ours"):
        known = {k: target[k] for k in ("host", "port", "user", "dbname") if target.get(k)}
        text = " ".join(f"{k}={v}" for k, v in known.items())
        return {"--target": text} if text else {}
    return {"--server": str(server["asked"])} if server.get("asked") else {}


def _many(plan: Mapping[str, Any], sweep: str) -> Iterator[str]:
    """Variables, and limits of scripts; a variable that is varied is told by its levels alone."""
    for script, ns in plan.get("limits") or ():
        if ns:
            yield from ("-L", f"{script}={duration_text(ns)}")
    for name, value in plan.get("variables") or ():
        if name not in ("scale", "client_id", "random_seed", "default_seed"):
            yield from ("-D", f"{name}={_level(value, sweep)}")


def _level(value: Any, sweep: str) -> str | None:
    """A value as one level: a comma divides levels where there are some."""
    if value is None:
        return None
    return str(value).replace(",", "\\,") if sweep else str(value)


def _settings(plan: Mapping[str, Any], named: str, sweep: str) -> Iterator[str]:
    """Without the one that is varied."""
    for name, value in (plan.get("settings") or {}).items():
        if name != named.partition("=")[0]:
            yield from ("--set", f"{name}={_level(value, sweep)}")
