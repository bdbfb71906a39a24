"""Beside an application: a load that harms it stops, takes few connections, and fails early."""

import contextlib
import re
import threading

import psycopg
import pytest

import pgpaces as pgpaces_api
from pgpaces.cli.output import KILLED_EXIT
from pgpaces.core.messages import message
from pgpaces.monitor import guard

pytestmark = pytest.mark.postgres
HOLD = "BEGIN;\nLOCK TABLE shared IN ACCESS EXCLUSIVE MODE;\nSELECT pg_sleep(600);\nEND;\n"
SHORT = ("-T", "2s", "--warmup", "0")


@pytest.fixture
def neighbour(pg15):
    """Somebody else who reads a table all the time."""
    pg15.execute("CREATE TABLE shared AS SELECT 1 AS x")
    pg15.execute("GRANT ALL ON shared TO PUBLIC")
    ended = threading.Event()

    def read() -> None:
        with contextlib.suppress(psycopg.Error), pg15.connect() as session:
            while not ended.is_set():
                session.execute("SELECT x, pg_sleep(0.02) FROM shared")

    thread = threading.Thread(target=read)
    thread.start()
    yield
    ended.set()
    thread.join()
    pg15.execute("DROP TABLE shared")


@pytest.fixture
def script(tmp_path):
    """A script that waits a while, or another."""

    def script(text="SELECT pg_sleep(0.1);\n"):
        path = tmp_path / "script.sql"
        path.write_text(text)
        return path

    return script


@pytest.mark.usefixtures("neighbour")
def test_a_load_that_holds_others_up_is_stopped_and_says_why(pgpaces, pg15, script):
    words = ("run", "-f", script(HOLD), "-c", "1", "-T", "10min", "--warmup", "0", "--guard")
    ended = pgpaces(*words, "--target", pg15.dsn("postgres"))
    assert ended.code == KILLED_EXIT, ended.err
    said = "guard-statements-slow: "
    assert said in ended.err
    assert said in " ".join(pgpaces("show").out.split())
    stored = pgpaces("show", "last", "--json").json()
    assert (stored["state"], stored["spec"]["guard"]) == ("interrupted", True)
    assert stored["counts"]["unfinished"] == stored["counts"]["due"] == 1


@pytest.mark.usefixtures("neighbour")
def test_a_load_that_hurts_nobody_runs_to_its_end(pg15, tmp_path):
    result = pgpaces_api.run(
        "select-only", rate=5, duration=3, warmup=0, scale=1, target=pg15.dsn("postgres"),
        store=tmp_path / "results.db",
    )  # fmt: skip
    assert (result.trial.state, result.trial.plan.guard) == ("finished", True)


@pytest.mark.usefixtures("neighbour")
def test_a_role_that_cannot_see_others_is_told_so(pgpaces, pg15, script):
    words = ("run", "-f", script("SELECT 1;\n"), "-c", "1", "-t", "3", "--guard")
    pgpaces(*words, "--target", pg15.dsn("u_trust"))
    assert "other-roles-hidden: " in " ".join(pgpaces("show").out.split())


def test_a_server_that_hides_its_sessions_is_guarded_by_logins_alone(
    pgpaces, pg15, script, monkeypatch
):
    monkeypatch.setattr(guard, "_SAMPLE", "SELECT nosuch FROM pg_stat_activity")
    words = ("run", "-f", script("SELECT 1;\n"), "-c", "1", "-t", "3", "--guard")
    pgpaces.well(*words, "--target", pg15.dsn("u_trust"))
    assert "guard-watches-logins: " in " ".join(pgpaces("show").out.split())


@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_an_application_beside_a_load_loses_no_login(pgpaces, pg15, script, times):
    """The load would take every connection: 1,000 of 0.1 s each second, with a limit of 5 s."""
    ended, logins, refused = threading.Event(), [], []

    def log_in() -> None:
        while not ended.is_set():
            try:
                with pg15.connect() as session:
                    session.execute("SELECT 1")
                logins.append(1)
            except psycopg.OperationalError as error:
                refused.append(str(error))
            ended.wait(0.05)

    application = [threading.Thread(target=log_in) for _ in range(4)]
    for thread in application:
        thread.start()
    try:
        for _ in range(times):
            words = ("-f", script(), "--rate", "1000", "-L", "5s", "--grace", "0", *SHORT)
            run = pgpaces("run", *words, "--target", pg15.dsn("postgres"), "--guard", "--json")
            answer = pgpaces("show", "last", "--json").json()
            assert answer["validity"]["state"] == "invalid", run.err
            assert any(f["name"] == "connection-cap" for f in answer["validity"]["findings"])
    finally:
        ended.set()
        for thread in application:
            thread.join()
    assert refused == []
    assert len(logins) > 10 * times


def test_before_the_load_a_line_says_what_it_meets(pgpaces, pg15, script):
    words = ("-f", script(), "--rate", "5", "-L", "1s", *SHORT)
    ended = pgpaces("run", *words, "--target", pg15.dsn("postgres"))
    numbers = {"free": r"\d\d", "most": 40, "others": r"\d+", "clients": r"1\d"}
    said = message("target", dbname="postgres", host="localhost", **numbers)
    assert re.search(f"{said}\n", ended.err)


def test_a_script_that_cannot_work_is_refused_before_the_load(pgpaces, pg15, script):
    words = ("-f", script("SELECT * FROM missing;\n"), "-c", "4", *SHORT)
    target = ("--target", pg15.dsn("postgres"))
    refused = pgpaces("run", *words, *target)
    assert (refused.code, pgpaces("show").code) == (5, 2)
    for said in ('relation "missing" does not exist', "42P01", "--from-database", "--keep-going"):
        assert said in refused.err
    pgpaces("run", *words, *target, "--keep-going")
    assert pgpaces("show", "last", "--json").json()["counts"]["failed"] > 500


def test_a_script_that_always_fails_ends_the_run_early(pgpaces, pg15, script):
    words = ("-f", script("SELECT 1 / (:client_id * 0);\n"), "-c", "4", *SHORT)
    target = ("--target", pg15.dsn("postgres"))
    ended = pgpaces("run", *words, *target)
    assert ended.code == 5
    for said in ("division by zero", "22012", "--keep-going"):
        assert said in ended.err
    assert 50 <= pgpaces("show", "last", "--json").json()["counts"]["failed"] <= 54
    pgpaces("run", *words, *target, "--keep-going")
    assert pgpaces("show", "last", "--json").json()["counts"]["failed"] > 500


@pytest.mark.parametrize(
    "text", ["SELECT * FROM x;\n", "CREATE TEMP TABLE x (); SELECT * FROM x;\n"]
)
def test_what_a_script_makes_itself_is_not_missed_before_the_load(pgpaces, script, text):
    """Its own scripts run once on a managed server, and are rolled back."""
    words = ("-f", script(text.replace("; ", ";\n")), "-c", "1", "-t", "1")
    assert pgpaces("run", *words).code == (5 if text.startswith("SELECT") else 0)


@pytest.mark.parametrize("copied", [False, True], ids=["managed", "copy"])
def test_what_runs_once_before_the_load_ends_after_ten_seconds(pgpaces, pg15, script, copied):
    """The script fails if its statements have the timeout, which they do not have in the load."""
    timed = "current_setting('statement_timeout') = '10s'"
    path = script(f"SELECT CASE WHEN {timed} THEN current_setting('missing.setting') END;\n")
    source = ("--from-database", pg15.dsn("postgres")) if copied else ()
    refused = pgpaces("run", "-f", path, "-c", "1", "-t", "1", *source)
    assert refused.code == 5
    assert 'unrecognized configuration parameter "missing.setting"' in refused.err
