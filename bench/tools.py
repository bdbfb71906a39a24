"""Other tools that a user might pick, on the same select-only work: what a choice costs.

As with pgbench, CPU is the difference of a long and a short run of the whole program.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

import cpu
import programs
from cpu import Case, Cost
from figures import Figure, Finding, Note
from place import SCALE
from session import Session

from pgpaces.servers.record import Transport

SECTION = "Other tools"
CLIENTS = 8
SHORT_S = 1
LUA = Path(__file__).with_name("sysbench_select.lua")
LOCUST = Path(__file__).with_name("locust_select.py")
# What one run of a tool gives: CPU seconds, transactions, transactions a second.
Run = tuple[float, int, float]


def section(session: Session) -> Iterator[Finding]:
    """Rows for each tool: CPU a transaction and throughput, ours beside it."""
    case = Case("select-only", programs.SELECT, Transport.SOCKET, CLIENTS)
    ways: dict[str, Callable[[], Cost]] = {"pgbench": lambda: cpu.pgbench(session, case)}
    if shutil.which("sysbench"):
        ways["sysbench"] = lambda: _cost(session, _sysbench)
    else:
        yield Note(SECTION, "sysbench: not installed (apt-get install sysbench)")
    if locust() is None:
        yield Note(SECTION, "Locust: not installed; LOCUST may name one that has psycopg beside it")
    else:
        ways["Locust"] = lambda: _cost(session, _locust)
    backends = session.backends
    ours = [lambda b=backend: cpu.ours(session, case, b) for backend in backends]
    rounds = programs.alternately(2 if session.quick else 3, *ours, *ways.values())
    found = dict(zip((*backends, *ways), programs.columns(rounds), strict=True))
    best = min(backends, key=lambda name: statistics.median(c.cpu_us for c in found[name]))
    for name in ways:
        mine, other = (tuple(cost.cpu_us for cost in found[n]) for n in (best, name))
        yield Figure(SECTION, f"{case.label}, {best}", "CPU us", mine, other, beside=name)
        mine, other = (tuple(cost.tps for cost in found[n]) for n in (best, name))
        yield Figure(SECTION, f"{case.label}, {best}", "tps", mine, other, beside=name)


def locust() -> str | None:
    """The Locust to run: the one that the environment names, or the one that is found."""
    return shutil.which(os.environ.get("LOCUST", "locust"))


def _cost(session: Session, tool: Callable[[Session, int], Run]) -> Cost:
    few_s, few, _ = tool(session, SHORT_S)
    many_s, many, tps = tool(session, SHORT_S + cpu.seconds(session))
    return Cost(1e6 * (many_s - few_s) / (many - few), tps)


def _sysbench(session: Session, seconds: int) -> Run:
    """It has a thread for each connection: that is its way."""
    environment = session.place.environment()
    names = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "db": "PGDATABASE"}
    command = ["sysbench", str(LUA), "--db-driver=pgsql", f"--threads={CLIENTS}", "--events=0"]
    command += [f"--pgsql-{name}={environment[variable]}" for name, variable in names.items()]
    command += [f"--time={seconds}", f"--scale={SCALE}", "--rand-type=uniform", "run"]
    ended = programs.run(command, environment)
    found = re.search(r"transactions:\s+(\d+)\s+\(([0-9.]+) per sec", ended.output)
    if not found:
        raise programs.ProgramError(f"sysbench counted nothing: {ended.output[-1000:]}")
    return ended.cpu_s, int(found[1]), float(found[2])


def _locust(session: Session, seconds: int) -> Run:
    """One process, as it starts without more words."""
    environment = {**session.place.environment(), "BENCH_SCALE": str(SCALE)}
    # It is another Python's.
    environment.pop("PYTHONPATH", None)
    command = [locust() or "locust", "-f", str(LOCUST), "--headless", "--json", "--skip-log"]
    command += ["-u", str(CLIENTS), "-r", str(CLIENTS), "-t", f"{seconds}s"]
    ended = programs.run(command, environment)
    (row,) = json.loads(ended.output)
    if row["num_failures"] or not row["num_requests"]:
        raise programs.ProgramError(f"Locust did not succeed: {row}")
    return ended.cpu_s, row["num_requests"], row["num_requests"] / seconds
