"""What TLS, logins, and large results cost beside pgbench, with both ways to wait."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import cpu
import programs
from figures import Figure, Finding, Goal
from place import secured
from session import Session

from pgpaces.server.folder import Transport

TLS, LOGINS, RESULTS = "TLS", "Logins", "Large results"
# By number of clients: the most of pgbench's CPU.
TLS_CPU = {8: 0.6, 64: 0.5}
LOGIN_CPU, RESULT_CPU = 0.1, 0.8
SIZES = {"1 kB": 1_000, "64 kB": 64_000, "1 MB": 1_000_000}


def tls(session: Session) -> Iterator[Finding]:
    """Select-only by TCP with a certificate that is verified."""
    with secured(session.place) as way:
        for clients, most in TLS_CPU.items():
            case = cpu.Case("select-only", programs.SELECT, way, clients)
            yield from _beside(session, TLS, case, Goal("ratio", "at most", most))


def logins(session: Session) -> Iterator[Finding]:
    """A login with a password (SCRAM) for each transaction."""
    for name, way in _ways(session).items():
        case = cpu.Case(
            f"a login for each transaction, {name}", programs.SELECT, way, 8, protocol="simple",
            ours={"connect_each": True}, pgbench=("-C",),
        )  # fmt: skip
        goal = Goal("ratio", "at most", LOGIN_CPU) if name == "TCP" else None
        yield from _beside(session, LOGINS, case, goal)


def results(session: Session) -> Iterator[Finding]:
    """One row of so many bytes."""
    with tempfile.TemporaryDirectory() as folder:
        for name, size in SIZES.items():
            script = Path(folder) / f"{size}.sql"
            script.write_text(f"SELECT repeat('x', {size});\n")
            for clients in (8, 64):
                way = session.place.environment(Transport.TCP)
                case = cpu.Case(f"a row of {name}, TCP", script, way, clients)
                goal = Goal("ratio", "at most", RESULT_CPU) if size > 1_000 else None
                yield from _beside(session, RESULTS, case, goal)


def _ways(session: Session) -> Mapping[str, Mapping[str, str]]:
    """By TCP the server asks for a password, by its socket for none."""
    return {"TCP": session.place.environment(Transport.TCP), "unix": session.place.environment()}


def _beside(session: Session, title: str, case: cpu.Case, goal: Goal | None) -> Iterator[Finding]:
    """CPU a transaction and throughput of ours, by each way to wait, and of pgbench."""
    ways: list[Callable[[], cpu.Cost]] = [partial(cpu.pgbench, session, case)]
    for backend in session.backends:
        polled = replace(case, ours={**case.ours, "poll": session.poll(backend)})
        ways.append(partial(cpu.ours, session, polled))
    theirs, *found = programs.columns(programs.alternately(session.pairs, *ways))
    for backend, ours in zip(session.backends, found, strict=True):
        for unit, bound in (("CPU us", goal), ("tps", None)):
            mine, other = (tuple(map(cpu.UNITS[unit], costs)) for costs in (ours, theirs))
            yield Figure(title, f"{case.label}, {backend}", unit, mine, other, bound)
