"""A migration is rehearsed on a copy: what holds locks, who waits, and what is left behind."""

import json

import pytest
from tests.errors import sentence
from tests.servers import access_to, quoted

import pgpaces
from pgpaces.database import migration, ownership
from pgpaces.database.access import connect
from pgpaces.spec.migration import split
from pgpaces.spec.safer import safer
from pgpaces.trial import events
from pgpaces.trial import rehearse as rehearsing

pytestmark = pytest.mark.postgres
ROWS = 20_000


@pytest.fixture(params=[pytest.param("15", marks=pytest.mark.slow), "18"])
def access(request):
    """The way to each of the servers, as superuser."""
    return (
        request.getfixturevalue("pg18")
        if request.param == "18"
        else access_to(request.getfixturevalue("pg15"))
    )


@pytest.fixture
def shop(access):
    """A database with a table that is read and written."""
    with connect(access) as admin:
        admin.execute("CREATE DATABASE shop")
    with connect(access, "shop") as session:
        session.execute("CREATE TABLE orders (id int PRIMARY KEY, note text, amount int)")
        session.execute(
            f"INSERT INTO orders SELECT i, 'note', i FROM generate_series(1, {ROWS}) i".encode()
        )
        session.execute("VACUUM ANALYZE")
    yield access
    with connect(access) as admin:
        admin.execute("DROP DATABASE shop WITH (FORCE)")
    ownership.clean(access)


@pytest.fixture
def rehearse(pgpaces, shop, tmp_path, monkeypatch):
    """The answer of a rehearsal of this migration, as JSON, and the exit code.

    The parts before and after the migration are shorter, as the server is quick.
    """
    monkeypatch.setattr(rehearsing, "BEFORE_MIN_S", 2.0)
    monkeypatch.setattr(rehearsing, "AFTER_S", 1.0)
    script = tmp_path / "update.sql"
    script.write_text(
        f"\\set id random(1, {ROWS})\nUPDATE orders SET note = 'noted' WHERE id = :id;\n"
        "SELECT amount FROM orders WHERE id = :id;\n"
    )

    def run(sql, *options):
        path = tmp_path / "migration.sql"
        path.write_text(sql)
        files = (str(path),) if sql else ()
        load = ("-f", str(script), "--rate", "100", "-c", "4", "-L", "100ms")
        where = ("--target", quoted(shop.keywords), "--from-database", "shop")
        done = pgpaces("rehearse", *files, *load, *where, "--json", *options)
        if not done.out:
            return done.code, done.err
        return done.code, json.loads(done.out)["value"]

    return run


HOLD = "BEGIN; LOCK TABLE orders IN SHARE MODE; SELECT pg_sleep(0.5); COMMIT"
SAFE = "ALTER TABLE orders ADD COLUMN x int"


def test_a_lock_that_is_held_blocks_and_its_length_is_measured(rehearse):
    code, answer = rehearse(HOLD, "--open-transaction", "0", "--no-safer")
    [only] = answer["passes"]
    statement = next(each for each in only["statements"] if each["text"].startswith("LOCK"))
    assert (code, answer["verdict"], only["behind"]) == (30, "blocks", "alone")
    assert (statement["relation"], statement["mode"]) == ("orders", "ShareLock")
    assert statement["held_ns"] == pytest.approx(500e6, abs=60e6)
    assert statement["late"] > 0
    assert only["causes"].get("migration", 0) >= 0.95 * sum(only["causes"].values())
    assert only["before"]["due"] > 150


def test_a_safe_migration_waits_behind_an_open_transaction_and_a_safer_form_does_not(rehearse):
    code, answer = rehearse(SAFE, "--open-transaction", "1s")
    alone, behind, *safer = answer["passes"]
    assert (alone["verdict"], behind["verdict"], code) == ("safe", "blocks", 30)
    [statement] = behind["statements"]
    assert statement["waited_ns"] == pytest.approx(0.8e9, abs=0.15e9)
    assert statement["holders"] == [f"{migration.HOLDER} (idle in transaction)"]
    assert [(each["form"], each["behind"], each["verdict"]) for each in safer] == [
        ("safer", "alone", "safe"),
        ("safer", "open", "safe"),
    ]
    assert answer["proved"]
    assert [each.text for each in split(answer["safer"])] == ["SET lock_timeout = '50ms'", SAFE]


def test_a_renamed_column_and_a_statement_that_fails_are_failures(rehearse):
    options = ("--open-transaction", "0", "--no-safer")
    code, answer = rehearse("ALTER TABLE orders RENAME COLUMN amount TO total", *options)
    assert (code, answer["verdict"]) == (30, "fails")
    assert answer["passes"][0]["failed"].keys() == {"42703"}
    code, answer = rehearse("ALTER TABLE orders ADD CHECK (amount < 9)", *options)
    assert (code, answer["verdict"]) == (30, "fails")
    assert answer["passes"][0]["statements"][0]["sqlstate"] == "23514"


IN_BATCHES = [
    "UPDATE orders SET amount = amount + (SELECT 1 FROM pg_sleep(0.4)) WHERE id > 9",
    pytest.param(
        "ALTER TABLE orders ADD COLUMN u uuid NOT NULL DEFAULT wait_for_it()",
        marks=pytest.mark.slow,
    ),
]
WAIT = """CREATE FUNCTION wait_for_it() RETURNS uuid LANGUAGE plpgsql AS $$ BEGIN
  PERFORM pg_sleep(0.00002); RETURN md5(random()::text)::uuid; END $$"""


@pytest.mark.parametrize("sql", IN_BATCHES)
def test_what_holds_rows_for_long_is_safe_in_batches(rehearse, shop, sql):
    with connect(shop, "shop") as session:
        session.execute(WAIT.encode())
    code, answer = rehearse(sql, "--open-transaction", "0")
    assert (code, answer["verdict"]) == (30, "blocks"), answer
    found = [(p["form"], p["verdict"]) for p in answer["passes"]]
    assert found == [("asked", "blocks"), ("safer", "safe")], answer["passes"][-1]
    assert answer["proved"]
    assert "= ANY (pgpaces_batch)" in answer["passes"][-1]["sql"]


def test_the_batches_change_what_the_update_changes(shop):
    sql = "UPDATE orders SET amount = amount + 1 WHERE id > 9 OR note = 'where'"
    with connect(shop, "shop") as session:
        keys = migration.keys_of(session)
        text = safer([*split(sql)], 1_000_000, keys=keys) or ""
        assert [run.error for run in executed(shop, text)] == [None, None]
        changed = session.execute("SELECT count(*), min(id) FROM orders WHERE amount = id + 1")
        assert changed.fetchone() == (ROWS - 9, 10)


def test_autovacuum_is_in_the_way_and_a_safer_form_cancels_it_soon(rehearse, shop, pgpaces):
    with connect(shop) as admin:
        admin.execute("ALTER SYSTEM SET autovacuum_naptime = '1s'")
        admin.execute("SELECT pg_reload_conf()")
        try:
            code, answer = rehearse(SAFE, "--open-transaction", "0", "--autovacuum")
        finally:
            admin.execute("ALTER SYSTEM RESET autovacuum_naptime")
            admin.execute("SELECT pg_reload_conf()")
    assert (code, answer["verdict"]) == (30, "blocks"), answer
    found = [(p["form"], p["behind"], p["verdict"]) for p in answer["passes"]]
    assert found == [
        ("asked", "alone", "safe"),
        ("asked", "autovacuum", "blocks"),
        ("safer", "alone", "safe"),
        ("safer", "autovacuum", "safe"),
    ]
    [statement] = answer["passes"][1]["statements"]
    assert statement["waited_ns"] == pytest.approx(1e9, abs=0.25e9), "deadlock_timeout"
    assert answer["passes"][-1]["sql"].startswith("SET deadlock_timeout = '10ms'")
    assert "open transaction" not in pgpaces.well("show").out, "there was none"


def test_a_checkpoint_and_a_command_are_events(rehearse):
    code, answer = rehearse("", "--event", "checkpoint")
    [only] = answer["passes"]
    assert (code, answer["verdict"], only["statements"][0]["text"]) == (0, "safe", "checkpoint")
    code, answer = rehearse("", "--event", "psql -Xqc 'SELECT 1'", "--trust")
    assert (code, answer["verdict"], len(answer["passes"])) == (0, "safe", 1)


def test_what_takes_time_for_each_row_is_estimated_for_production(rehearse, pgpaces):
    sql = f"{WAIT}; ALTER TABLE orders ADD COLUMN u uuid DEFAULT wait_for_it()"
    more = ("--open-transaction", "0", "--no-safer", "--rows", f"orders={50 * ROWS}")
    _, answer = rehearse(sql, *more)
    statement = answer["passes"][0]["statements"][1]
    assert (statement["table"], statement["rows"]) == ("orders", ROWS)
    text = pgpaces.well("show").out
    assert f"with {50 * ROWS:,} rows in orders" in text


def test_python_rehearses_as_the_command_does(shop, tmp_path, monkeypatch):
    monkeypatch.setattr(rehearsing, "BEFORE_MIN_S", 2.0)
    monkeypatch.setattr(rehearsing, "AFTER_S", 1.0)
    path, script = tmp_path / "m.sql", tmp_path / "read.sql"
    path.write_text("DROP TABLE orders")
    script.write_text("SELECT count(*) FROM orders WHERE id = 7")
    answer = pgpaces.rehearse(
        path,
        files=script,
        rate=100,
        clients=4,
        latency_limit="100ms",
        target=quoted(shop.keywords),
        from_database="shop",
        open_transaction="0",
        safer=False,
        store=tmp_path / "results.db",
    )
    assert (answer.verdict, answer.value.verdict) == ("FAILS", "fails")
    assert answer.value.passes[0].failed.keys() == {"42P01"}
    assert len(answer.trials) == 1
    assert [plot.name for plot in answer.figures] == ["rehearsal-asked-alone"]


def test_nothing_is_left_behind_and_a_change_of_the_server_is_refused(
    rehearse, shop, pgpaces, tmp_path
):
    before, junit, summary = databases(shop), tmp_path / "r.xml", tmp_path / "r.md"
    files = ("--junit", str(junit), "--summary", str(summary))
    code, answer = rehearse(SAFE, "--open-transaction", "0", "--no-safer", *files)
    assert 'failures="0"' in junit.read_text()
    assert "SAFE" in summary.read_text()
    assert (code, answer["verdict"]) == (0, "safe")
    assert databases(shop) == before
    with connect(shop) as admin:
        assert admin.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'pgpaces %'"
            " AND pid <> pg_backend_pid()"
        ).fetchone() == (0,)
    assert "SAFE" in pgpaces.well("show").out
    told = pgpaces.well("why", answer["id"]).out
    assert "requests" in told
    assert "load-ended-early" not in told
    ended = pgpaces("sweep", "--resume", "migration.sql")
    told = sentence("rehearsal-not-resumed", name="migration.sql")
    assert ended.err.startswith(f"pgpaces: error: {told}")
    code, told = rehearse("CREATE ROLE bob PASSWORD 'hunter2'")
    assert (code, "hunter2" in told, "hunter2" in str(pgpaces.store.read_bytes())) == (
        2,
        False,
        False,
    )


def databases(shop):
    with connect(shop) as admin:
        rows = admin.execute("SELECT datname FROM pg_database").fetchall()
    return {name for (name,) in rows}


def test_a_migration_that_takes_too_long_is_not_judged(rehearse):
    many = "".join(f"INSERT INTO orders VALUES ({-n}); " for n in range(1, 4000))
    options = ("--open-transaction", "0", "--no-safer", "--timeout", "1s")
    code, answer = rehearse(f"{many} ALTER TABLE orders DROP COLUMN amount", *options)
    assert (code, answer["verdict"]) == (32, "unknown")
    assert [each["name"] for each in answer["passes"][0]["findings"]][:1] == ["rehearsal-stopped"]


PROGRAM = "psql -Xqc 'BEGIN; CREATE INDEX i ON orders (amount); SELECT pg_sleep(0.5); COMMIT'"


def test_the_commands_of_a_program_are_seen_once_somebody_confirmed_it(rehearse):
    options = ("--open-transaction", "0", "--run", f"{PROGRAM} -c 'ALTER TABLE orders ADD x int'")
    code, answer = rehearse("", *options, "--trust")
    [only] = answer["passes"]
    index, column, whole = only["statements"]
    assert (code, answer["verdict"], index["mode"]) == (30, "blocks", "ShareLock")
    assert [index["text"], column["text"]] == ["CREATE INDEX public.i", "ALTER TABLE public.orders"]
    assert index["held_ns"] == pytest.approx(500e6, abs=100e6)
    assert (index["late"] > 0, whole["late"], whole["held_ns"]) == (True, 0, 0)
    assert ["orders", "AccessExclusiveLock"] in column["locks"]
    options = ("--open-transaction", "0", "--run", PROGRAM.replace("0.5", "9"))
    code, answer = rehearse("", *options, "--trust", "--timeout", "1s")
    assert (code, answer["verdict"]) == (32, "unknown")
    assert answer["passes"][0]["findings"][0]["name"] == "rehearsal-stopped"
    options = ("--open-transaction", "0", "--run", PROGRAM)
    code, told = rehearse("", *options)
    assert (code, sentence("command-unconfirmed", command=PROGRAM) in told) == (6, True)


@pytest.mark.parametrize(
    "event",
    [("failover", "--standbys", "1"), *(pytest.param((name,), marks=pytest.mark.slow)
                                        for name in ("restart", "crash"))],
    ids=lambda event: event[0],
)  # fmt: skip
def test_an_outage_is_measured_and_acknowledged_commits_are_counted(
    event, empty_home, pg15, pgpaces, tmp_path, monkeypatch
):
    monkeypatch.setattr(rehearsing, "BEFORE_MIN_S", 2.0)
    monkeypatch.setattr(rehearsing, "AFTER_S", 1.0)
    script, source = tmp_path / "read.sql", access_to(pg15).keywords
    script.write_text("SELECT 1;\n")
    load = ("-f", script, "--rate", "100", "-c", "4", "-L", "50ms", "--server", "15")
    for _ in range(2):  # nothing that the first leaves is in the way of the next
        done = pgpaces(
            *("rehearse", "--event", *event, *load, "--from-database", quoted(source), "--json"),
            env={"PGPACES_HOME": str(empty_home)},
        )
        [only] = json.loads(done.out)["value"]["passes"]
        outage = only["outage"]
        assert done.code == (30 if only["verdict"] == "fails" else 0), done.err
        assert 0 < outage["length_ns"] < 20e9
        assert outage["acknowledged"] > 200
        assert outage["lost"] == 0 or event[0] == "failover"
        assert only["during"]["due"] > 100


@pytest.mark.slow
def test_an_outage_that_does_not_end_is_measured_to_the_end(
    empty_home, pg15, pgpaces, tmp_path, monkeypatch
):
    monkeypatch.setattr(rehearsing, "BEFORE_MIN_S", 2.0)
    monkeypatch.setattr(events, "_BACK_S", 2.0)
    script, source = tmp_path / "read.sql", access_to(pg15).keywords
    script.write_text("SELECT 1;\n")
    # Who is promoted waits for a standby that there is not.
    forever = ("--server-set", "synchronous_standby_names=*", "--standbys", "1")
    done = pgpaces(
        *("rehearse", "--event", "failover", "-f", script, "--rate", "100", "-c", "4"),
        *("--server", "15", *forever, "--from-database", quoted(source), "--json"),
        env={"PGPACES_HOME": str(empty_home)},
    )
    [only] = json.loads(done.out)["value"]["passes"]
    assert (done.code, only["verdict"]) == (30, "fails"), done.err
    assert only["outage"]["length_ns"] > 5e9


@pytest.mark.slow
def test_a_rewrite_makes_requests_to_a_standby_late(empty_home, pg15, pgpaces, tmp_path):
    script, source = tmp_path / "read.sql", access_to(pg15)
    script.write_text("SELECT count(*) FROM large WHERE id = 7;\n")
    (tmp_path / "m.sql").write_text("ALTER TABLE large ALTER COLUMN id TYPE bigint")
    with connect(source, "postgres") as session:
        session.execute("CREATE TABLE large AS SELECT i id FROM generate_series(1, 2000000) i")
        session.execute("CREATE INDEX ON large (id)")
    where = ("--server", "15", "--standbys", "1", "--node", "standby1")
    try:
        done = pgpaces(
            *("rehearse", tmp_path / "m.sql", "-f", script, "--rate", "100", "-c", "8"),
            *("-L", "100ms", *where, "--open-transaction", "0", "--no-safer", "--json"),
            *("--from-database", quoted({**source.keywords, "dbname": "postgres"})),
            env={"PGPACES_HOME": str(empty_home)},
        )
    finally:
        with connect(source, "postgres") as session:
            session.execute("DROP TABLE large")
    [only] = json.loads(done.out)["value"]["passes"]
    assert only["verdict"] == "blocks", done.err
    assert "standby-late" in [each["name"] for each in only["findings"]]


# PostgreSQL's documentation, "Explicit Locking": the mode of each on the table.
MODES = {
    "ALTER TABLE orders ADD COLUMN x int": "AccessExclusiveLock",
    "ALTER TABLE orders ALTER COLUMN amount TYPE bigint": "AccessExclusiveLock",
    "ALTER TABLE orders ALTER COLUMN amount SET NOT NULL": "AccessExclusiveLock",
    "ALTER TABLE orders ALTER COLUMN amount SET STATISTICS 10": "ShareUpdateExclusiveLock",
    "ALTER TABLE orders SET (fillfactor = 70)": "ShareUpdateExclusiveLock",
    "ALTER TABLE orders RENAME COLUMN amount TO total": "AccessExclusiveLock",
    "ALTER TABLE orders DROP COLUMN note": "AccessExclusiveLock",
    "ALTER TABLE orders ADD CHECK (amount > 0)": "AccessExclusiveLock",
    "ALTER TABLE orders ADD FOREIGN KEY (amount) REFERENCES orders NOT VALID":
        "ShareRowExclusiveLock",
    "ALTER TABLE orders DISABLE TRIGGER ALL": "ShareRowExclusiveLock",
    "CREATE INDEX ON orders (amount)": "ShareLock",
    "CREATE TRIGGER t BEFORE UPDATE ON orders FOR EACH ROW"
    " EXECUTE FUNCTION suppress_redundant_updates_trigger()": "ShareRowExclusiveLock",
    "ANALYZE orders": "ShareUpdateExclusiveLock",
    "REINDEX TABLE orders": "ShareLock",
    "CLUSTER orders USING orders_pkey": "AccessExclusiveLock",
    "TRUNCATE orders": "AccessExclusiveLock",
    "DROP TABLE orders": "AccessExclusiveLock",
    "UPDATE orders SET note = 'x' WHERE id = 1": "RowExclusiveLock",
    "DELETE FROM orders WHERE id = 1": "RowExclusiveLock",
    "INSERT INTO orders VALUES (0)": "RowExclusiveLock",
    "SELECT FROM orders FOR UPDATE": "RowShareLock",
    "SELECT count(*) FROM orders": "AccessShareLock",
    "LOCK TABLE orders IN EXCLUSIVE MODE": "ExclusiveLock",
    "ALTER TABLE orders ALTER COLUMN note SET DEFAULT 'x'": "AccessExclusiveLock",
    "ALTER TABLE orders ENABLE ROW LEVEL SECURITY": "AccessExclusiveLock",
    "ALTER TABLE orders ENABLE TRIGGER ALL": "ShareRowExclusiveLock",
    "ALTER TABLE orders REPLICA IDENTITY FULL": "AccessExclusiveLock",
    "ALTER TABLE orders CLUSTER ON orders_pkey": "ShareUpdateExclusiveLock",
    "ALTER TABLE orders RENAME TO others": "AccessExclusiveLock",
    "COMMENT ON TABLE orders IS 'x'": "ShareUpdateExclusiveLock",
    "CREATE STATISTICS s ON id, amount FROM orders": "ShareUpdateExclusiveLock",
    "CREATE RULE r AS ON DELETE TO orders DO INSTEAD NOTHING": "AccessExclusiveLock",
}  # fmt: skip
REWRITES = {
    "ALTER TABLE before ALTER COLUMN amount TYPE bigint",
    "ALTER TABLE before ALTER COLUMN amount TYPE int USING amount + 1",
    "ALTER TABLE before ALTER COLUMN note TYPE varchar(10)",
    "ALTER TABLE before ALTER COLUMN id TYPE text",
    "ALTER TABLE before ADD COLUMN x float DEFAULT random()",
    "ALTER TABLE before ADD COLUMN x uuid DEFAULT gen_random_uuid()",
    "ALTER TABLE before ADD COLUMN x serial",
    "ALTER TABLE before ADD COLUMN x int GENERATED ALWAYS AS (amount + 1) STORED",
    "ALTER TABLE before ADD COLUMN x int GENERATED ALWAYS AS IDENTITY",
    "ALTER TABLE before SET UNLOGGED",
    "VACUUM FULL before",
    "CLUSTER before USING i",
}
NO_REWRITES = {
    "ALTER TABLE before ADD COLUMN x int DEFAULT 7",
    "ALTER TABLE before ADD COLUMN x timestamptz DEFAULT now()",
    "ALTER TABLE before ALTER COLUMN note TYPE varchar",
    "ALTER TABLE before DROP COLUMN note",
    "TRUNCATE before",
    "REINDEX TABLE before",
}


def executed(shop, sql):
    running = migration.Migrating({**shop.keywords, "dbname": "shop"}, lambda: 0, [*split(sql)])
    try:
        return running.run()
    finally:
        running.close()


def test_the_locks_of_statements_are_those_of_the_documentation(shop):
    for sql, mode in MODES.items():
        [*_, run, _] = executed(shop, f"BEGIN; {sql}; ROLLBACK")
        found = {kind for relation, kind in run.locks if relation == "orders"}
        assert mode in found, sql


def test_every_rewrite_is_seen_and_nothing_else_is_one(shop):
    rewrites = set()
    with connect(shop, "shop") as session:
        for sql in REWRITES | NO_REWRITES:
            session.execute("CREATE TABLE before AS SELECT * FROM orders LIMIT 999")
            session.execute("CREATE INDEX i ON before (id)")
            [run] = executed(shop, sql)
            session.execute("DROP TABLE before")
            assert run.error is None, sql
            rewrites |= {sql for name in run.rewritten if name == "before"}
    assert rewrites == REWRITES
