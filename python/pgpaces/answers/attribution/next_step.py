"""The next experiment for a cause: advice in words, and a command that can be typed. Pure.

Commands have options that there are (a test parses each of them). What cannot be known here, such
as a folder, is a word in capitals. A run's own options are told as its plan has them.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from pgpaces.facts import PlanFacts, RequestFacts
from pgpaces.result import Trial


class Following(Struct, frozen=True):
    """What to do next. command: one line for a shell."""

    advice: str
    command: str


class _Cause(Struct, frozen=True):
    """title: as in "associated with ...". advice: before the experiment. sweep: its factor; without

    one the run is done once more, and compared with this one.
    """

    title: str
    advice: str
    sweep: Callable[[Trial], str] | None = None
    apart: str = ""


def _set(name: str, *levels: str) -> Callable[[Trial], str]:
    return lambda _: f"--server-set {name}={','.join(levels)}"


def _more_threads(trial: Trial) -> str:
    now = trial.plan.threads or 1
    return f"--threads {now},{2 * now},{4 * now}"


def _rates(trial: Trial) -> str:
    now = trial.plan.rate or 1.0
    return f"--rate {','.join(f'{now * each:g}/s' for each in (0.5, 0.75, 1))}"


def _clients(*times: float) -> Callable[[Trial], str]:
    """As many as there were, and multiples of it: of a load of users, of these."""

    def levels(trial: Trial) -> str:
        now = trial.plan.clients or 1
        found = sorted({max(1, round(now * each)) for each in times})
        option = "--users" if trial.plan.model == "paced" else "--clients"
        return f"{option} {','.join(map(str, found))}"

    return levels


def _buffers(trial: Trial) -> str:
    now = trial.server.settings.get("shared_buffers", "128MB")
    return f"--server-set shared_buffers={now},1GB"


# What is told only where it is not as usual.
_USUAL = (
    ("arrivals", "poisson"),
    ("policy", "run"),
    ("protocol", "simple"),
    ("shape", "constant"),
    ("max_tries", 1),
    ("threads", 1),
    ("seed", 1),
    ("kill_switch", None),
)
_POOL = {"pooler": "--pool", "mode": "--pool-mode", "size": "--pool-size"}
_SWITCHES = ("describe", "connect_each")
_ON_ERROR = {(False, False): "stop-client", (False, True): "stop"}
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
    if key == "cpu" and trial.plan.model != "open":
        sweep: str | None = _clients(0.5, 0.75, 1)(trial)
    else:
        sweep = cause.sweep(trial) if cause.sweep else None
    if sweep is None:
        again = f"pgpaces {_verb(trial)} {asked(trial)}"
        command = f"{again} && pgpaces compare {trial.id} last --metric missed"
    else:
        command = f"pgpaces sweep {asked(trial, sweep)} {sweep} --trials 8"
    return Following(cause.advice, f"{command}; {cause.apart}" if cause.apart else command)


def _verb(trial: Trial) -> str:
    """The command that runs it: a command of the shell is loaded with."""
    return "load" if trial.workload.asked.command else "run"


def asked(trial: Trial, sweep: str = "") -> str:
    """The options of a run that make its load again, as one types them.

    sweep: an option with several levels, which stands beside them.
    """
    plan, request = trial.plan, trial.workload.asked
    factor, _, named = sweep.partition(" ")
    found = {**_load(plan), **_times(plan), **_server(trial, sweep)}
    for name, usual in _USUAL:
        if (value := getattr(plan, name)) not in (None, usual):
            found[f"--{name.replace('_', '-')}"] = _level(value, sweep)
    found["--on-error"] = _ON_ERROR.get((plan.continue_on_error, plan.exit_on_abort))
    if not request.target or request.workload:
        found["--scale"] = trial.workload.scale
    words = [*_what(trial)]
    for option, value in found.items():
        if value is not None and option != factor:
            words += [option, str(value)]
    for name in _SWITCHES:
        if getattr(plan, name):
            words += [f"--{name.replace('_', '-')}", *(["on"] if sweep else [])]
    words += _many(plan, sweep)
    words += _layout(request, sweep)
    return shlex.join([*words, *_settings(trial, named if factor == "--server-set" else "", sweep)])


def _what(trial: Trial) -> Iterator[str]:
    """What is run: a workload, scripts of files, a command; and on which data."""
    request, name = trial.workload.request, trial.workload.name
    if request is None:
        # Of trials stored by earlier versions: of scripts from files there are only the texts.
        yield from [name] if name and name != "scripts" else ["-f", "FILE"]
        return
    # The standard input is gone, and what pgbench has built in is no file.
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


def _load(plan: PlanFacts) -> dict[str, Any]:
    """Who sends, and how often."""
    model = plan.model
    rate = None if plan.rate is None else f"{_number(plan.rate)}/s"
    if model == "paced":
        found: dict[str, Any] = {"--users": plan.clients, "--pace": rate}
    elif model == "open":
        found = {"--rate": rate, "--clients": plan.clients}
    else:
        found = {"--clients": plan.clients}
        if plan.think_ns:
            found["--think-time"] = _duration(plan.think_ns)
            found["--think"] = plan.think if plan.think == "fixed" else None
    if plan.start_every_ns:
        found["--start-every"] = _duration(plan.start_every_ns)
    return found


def _times(plan: PlanFacts) -> dict[str, Any]:
    """How long it takes, and what is too long; those that are as usual are not told."""
    found: dict[str, Any] = {}
    limit, length = plan.limit_ns, plan.duration_ns
    if limit:
        found["--latency-limit"] = _duration(limit)
    if length:
        found["--duration"] = _duration(length)
    elif plan.transactions:
        found["--transactions"] = plan.transactions
    warmup, grace = plan.warmup_ns, plan.grace_ns
    if warmup != min((length or 0) // 10, 30_000_000_000):
        found["--warmup"] = _duration(warmup)
    if grace is not None and grace != max(limit or 0, 5_000_000_000):
        found["--grace"] = _duration(grace)
    return found


def _number(value: float) -> str:
    """As short as it can be without being another one."""
    short = f"{value:g}"
    return short if float(short) == value else repr(float(value))


def _duration(ns: int) -> str:
    """To the nanosecond, in the largest unit that makes it a whole number."""
    for unit, size in (("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)):
        if ns % size == 0:
            return f"{ns // size}{unit}"
    return f"{ns / 1_000:.15g}us"


def _server(trial: Trial, sweep: str) -> dict[str, Any]:
    """Where the trial ran, unless it is where a run goes that says nothing of it; no password."""
    server, request = trial.server, trial.workload.asked
    if request.target:
        found: dict[str, Any] = {"--target": request.target}
        return found if sweep else {**found, "--own": request.own}
    if server.ours:
        found = {"--server": server.asked, "--data-dir": request.data_dir}
        tls = request.tls
        found["--tls"] = None if tls is None else "on" if tls else "off"
        return {**found, "--standbys": request.standbys or None}
    target = server.target
    known = {k: target[k] for k in ("host", "port", "user", "dbname") if target.get(k)}
    text = " ".join(f"{k}={v}" for k, v in known.items())
    return {"--target": text} if text else {}


def _layout(request: RequestFacts, sweep: str) -> Iterator[str]:
    """Which scripts, and to which nodes; a pooler."""
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


def _many(plan: PlanFacts, sweep: str) -> Iterator[str]:
    """Variables, and limits of scripts; a variable that is varied is told by its levels alone."""
    for script, ns in plan.limits:
        if ns:
            yield from ("-L", f"{script}={_duration(ns)}")
    for name, value in plan.variables:
        if name not in ("scale", "client_id", "random_seed", "default_seed"):
            yield from ("-D", f"{name}={_level(value, sweep)}")
    for sql in () if sweep else plan.on_connect:
        yield from ("--on-connect", sql)


def _level(value: Any, sweep: str) -> str | None:
    """A value as one level: a comma divides levels where there are some."""
    if value is None:
        return None
    return str(value).replace(",", "\\,") if sweep else str(value)


def _settings(trial: Trial, named: str, sweep: str) -> Iterator[str]:
    """Of sessions and of the server, without the one that is varied."""
    request = trial.workload.asked
    for option, values in (
        ("--server-set" if sweep else "--set", trial.plan.settings),
        ("--server-set", request.server_settings),
    ):
        for name, value in values.items():
            if name != named.partition("=")[0]:
                yield from (option, f"{name}={_level(value, sweep)}")
