"""`pgpaces` as its users call it: answers, exit codes, what is kept and what is never touched."""

from __future__ import annotations

import json
import signal
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.commands import QUICK, SECOND, Command, adds_up, interval_count, started
from tests.needs import needs
from tests.servers import PASSWORD, Postgres
from tests.waiting import until

pytestmark = pytest.mark.postgres


def test_the_embedded_server_gives_a_first_answer_and_a_row_in_runs(pgpaces: Command) -> None:
    words = ("run", "reporting", "--scale", "1", *SECOND, "--rate", "20", "-L", "500ms")
    ended = pgpaces(*words)
    assert ended.code == 0, ended.err
    first, about, *_ = ended.out.splitlines()
    assert "missed (95% CI" in first
    assert about.startswith("  reporting, open 20/s for ")
    assert "pgpaces show" in ended.out
    listed = json.loads(pgpaces("runs", "--json").out)
    assert [row["workload"] for row in listed] == ["reporting"]
    shown = pgpaces("show", "last", "--json").json()
    assert adds_up(shown)
    assert shown["counts"]["due"] > 5
    exported = pgpaces("export", "last").out.splitlines()
    assert exported[0].startswith("run,second,due_second,script,due,on_time")
    assert len(exported) > 1


def test_an_installed_server_by_dsn_does_the_same(pgpaces: Command, pg15: Postgres) -> None:
    target = ("--target", pg15.tcp("postgres"))
    words = ("run", "reporting", "--scale", "1", *SECOND, "--rate", "20", *target, "--json")
    answer = pgpaces(*words).json()
    assert adds_up(answer)
    assert answer["server"].startswith("15.")
    assert len(answer["scripts"]) == 3


def test_a_run_none_of_whose_transactions_succeeded_fails_and_is_kept(
    pgpaces: Command, pg15: Postgres, tmp_path: Path
) -> None:
    script = tmp_path / "bad.sql"
    script.write_text("SELECT * FROM nosuch;")
    target = ("--target", pg15.dsn("postgres"))
    words = ("-f", script, *target, "--rate", "20", "-L", "50ms", "-T", "1s")
    ended = pgpaces("run", *words, "-P", "0", "--fail-if", "failed > 0")
    said = (
        'no transaction succeeded: {0} failed of {0} due; the first error: 42P01: relation "nosuch"'
    )
    counts = json.loads(pgpaces("show", "last", "--json").out)["counts"]
    assert ended.code == 5
    assert f"error: {said.format(counts['due'])} does not exist" in ended.err
    assert "hint: " in ended.err
    assert ended.out.startswith("✗ FAIL  no transaction succeeded")
    swept = pgpaces("sweep", *words, "--clients", "1,2", "--progress", "0")
    assert (swept.code, swept.out.startswith("✗ FAIL  no transaction succeeded")) == (5, True)
    assert "error: no transaction succeeded in 2 trials" in swept.err


def test_prepared_data_is_used_again_until_fresh_is_asked_for(
    pgpaces: Command, pg15: Postgres
) -> None:
    words = ("run", "select-only", *QUICK, "-c", "1", "--target", pg15.dsn("postgres"), "--json")
    created = []
    for more in ((), (), ("--fresh",)):
        run = pgpaces(*words, *more).json()["run"]
        exported = json.loads(pgpaces("export", run, "--format", "json").out)
        created.append(exported["workload"]["prepared"]["created"])
    assert created[1:] == [False, True]


@pytest.fixture(params=["installed 15", "embedded 18"])
def any_server(
    request: pytest.FixtureRequest, pgpaces: Command, pg15: Postgres
) -> Iterator[dict[str, str]]:
    """Keywords of a server of either kind."""
    if request.param == "installed 15":
        yield psycopg.conninfo.conninfo_to_dict(pg15.dsn("postgres"))
        return
    begun = pgpaces("server", "start", "--name", "data")
    exports = dict(line.removeprefix("export ").split("=", 1) for line in begun.out.splitlines())
    try:
        yield {"host": exports["PGHOST"], "port": exports["PGPORT"], "user": "postgres"}
    finally:
        pgpaces("server", "stop", "data")


def test_the_data_of_reporting_is_as_described_and_the_same_everywhere(
    pgpaces: Command, any_server: dict[str, str]
) -> None:
    dsn = psycopg.conninfo.make_conninfo(**{**any_server, "dbname": "postgres"})
    quick = ("--scale", "2", "-T", "1s", "--warmup", "0", "-P", "0", "--rate", "20")
    answer = pgpaces("run", "reporting", *quick, "--target", dsn, "--json").json()
    exported = json.loads(pgpaces("export", answer["run"], "--format", "json").out)
    prepared = exported["workload"]["prepared"]
    with psycopg.connect(dsn, dbname=prepared["dbname"]) as session:
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


def test_each_script_of_reporting_uses_the_plan_it_is_there_for(
    pgpaces: Command, pg15: Postgres
) -> None:
    answer = pgpaces(
        "run", "reporting", "--scale", "2", "-T", "1s", "--warmup", "0", "-P", "0",
        "--target", pg15.dsn("postgres"), "--json", "--rate", "20",
    ).json()  # fmt: skip
    exported = json.loads(pgpaces("export", answer["run"], "--format", "json").out)
    dbname = exported["workload"]["prepared"]["dbname"]
    with psycopg.connect(pg15.dsn("postgres", dbname=dbname)) as session:
        for script in exported["workload"]["scripts"]:
            sql = script["text"].split("\n", 1)[1] if "\\set" in script["text"] else script["text"]
            explained = session.execute(("EXPLAIN " + sql.replace(":fk1", "3")).encode()).fetchall()
            plan = "\n".join(line for (line,) in explained)
            assert ("ix_pgbench_reporting_fk1" in plan) == (script["name"] != "by_fk1"), plan


def test_a_workload_that_writes_leaves_its_prepared_data_as_it_was(
    pgpaces: Command, pg15: Postgres
) -> None:
    target = ("--target", pg15.dsn("postgres"))
    answer = pgpaces("run", "tpcb-like", *QUICK, "-c", "2", *target, "--json").json()
    assert answer["counts"]["on_time"] > 0
    exported = json.loads(pgpaces("export", answer["run"], "--format", "json").out)
    origin = exported["workload"]["prepared"]["cloned_from"]
    with psycopg.connect(pg15.dsn("postgres", dbname=origin)) as session:
        assert session.execute("SELECT count(*) FROM pgbench_history").fetchone() == (0,)
    names = [name for (name,) in pg15.execute("SELECT datname FROM pg_database")]
    assert not [name for name in names if name.endswith("_run")]


def test_a_database_without_our_mark_is_never_touched(pgpaces: Command, pg15: Postgres) -> None:
    words = ("run", "reporting", *QUICK, "--target", pg15.dsn("postgres"), "--data-seed", "77")
    name = json.loads(pgpaces(*words, "--json").out)["run"]
    exported = json.loads(pgpaces("export", name, "--format", "json").out)
    dbname = exported["workload"]["prepared"]["dbname"]
    pg15.execute(f"COMMENT ON DATABASE {dbname} IS 'mine now'")
    for more in ((), ("--fresh",)):
        refused = pgpaces(*words, *more)
        assert refused.code == 15, refused.err
        assert "no mark" in refused.err
    with psycopg.connect(pg15.dsn("postgres", dbname=dbname)) as session:
        assert session.execute("SELECT count(*) FROM pgbench_reporting").fetchone() == (100_000,)
    pg15.execute(f"DROP DATABASE {dbname}")


def test_own_counts_functions_and_schemas_as_somebodys(pgpaces: Command, pg15: Postgres) -> None:
    pg15.execute("CREATE DATABASE peopled")
    try:
        with psycopg.connect(pg15.dsn("postgres", dbname="peopled"), autocommit=True) as session:
            session.execute("CREATE SCHEMA app")
            session.execute("CREATE FUNCTION app.f() RETURNS int LANGUAGE sql AS 'SELECT 1'")
        words = ("run", "select-only", *QUICK, "-c", "1", "--own", "peopled")
        assert pgpaces(*words, "--target", pg15.dsn("postgres")).code == 15
        with psycopg.connect(pg15.dsn("postgres", dbname="peopled")) as session:
            assert session.execute("SELECT app.f()").fetchone() == (1,)
    finally:
        pg15.execute("DROP DATABASE peopled")


def test_clean_leaves_what_was_handed_over(pgpaces: Command, pg15: Postgres) -> None:
    pg15.execute("CREATE DATABASE lent")
    try:
        target = ("--target", pg15.dsn("postgres"))
        words = ("run", "select-only", *QUICK, "-c", "1", "--own", "lent")
        assert pgpaces(*words, *target).code == 0
        assert pgpaces("server", "clean", *target).code == 0
        left = [name for (name,) in pg15.execute("SELECT datname FROM pg_database")]
        assert "lent" in left
        assert not [name for name in left if name.startswith("pgpaces_")]
    finally:
        pg15.execute("DROP DATABASE lent")


def test_a_run_that_is_ended_while_it_prepares_leaves_nothing_behind(
    pgpaces: Command, pg15: Postgres, tmp_path: Path
) -> None:
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


def test_settings_that_may_hold_a_secret_are_not_stored(pgpaces: Command, pg15: Postgres) -> None:
    pg15.execute("ALTER SYSTEM SET primary_conninfo = 'host=nowhere password=s3cretrepl'")
    pg15.execute("SELECT pg_reload_conf()")
    pg15.wait_until("SELECT current_setting('primary_conninfo') <> ''")
    try:
        words = ("run", "select-only", *QUICK, "-c", "1", "--target", pg15.dsn("postgres"))
        run = json.loads(pgpaces(*words, "--json").out)["run"]
        assert "s3cretrepl" not in pgpaces("export", run, "--format", "json").out
    finally:
        pg15.execute("ALTER SYSTEM RESET primary_conninfo")
        pg15.execute("SELECT pg_reload_conf()")


def test_a_reader_that_goes_away_does_not_end_a_run(pgpaces: Command, pg15: Postgres) -> None:
    words = ("run", "select-only", *QUICK[:-2], "-P", "1", "-c", "1")
    for stream in ("stderr", "stdout"):
        process = pgpaces.start(*words, "--target", pg15.dsn("postgres"))
        getattr(process, stream).close()
        assert process.wait(timeout=60) == 0, stream


def test_own_takes_an_empty_database_and_asks_twice_for_another(
    pgpaces: Command, pg15: Postgres
) -> None:
    pg15.execute("CREATE DATABASE handed")
    try:
        words = ("run", "select-only", *QUICK, "-c", "1", "--own", "handed")
        target = ("--target", pg15.dsn("postgres"))
        assert pgpaces(*words, *target).code == 0
        pg15.execute("COMMENT ON DATABASE handed IS NULL")
        refused = pgpaces(*words, *target)
        assert (refused.code, "--fresh" in refused.err) == (15, True), refused.err
        assert pgpaces(*words, *target, "--fresh").code == 0
        absent = pgpaces("run", "select-only", *QUICK, "--own", "nowhere", *target)
        assert absent.code == 15
    finally:
        pg15.execute("DROP DATABASE handed")


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("run", "reprting"), 3, "did you mean reporting"),
        (("run", "reporting", "--nosuch"), 2, "error: no such option '--nosuch'"),
        (("run", "reporting", "--clint", "3"), 2, "hint: did you mean --clients"),
        (("runz",), 2, "hint: did you mean run or runs?"),
        (("runs", "--limit", "x"), 2, "error: --limit 'x' must be an integer"),
        (("run", "reporting", "--rate", "0"), 2, "out of range"),
        (("run", "reporting", "--rate", "nan"), 2, "not a rate"),
        (("run", "reporting", "--rate", "1e400"), 2, "out of range"),
        (("run", "reporting", "-T", "-1s"), 2, "not a duration"),
        (("run", "reporting", "-T", "1e400s"), 2, "longer than a year"),
        (("run", "reporting", "--policy", "skip", "--think-time", "0"), 2, "skip"),
        (("run", "reporting", "--fail-if", "foo > 1"), 2, "cannot be read"),
        (("run", "reporting", "--script", "nosuch"), 2, "by_fk1"),
        (("run", "reporting", "--server-set", "work_men=4MB"), 10, "did you mean work_mem?"),
        (("run", "reporting", "--set", "work_men=4MB"), 2, "did you mean work_mem?"),
        (("run", "reporting", "--server", "99"), 10, "PostgreSQL 99 is not here"),
        (("run", "reporting", "--target", "host=127.0.0.1 port=1 user=x"), 10, "no PostgreSQL"),
        (("run", "reporting", "--store", "/proc/nowhere/x.db"), 20, "no folder"),
        (("show", "nosuch"), 20, "there is no store"),
        (("run", "reporting", "-D", "1x=3", "-T", "1s", "-P", "0"), 2, "name of a variable"),
    ],
)
def test_bad_input_gets_a_sentence_and_its_exit_code(
    pgpaces: Command, words: tuple[str, ...], code: int, says: str
) -> None:
    ended = pgpaces(*words)
    assert ended.code == code, ended.err
    assert says in ended.err
    assert "Traceback" not in ended.err


def test_what_is_wrong_at_the_server_has_its_own_exit_code(
    pgpaces: Command, pg15: Postgres
) -> None:
    other_ca = str(pg15.certificates.crt("other_ca"))
    cases: list[tuple[str, tuple[str, ...], int]] = [
        (pg15.tcp("u_scram", password="wrong"), (), 11),
        (pg15.tcp("u_trust", dbname="nosuch"), (), 12),
        (pg15.tcp("postgres"), ("-c", "500"), 13),
        (pg15.tcp("u_trust", sslmode="verify-full", sslrootcert=other_ca), (), 14),
        (pg15.tcp("u_trust"), (), 15),
    ]  # fmt: skip
    for dsn, more, code in cases:
        ended = pgpaces("run", "reporting", *QUICK, "--target", dsn, *more)
        assert ended.code == code, (dsn, ended.err)
        assert "hint:" in ended.err


def test_a_script_error_names_file_line_and_column(pgpaces: Command, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    assert pgpaces("workload", "new", folder).code == 0
    with (folder / "read.sql").open("a") as script:
        script.write("\\set y 1 + * 2\n")
    ended = pgpaces("run", folder)
    assert ended.code == 4
    assert 'read.sql:3: syntax error in command "set"' in ended.err
    assert "hint: look at line 3, column 12" in ended.err
    assert "           ^ error found here" in ended.err


def test_broken_init_sql_says_which_file_and_line(
    pgpaces: Command, tmp_path: Path, pg15: Postgres
) -> None:
    folder = tmp_path / "mine"
    pgpaces("workload", "new", folder)
    (folder / "init.sql").write_text("CREATE TABLE t (x int);\nSELECT nonsense;\n")
    ended = pgpaces("run", folder, *QUICK, "--target", pg15.dsn("postgres"))
    assert ended.code == 16, ended.err
    assert "init.sql:2" in ended.err


def test_fail_if_has_an_exit_code_of_its_own(pgpaces: Command, pg15: Postgres) -> None:
    words = ("run", "select-only", *QUICK, "-c", "1", "--target", pg15.dsn("postgres"))
    failed = pgpaces(*words, "--fail-if", "p50 > 0.001ms")
    assert failed.code == 30
    assert "--fail-if 'p50 > 0.001ms' is true: it is " in failed.err
    assert pgpaces(*words, "--fail-if", "failed > 0").code == 0
    first = pgpaces(*words, "--fail-if", "p50 > 0.001ms", "--fail-if", "failed > 0")
    assert first.code == 30
    assert first.err.count("is true: it is ") == 1


def test_ctrl_c_keeps_and_shows_what_there_is(pgpaces: Command, pg15: Postgres) -> None:
    process = pgpaces.start(
        "run", "select-only", *QUICK[:4], "-c", "2", "-T", "10min", "--warmup", "0",
        "--target", pg15.dsn("postgres"),
    )  # fmt: skip
    started(process)
    until(lambda: interval_count(pgpaces.store) >= 2)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert " tx/s" in out.splitlines()[0]
    shown = pgpaces("show", "last", "--json").json()
    assert (shown["state"], adds_up(shown)) == ("interrupted", True)


def test_kill_9_loses_no_stored_second_and_leaves_no_server(pgpaces: Command) -> None:
    process = pgpaces.start("run", "select-only", *QUICK[:4], "-c", "2", "-T", "10min")
    started(process)
    until(lambda: interval_count(pgpaces.store) >= 2)
    pids = json.loads((pgpaces.home / "servers" / "pg18" / "server.json").read_text())
    process.kill()
    process.communicate()
    until(lambda: not Path(f"/proc/{pids['pid']}").exists())
    with sqlite3.connect(pgpaces.store) as connection:
        connection.execute("UPDATE trial SET heartbeat = '2020-01-01 00:00:00.000000'")
    shown = pgpaces("show", "last", "--json").json()
    assert (shown["state"], adds_up(shown)) == ("interrupted", True)


def test_a_script_that_cannot_run_on_ends_the_run_and_keeps_what_was_measured(
    pgpaces: Command, tmp_path: Path, pg15: Postgres
) -> None:
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


def test_a_password_is_found_nowhere(pgpaces: Command, pg15: Postgres) -> None:
    secret = PASSWORD
    pg15.execute("ALTER ROLE u_scram CREATEDB")
    ended = pgpaces(
        "run", "select-only", *QUICK, "-c", "1", "--target", pg15.tcp("u_scram"), "--json",
        "--data-seed", "5", env={"PGPASSWORD": secret},
    )  # fmt: skip
    assert ended.code == 0, ended.err
    files = [path for path in pgpaces.store.parent.rglob("*") if path.is_file()]
    assert pgpaces.store in files
    for encoded in (secret.encode(), json.dumps(secret).encode()):
        assert encoded not in (ended.out + ended.err).encode()
        assert not [path for path in files if encoded in path.read_bytes()]


def test_a_run_shares_a_server_that_stays_and_leaves_it_running(pgpaces: Command) -> None:
    begun = pgpaces("server", "start", "--name", "kept")
    assert begun.code == 0, begun.err
    try:
        exports = dict(
            line.removeprefix("export ").split("=", 1) for line in begun.out.split("\n")[:-1]
        )
        assert set(exports) == {"PGHOST", "PGPORT", "PGUSER", "PGDATABASE"}
        listed = pgpaces("server", "list").out
        assert "kept" in listed
        psycopg.connect(host=exports["PGHOST"], port=exports["PGPORT"], user="postgres").close()
    finally:
        assert pgpaces("server", "stop", "kept").code == 0


def test_clean_frees_the_prepared_data(pgpaces: Command) -> None:
    assert pgpaces("run", "select-only", *QUICK, "-c", "1").code == 0
    cleaned = pgpaces("server", "clean")
    assert cleaned.code == 0, cleaned.err
    assert "freed" in cleaned.err
    assert "freed 0.0 MiB" in pgpaces("server", "clean").err


@needs("PostgreSQL 15")
def test_clean_starts_a_server_by_its_name_whatever_its_version(pgpaces: Command) -> None:
    assert pgpaces("server", "start", "--name", "second", "--version", "15").code == 0
    try:
        ended = pgpaces("run", "select-only", *QUICK, "-c", "1", "--server", "second")
        assert ended.code == 0, ended.err
    finally:
        assert pgpaces("server", "stop", "second").code == 0
    for freed in (True, False):
        cleaned = pgpaces("server", "clean", "second")
        assert cleaned.code == 0, cleaned.err
        assert ("freed 0.0 MiB" not in cleaned.err) is freed
    assert "second" not in pgpaces("server", "list").out


def test_python_gives_the_same_values(pgpaces_home: Path, tmp_path: Path, pg15: Postgres) -> None:
    import pgpaces

    run = pgpaces.run(
        "select-only", clients=2, duration=1, warmup=0, scale=1, target=pg15.dsn("postgres"),
        store=tmp_path / "results.db", latency_limit="1h", missed="2%",
    )  # fmt: skip
    assert run.counts.due == run.counts.on_time
    assert run.missed is not None
    assert run.missed.value == 0
    assert run.latency.p99 is not None
    # A machine whose CPUs others had, or that was late itself, allows no verdict.
    word = "PASS" if run.validity.state == "valid" else "UNKNOWN"
    assert f"{word} 0.0% missed" in repr(run)
    assert repr(run).endswith("allowed 2%>")


def test_a_run_whose_plans_take_long_still_runs(
    pgpaces_home: Path, tmp_path: Path, pg15: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pgpaces
    from pgpaces.trial import recorder
    from pgpaces.trial.monitors import Monitors

    path, explained = tmp_path / "results.db", Monitors.explain
    monkeypatch.setattr(recorder, "_BEAT_S", 0.01)

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
