"""One load from several generators: what they cost, and what whoever asks them costs."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import fake
import programs
import psutil
from figures import Figure, Finding, Goal, Note
from msgspec.structs import replace
from session import Session

from pgpaces.load import engine
from pgpaces.load.cluster.load import DealtLoad
from pgpaces.load.cluster.protocol import LoadOrder
from pgpaces.load.cluster.workers import Clusters, Workers
from pgpaces.load.composite import RunningLoad
from pgpaces.load.engine import EnginePlan
from pgpaces.spec.load import GeneratorsPlan, Load, TrialPlan

SECTION = "Several generators"
SCRIPTS: tuple[engine.ScriptText, ...] = (("select", 1, b"SELECT 1;"),)
MANY = 200
CONNECTIONS = 40_000
DEALT = Goal("ratio", "at most", 1.05)
A_SECOND = Goal("ours", "at most", 1.0)
OF_MANY = Goal("ours", "at most", 20.0)
MEMORY = Goal("ours", "at most", 300.0)
CONNECTED = Goal("ours", "at least", CONNECTIONS)


def section(session: Session) -> Iterator[Finding]:
    """CPU of a transaction by 4 generators and by one, and of asking them; connections."""
    if not fake.is_built():
        yield Note(SECTION, fake.NOT_BUILT)
        return
    home = session.place.home
    seconds = 3 if session.quick else 10
    with fake.server(home) as way, closing(Clusters()) as clusters:
        there = keywords(way)
        four = clusters.workers(GeneratorsPlan(4), lambda _: None)
        plan = planned(rate=8000.0, clients=64, seconds=seconds)
        rounds = programs.alternately(
            session.pairs,
            lambda: ran(dealt(four, plan, [there] * 4)).cpu_us,
            lambda: ran(alone(plan, there)).cpu_us,
        )
        ours, one = programs.columns(rounds)
        name = "CPU of a transaction, 8,000/s with 64 clients, 4 generators"
        yield Figure(SECTION, name, "us", ours, one, goal=DEALT, beside="1 generator")
        yield Figure(SECTION, "CPU of a generator besides its threads, a second", "ms",
                     (_besides(four, dealt(four, plan, [there] * 4)),))  # fmt: skip
        plan = planned(rate=2.0 * MANY, clients=MANY, seconds=20 if session.quick else 600)
        many = ran(dealt(four, plan, [there] * MANY))
        each = many.coordinator_s / many.seconds * 1000 / MANY
        name = f"CPU of asking a generator, of {MANY} in 4 processes, a second"
        yield Figure(SECTION, name, "ms", (each,),
                     goal=A_SECOND)  # fmt: skip
        share = 100 * many.coordinator_s / many.seconds
        yield Figure(SECTION, f"CPU of asking {MANY} generators", "% of a core", (share,),
                     goal=OF_MANY)  # fmt: skip
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        yield Figure(SECTION, f"memory of asking {MANY} generators", "MB", (peak_mb,), goal=MEMORY)
    yield from _connections(session)


def _connections(session: Session) -> Iterator[Finding]:
    """As many connections as a process may not have alone, on 4 generators."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < CONNECTIONS / 4 + 1000:
        yield Note(SECTION, f"{CONNECTIONS} connections: not measured, the limit here is {hard}")
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with contextlib.ExitStack() as stack:
        # A fake server is one process too, so each generator has one of its own.
        ways = [stack.enter_context(fake.server(session.place.home)) for _ in range(4)]
        four = stack.enter_context(closing(Clusters())).workers(GeneratorsPlan(4), lambda _: None)
        plan = planned(rate=2000.0, clients=CONNECTIONS, seconds=5)
        load = dealt(four, plan, [keywords(way) for way in ways])
        whole = ran(load)
        name = f"connections of 4 generators, {whole.done} transactions at 2,000/s"
        yield Figure(SECTION, name, "", (float(load.clients),), goal=CONNECTED)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _besides(workers: Workers, load: RunningLoad) -> float:
    """CPU that processes of generators take and threads of their engines do not, ms a second."""
    processes = [psutil.Process(worker.host.pid) for worker in workers.workers]

    def spent() -> float:
        return sum(sum(process.cpu_times()[:2]) for process in processes)

    before = spent()
    whole = ran(load)
    threads_s = whole.cpu_us * whole.done / 1e6
    return (spent() - before - threads_s) / whole.seconds / len(processes) * 1000


def planned(*, rate: float, clients: int, seconds: int) -> EnginePlan:
    """An open load of these seconds, without a warm-up."""
    trial = TrialPlan(Load("open", rate), duration_ns=seconds * 10**9, warmup_ns=0, grace_ns=10**9)
    return EnginePlan.of(trial, clients, 1, scripts=["select"])


def keywords(way: Mapping[str, str]) -> dict[str, str]:
    """How to connect to a fake server."""
    place = {"host": way["PGHOST"], "port": way["PGPORT"]}
    return {**place, "user": "bench", "dbname": "bench"}


def alone(plan: EnginePlan, there: Mapping[str, str]) -> RunningLoad:
    """The load of this process."""
    return engine.Engine(plan, SCRIPTS, engine.resolve("", **there))


def dealt(workers: Workers, plan: EnginePlan, there: Sequence[Mapping[str, str]]) -> DealtLoad:
    """The load of a generator for each server, several on a worker where there are more of them."""
    parts, first = [], 0
    for number, server in enumerate(there):
        clients = (plan.clients - first) // (len(there) - number)
        own = replace(plan, clients=clients, part=(first, plan.clients))
        worker = workers.workers[number % len(workers.workers)]
        parts.append((worker, LoadOrder(own, SCRIPTS, dict(server))))
        first += clients
    return DealtLoad(workers, parts)


@dataclass
class Ran:
    """A load that was run: transactions, CPU of their threads each, and of this process."""

    done: int
    cpu_us: float
    coordinator_s: float
    seconds: float


def ran(load: Any) -> Ran:
    """Runs a load to its end."""
    done = cpu_ns = 0
    load.begin()
    began, cpu = time.monotonic(), sum(os.times()[:2])
    for interval in load:
        done += sum(tally.on_time for tally in interval.tallies)
        cpu_ns += sum(interval.cpu_ns)
    spent = sum(os.times()[:2]) - cpu
    return Ran(done, cpu_ns / max(1, done) / 1000, spent, time.monotonic() - began)
