"""What the client adds to the times it reports: queueing among its own clients, and late starts."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import cpu
import fake
import programs
from figures import Figure, Finding, Goal, Note
from load import Order
from session import Session

QUEUEING, DISPATCH = "Client queueing", "Dispatch lag"
BUSY = 63
SERVICE_MS = 1
# Clients by rate: so many that one is free.
OPEN = {1_000: 16, 10_000: 32, 50_000: 64}
FAKE_FROM = 50_000
LESS = Goal("ratio", "at most", 0.99)


@dataclass(frozen=True)
class Lag:
    """How long after it was due a transaction began, in ms; CPU microseconds of one."""

    mean: float
    p99: float
    cpu: float


def queueing(session: Session) -> Iterator[Finding]:
    """Latency as 63 busy clients of one thread report it, over that of one client beside them."""
    yield Note(QUEUEING, "means; the one client is a pgbench")
    goal = Goal("ours", "at most", 2.0)
    yield from _queueing(session, session.place.environment(), "PostgreSQL", goal)
    if not fake.is_built():
        yield Note(QUEUEING, fake.NOT_BUILT)
        return
    # Requests of so many clients wait in PostgreSQL too.
    yield Note(QUEUEING, f"with the fake server ({SERVICE_MS} ms each) over 1 is the client's own")
    with fake.server(session.place.home, "--delay-ms", str(SERVICE_MS)) as way:
        yield from _queueing(session, way, "fake server", None)


def _queueing(
    session: Session, way: dict[str, str], server: str, goal: Goal | None
) -> Iterator[Finding]:
    ways: list[Callable[[], float]] = [lambda: _pgbench_times(session, way)]
    ways += [lambda b=backend: _our_times(session, way, b) for backend in session.backends]  # type: ignore[misc]
    theirs, *found = programs.columns(programs.alternately(_rounds(session), *ways))
    for backend, ours in zip(session.backends, found, strict=True):
        name = f"latency of {BUSY} clients over one, {server}, {backend}"
        yield Figure(QUEUEING, name, "times", ours, theirs, goal)


def dispatch(session: Session) -> Iterator[Finding]:
    """How late transactions of a Poisson schedule begin, and what each costs, by the rate."""
    yield Note(
        DISPATCH,
        "pgpaces: of transactions whose client was idle; pgbench: of all, from its log; with enough"
        " clients that one is free",
    )
    for rate, clients in OPEN.items():
        if rate < FAKE_FROM:
            yield from _open(session, session.place.environment(), rate, clients)
        elif fake.is_built():
            # So many do not fit beside PostgreSQL on two CPUs.
            with fake.server(session.place.home) as way:
                yield from _open(session, way, rate, clients)
        else:
            yield Note(DISPATCH, fake.NOT_BUILT)


def _open(session: Session, way: Mapping[str, str], rate: int, clients: int) -> Iterator[Finding]:
    ways: list[Callable[[], Lag]] = [partial(_pgbench_lag, session, way, rate, clients)]
    ways += [partial(_our_lag, session, way, rate, clients, b) for b in session.backends]
    theirs, *found = programs.columns(programs.alternately(_rounds(session), *ways))
    for backend, ours in zip(session.backends, found, strict=True):
        name = f"Poisson {rate}/s, {backend}"
        for what, unit, goal in (
            ("p99", "ms", Goal("ours", "at most", 0.2) if rate == min(OPEN) else LESS),
            ("mean", "ms", LESS),
            ("CPU", "us", None),
        ):
            mine, other = (tuple(getattr(lag, what.lower()) for lag in of) for of in (ours, theirs))
            yield Figure(DISPATCH, f"{name}, {what}", unit, mine, other, goal, paged=what != "mean")


def _rounds(session: Session) -> int:
    return 2 if session.quick else 4


def _seconds(session: Session) -> int:
    return 3 if session.quick else 4


def _beside(session: Session, way: dict[str, str]) -> programs.Running:
    """One client, over before the busy ones are."""
    what = (session.place.program("pgbench"), programs.SELECT, "prepared", 1)
    command = programs.pgbench(*what, "-T", _seconds(session) - 1)
    return programs.Running(command, way)


def _latency_ms(one: programs.Running) -> float:
    return programs.pgbench_value(one.ended().output, "latency average")


def _pgbench_times(session: Session, way: dict[str, str]) -> float:
    what = (session.place.program("pgbench"), programs.SELECT, "prepared", BUSY)
    command = programs.pgbench(*what, "-T", _seconds(session))
    busy = programs.Running(command, way)
    beside = _latency_ms(_beside(session, way))
    return programs.pgbench_value(busy.ended().output, "latency average") / beside


def _our_times(session: Session, way: dict[str, str], backend: str) -> float:
    order = Order(
        str(programs.SELECT),
        "prepared",
        BUSY,
        # It takes about a second to start.
        seconds=_seconds(session) + 1,
        poll=session.poll(backend),
    )
    busy = programs.Running(programs.ours(order), way)
    beside = _latency_ms(_beside(session, way))
    found = programs.report_of(busy.ended())
    return float(found["latency_us"]["mean"]) / 1e3 / beside


def _pgbench_lag(session: Session, way: Mapping[str, str], rate: int, clients: int) -> Lag:
    """From its log of transactions: the report has the mean only. Its CPU is without the log."""
    what = (session.place.program("pgbench"), programs.SELECT, "prepared", clients)
    words = ("-R", rate, "-T", _seconds(session))
    case = cpu.Case("", programs.SELECT, way, clients, pgbench=("-R", rate))
    with tempfile.TemporaryDirectory() as folder:
        log = ("-l", "--log-prefix", Path(folder) / "log")
        programs.run(programs.pgbench(*what, *words, *log), way)
        lines = [text for file in Path(folder).iterdir() for text in file.read_text().splitlines()]
    lags = sorted(int(text.split()[6]) / 1e3 for text in lines)
    p99 = lags[math.ceil(0.99 * len(lags)) - 1]
    return Lag(sum(lags) / len(lags), p99, cpu.pgbench(session, case).cpu_us)


def _our_lag(
    session: Session, way: Mapping[str, str], rate: int, clients: int, backend: str
) -> Lag:
    order = Order(
        str(programs.SELECT),
        "prepared",
        clients,
        seconds=_seconds(session),
        rate=rate,
        poll=session.poll(backend),
    )
    found = programs.run_ours(order, way)
    lag = found["dispatch_us"]
    return Lag(lag["mean"] / 1e3, lag["p99"] / 1e3, found["cpu_us"])
