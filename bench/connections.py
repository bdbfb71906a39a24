"""Many connections in one process: what they cost while idle, and how long they take to make.

Idle ones are against the fake server, which has no processes; connecting is against PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import fake
import programs
from figures import Figure, Finding, Goal, Note
from load import Order
from place import CONNECTIONS, files_max
from session import Session

MANY, CONNECTING = "Many connections", "Connecting"
IDLE = Path(__file__).with_name("idle.sql")
ACTIVE, MOST = 100, 10_000
# Files that a process needs beside its connections.
SPARE = 100
# Transactions a second in all, however many clients there are.
RATE = 5000


def many(session: Session) -> Iterator[Finding]:
    """Memory of a connection, and whether idle ones cost CPU."""
    if not fake.is_built():
        yield Note(MANY, fake.NOT_BUILT)
        return
    most = min(MOST, files_max() - SPARE)
    if most < MOST:
        yield Note(MANY, f"{most} connections: this system allows {files_max()} open files")
    with fake.server(session.place.home) as way:
        for backend in session.backends:
            yield from _memory(session, way, backend, most)
        yield from _idle(session, way, most)
        yield from _in_turn(session, way, most)


def _paced(session: Session, backend: str, clients: int) -> Order:
    """The same rate in all, of however many; simple, because each client prepares once."""
    return Order(
        str(programs.SELECT),
        "simple",
        clients,
        seconds=_seconds(session),
        pace=RATE / clients,
        poll=session.poll(backend),
    )


def _seconds(session: Session) -> int:
    return 4 if session.quick else 6


def _memory(session: Session, way: dict[str, str], backend: str, most: int) -> Iterator[Finding]:
    """Resident memory of the process, of so many connections less that of a tenth."""

    def resident(clients: int) -> float:
        found = programs.run_ours(_paced(session, backend, clients), way)
        return float(found["memory_kib"].get("Rss", 0))

    each = (resident(most) - resident(most // 10)) / (most - most // 10)
    name = f"memory of each of {most} connections, {backend}"
    yield Figure(MANY, name, "KiB", (each,), goal=Goal("ours", "at most", 16.0))


def _grown(cpu_us: Callable[[int], float], most: int) -> Callable[[], float]:
    """How many times the CPU of a transaction by ACTIVE clients it is with idle ones beside."""
    return lambda: cpu_us(most) / cpu_us(ACTIVE)


def _idle(session: Session, way: dict[str, str], most: int) -> Iterator[Finding]:
    """Whether clients that only sleep cost CPU, of both programs."""

    def ours(backend: str, clients: int) -> float:
        order = Order(
            str(IDLE),
            "simple",
            clients,
            seconds=_seconds(session),
            poll=session.poll(backend),
            variables=_variables(_seconds(session) + 2),
        )
        return float(programs.run_ours(order, way)["cpu_us"])

    def pgbench(clients: int) -> float:
        def command(idle_s: int, *end: object) -> list[str]:
            more = [word for item in _variables(idle_s).items() for word in ("-D", "=".join(item))]
            program = session.place.program("pgbench")
            return programs.pgbench(program, IDLE, "simple", clients, *more, *end)

        start = programs.run(command(0, "-t", 1), way)
        # Its time begins before it connects.
        whole = programs.run(command(_seconds(session) + 4, "-T", _seconds(session) + 2), way)
        done = programs.pgbench_done(whole.output) - clients
        return 1e6 * (whole.cpu_s - start.cpu_s) / done

    backends = session.backends
    ways = [_grown(pgbench, most)]
    ways += [_grown(partial(ours, backend), most) for backend in backends]
    theirs, *found = programs.columns(programs.alternately(1 if session.quick else 3, *ways))
    for backend, mine in zip(backends, found, strict=True):
        name = f"CPU of {ACTIVE} clients, {most - ACTIVE} others idle, {backend}"
        yield Figure(MANY, name, "times", mine, theirs, Goal("ours", "at most", 1.5))


def _variables(idle_s: int) -> dict[str, str]:
    return {"active": str(ACTIVE), "idle": str(idle_s)}


def _in_turn(session: Session, way: dict[str, str], most: int) -> Iterator[Finding]:
    """The same rate, but every connection has its turn: what cold memory costs."""
    for backend in session.backends:

        def cpu_us(clients: int, backend: str = backend) -> float:
            return float(programs.run_ours(_paced(session, backend, clients), way)["cpu_us"])

        ours = (_grown(cpu_us, most)(),)
        name = f"CPU of {most} clients in turn over {ACTIVE}, {backend}"
        yield Figure(MANY, name, "times", ours, paged=False)


def connecting(session: Session) -> Iterator[Finding]:
    """How long 1,000 clients take to connect, as each program says."""
    ways: list[Callable[[], float]] = [lambda: _pgbench_connects(session)]
    ways += [lambda b=backend: _ours_connects(session, b) for backend in session.backends]  # type: ignore[misc]
    theirs, *found = programs.columns(programs.alternately(2 if session.quick else 5, *ways))
    for backend, ours in zip(session.backends, found, strict=True):
        name = f"{CONNECTIONS} clients, unix, {backend}"
        yield Figure(CONNECTING, name, "s", ours, theirs, Goal("ratio", "at most", 0.5))


def _settle(session: Session) -> None:
    """Waits until the server has let go of everybody."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
    command = [session.place.program("psql"), "-AtXc", query, "-c", "SELECT pg_sleep(0.1)"]
    while int(programs.run(command, session.place.environment()).output.split()[0]) > 1:
        pass


def _pgbench_connects(session: Session) -> float:
    _settle(session)
    what = (session.place.program("pgbench"), programs.SELECT, "simple", CONNECTIONS)
    found = programs.run(programs.pgbench(*what, "-t", 1), session.place.environment())
    return programs.pgbench_value(found.output, "initial connection time") / 1e3


def _ours_connects(session: Session, backend: str) -> float:
    _settle(session)
    script, poll = str(programs.SELECT), session.poll(backend)
    order = Order(script, "simple", CONNECTIONS, transactions=1, poll=poll)
    found: dict[str, Any] = programs.run_ours(order, session.place.environment())
    return float(found["connect_s"])
