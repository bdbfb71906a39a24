"""The next experiment for a cause: advice in words, and a command that can be typed. Pure.

Commands have options that there are (a test parses each of them). What cannot be known here, such
as a folder, is a word in capitals. A run's own options are told as its plan has them.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
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


def _more(option: str, name: str, *times: float) -> Callable[[Trial], str]:
    """A number of the plan, and multiples of it."""

    def levels(trial: Trial) -> str:
        now = float(trial.plan.get(name) or 1)
        unit = "/s" if name == "rate" else ""
        return f"{option} {','.join(f'{now * each:g}{unit}' for each in times)}"

    return levels


def _buffers(trial: Trial) -> str:
    settings: Mapping[str, Any] = trial.server.get("settings") or {}
    return f"--set shared_buffers={settings.get('shared_buffers', '128MB')},1GB"


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
        _more("--threads", "threads", 1, 2, 4),
    ),
    "lock": _Cause(
        "locks that another session held",
        f"End that session, or let it commit earlier. {_AGAIN}.",
    ),
    "contention": _Cause(
        "transactions of the load waiting for each other's locks",
        "Does it go away with fewer clients? Then shorten what is done while a row is locked.",
        _more("--clients", "clients", 0.5, 1, 2),
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
        _more("--clients", "clients", 0.5, 1, 2),
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
        _more("--clients", "clients", 1, 2, 4),
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
        _more("--rate", "rate", 0.5, 0.75, 1),
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
        sweep: str | None = _more("--clients", "clients", 0.5, 0.75, 1)(trial)
    else:
        sweep = cause.sweep(trial) if cause.sweep else None
    if sweep is None:
        command = f"pgpaces run {asked(trial)} && pgpaces compare {trial.id} last --metric missed"
    else:
        factor = sweep.split()[0]
        command = f"pgpaces sweep {asked(trial, factor)} {sweep} --trials 8"
    return Following(cause.advice, f"{command}; {cause.apart}" if cause.apart else command)


def asked(trial: Trial, without: str = "") -> str:
    """The options of a run that make its load again, as one types them.

    without: an option that somebody else sets.
    """
    plan, model = trial.plan, trial.plan.get("model")
    rate = None if plan.get("rate") is None else f"{plan['rate']:g}/s"
    found: dict[str, Any] = {"--clients": plan.get("clients")}
    if model == "paced":
        found = {"--users": plan.get("clients"), "--pace": rate}
    elif model == "open":
        found = {"--rate": rate, "--clients": plan.get("clients")}
    found["--scale"] = trial.workload.get("scale")
    if plan.get("limit_ns"):
        found["--latency-limit"] = _duration(plan["limit_ns"])
    if plan.get("duration_ns"):
        found["--duration"] = _duration(plan["duration_ns"])
    name = str(trial.workload.get("name") or "")
    # Of scripts that were given as files only their texts are kept.
    words = [name] if name and name != "scripts" else ["-f", "FILE"]
    for option, value in found.items():
        if value is not None and option != without:
            words += [option, str(value)]
    return shlex.join(words)


def _duration(ns: int) -> str:
    return duration_text(ns)
