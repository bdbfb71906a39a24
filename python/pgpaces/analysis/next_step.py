"""The next experiment for a cause: advice in words, and a command that can be typed. Pure.

A test parses each command. A value that is unknown here, such as a folder, is a word in capitals.
The options of a run are those of its plan.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from pgpaces.analysis.accumulator import by_functions
from pgpaces.analysis.goal import ALLOWED
from pgpaces.core.units import duration_text, exact
from pgpaces.spec.facts import PlanFacts, RequestFacts
from pgpaces.spec.result import Trial

# Fewer missed transactions than this have no attribution.
MISSED_MIN = 10


class NextStep(Struct, frozen=True):
    advice: str
    command: str


class _Cause(Struct, frozen=True):
    """A cause, and what to do about it.

    title: as in "associated with ...". sweep: the factor of the experiment; without one the command
    repeats the run and asks why again. apart: a command that follows.
    """

    title: str
    advice: str
    sweep: Callable[[Trial], str] | None = None
    apart: str = ""


def _set(name: str, *levels: str) -> Callable[[Trial], str]:
    return lambda _: f"--server-set {name}={','.join(levels)}"


def threads(plan: PlanFacts) -> int:
    return max(1, (plan.threads or 1) // max(1, len(plan.generated)))


def _more_threads(trial: Trial) -> str:
    now = threads(trial.plan)
    return f"--threads {now},{2 * now},{4 * now}"


def _rates(trial: Trial) -> str:
    now = trial.plan.rate or 1.0
    return f"--rate {','.join(f'{now * each:g}/s' for each in (0.5, 0.75, 1))}"


def clients(*times: float) -> Callable[[Trial], str]:
    """Multiples of the number of clients, or of users for a load of users."""

    def levels(trial: Trial) -> str:
        now = trial.plan.own_clients or 1
        counts = sorted({max(1, round(now * each)) for each in times})
        option = "--users" if trial.plan.model == "paced" else "--clients"
        return f"{option} {','.join(map(str, counts))}"

    return levels


# Options that a command has only where they differ from these defaults.
_USUAL = (
    ("arrivals", "poisson"),
    ("policy", "run"),
    ("protocol", "simple"),
    ("shape", "constant"),
    ("max_tries", 1),
    ("seed", 1),
)
_POOL = {"pooler": "--pool", "mode": "--pool-mode", "size": "--pool-size"}
_ON_ERROR = {(False, False): "stop-client", (False, True): "stop"}
_AGAIN = "Then repeat the run: does it go away?"
CAUSES: Mapping[str, _Cause] = {
    "failed": _Cause(
        "transactions that failed",
        "Mend what the messages name: the script, the data that it expects, or the server. `pgpaces"
        f" show` has the failures of each statement. {_AGAIN}",
    ),
    "freeze": _Cause(
        "the server standing still, or an outage",
        "Look for what stops it: a restart, a crash, a dropped database (the server's log tells), a"
        " paused virtual machine, a stopped process, a hanging disk. Does it happen again in a"
        " longer run?",
    ),
    "quota": _Cause(
        "the server's CPU quota",
        f"Raise or lift it. {_AGAIN}",
    ),
    "generator": _Cause(
        "the load generator itself",
        "Give it a CPU of its own, or a machine. Does it go away with more threads?",
        _more_threads,
    ),
    "lock": _Cause(
        "locks that another session held",
        f"End that session, or let it commit earlier. {_AGAIN}",
    ),
    "contention": _Cause(
        "transactions of the load waiting for each other's locks",
        "Does it go away with fewer clients? Then shorten the time during which rows are locked.",
        clients(0.5, 1, 2),
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
        "Do commits wait? Then it goes away without waiting for WAL. `pgpaces disk` measures what"
        " the disk can do.",
        _set("synchronous_commit", "on", "off"),
        "pgpaces disk FOLDER",
    ),
    "cache": _Cause(
        "data that was not in the server's cache",
        "Does it go away with a larger cache?",
        lambda t: _set("shared_buffers", t.server.settings.get("shared_buffers", "128MB"), "1GB")(
            t
        ),
    ),
    "latch": _Cause(
        "contention inside the server",
        "Does it go away with fewer clients?",
        clients(0.5, 1, 2),
    ),
    "plan": _Cause(
        "whole tables read for a few rows",
        f"Create the index that is missing, or ANALYZE the table. {_AGAIN}",
    ),
    "network": _Cause(
        "the way between generator and server",
        f"Run pgpaces on the server's own machine. {_AGAIN}",
    ),
    "connections": _Cause(
        "too few clients",
        "Does it go away with more of them?",
        clients(1, 2, 4),
    ),
    "steal": _Cause(
        "CPU time that other virtual machines had",
        f"Use a dedicated machine, or another time of day. {_AGAIN}",
    ),
    "slowed": _Cause(
        "a machine that slowed itself down",
        f"Improve its cooling or its power supply. {_AGAIN}",
    ),
    "cpu": _Cause(
        "the CPUs of the server's machine, used up",
        "Does it go away with less load?",
        _rates,
    ),
    "autovacuum": _Cause(
        "autovacuum at work",
        "Does it go away without it? For the experiment only: leave autovacuum on.",
        _set("autovacuum", "on", "off"),
    ),
    "others": _Cause(
        "other sessions at work on the server",
        f"Identify them in pg_stat_activity, and wait until they are gone. {_AGAIN}",
    ),
}

# Serialization failures and deadlocks: what the engine tries again, unlike any other error.
_RETRIED = ("40001", "40P01")
# Causes in a form that other advice fits.
_FORMS: Mapping[str, _Cause] = {
    "conflicts": _Cause(
        CAUSES["failed"].title,
        "Serialization failures and deadlocks may be retried. Does it go away with more tries?",
        lambda _: "--max-tries 1,10",
    ),
    "loopback": _Cause(
        CAUSES["network"].title,
        "The server's address is on this machine. Look for backends that are stopped, or for a"
        f" tunnel, a proxy or a pooler at this address. {_AGAIN}",
    ),
    "standstill": _Cause(
        CAUSES["generator"].title,
        f"Look for what stopped it: a stopped process, a paused machine. {_AGAIN}",
    ),
}
_NONE: Mapping[str, int] = {}


def next_step_for(key: str, trial: Trial, failures: Mapping[str, int] = _NONE) -> NextStep:
    """What to do next about a cause that a trial shows. failures: its failed, by SQLSTATE.

    key: of a cause, or of a form of one.
    """
    cause = CAUSES.get(key) or _FORMS[key]
    retried = sum(count for state, count in failures.items() if state in _RETRIED)
    if key == "failed" and 2 * retried > sum(failures.values()) and not by_functions(trial):
        cause = _FORMS["conflicts"]
    varied = clients(0.5, 0.75, 1) if key == "cpu" and trial.plan.model != "open" else cause.sweep
    if varied is None or not in_sweep(trial):
        # A shell command is executed by `load`.
        run = f"{'load' if trial.workload.request.command else 'run'} {options(trial)}"
        command = f"pgpaces {run} && pgpaces why last"
    else:
        sweep = varied(trial)
        command = f"pgpaces sweep {options(trial, sweep)} {sweep} --trials 8"
    return NextStep(cause.advice, f"{command}; {cause.apart}" if cause.apart else command)


def in_sweep(trial: Trial) -> bool:
    """Whether an experiment can have the load of a run: it has no `--on-connect` and no `--own`."""
    return not trial.plan.on_connect and trial.workload.request.own is None


def options(trial: Trial, sweep: str = "") -> str:
    """The options that repeat the load of a run, for the command line.

    sweep: an option with several levels, which the command has as well.
    """
    plan, request = trial.plan, trial.workload.request
    factor, _, setting = sweep.partition(" ")
    values = {**_load(plan, request), **_generators(plan, sweep), **_times(plan), **_server(trial)}
    for name, usual in _USUAL:
        if (value := getattr(plan, name)) not in (None, usual):
            values[f"--{name.replace('_', '-')}"] = _level(value, sweep)
    values["--on-error"] = _ON_ERROR.get((plan.continue_on_error, plan.exit_on_abort))
    if not request.target or request.workload:
        values["--scale"] = trial.workload.scale
        seed = trial.workload.data_seed
        values["--data-seed"] = None if seed == 1 else seed
    words = [*_workload(trial)]
    for option, value in values.items():
        if value is not None and option != factor:
            words += [option, str(value)]
    switches = {name: getattr(plan, name) for name in ("describe", "connect_each", "keep_going")}
    for name, is_on in {**switches, "insecure_cluster": request.insecure_cluster}.items():
        if is_on:
            words += [f"--{name.replace('_', '-')}", *(["on"] if sweep else [])]
    if request.target and not plan.guard:
        words += ["--guard", "off"] if sweep else ["--no-guard"]
    words += _variables(plan, sweep)
    words += _background(trial)
    words += _layout(request, sweep)
    words += _settings(trial, setting if factor == "--server-set" else "", sweep)
    return shlex.join(words)


def _workload(trial: Trial) -> Iterator[str]:
    request = trial.workload.request
    # The standard input cannot be read again, and a built-in script of pgbench is no file.
    files = [(path, weight) for path, weight in request.files if path[:1] not in ("-", "<")]
    if request.workload:
        yield request.workload
    elif request.command:
        yield request.command
    elif not files:
        yield from ["-f", "FILE"]
    for path, weight in files:
        yield from ("-f", path if weight == 1 and "@" not in path else f"{path}@{weight}")
    if request.from_database:
        yield from ("--from-database", request.from_database)


def _background(trial: Trial) -> Iterator[str]:
    """Background workloads that have a name; files of scripts are not stored of them."""
    scales = {each.of: each.scale for each in trial.workload.background}
    for each in trial.plan.components:
        if not each.of or each.workload == "scripts":
            continue
        rate, of = (None if each.rate is None else f"{exact(each.rate)}/s"), each.model
        values = {
            "workload": each.workload,
            "scale": scales.get(each.of),
            "pace" if of == "paced" else "rate": rate,
            "users" if of == "paced" else "clients": each.clients,
            "think_time": duration_text(each.think_ns) if of == "closed" else None,
            "think": each.think if each.think == "fixed" else None,
            "latency_limit": each.limit_ns and duration_text(each.limit_ns),
            "node": None if each.node == "primary" else each.node,
        }
        options = (f"{name}={value}" for name, value in values.items() if value)
        yield from ("--background", " ".join((each.of, *options)))


def _load(plan: PlanFacts, request: RequestFacts) -> dict[str, Any]:
    model = plan.model
    rate = None if plan.rate is None else f"{exact(plan.rate)}/s"
    if model == "paced":
        values: dict[str, Any] = {"--users": plan.own_clients, "--pace": rate}
    elif model == "open":
        values = {"--rate": rate, "--clients": plan.own_clients}
    else:
        values = {"--clients": plan.own_clients}
        if plan.think_ns:
            values["--think-time"] = duration_text(plan.think_ns)
            values["--think"] = plan.think if plan.think == "fixed" else None
        elif "rate" in request.without:
            values["--think-time"] = "0s"
    if plan.start_every_ns or ("start_every" in request.without and model != "open"):
        values["--start-every"] = duration_text(plan.start_every_ns)
    return values


def _generators(plan: PlanFacts, sweep: str) -> dict[str, Any]:
    count, _, cluster = (plan.generators or "").rpartition(" of ")
    if "://" not in cluster:
        count, cluster = cluster, ""
    each = threads(plan)
    return {
        "--threads": each if each > 1 else None,
        "--generators": _level(count or None, sweep),
        "--cluster": _level(cluster or None, sweep),
    }


def _times(plan: PlanFacts) -> dict[str, Any]:
    values: dict[str, Any] = {}
    limit, length = plan.limit_ns, plan.duration_ns
    if limit:
        values["--latency-limit"] = duration_text(limit)
    if plan.missed_max not in (None, ALLOWED):
        values["--missed"] = f"{100 * plan.missed_max:.15g}%"
    if length:
        values["--duration"] = duration_text(length)
    elif plan.transactions:
        values["--transactions"] = plan.transactions
    warmup, grace = plan.warmup_ns, plan.grace_ns
    if warmup != min((length or 0) // 10, 30_000_000_000):
        values["--warmup"] = duration_text(warmup)
    if grace is not None and grace != max(limit or 0, 5_000_000_000):
        values["--grace"] = duration_text(grace)
    return values


def _server(trial: Trial) -> dict[str, Any]:
    """Where the trial ran, without defaults and without a password."""
    server, request = trial.server, trial.workload.request
    if request.target:
        return {"--target": request.target, "--own": request.own}
    if server.ours:
        tls = request.tls
        return {
            "--server": server.requested,
            "--data-dir": request.data_dir,
            "--tls": None if tls is None else "on" if tls else "off",
            "--standbys": request.standbys or None,
        }
    names = ("host", "port", "user", "dbname")
    dsn = " ".join(f"{name}={server.target[name]}" for name in names if server.target.get(name))
    return {"--target": dsn or None}


def _layout(request: RequestFacts, sweep: str) -> Iterator[str]:
    scripts = [f"{name}@{w}" if w is not None else name for name, w in request.scripts]
    if sweep and scripts:
        yield from ("--script", " ".join(scripts))
    for script in () if sweep else scripts:
        yield from ("--script", script)
    for name, dsn in request.target_nodes.items():
        yield from ("--target-node", f"{name}={dsn}")
    if request.node:
        yield from ("--node", request.node)
    for script, node in request.nodes.items():
        yield from ("--node", f"{script}={node}")
    for name, option in _POOL.items() if request.pool else ():
        if (value := getattr(request.pool, name)) is not None:
            yield from (option, str(value))


def _variables(plan: PlanFacts, sweep: str) -> Iterator[str]:
    for script, ns in plan.limits:
        if ns:
            yield from ("-L", f"{script}={duration_text(ns)}")
    for name, value in plan.variables:
        if name not in ("scale", "client_id", "random_seed", "default_seed"):
            yield from ("-D", f"{name}={_level(value, sweep)}")
    for sql in plan.on_connect:
        yield from ("--on-connect", sql)


def _level(value: Any, sweep: str) -> str | None:
    """A value as one level: of a sweep, commas are escaped, as they separate levels."""
    if value is None:
        return None
    return str(value).replace(",", "\\,") if sweep else str(value)


def _settings(trial: Trial, varied: str, sweep: str) -> Iterator[str]:
    request = trial.workload.request
    for option, values in (
        ("--server-set" if sweep else "--set", trial.plan.settings),
        ("--server-set", request.server_settings),
    ):
        for name, value in values.items():
            if name != varied.partition("=")[0]:
                yield from (option, f"{name}={_level(value, sweep)}")
