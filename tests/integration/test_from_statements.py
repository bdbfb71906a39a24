"""A workload from a real pg_stat_statements: what is taken runs, and the mix is the same again."""

import itertools
import shlex
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec import Struct
from tests.errors import raises, sentence
from tests.servers import postgres_15, quoted

import pgpaces
from pgpaces.capture import Captured, CaptureOptions, capture
from pgpaces.core.errors import ServerError, WorkloadError
from pgpaces.load import engine

pytestmark = [pytest.mark.postgres, pytest.mark.usefixtures("short_count")]
INIT = ("tables", "data", "constraints", "functions")
GARDEN = Path(pgpaces.__file__).parent / "workloads" / "garden"
SETTINGS = {
    "shared_preload_libraries": "pg_stat_statements",
    "autovacuum": "off",
    "logging_collector": "on",
    "log_destination": "stderr,csvlog",
}


class Counting(Struct, frozen=True):
    """A server that counts statements, in schemas that differ by version."""

    words: dict[str, object]
    version: int

    def dsn(self, **more: object) -> str:
        return quoted(self.words | more)

    def execute(self, *statements: str, **more: object) -> list[Any]:
        with psycopg.connect(self.dsn(**more), autocommit=True) as session:
            for statement in statements:
                cursor = session.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []

    def make(self, dbname: str) -> str:
        """A database whose statements are counted, empty."""
        self.execute(f"DROP DATABASE IF EXISTS {dbname}", f"CREATE DATABASE {dbname}")
        self.execute('CREATE SCHEMA "its own"', dbname=dbname)
        self.execute('CREATE EXTENSION pg_stat_statements SCHEMA "its own"', dbname=dbname)
        return self.dsn(dbname=dbname)

    def forget(self, dbname: str) -> None:
        self.execute('SELECT "its own".pg_stat_statements_reset()', dbname=dbname)

    @property
    def logs(self) -> Path:
        return Path(self.execute("SHOW data_directory")[0][0]) / "log"


@pytest.fixture(scope="module")
def counting18(pgpaces_home):
    from pgpaces.server import binaries, managed_server

    settings = {**SETTINGS, "fsync": "off"}
    spec = managed_server.ServerSpec(binaries.find(), name="for-statements", settings=settings)
    with managed_server.start(spec) as server:
        words = {k: v for k, v in engine.resolve(server.dsn()).keywords.items() if k != "dbname"}
        yield Counting({**words, "dbname": "postgres"}, 18)


@pytest.fixture(scope="module")
def counting15(certificates):
    for server in postgres_15("pgpaces-statements-", certificates, SETTINGS):
        words = {"host": server.folder, "port": server.port, "user": "postgres"}
        yield Counting({**words, "dbname": "postgres"}, 15)


@pytest.fixture(params=["15", "18"])
def counting(request):
    found: Counting = request.getfixturevalue(f"counting{request.param}")
    return found


TABLES = """
CREATE TABLE plain (id int PRIMARY KEY, small smallint, big bigint, price numeric(10, 2),
  part float8, flag boolean, day date, stamp timestamptz, word text, code uuid, tags int[],
  doc jsonb, never text);
INSERT INTO plain SELECT i, i % 7, i * 10000000000, i / 3.0, i / 7.0, i % 3 = 0,
  date '2020-01-01' + i % 400, timestamptz '2020-01-01' + i * interval '1 hour',
  (ARRAY['it''s', 'back\\slash', 'a:plain', E'two\\nlines', ':p1', '$1', 'é', ''])[i % 8 + 1],
  gen_random_uuid(), ARRAY[i % 5], '{}', NULL FROM generate_series(1, 2000) i;
CREATE TABLE "Select ""it's"";" ("a b" int, "ü$1" text, "b\\s" int);
INSERT INTO "Select ""it's"";" SELECT i % 10, 'x' || i % 3, i FROM generate_series(1, 100) i;
CREATE TABLE keyed (code uuid PRIMARY KEY, name text UNIQUE, plain_id int);
CREATE FUNCTION small_one(x smallint) RETURNS bigint LANGUAGE sql
  AS 'SELECT count(*) FROM plain WHERE small = x';
CREATE PROCEDURE note(w text) LANGUAGE plpgsql AS $$
BEGIN INSERT INTO "Select ""it's"";" ("ü$1") VALUES (w); END $$;
ANALYZE;
"""
STATEMENTS = (
    "SELECT * FROM plain WHERE id = 17",
    "SELECT * FROM plain WHERE big = 170000000000 AND word = 'it''s'",
    "SELECT count(*) FROM plain WHERE price > 3.5 AND part < 100.25",
    "SELECT * FROM plain WHERE flag = true AND day = '2020-02-01' LIMIT 3 OFFSET 2",
    "SELECT * FROM plain WHERE day BETWEEN '2020-01-01' AND '2020-02-01'",
    "SELECT * FROM plain WHERE stamp > now() - interval '5 minutes'",
    "SELECT * FROM plain WHERE day = date '2020-03-01'",
    "SELECT count(*) FROM plain WHERE word IN ('a', 'b', 'c') AND id IN (1, 2, 3)",
    "SELECT count(*) FROM plain WHERE word LIKE 'back%'",
    "SELECT count(*) FROM plain WHERE id = ANY ('{1,2}')",
    "SELECT tags[1:2] FROM plain WHERE tags[1] = 3 AND doc @> '{}' AND never = 'x'",
    "SELECT small_one(3::smallint)",
    "SELECT small_one('3')",
    "SELECT id FROM plain WHERE id > 5 /* a:comment; */ ORDER BY id LIMIT 1",
    "SELECT 1 + 2, 'a' || 'b', $$it's; \\if$$",
    'SELECT "ü$1" FROM "Select ""it\'s"";" x WHERE x."a b" = 3 AND "b\\s" = 5 -- the end',
    "UPDATE plain SET price = price + 1.5, word = 'new', flag = false WHERE id = 4",
    "UPDATE plain SET (small, never) = (3, NULL) WHERE code = gen_random_uuid()",
    "INSERT INTO keyed (code, name, plain_id)"
    " VALUES ('00000000-0000-0000-0000-000000000001', 'one', 4)",
    "INSERT INTO plain (id, small, day) VALUES (100001, 3, '2021-01-01')"
    " ON CONFLICT (id) DO UPDATE SET big = 5",
    "DELETE FROM plain WHERE id = 100001 AND small = 3",
    "MERGE INTO plain USING (VALUES (1, 5)) v (k, s) ON id = v.k"
    " WHEN MATCHED THEN UPDATE SET small = v.s",
    "WITH gone AS (DELETE FROM keyed WHERE name = 'nobody' RETURNING *) SELECT count(*) FROM gone",
    "CALL note('a note')",
    "VALUES (1, 'x')",
    "SELECT date_trunc('week', stamp), to_char(stamp, 'HH24') FROM plain WHERE id = 3",
)
# A lock of pgpaces itself, which is no statement of the application.
OF_PGPACES = "SELECT /* pgpaces */ pg_try_advisory_lock(1, 2)"


@pytest.fixture
def executed(counting):
    """A database in which each of STATEMENTS was executed, and one by the extended protocol."""
    dsn = counting.make("shop")
    counting.execute(TABLES, dbname="shop")
    counting.forget("shop")
    counting.execute(*STATEMENTS, OF_PGPACES, dbname="shop")
    with psycopg.connect(dsn) as session:
        session.execute("SELECT id FROM plain WHERE small = %s AND word = %s", (3, "it's"))
        session.rollback()
    return dsn


def run_scripts(dsn: str, folder: Path) -> list[str]:
    """Executes what the scripts would send, some choices of each; what failed."""
    failed = []
    with psycopg.connect(dsn, autocommit=True) as session:
        for path, seed in itertools.product(sorted(folder.glob("*.sql")), range(8)):
            for _, sql in engine.rehearse(path.stem, path.read_text(), seed=seed):
                try:
                    session.execute(sql.encode())
                except psycopg.Error as error:
                    failed.append(f"{error} in {sql}")
    return failed


def reasons(found: Captured) -> dict[str, tuple[str, dict[str, Any]]]:
    return {each.text: (each.reason.name, each.reason.values) for each in found.excluded}


@pytest.mark.parametrize("values", [True, False], ids=["values", "no values"])
def test_every_statement_of_an_application_becomes_a_script_that_runs(
    counting, executed, tmp_path, values
):
    found = capture(CaptureOptions(executed, tmp_path / "made", values=values))
    ours = ("BEGIN", "ROLLBACK", "SET LOCAL pg_stat_statements")
    wrong = {text: why for text, (why, _) in reasons(found).items() if not text.startswith(ours)}
    # A server before 17 replaces no constants of CALL.
    kept = wrong.pop("CALL note('a note')", None)
    assert kept is None or (not values and counting.version < 17 and kept == "statement-has-texts")
    assert set(wrong.values()) <= {"statement-of-catalogs"}
    taken = [each.entry.text for each in found.scripts]
    assert not any("advisory" in text for text in (*taken, *reasons(found)))
    missing = 1 + (kept is not None)
    assert len(found.scripts) >= len(STATEMENTS) - missing, "two differ in a literal alone"
    lacks = {"transactions-split", "parameters-independent", "statistics-missing"}
    assert {each.name for each in found.findings} == lacks
    assert run_scripts(executed, tmp_path / "made") == []
    pgpaces.spec.workload.read(tmp_path / "made")


def test_what_a_log_has_runs_too(counting, executed, tmp_path):
    counting.execute("SET log_statement = 'all'", *STATEMENTS[:12], dbname="shop")
    logs = tuple(counting.logs.glob("*.csv"))
    found = capture(CaptureOptions(executed, tmp_path / "made", logs))
    assert "log-matched" in {each.name for each in found.findings}
    one = next(each for each in found.scripts if "big = $1" in each.entry.text)
    assert one.sources == {"from the log": 2}
    assert "big = 170000000000 AND word = 'it''s'" in one.script
    assert run_scripts(executed, tmp_path / "made") == []


def test_nothing_is_written_and_nothing_of_the_application_is_executed(
    counting, executed, tmp_path
):
    state = (
        "SELECT pg_snapshot_xmax(pg_current_snapshot()), (SELECT sum(calls)"
        """ FROM "its own".pg_stat_statements WHERE query ~ 'plain|keyed')"""
    )
    [(before_xid, before_calls)] = counting.execute(state, dbname="shop")
    capture(CaptureOptions(executed, tmp_path / "made"))
    [(after_xid, after_calls)] = counting.execute(state, dbname="shop")
    assert after_xid == before_xid, "no transaction that writes was begun"
    assert after_calls == before_calls


def test_a_role_that_only_monitors_is_enough_and_is_told_what_it_lacks(
    counting, executed, tmp_path
):
    counting.execute(
        "DROP ROLE IF EXISTS u_limited", "CREATE ROLE u_limited LOGIN", dbname="postgres"
    )
    counting.execute('GRANT USAGE ON SCHEMA "its own" TO u_limited', dbname="shop")
    limited = counting.dsn(dbname="shop", user="u_limited")
    with raises(WorkloadError, "no-usable-statement") as no:
        capture(CaptureOptions(limited, tmp_path / "none"))
    assert sentence("statement-hidden") in no.value.values["details"].split("statements-unseen")[1]
    counting.execute("GRANT pg_monitor TO u_limited")
    found = capture(CaptureOptions(limited, tmp_path / "made"))
    assert len(found.scripts) >= len(STATEMENTS) - 1
    assert found.findings[-1].name == "statistics-hidden"
    assert "by statistics" not in {kind for each in found.scripts for kind in each.sources}
    counting.execute("GRANT pg_read_all_data TO u_limited")
    found = capture(CaptureOptions(limited, tmp_path / "more"))
    assert found.findings[-1].name != "statistics-hidden"
    assert "by statistics" in {kind for each in found.scripts for kind in each.sources}


def test_a_database_without_the_extension_is_told(counting, pg15, tmp_path):
    with raises(ServerError, "statements-extension-missing"):
        capture(CaptureOptions(counting.dsn(), tmp_path / "made"))
    name = "EXTENSION pg_stat_statements"
    loaded = raises(ServerError, "statements-extension-not-loaded")
    with pg15.meanwhile(f"CREATE {name}", f"DROP {name}"), loaded:
        capture(CaptureOptions(pg15.dsn("postgres"), tmp_path / "made"))


def test_statements_within_functions_are_not_scripts(counting, executed, tmp_path):
    counting.execute("SET pg_stat_statements.track = 'all'", "CALL note('x')", dbname="shop")
    found = capture(CaptureOptions(executed, tmp_path / "made"))
    assert found.server.nested[0] >= 1
    assert not [each for each in found.scripts if "VALUES (w)" in each.entry.text]


def test_the_most_important_are_taken_and_the_rest_is_said(counting, executed, tmp_path):
    counting.execute(*[STATEMENTS[0]] * 50, dbname="shop")
    found = capture(CaptureOptions(executed, tmp_path / "made", top=3))
    assert len(found.scripts) == 3
    taken = sum(each.entry.calls for each in found.scripts)
    assert taken + sum(each.calls for each in found.excluded) == found.calls
    assert ("statement-beyond-top", {"top": 3}) in reasons(found).values()
    assert found.scripts[0].entry.calls == 51 or found.scripts[1].entry.calls == 51


def test_one_off_loads_and_statements_without_a_known_name_are_left_out(counting, tmp_path):
    dsn = counting.make("shop")
    counting.execute(TABLES, "CREATE SEQUENCE numbers", dbname="shop")
    counting.forget("shop")
    load = "INSERT INTO keyed (code, plain_id) SELECT gen_random_uuid(), generate_series(1, 2000)"
    counting.execute(load, *[STATEMENTS[0]] * 3, "SELECT nextval('numbers')", dbname="shop")
    found = capture(CaptureOptions(dsn, tmp_path / "made"))
    why = {text.split()[0]: name for text, (name, _) in reasons(found).items()}
    assert why["INSERT"] == "statement-bulk"
    needed = ("statement-needs-log", {"function": "nextval"})
    assert reasons(found)["SELECT nextval($1)"] == needed
    assert [each.entry.calls for each in found.scripts] == [3]
    assert found.calls == sum(each.calls for each in found.excluded) + 3


def test_the_rate_is_counted_while_the_application_runs(counting18, tmp_path):
    dsn = counting18.make("shop")
    counting18.execute(TABLES, *[STATEMENTS[0]] * 500, dbname="shop")
    assert capture(CaptureOptions(dsn, tmp_path / "idle")).rate is None

    def busy(_: str) -> None:
        counting18.execute(*[STATEMENTS[0]] * 30, "SELECT 'not a script'", dbname="shop")

    found = capture(CaptureOptions(dsn, tmp_path / "busy", top=1), busy)
    assert [each.entry.calls for each in found.scripts] == [500]
    assert found.rate is not None
    assert 3 < found.rate <= 30, "30 calls in a second, or in more on a busy machine"


def test_the_command_that_it_suggests_works_while_the_application_is_connected(
    counting18, pgpaces, tmp_path
):
    dsn = counting18.make("shop")
    counting18.execute(TABLES, *STATEMENTS, dbname="shop")
    folder = tmp_path / "made"
    words = ("workload", "from-statements", "--target", f"{dsn} password=canary", folder)
    done = pgpaces.well(*words)
    assert "% of the calls and" in done.out
    assert "canary" not in done.out + done.err
    assert "canary" not in "".join(path.read_text() for path in folder.iterdir())
    assert sentence("folder-not-empty", path=folder) in pgpaces(*words).err
    _, *suggested = shlex.split(done.err.split("try: ")[1])
    with psycopg.connect(dsn):
        pgpaces.well(*suggested, "-t", "20", "--warmup", "0")
    assert pgpaces.trial().state == "finished"


def mix(counting: Counting, dbid: str) -> dict[str, float]:
    """The shares of garden's three statements in a database, in percent."""
    rows = counting.execute(
        "SELECT substring(query FROM 'ui\\.(\\w+)'), sum(calls)::int"
        f" FROM \"its own\".pg_stat_statements WHERE {dbid} AND query ~ '^SELECT.* ui\\.'"
        " GROUP BY 1",
        dbname="garden",
    )
    total = sum(calls for _, calls in rows)
    assert total
    return {name: 100 * calls / total for name, calls in rows}


@pytest.mark.slow  # 5000 transactions, and the way of the statements above once more
def test_a_workload_made_of_a_running_garden_has_its_mix(counting18, tmp_path):
    dsn = counting18.make("garden")
    texts = [(GARDEN / f"{name}.sql").read_text() for name in INIT]
    texts = [text.replace(":scale", "1").replace(":seed", "1") for text in texts]
    # In one session: the data is made by functions of pg_temp.
    counting18.execute(*(one for text in texts for one in _commands(text)), dbname="garden")
    counting18.execute("ALTER DATABASE garden SET log_min_duration_statement = 0")
    common = {"clients": 2, "warmup": 0, "store": tmp_path / "results.db"}
    counting18.forget("garden")
    pgpaces.run(files=[GARDEN / "action.sql"], target=dsn, transactions=1000, **common)
    counting18.execute("ALTER DATABASE garden RESET log_min_duration_statement")
    before = mix(counting18, "dbid = (SELECT oid FROM pg_database WHERE datname = 'garden')")
    found = capture(CaptureOptions(dsn, tmp_path / "made", tuple(counting18.logs.glob("*.log"))))
    assert [each.sources for each in found.scripts if "insert" in each.entry.text] == [
        {"from the log": 5}
    ]
    assert "parameters-independent" not in {each.name for each in found.findings}
    counting18.forget("garden")
    run = pgpaces.run(
        str(tmp_path / "made"), target=dsn, from_database="garden", transactions=4000, **common
    )
    after = mix(counting18, "dbid NOT IN (SELECT oid FROM pg_database)")
    assert set(before) == set(after) == {
        "insert_plant", "get_plantings_listing", "get_plant_destinations",
    }  # fmt: skip
    assert all(abs(after[name] - before[name]) < 2 for name in before), (before, after)
    assert run.counts.failed == 0


def _commands(text: str) -> list[str]:
    """The statements of an SQL file of ours."""
    import pgparse

    data = text.encode()
    found = []
    for each in pgparse.parse(text):
        start = each.get("stmt_location", 0)
        end = start + each["stmt_len"] if each.get("stmt_len") else len(data)
        found.append(data[start:end].decode())
    return found
