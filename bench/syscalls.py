"""System calls a transaction, beside pgbench's: select-only, prepared, on a unix socket.

At one client each transaction waits for its answer, so the count is a property of the program. At
more clients it depends on how many answers come together, that is on the machine: a ratio of runs
that alternate, and no gate.
"""

from __future__ import annotations

from collections.abc import Iterator

import programs
from counting import Counter, counter
from figures import Figure, Finding, Goal, Note
from load import Order
from session import Session

SECTION = "System calls"
CLIENTS = (1, 8, 64)
GOALS = {"epoll": (3.0, 2.5, 2.2), "io_uring": (1.1, 1.0, 0.2)}
# Transactions of all clients in the short and in the long run.
LENGTHS = (3200, 32_000)


def section(session: Session) -> Iterator[Finding]:
    """A row for each backend and number of clients."""
    way = counter()
    if way is None:
        yield Note(SECTION, "not measured: neither perf (with tracepoints) nor strace works here")
        return
    yield Note(SECTION, f"counted by {way.name}")
    if way.name == "strace":
        yield Note(SECTION, "strace slows every call, so answers batch more than they would")
    for name, why in session.missing.items():
        yield Note(SECTION, f"{name} not measured: {why}")
    for place, clients in enumerate(CLIENTS):
        yield from _compare(session, way, clients, place)


def _compare(session: Session, way: Counter, clients: int, place: int) -> Iterator[Finding]:
    backends = session.backends
    ways = (
        lambda: _pgbench(session, way, clients),
        *((lambda b=backend: _ours(session, way, clients, b)) for backend in backends),
    )
    theirs, *all_ours = programs.columns(programs.alternately(1 if session.quick else 3, *ways))
    plural = "client" if clients == 1 else "clients"
    for backend, ours in zip(backends, all_ours, strict=True):
        goal = Goal("ours", "at most", GOALS[backend][place])
        name = f"select-only, {backend}, {clients} {plural}"
        yield Figure(SECTION, name, "system calls", ours, theirs, goal, gate=clients == 1)


def _each(session: Session, way: Counter, commands: list[list[str]]) -> float:
    environment = session.place.environment()
    few, many = (way.count(command, environment) for command in commands)
    return (many - few) / (LENGTHS[1] - LENGTHS[0])


def _pgbench(session: Session, way: Counter, clients: int) -> float:
    what = (session.place.program("pgbench"), programs.SELECT, "prepared", clients)
    counts = (total // clients for total in LENGTHS)
    return _each(session, way, [programs.pgbench(*what, "-t", count) for count in counts])


def _ours(session: Session, way: Counter, clients: int, backend: str) -> float:
    orders = (
        Order(
            str(programs.SELECT),
            "prepared",
            clients,
            transactions=total // clients,
            poll=session.poll(backend),
            look=False,
        )
        for total in LENGTHS
    )
    return _each(session, way, [programs.ours(order) for order in orders])
