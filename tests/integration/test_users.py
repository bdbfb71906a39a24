"""Users in Python on real servers: every driver, lost connections, the same answers as scripts."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.commands import adds_up, ctrl_c, interval_count, started
from tests.intervals import failures, said, total
from tests.servers import PASSWORD
from tests.waiting import until

import pgpaces as api
from pgpaces.core.record import Interval
from pgpaces.load import engine
from pgpaces.load.engine import EnginePlan, for_driver
from pgpaces.load.python_users.load import UsersLoad, uri
from pgpaces.load.python_users.order import UserConnection
from pgpaces.spec.load import Load, TrialPlan
from pgpaces.spec.result import Counts
from pgpaces.spec.users import of_file

pytestmark = pytest.mark.postgres

NOW = ("--warmup", "0")
SHOWN = "SELECT current_user, current_setting('work_mem'), ssl FROM pg_stat_ssl"
SHOWN += " WHERE pid = pg_backend_pid()"
KILL = "SELECT pg_terminate_backend(pg_backend_pid())"
# How each driver connects and asks: a function or a coroutine, its module, and code. Without a
# module it is our own way.
DRIVERS = {
    "ours": ("def", "", "", "connection.execute(text).fetchone()"),
    "ours, together": ("async def", "", "", "await (await connection.execute(text)).fetchone()"),
    "psycopg": ("def", "psycopg",
                "with psycopg.connect(dsn) as connection:\n        yield connection",
                "connection.execute(text).fetchone()"),
    "SQLAlchemy": ("def", "sqlalchemy",
                   "dsn = dsn.replace('postgresql:', 'postgresql+psycopg:', 1)\n"
                   "    with sqlalchemy.create_engine(dsn).connect() as connection:\n"
                   "        yield connection",
                   "connection.execute(sqlalchemy.text(text)).fetchone()"),
    "asyncpg": ("async def", "asyncpg",
                "connection = await asyncpg.connect(dsn)\n    yield connection\n"
                "    await connection.close()", "await connection.fetchrow(text)"),
    "psycopg, together": ("async def", "psycopg",
                          "async with await psycopg.AsyncConnection.connect(dsn) as c:"
                          "\n        yield c",
                          "await (await connection.execute(text)).fetchone()"),
}  # fmt: skip


def users_of(driver: str, second: str = SHOWN) -> str:
    """The file of users that print what they are shown. second: what their second action asks."""
    kind, module, opened, fetched = DRIVERS[driver]
    own = f"import {module}\n@user\n{kind} own(dsn):\n    {opened}\n" if module else ""
    return (
        "from pgpaces import task, user\n"
        f"{own}@task\n{kind} act(connection, loop):\n"
        f"    text = {second!r} if loop == 2 else {SHOWN!r}\n    print(*{fetched})\n"
    )


def load_of(folder: Path, text: str, dsn: str, **more: str) -> UsersLoad:
    """Two users of that file, three actions each."""
    (folder / "users.py").write_text(text)
    users = of_file(folder / "users.py", folder / "users.py")
    tasks = [(each.name, each.weight) for each in users.tasks]
    plan = TrialPlan(Load("closed"), duration_ns=None, transactions=3)
    keywords = for_driver(engine.resolve(dsn, **more))
    made = EnginePlan.of(plan, 2, 1, scripts=[name for name, _ in tasks])
    return UsersLoad(made, users, tasks, way=UserConnection(uri(keywords), {}, (PASSWORD,)))


def run(load: UsersLoad) -> list[Interval]:
    load.begin()
    return list(load)


# To a driver TLS by TCP is what TCP without it is, and one word more.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("driver", "way"),
    [*((driver, way) for way in ("socket", "TLS") for driver in DRIVERS), ("ours", "TCP"),
     ("asyncpg", "TCP")],
)  # fmt: skip
def test_drivers_understand_the_way_that_they_are_given(pg15, tmp_path, driver, way):
    ways = {
        "socket": (pg15.dsn(), "u_trust 5MB False"),
        "TCP": (pg15.tcp("u_scram", password=PASSWORD), "u_scram 5MB False"),
        "TLS": (pg15.tls("u_scram", password=PASSWORD), "u_scram 5MB True"),
    }
    dsn, shown = ways[way]
    load = load_of(tmp_path, users_of(driver), dsn, options="-c work_mem=5MB")
    found = run(load)
    assert total(found) == Counts(due=6, on_time=6), [i.messages for i in found]
    assert said(found) == [shown] * 6


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_connection_that_is_lost_fails_one_action_and_is_made_again(pg15, tmp_path, driver):
    found = run(load_of(tmp_path, users_of(driver, KILL), pg15.dsn()))
    assert total(found) == Counts(due=6, on_time=4, failed=2)
    assert failures(found) == {"08003" if driver == "asyncpg" else "57P01": 2}


def test_the_garden_has_the_same_users_in_python_on_every_server(access, tmp_path):
    target = " ".join(f"{word}={value}" for word, value in access.keywords.items())
    asked: dict[str, Any] = {"transactions": 25, "clients": 4, "threads": 2, "scale": 1}
    found = api.run("garden/users", target=target, think_time=0, store=tmp_path / "r.db", **asked)
    assert found.counts == Counts(due=100, on_time=100)
    trial = api.open_run(store=tmp_path / "r.db").trial
    [script] = trial.workload.scripts
    assert (script.name, script.kind, script.queries) == ("insert_plant", "users", 3)
    assert "rng.choice" in script.text
    assert trial.setup.poll == "Python threads"


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


def test_tasks_are_chosen_weighted_and_limited_by_their_names(pgpaces, pg15, tmp_path):
    words = ("run", folder_of(tmp_path / "w", TWO), "--trust", "--target", pg15.dsn("postgres"))
    asked = ("--script", "look@3", "--script", "buy", "-L", "look=1us", "-c", "2", "-t", "50")
    answer = pgpaces(*words, *asked, "--json").json()
    assert adds_up(answer)
    assert [each["name"] for each in answer["scripts"]] == ["look", "buy"]
    look, buy = (each["counts"] for each in answer["scripts"])
    assert look["late"] == look["due"] > buy["due"] == buy["on_time"] > 0
    assert answer["counts"]["failed"] == 0


FAILING = """
from pgpaces import task
@task
{kind} typo(connection):
    {wait} connection.execute("SELECT * FROM missing")
"""


@pytest.mark.parametrize(("kind", "wait"), [("def", ""), ("async def", "await")])
def test_tasks_that_always_fail_end_the_run_early(pgpaces, pg15, tmp_path, kind, wait):
    folder = folder_of(tmp_path / "w", FAILING.format(kind=kind, wait=wait))
    words = ("run", folder, "--trust", "--target", pg15.dsn("postgres"), "-c", "4", "-T", "2s")
    ended = pgpaces(*words, *NOW)
    assert ended.code == 5
    for text in ("script 'typo' fails", "42P01", "--from-database", "--keep-going"):
        assert text in ended.err
    shown = pgpaces("show", "last", "--json").json()
    assert 50 <= shown["counts"]["failed"] <= 54
    assert adds_up(shown)
    pgpaces(*words, *NOW, "--keep-going")
    assert pgpaces("show", "last", "--json").json()["counts"]["failed"] > 54


def test_users_end_with_ctrl_c_and_what_there_is_is_kept(pgpaces, pg15, tmp_path):
    words = ("run", folder_of(tmp_path / "w", TWO), "--trust", "--target", pg15.dsn("postgres"))
    process = pgpaces.start(*words, "--script", "look", "-c", "2", "-j", "2", "-T", "9min", *NOW)
    started(process)
    until(lambda: interval_count(pgpaces.store) >= 1)
    out, _ = ctrl_c(process)
    assert " tx/s" in out.splitlines()[0]
    shown = pgpaces("show", "last", "--json").json()
    assert (shown["state"], adds_up(shown)) == ("interrupted", True)
    assert shown["counts"]["unfinished"] == 0


@pytest.mark.slow
def test_users_run_beside_scripts(pgpaces, pg15):
    words = ("run", "garden", "-T", "2s", "--warmup", "0", "--target", pg15.dsn("postgres"))
    beside = "garden/users clients=2 think_time=10ms"
    answer = pgpaces(*words, "--background", beside, "--json").json()
    assert adds_up(answer)
    assert answer["counts"]["failed"] == 0
    assert "background" in answer, json.dumps(list(answer))
