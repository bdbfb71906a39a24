"""`pgpaces` as its users call it: answers, exit codes, what is kept and what is never touched."""

import json
import signal
import sqlite3
import time

import psycopg
import pytest
from tests.commands import QUICK, SECOND, adds_up
from tests.errors import sentence
from tests.needs import needs
from tests.servers import quoted

import pgpaces as api
from pgpaces.core.errors import StoreError
from pgpaces.store.store import Store

pytestmark = pytest.mark.postgres


def test_the_embedded_server_gives_a_first_answer_and_a_row_in_runs(pgpaces):
    words = ("run", "reporting", "--scale", "1", *SECOND, "--rate", "20", "-L", "500ms")
    first, _, about, *_ = pgpaces.well(*words).out.splitlines()
    verdict = json.loads(pgpaces("show", "last", "--json").out)["verdict"]
    assert first.endswith(f" {verdict['outcome']}  {verdict['text']}")
    assert "500 ms" in first
    assert "95% CI" in first
    assert about.startswith("  load         20 requests/s, ")
    assert [row["workload"] for row in pgpaces("runs", "--json").json()] == ["reporting"]
    shown = pgpaces("show", "last", "--json").json()
    assert adds_up(shown)
    assert shown["counts"]["due"] > 5
    assert len(shown["scripts"]) == 3
    assert len(pgpaces("export", "last").out.splitlines()) > 1


def test_a_run_none_of_whose_transactions_succeeded_fails_and_is_kept(pgpaces, pg15, tmp_path):
    script = tmp_path / "bad.sql"
    script.write_text("SELECT * FROM nosuch;")
    words = ("-f", script, "--target", pg15.dsn("postgres"), "--rate", "20", "-L", "50ms", *SECOND)
    ended = pgpaces("run", *words, "--keep-going", "--fail-if", "failed > 0")
    due = pgpaces("show", "last", "--json").json()["counts"]["due"]
    assert ended.code == 5
    nothing = sentence("measured-nothing", why=f"every transaction failed ({due}): 42P01")
    assert f"error: {nothing}" in ended.err
    assert ended.out.startswith("✗ FAIL  every transaction failed")
    swept = pgpaces("sweep", *words, "--keep-going", "on", "--clients", "1,2")
    assert (swept.code, swept.out.startswith("✗ FAIL  every transaction failed")) == (5, True)


def test_prepared_data_is_used_again_until_fresh_is_asked_for(pgpaces, pg15):
    words = ("run", "select-only", *QUICK, "-c", "1", "--target", pg15.dsn("postgres"), "--json")
    created = []
    for more in ((), (), ("--fresh",)):
        created.append(pgpaces.prepared(pgpaces(*words, *more).json()["run"])["created"])
    assert created[1:] == [False, True]


def test_the_data_of_reporting_is_as_described_and_the_same_everywhere(pgpaces, access):
    dsn = quoted(dict(access.keywords))
    pgpaces.well("run", "reporting", "--scale", "2", *SECOND, "--rate", "20", "--target", dsn)
    with psycopg.connect(dsn, dbname=pgpaces.prepared()["dbname"]) as session:
        row = session.execute(
            "SELECT count(*), min(length(d1)), max(length(d1)), min(fk1), max(fk1), min(fk2),"
            " max(fk2), min(v1) >= 0 AND max(v1) <= 1000, min(v2), max(v2), min(length(d2)),"
            " max(length(d2)), pg_table_size('pgbench_reporting') < 40e6,"
            " sum(hashtextextended(r::text, 0) % 1000)::int FROM pgbench_reporting r"
        ).fetchone()
        looks = session.execute(
            "SELECT (SELECT count(*) FROM pgbench_lookup1), (SELECT count(*) FROM pgbench_lookup2),"
            " (SELECT count(*) FROM pgbench_view)"
        ).fetchone()
    # The last figure was read off both servers: it pins every value of every row.
    assert row == (200_000, 25, 50, 1, 20, 1, 40, True, 0, 10_000, 55, 110, True, -149_976)
    assert looks == (20, 40, 200_000)


def test_each_script_of_reporting_uses_the_plan_it_is_there_for(pgpaces, pg15):
    target = ("--target", pg15.dsn("postgres"))
    pgpaces.well("run", "reporting", "--scale", "2", *SECOND, "--rate", "20", *target)
    with psycopg.connect(pg15.dsn("postgres", dbname=pgpaces.prepared()["dbname"])) as session:
        for script in pgpaces.trial().workload.scripts:
            sql = script.text.split("\n", 1)[1] if "\\set" in script.text else script.text
            explained = session.execute(("EXPLAIN " + sql.replace(":fk1", "3")).encode()).fetchall()
            plan = "\n".join(line for (line,) in explained)
            assert ("ix_pgbench_reporting_fk1" in plan) == (script.name != "by_fk1"), plan


@pytest.fixture
def handed(pg15):
    """A run in the empty database `handed`."""
    pg15.execute("CREATE DATABASE handed")
    target = ("--target", pg15.dsn("postgres"))
    yield ("run", "select-only", *QUICK, "-c", "1", *target, "--own", "handed")
    pg15.execute("DROP DATABASE handed")


def test_own_counts_functions_and_schemas_as_somebodys(pgpaces, pg15, handed):
    with psycopg.connect(pg15.dsn("postgres", dbname="handed"), autocommit=True) as session:
        session.execute("CREATE SCHEMA app")
        session.execute("CREATE FUNCTION app.f() RETURNS int LANGUAGE sql AS 'SELECT 1'")
    assert pgpaces(*handed).code == 15
    with psycopg.connect(pg15.dsn("postgres", dbname="handed")) as session:
        assert session.execute("SELECT app.f()").fetchone() == (1,)


def test_clean_leaves_what_was_handed_over(pgpaces, pg15, handed):
    pgpaces.well(*handed)
    pgpaces.well("server", "clean", "--target", pg15.dsn("postgres"))
    left = [name for (name,) in pg15.execute("SELECT datname FROM pg_database")]
    assert "handed" in left
    assert not [name for name in left if name.startswith("pgpaces_")]


def test_a_run_that_is_ended_while_it_prepares_leaves_nothing_behind(pgpaces, pg15, tmp_path):
    folder = tmp_path / "slow"
    pgpaces("workload", "new", folder)
    (folder / "init.sql").write_text("CREATE TABLE t (x int);\nSELECT pg_sleep(600);\n")
    spool = tmp_path / "spool"
    spool.mkdir()
    dsn = pg15.tcp("postgres", password="anything")
    process = pgpaces.start("run", folder, *QUICK[:-2], "--target", dsn, env={"TMPDIR": str(spool)})
    sleeping = "SELECT count(*) = 1 FROM pg_stat_activity WHERE query ~ '^SELECT pg_sleep.600'"
    pg15.wait_until(sleeping)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert not list(spool.iterdir())
    pg15.wait_until(sleeping.replace("= 1", "= 0"))
    left = [name for (name,) in pg15.execute("SELECT datname FROM pg_database")]
    assert not [name for name in left if name.startswith("pgpaces_slow")]


def test_settings_that_may_hold_a_secret_are_not_stored(pgpaces, pg15):
    pg15.execute("ALTER SYSTEM SET primary_conninfo = 'host=nowhere password=s3cretrepl'")
    pg15.execute("SELECT pg_reload_conf()")
    pg15.wait_until("SELECT current_setting('primary_conninfo') <> ''")
    try:
        pgpaces.well("run", "select-only", *QUICK, "-c", "1", "--target", pg15.dsn("postgres"))
        assert "s3cretrepl" not in pgpaces("export", "last", "--format", "json").out
    finally:
        pg15.execute("ALTER SYSTEM RESET primary_conninfo")
        pg15.execute("SELECT pg_reload_conf()")


def test_a_reader_that_goes_away_does_not_end_a_run(pgpaces, pg15):
    words = ("run", "select-only", *QUICK[:-2], "-P", "1", "-c", "1")
    for stream in ("stderr", "stdout"):
        process = pgpaces.start(*words, "--target", pg15.dsn("postgres"))
        getattr(process, stream).close()
        assert process.wait(timeout=60) == 0, stream


def test_own_takes_an_empty_database_and_asks_twice_for_another(pgpaces, pg15, handed):
    pgpaces.well(*handed)
    pg15.execute("COMMENT ON DATABASE handed IS NULL")
    refused = pgpaces(*handed)
    full = sentence("own-not-empty", dbname="handed", schemas=["public"])
    assert (refused.code, full in refused.err) == (15, True), refused.err
    pgpaces.well(*handed, "--fresh")
    lost = pgpaces(*handed[:-1], "nowhere")
    assert (lost.code, sentence("own-missing", dbname="nowhere") in lost.err) == (15, True)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("run", "reporting", "--server-set", "work_men=4MB"), 10, "did you mean work_mem (not"),
        (("run", "reporting", "--set", "work_men=4MB"), 2, "did you mean work_mem?"),
        (("run", "reporting", "--server", "99"), 10, "PostgreSQL 99 is not installed"),
        (("run", "reporting", "--target", "host=127.0.0.1 port=1 user=x"), 10, "no PostgreSQL"),
        (("run", "reporting", "--store", "/proc/nowhere/x.db"), 20, "no directory"),
    ],
)
def test_bad_input_gets_a_sentence_and_its_exit_code(pgpaces, words, code, says):
    ended = pgpaces(*words)
    assert ended.code == code, ended.err
    assert says in ended.err
    assert "Traceback" not in ended.err


def test_a_script_error_names_file_line_and_column(pgpaces, tmp_path):
    script = tmp_path / "read.sql"
    script.write_text("SELECT 1;\n\n\\set y 1 + * 2\n")
    ended = pgpaces("run", "-f", script)
    assert ended.code == 4
    assert 'read.sql:3: syntax error in command "set"' in ended.err
    assert "hint: look at line 3, column 12" in ended.err


def test_fail_if_has_an_exit_code_of_its_own(pgpaces, pg15):
    words = ("run", "select-only", *QUICK, "-c", "1", "--target", pg15.dsn("postgres"))
    pgpaces.well(*words, "--fail-if", "failed > 0")
    failed = pgpaces(*words, "--fail-if", "p50 > 0.001ms", "--fail-if", "failed > 0")
    assert failed.code == 30
    assert "--fail-if 'p50 > 0.001ms' is true: it is " in failed.err
    assert failed.err.count("is true: it is ") == 1


def test_a_script_that_cannot_run_on_ends_the_run_and_keeps_what_was_measured(
    pgpaces, tmp_path, pg15
):
    folder = tmp_path / "mine"
    pgpaces("workload", "new", folder)
    (folder / "read.sql").write_text("SELECT 1;\n\\set left 1 / (:client_id - 1)\n")
    ended = pgpaces(
        "run", folder, "-T", "5s", "--warmup", "0", "-P", "0", "-c", "2", "--think-time", "10ms",
        "--script", "read", "--target", pg15.dsn("postgres"),
    )  # fmt: skip
    assert ended.code == 4, ended.err
    assert "division by zero" in ended.err
    assert pgpaces("show", "last", "--json").json()["state"] == "failed"


@needs("PostgreSQL 15")
def test_clean_starts_a_server_by_its_name_whatever_its_version(pgpaces):
    pgpaces.well("server", "start", "--name", "second", "--version", "15")
    try:
        pgpaces.well("run", "select-only", *QUICK, "-c", "1", "--server", "second")
    finally:
        pgpaces.well("server", "stop", "second")
    for freed in (True, False):
        cleaned = pgpaces.well("server", "clean", "second")
        assert ("freed 0.0 MiB" not in cleaned.err) is freed
    assert "second" not in pgpaces("server", "list").out


def test_a_run_whose_plans_take_long_still_runs(pgpaces_home, tmp_path, pg15, monkeypatch):
    import pgpaces
    from pgpaces.trial import record
    from pgpaces.trial.monitors import Monitors

    path, explained = tmp_path / "results.db", Monitors.explain
    monkeypatch.setattr(record, "_BEAT_S", 0.01)

    def explain(monitors: Monitors) -> None:
        beats = "SELECT heartbeat FROM trial"
        with sqlite3.connect(path) as store:
            [before] = store.execute(beats)
            deadline = time.monotonic() + 30
            while store.execute(beats).fetchone() == before:
                assert time.monotonic() < deadline, "no heartbeat"
        explained(monitors)

    monkeypatch.setattr(Monitors, "explain", explain)
    pgpaces.run(
        "select-only", clients=1, duration=1, warmup=0, scale=1, target=pg15.dsn("postgres"),
        store=path,
    )  # fmt: skip


def test_readings_that_the_store_does_not_give_back_are_a_caution(tmp_path, pgpaces, monkeypatch):
    def refuse(*_: object) -> None:
        raise StoreError("the store went away")

    monkeypatch.setattr(Store, "series", refuse)
    store = tmp_path / "results.db"
    run = api.run("select-only", scale=1, clients=1, duration=1, warmup=0, store=store)
    assert "monitor-readings-unread" in {each.name for each in run.validity.findings}
