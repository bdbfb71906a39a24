"""CPU of the client a transaction, and throughput, beside other programs on the same CPUs.

Ours is all of `pgpaces run`, with its store and its answer, as it chooses to wait. Start-up is in
none: ours looks at its own CPU time after the first second and after the last, of the others it is
the difference to a shorter run. The bare loop has no accounting at all: a bound, and no program
that one could use.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fake
import programs
import psycopg
from figures import Figure, Finding, Goal, Note
from load import Order
from place import SCALE
from session import Session

from pgpaces.server.folder import Transport

SECTION, ALONE = "CPU and throughput", "The client alone"
SHORT_S = 1
LUA = Path(__file__).with_name("sysbench_select.lua")
BARE = Path(__file__).parents[1] / "target" / "release" / "examples" / "bare"
SELECT = "SELECT abalance FROM pgbench_accounts WHERE aid = %s::int"
# By number of clients: throughput, CPU by a Unix socket and by TCP, to the better of the others.
THROUGHPUT = {1: 1.0, 8: 1.05, 64: 1.05}
CPU = {
    Transport.SOCKET: {1: 0.95, 8: 0.9, 64: 0.75},
    Transport.TCP: {1: 1.0, 8: 0.95, 64: 0.9},
}
OTHERS, BOUND = ("pgbench", "sysbench"), "bare loop"


@dataclass(frozen=True)
class Case:
    """What is run, the way to its server (variables of libpq), and what of ours (an Order's).

    ours, pgbench: what else each is asked for: fields of an Order, words of a command line.
    """

    name: str
    script: Path
    way: Mapping[str, str]
    clients: int
    what: str = "pipeline"
    protocol: str = "prepared"
    ours: Mapping[str, Any] = field(default_factory=dict)
    pgbench: tuple[object, ...] = ()

    @property
    def label(self) -> str:
        """What the table calls it."""
        return f"{self.name}, {self.clients} client{'s' if self.clients > 1 else ''}"


@dataclass(frozen=True)
class Cost:
    """CPU microseconds a transaction; transactions a second."""

    cpu_us: float
    tps: float


PER_CPU = "a CPU second"
UNITS: dict[str, Callable[[Cost], float]] = {
    "tps": lambda cost: cost.tps,
    "CPU us": lambda cost: cost.cpu_us,
    PER_CPU: lambda cost: 1e6 / cost.cpu_us,
}


def section(session: Session) -> Iterator[Finding]:
    """Select-only by both ways to PostgreSQL; tpcb-like; a server that costs nothing."""
    if shutil.which("sysbench") is None:
        yield Note(SECTION, "sysbench: not installed (apt-get install sysbench)")
    for transport, name in ((Transport.SOCKET, "unix"), (Transport.TCP, "TCP")):
        way = session.place.environment(transport)
        for clients, quick in THROUGHPUT.items():
            case = Case(f"select-only, {name}", programs.SELECT, way, clients)
            yield from _select(session, case, quick, CPU[transport][clients])
    for clients in (8, 64):
        yield from _tpcb(session, clients)
    if not fake.is_built():
        yield Note(ALONE, fake.NOT_BUILT)
        return
    # The store asks more of a server than this one can answer.
    yield Note(ALONE, "a fake server, which answers at once; pgpaces without its store")
    with fake.server(session.place.home) as way:
        for clients in THROUGHPUT:
            case = Case("select-only", programs.SELECT, way, clients, "engine")
            yield from _alone(session, case)


def _select(session: Session, case: Case, at_least: float, at_most: float) -> Iterator[Finding]:
    found = _alternately(session, case)
    yield from _rows(case, found, "tps", Goal("ratio", "at least", at_least))
    yield from _rows(case, found, "CPU us", Goal("ratio", "at most", at_most))


def _tpcb(session: Session, clients: int) -> Iterator[Finding]:
    """pgbench's own transaction, with fewer pairs: the server is most of it."""
    case = Case("tpcb-like, unix", programs.TPCB, session.place.environment(), clients)
    ways = {"ours": lambda: ours(session, case), "pgbench": lambda: pgbench(session, case)}
    rounds = programs.alternately((session.pairs + 1) // 2, *ways.values())
    found = dict(zip(ways, programs.columns(rounds), strict=True))
    yield from _rows(case, found, "tps", Goal("ratio", "at least", 1.0))
    yield from _rows(case, found, "CPU us", None)


def _alone(session: Session, case: Case) -> Iterator[Finding]:
    # More than both: in the two digits that goals are given in.
    yield from _rows(
        case, _alternately(session, case), PER_CPU, Goal("ratio", "at least", 1.01), ALONE
    )


def _rows(
    case: Case,
    found: Mapping[str, Sequence[Cost]],
    unit: str,
    goal: Goal | None,
    title: str = SECTION,
) -> Iterator[Finding]:
    """Ours beside the best of the others, and beside the bare loop."""
    values = {name: tuple(UNITS[unit](cost) for cost in costs) for name, costs in found.items()}
    medians = {name: statistics.median(values[name]) for name in OTHERS if name in values}
    best = (min if unit == "CPU us" else max)(medians, key=medians.__getitem__)
    yield Figure(title, case.label, unit, values["ours"], values[best], goal, beside=best)
    if BOUND in values:
        yield Figure(title, case.label, unit, values["ours"], values[BOUND], beside=BOUND,
                     paged=unit != "tps")  # fmt: skip


def _alternately(session: Session, case: Case) -> dict[str, tuple[Cost, ...]]:
    """All that there are, in turn."""
    ways: dict[str, Callable[[], Cost]] = {
        "ours": lambda: ours(session, case),
        "pgbench": lambda: pgbench(session, case),
    }
    if shutil.which("sysbench"):
        ways["sysbench"] = lambda: less_start(
            lambda seconds: _sysbench(case, seconds), seconds(session)
        )
    if BARE.exists():
        ways[BOUND] = lambda: bare(session, case)
    rounds = programs.alternately(session.pairs, *ways.values())
    return dict(zip(ways, programs.columns(rounds), strict=True))


def pgbench(session: Session, case: Case) -> Cost:
    """One run of pgbench."""
    program = session.place.program("pgbench")
    what = (program, case.script, case.protocol, case.clients)
    start = programs.run(programs.pgbench(*what, *case.pgbench, "-t", 1), case.way)
    length = ("-T", seconds(session))
    whole = programs.run(programs.pgbench(*what, *case.pgbench, *length), case.way)
    done = programs.pgbench_done(whole.output) - case.clients
    tps = programs.pgbench_value(whole.output, "tps")
    return Cost(1e6 * (whole.cpu_s - start.cpu_s) / done, tps)


def ours(session: Session, case: Case) -> Cost:
    """One run of ours."""
    order = Order(
        str(case.script), case.protocol, case.clients, seconds=seconds(session), what=case.what,
        **case.ours,
    )  # fmt: skip
    found = programs.run_ours(order, case.way)
    return Cost(found["cpu_us"], found["transactions"] / seconds(session))


# What one run of a tool gives: CPU seconds, transactions, transactions a second.
Run = tuple[float, int, float]


def less_start(tool: Callable[[int], Run], length: int) -> Cost:
    """A tool's cost by a short and a long run."""
    few_s, few, _ = tool(SHORT_S)
    many_s, many, tps = tool(SHORT_S + length)
    return Cost(1e6 * (many_s - few_s) / (many - few), tps)


def _sysbench(case: Case, length: int) -> Run:
    """It has a thread for each connection: that is its way."""
    names = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "db": "PGDATABASE"}
    command = ["sysbench", str(LUA), "--db-driver=pgsql", f"--threads={case.clients}"]
    command += [f"--pgsql-{name}={case.way[variable]}" for name, variable in names.items()]
    command += [f"--time={length}", "--events=0", f"--scale={SCALE}", "--rand-type=uniform", "run"]
    ended = programs.run(command, case.way)
    found = re.search(r"transactions:\s+(\d+)\s+\(([0-9.]+) per sec", ended.output)
    if not found:
        raise programs.ProgramError(f"sysbench counted nothing: {ended.output[-1000:]}")
    return ended.cpu_s, int(found[1]), float(found[2])


def bare(session: Session, case: Case) -> Cost:
    """One run of the loop without accounting, on connections that are made here."""
    words = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "dbname": "PGDATABASE"}
    words |= {"passfile": "PGPASSFILE", "sslmode": "PGSSLMODE"}
    address: dict[str, Any] = {
        word: case.way[name] for word, name in words.items() if name in case.way
    }
    with contextlib.ExitStack() as stack:
        connections = [
            stack.enter_context(contextlib.closing(psycopg.connect(**address, autocommit=True)))
            for _ in range(case.clients)
        ]
        for connection in connections:
            connection.execute(SELECT, ("1",), prepare=True)
        here, there = (stack.enter_context(end) for end in socket.socketpair())
        socket.send_fds(here, [b"-"], [connection.fileno() for connection in connections])
        command = [str(BARE), str(seconds(session)), "_pg3_0"]
        ended = programs.run(command, case.way, there.fileno())
        tps = float(ended.output)
        return Cost(1e6 * ended.cpu_s / (tps * seconds(session)), tps)


def seconds(session: Session) -> int:
    """How long a run lasts."""
    return 2 if session.quick else 3
