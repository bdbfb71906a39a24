"""Users in Python on real servers: every driver, lost connections, the same answers as scripts."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.commands import Command, adds_up, interval_count, started
from tests.intervals import failures, said, total
from tests.servers import PASSWORD, Postgres
from tests.waiting import until

import pgpaces as api
from pgpaces.core.record import Interval
from pgpaces.database.access import Access
from pgpaces.load import engine
from pgpaces.load.engine import EnginePlan, for_driver
from pgpaces.load.python_users.load import UserConnection, UsersLoad, uri
from pgpaces.spec.plan import Load, TrialPlan
from pgpaces.spec.result import Counts
from pgpaces.spec.users import of_file

pytestmark = pytest.mark.postgres

NOW = ("--warmup", "0")
SHOWN = "SELECT current_user, current_setting('work_mem'), ssl FROM pg_stat_ssl"
SHOWN += " WHERE pid = pg_backend_pid()"
FUNCTIONS = f"""
import psycopg
import sqlalchemy
from pgpaces import task, user

@user
def own(dsn):
    engine = sqlalchemy.create_engine(dsn.replace("postgresql:", "postgresql+psycopg:", 1))
    with psycopg.connect(dsn) as first, engine.connect() as second:
        yield first, second

@task
def act(connections):
    first, second = connections
    print(*first.execute("{SHOWN}").fetchone())
    print(*second.execute(sqlalchemy.text("{SHOWN}")).fetchone())
"""
COROUTINES = f"""
import asyncpg
import psycopg
from pgpaces import task, user

@user
async def own(dsn):
    connection = await asyncpg.connect(dsn)
    async with await psycopg.AsyncConnection.connect(dsn) as other:
        yield connection, other
    await connection.close()

@task
async def act(connections):
    first, second = connections
    print(*await first.fetchrow("{SHOWN}"))
    print(*await (await second.execute("{SHOWN}")).fetchone())
"""
KINDS = {"functions": FUNCTIONS, "coroutines": COROUTINES}


def load_of(folder: Path, text: str, dsn: str, **more: str) -> UsersLoad:
    """Two users of that file in two processes, three actions each."""
    (folder / "users.py").write_text(text)
    users = of_file(folder / "users.py", folder / "users.py")
    tasks = [(each.name, each.weight) for each in users.tasks]
    plan = TrialPlan(Load("closed"), duration_ns=None, transactions=3)
    keywords = for_driver(engine.resolve(dsn, **more))
    made = EnginePlan.of(plan, 2, 2, scripts=[name for name, _ in tasks])
    return UsersLoad(made, users, tasks, way=UserConnection(uri(keywords), {}, (PASSWORD,)))


def run(load: UsersLoad) -> list[Interval]:
    load.begin()
    return list(load)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["socket", "TCP", "TLS"])
def test_drivers_understand_the_way_that_they_are_given(
    pg15: Postgres, tmp_path: Path, kind: str, way: str
) -> None:
    ways = {
        "socket": (pg15.dsn(), "u_trust 5MB False"),
        "TCP": (pg15.tcp("u_scram", password=PASSWORD), "u_scram 5MB False"),
        "TLS": (pg15.tls("u_scram", password=PASSWORD), "u_scram 5MB True"),
    }
    dsn, shown = ways[way]
    load = load_of(tmp_path, KINDS[kind], dsn, options="-c work_mem=5MB")
    found = run(load)
    assert total(found) == Counts(due=6, on_time=6), [i.messages for i in found]
    assert said(found) == [shown] * 12


DEFAULT = """
from pgpaces import task
@task
def act(connection, loop):
    connection.execute("SELECT pg_terminate_backend(pg_backend_pid())" if loop == 2 else "SELECT 1")
"""
ALCHEMY = """
import sqlalchemy
from pgpaces import task, user
@user
def own(dsn):
    engine = sqlalchemy.create_engine(dsn.replace("postgresql:", "postgresql+psycopg:", 1))
    with engine.connect() as connection:
        yield connection
@task
def act(connection, loop):
    text = "SELECT pg_terminate_backend(pg_backend_pid())" if loop == 2 else "SELECT 1"
    connection.execute(sqlalchemy.text(text))
"""
ASYNCPG = """
import asyncpg
from pgpaces import task, user
@user
async def own(dsn):
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()
@task
async def act(connection, loop):
    text = "SELECT pg_terminate_backend(pg_backend_pid())" if loop == 2 else "SELECT 1"
    await connection.execute(text)
"""
TOGETHER = DEFAULT.replace("def act", "async def act").replace(
    "connection.ex", "await connection.ex"
)


@pytest.mark.parametrize(
    ("text", "state"),
    [(DEFAULT, "57P01"), (TOGETHER, "57P01"), (ALCHEMY, "57P01"), (ASYNCPG, "08003")],
)
def test_a_connection_that_is_lost_fails_one_action_and_is_made_again(
    pg15: Postgres, tmp_path: Path, text: str, state: str
) -> None:
    found = run(load_of(tmp_path, text, pg15.dsn()))
    assert total(found) == Counts(due=6, on_time=4, failed=2)
    assert failures(found) == {state: 2}


def test_the_garden_has_the_same_users_in_python_on_every_server(
    access: Access, tmp_path: Path
) -> None:
    target = " ".join(f"{word}={value}" for word, value in access.keywords.items())
    asked: dict[str, Any] = {"transactions": 25, "clients": 4, "threads": 2, "scale": 1}
    found = api.run("garden/users", target=target, think_time=0, store=tmp_path / "r.db", **asked)
    assert found.counts == Counts(due=100, on_time=100)
    trial = api.open_run(store=tmp_path / "r.db").trial
    [script] = trial.workload.scripts
    assert (script.name, script.kind, script.queries) == ("insert_plant", "users", 3)
    assert "rng.choice" in script.text
    assert trial.plan.poll == "Python threads"


def folder_of(path: Path, text: str) -> Path:
    """A workload of users that makes no data."""
    path.mkdir()
    toml = 'description = "d"\ninit = []\nkind = "users"\nusers = "users.py"\n'
    (path / "workload.toml").write_text(toml)
    (path / "users.py").write_text(text)
    return path


TWO = """
from pgpaces import task
@task
def look(connection):
    connection.execute("SELECT pg_sleep(0.001)")
@task
def buy(connection):
    connection.execute("SELECT 1")
@task
def never(connection):
    raise ValueError("nobody asked for it")
"""


def test_tasks_are_chosen_weighted_and_limited_by_their_names(
    pgpaces: Command, pg15: Postgres, tmp_path: Path
) -> None:
    words = ("run", folder_of(tmp_path / "w", TWO), "--trust", "--target", pg15.dsn("postgres"))
    asked = ("--script", "look@3", "--script", "buy", "-L", "look=1us", "-c", "2", "-t", "50")
    answer = pgpaces(*words, *asked, "--json").json()
    assert adds_up(answer)
    assert [each["name"] for each in answer["scripts"]] == ["look", "buy"]
    look, buy = (each["counts"] for each in answer["scripts"])
    assert look["late"] == look["due"] > buy["due"] == buy["on_time"] > 0
    assert answer["counts"]["failed"] == 0


def test_users_end_with_ctrl_c_and_what_there_is_is_kept(
    pgpaces: Command, pg15: Postgres, tmp_path: Path
) -> None:
    words = ("run", folder_of(tmp_path / "w", TWO), "--trust", "--target", pg15.dsn("postgres"))
    process = pgpaces.start(*words, "--script", "look", "-c", "2", "-j", "2", "-T", "9min", *NOW)
    started(process)
    until(lambda: interval_count(pgpaces.store) >= 1)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert " tx/s" in out.splitlines()[0]
    shown = pgpaces("show", "last", "--json").json()
    assert (shown["state"], adds_up(shown)) == ("interrupted", True)
    assert shown["counts"]["unfinished"] == 0


@pytest.mark.slow
def test_scripts_and_users_are_compared_in_a_sweep_and_shown(
    pgpaces: Command, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    words = ("garden", "--variant", "scripts,users", "--clients", "2", "--think-time", "0")
    done = pgpaces("sweep", *words, "--duration", "1s", "--warmup", "0", "--yes", "-o", page)
    assert done.code == 0, done.err
    rows = pgpaces("runs", "--json").json()
    assert {row["workload"] for row in rows} == {"garden/scripts", "garden/users"}
    assert "insert_plant" in page.read_text()
    for row in rows:
        shown = pgpaces("show", row["run"], "--json").json()
        assert adds_up(shown)
        assert shown["counts"]["failed"] == 0


@pytest.mark.slow
def test_their_starts_and_processes_are_factors(pgpaces: Command) -> None:
    factors = ("--start-every", "0s,100ms", "--threads", "1,2", "--clients", "4")
    words = ("sweep", "garden/users", *factors, "--think-time", "0", "--duration", "1s")
    done = pgpaces(*words, "--warmup", "0", "--yes")
    assert done.code == 0, done.err
    rows = pgpaces("runs", "--json").json()
    assert len(rows) == 4


@pytest.mark.slow
def test_users_run_beside_scripts(pgpaces: Command, pg15: Postgres) -> None:
    words = ("run", "garden", "-T", "2s", "--warmup", "0", "--target", pg15.dsn("postgres"))
    beside = "garden/users clients=2 think_time=10ms"
    answer = pgpaces(*words, "--background", beside, "--json").json()
    assert adds_up(answer)
    assert answer["counts"]["failed"] == 0
    assert "background" in answer, json.dumps(list(answer))
