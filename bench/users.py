"""What an action of users in Python costs beside what its function does: CPU, by a plain loop."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import programs
from figures import Figure, Finding, Goal
from session import Session

from pgpaces.load.engine import EnginePlan
from pgpaces.load.python_users.load import UsersLoad
from pgpaces.load.python_users.order import UserConnection
from pgpaces.spec import users
from pgpaces.spec.load import Load, TrialPlan

SECTION = "Users in Python"
USERS = """
from pgpaces import task

@task
def act(connection):
    connection.execute("SELECT 1").fetchone()
"""
LIMIT = Goal("ours", "at most", 60.0)


def section(session: Session) -> Iterator[Finding]:
    """CPU of an action as a task, beside the same function in a loop; what the first has more."""
    count = 5_000 if session.quick else 20_000
    dsn = f"{session.place.server.dsn()} dbname=postgres"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "users.py"
        path.write_text(USERS)
        found = users.of_file(path, path)
        rounds = programs.alternately(
            session.pairs, lambda: _ours(found, dsn, count), lambda: _plain(found, dsn, count)
        )
    ours, plain = programs.columns(rounds)
    name = "CPU of an action, SELECT 1 by psycopg"
    yield Figure(SECTION, name, "us", ours, plain, beside="plain loop")
    more = tuple(a - b for a, b in zip(ours, plain, strict=True))
    yield Figure(SECTION, f"{name}, beyond the loop", "us", more, goal=LIMIT)


def _plain(found: users.Users, dsn: str, count: int) -> float:
    """Microseconds of CPU for each call, here."""
    import psycopg

    [task] = found.tasks
    with psycopg.connect(dsn, autocommit=True) as connection:
        task.function(connection=connection)
        began = time.process_time()
        for _ in range(count):
            task.function(connection=connection)
        return (time.process_time() - began) / count * 1e6


def _ours(found: users.Users, dsn: str, count: int) -> float:
    """Microseconds of CPU for each action, in a process of users."""
    [task] = found.tasks
    asked: dict[str, Any] = {"duration_ns": None, "transactions": count}
    plan = EnginePlan.of(TrialPlan(Load("closed"), **asked), 1, 1, scripts=[task.name])
    load = UsersLoad(plan, found, [(task.name, 1)], way=UserConnection(dsn))
    load.begin()
    return sum(sum(interval.cpu_ns) for interval in load) / count / 1000
