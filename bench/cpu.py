"""CPU of the client process a transaction, and throughput, both sides on the same CPUs.

Ours is all of `pgpaces run`, with its store and its answer. Start-up is in neither: ours looks at
its own CPU time after the first second and after the last, pgbench's is the difference to a run of
one transaction each.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import programs
from figures import Figure, Finding, Goal, Note
from load import Order
from session import Session

from pgpaces.servers.record import Transport

SECTION = "CPU and throughput"
WAY = {Transport.SOCKET: "unix", Transport.TCP: "TCP"}
# By number of clients: of the best backend, and of epoll alone.
BEST = {8: 0.7, 64: 0.6}
EPOLL = {8: 0.8, 64: 0.75}


@dataclass(frozen=True)
class Case:
    """What is run."""

    name: str
    script: Path
    transport: Transport
    clients: int
    throughput: Goal | None = None

    @property
    def label(self) -> str:
        """What the table calls it."""
        return f"{self.name}, {WAY[self.transport]}, {self.clients} clients"


@dataclass(frozen=True)
class Cost:
    """CPU microseconds a transaction; transactions a second."""

    cpu_us: float
    tps: float


def cases() -> Iterator[Case]:
    """Select-only by both ways; tpcb-like on the socket."""
    at_least = {programs.SELECT: 1.1, programs.TPCB: 1.0}
    for script, ways in ((programs.SELECT, Transport), (programs.TPCB, (Transport.SOCKET,))):
        goal = Goal("ratio", "at least", at_least[script])
        for transport in ways:
            for clients in BEST:
                yield Case(script.stem, script, transport, clients, goal)


def section(session: Session) -> Iterator[Finding]:
    """Rows for each case: CPU by each backend, the best of them, throughput of the best."""
    for name, why in session.missing.items():
        yield Note(SECTION, f"{name} not measured: {why}")
    for case in cases():
        yield from _compare(session, case)


def _compare(session: Session, case: Case) -> Iterator[Finding]:
    backends = session.backends
    ways: list[Callable[[], Cost]] = [lambda: pgbench(session, case)]
    ways += [lambda b=backend: ours(session, case, b) for backend in backends]  # type: ignore[misc]
    # Where only throughput has a goal, fewer will do.
    pairs = session.pairs if case.script == programs.SELECT else (session.pairs + 1) // 2
    theirs, *found = programs.columns(programs.alternately(pairs, *ways))
    by_name = dict(zip(backends, found, strict=True))
    best = min(by_name, key=lambda name: statistics.median(c.cpu_us for c in by_name[name]))
    select = case.script == programs.SELECT
    goals = {name: EPOLL[case.clients] for name in by_name if name == "epoll" and select}
    rows = [(f", {name}", name, goals.get(name)) for name in by_name]
    rows.append((f", best ({best})", best, BEST[case.clients] if select else None))
    cpu = tuple(cost.cpu_us for cost in theirs)
    for suffix, name, limit in rows:
        mine = tuple(cost.cpu_us for cost in by_name[name])
        goal = None if limit is None else Goal("ratio", "at most", limit)
        paged = goal is not None or suffix.startswith(", best")
        yield Figure(SECTION, f"{case.label}{suffix}", "CPU us", mine, cpu, goal, paged=paged)
    mine, other = (tuple(cost.tps for cost in costs) for costs in (by_name[best], theirs))
    name = f"{case.label}, best ({best})"
    yield Figure(SECTION, name, "tps", mine, other, case.throughput)


def pgbench(session: Session, case: Case) -> Cost:
    """One run of pgbench."""
    environment = session.place.environment(case.transport)
    program = session.place.program("pgbench")
    what = (program, case.script, "prepared", case.clients)
    start = programs.run(programs.pgbench(*what, "-t", 1), environment)
    whole = programs.run(programs.pgbench(*what, "-T", seconds(session)), environment)
    done = programs.pgbench_done(whole.output) - case.clients
    tps = programs.pgbench_value(whole.output, "tps")
    return Cost(1e6 * (whole.cpu_s - start.cpu_s) / done, tps)


def ours(session: Session, case: Case, backend: str) -> Cost:
    """One run of ours."""
    order = Order(
        str(case.script),
        "prepared",
        case.clients,
        seconds=seconds(session),
        poll=session.poll(backend),
        what="pipeline",
    )
    found = programs.run_ours(order, session.place.environment(case.transport))
    return Cost(found["cpu_us"], found["transactions"] / seconds(session))


def seconds(session: Session) -> int:
    """How long a run lasts."""
    return 2 if session.quick else 4
