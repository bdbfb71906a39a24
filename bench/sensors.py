"""What looking costs: CPU of all sensors beside a load, and what the load loses by them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import programs
import psutil
from figures import Figure, Finding, Goal
from load import Order
from session import Session

from pgpaces.core import sessions
from pgpaces.load import engine
from pgpaces.monitor import host, remote, server
from pgpaces.monitor.session import APPLICATION

SECTION = "Sensors"
CLIENTS = (8, 64)
_PIDS = "SELECT pid FROM pg_stat_activity WHERE application_name = %s"
LIMIT = Goal("ours", "at most", 2.0)


def section(session: Session) -> Iterator[Finding]:
    """CPU of the sensors at 1 Hz and 10 Hz, ours and the server's; throughput with and without."""
    for clients in CLIENTS:
        found = [_cost(session, clients) for _ in range(session.pairs)]
        here, there = (tuple(values) for values in zip(*found, strict=True))
        name = f"CPU of all sensors, tpcb-like, {clients} clients"
        both = tuple(a + b for a, b in found)
        yield Figure(SECTION, f"{name}, here", "% of a core", here, paged=False)
        yield Figure(SECTION, f"{name}, of the server", "% of a core", there, paged=False)
        yield Figure(SECTION, f"{name}, both", "% of a core", both, goal=LIMIT)
    for script in (programs.SELECT, programs.TPCB):
        rounds = programs.alternately(
            session.pairs,
            lambda s=script: _done(session, str(s), True),  # type: ignore[misc]
            lambda s=script: _done(session, str(s), False),  # type: ignore[misc]
        )
        on, off = programs.columns(rounds)
        what = f"throughput with sensors, {script.stem}, 8 clients"
        goal = Goal("ratio", "at least", 0.98)
        yield Figure(SECTION, what, "tps", on, off, goal, beside="without")


def _seconds(session: Session) -> int:
    return 5 if session.quick else 20


def _order(session: Session, script: str, clients: int, *, observe: bool) -> Order:
    return Order(
        script,
        "prepared",
        clients,
        seconds=_seconds(session),
        poll=session.poll("epoll"),
        what="pipeline",
        observe=observe,
    )


def _cost(session: Session, clients: int) -> tuple[float, float]:
    """Percent of a core, here and of the server, while a load without monitors of its own runs."""
    order = _order(session, str(programs.TPCB), clients, observe=False)
    keywords = dict(engine.resolve(session.place.server.dsn()).keywords)
    beside = host.HostMonitor(remote.NearbySource({**keywords, "dbname": "postgres"}))
    sensor = server.ServerMonitor.of(keywords, "postgres")
    with closing(beside), closing(sensor), sessions.connect(keywords, "bench") as own:
        load = programs.Running(programs.ours(order), session.place.environment())
        began_s, spent_s = time.monotonic(), time.process_time()
        beside.begin(began_s)
        sensor.begin(began_s)
        load.ended()
        took_s, spent_s = time.monotonic() - began_s, time.process_time() - spent_s
        pids = own.execute(_PIDS.encode(), [APPLICATION]).fetchall()
        times = [psutil.Process(pid).cpu_times() for (pid,) in pids]
    of_server_s = sum(each.user + each.system for each in times)
    return 100 * spent_s / took_s, 100 * of_server_s / took_s


def _done(session: Session, script: str, observe: bool) -> float:
    """Transactions a second."""
    order = _order(session, script, 8, observe=observe)
    found = programs.run_ours(order, session.place.environment())
    return float(found["transactions"]) / _seconds(session)
