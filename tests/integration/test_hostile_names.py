"""Names that would end a quotation, a statement or a line are names like others, everywhere."""

import json
from dataclasses import dataclass

import psycopg
import pytest
from psycopg import sql
from tests.commands import QUICK, Command
from tests.servers import quoted

pytestmark = pytest.mark.postgres

# 63 bytes at most: PostgreSQL cuts longer names.
NAMES = {
    "statement": "a\"b'c\"\"''; DROP DATABASE postgres; --",
    "newline": " two\nlines\r\there, a\\b\\",
    "format": "-c x=y --help %s %(x)s {0} $1 :name :'n' ",
    "conninfo": "dbname=postgres user='x' Zoë 数据 \u202e🐘",
    "URI": "postgresql://postgres@h/postgres",
}
# In the quick suite the two that end what others begin.
QUICKLY = ("statement", "format")
NAMED = [
    pytest.param(name, id=kind, marks=() if kind in QUICKLY else pytest.mark.slow)
    for kind, name in NAMES.items()
]


@dataclass
class Place:
    """A server that lets in every role, and how to reach it."""

    host: str
    port: str

    def dsn(self, user: str = "postgres", dbname: str = "postgres") -> str:
        return quoted({"host": self.host, "port": self.port, "user": user, "dbname": dbname})

    def execute(self, statement: str, *names: str, dbname: str = "postgres") -> None:
        with psycopg.connect(self.dsn(dbname=dbname), autocommit=True) as session:
            session.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))

    def databases(self) -> set[str]:
        with psycopg.connect(self.dsn()) as session:
            return {name for (name,) in session.execute("SELECT datname FROM pg_database")}


@pytest.fixture(scope="module")
def place(pgpaces_home, tmp_path_factory):
    command = Command(pgpaces_home, tmp_path_factory.mktemp("names") / "results.db")
    begun = command("server", "start", "--name", "names")
    exports = dict(line.removeprefix("export ").split("=", 1) for line in begun.out.splitlines())
    yield Place(exports["PGHOST"], exports["PGPORT"])
    command.well("server", "stop", "names")


@pytest.mark.parametrize("name", NAMED)
def test_a_role_and_a_database_may_be_called_anything(pgpaces, place, name):
    place.execute("CREATE ROLE {} LOGIN", name)
    place.execute("CREATE DATABASE {} OWNER {}", name, name)
    before = place.databases()
    try:
        target = ("--target", place.dsn(user=name))
        for _ in range(2):  # made, then made anew: it writes
            ended = pgpaces("run", "tpcb-like", *QUICK, "-c", "1", "--own", name, *target, "--json")
            answer = ended.json()
            assert answer["counts"]["on_time"] == answer["counts"]["due"] > 0
        trial = json.loads(pgpaces("export", "last", "--format", "json").out)
        assert trial["setup"]["workload"]["prepared"]["dbname"] == name
        assert trial["setup"]["server"]["target"]["user"] == name
        pgpaces.well("server", "clean", *target)
        pgpaces.well("pgbench", "-S", "-t", "3", place.dsn(user=name, dbname=name))
        assert place.databases() == before
        refused = pgpaces("run", "reporting", *QUICK, "--own", f"{name}?", *target)
        assert refused.code == 15
        assert "\u202e" not in refused.err
    finally:
        place.execute("DROP DATABASE {}", name)
        place.execute("DROP ROLE {}", name)


@pytest.mark.parametrize("name", NAMED)
def test_a_workload_may_be_called_anything(pgpaces, place, tmp_path, name):
    folder = tmp_path / name.replace("/", "|")
    pgpaces.well("workload", "new", tmp_path / "plain")
    (tmp_path / "plain").rename(folder)
    before = place.databases()
    words = ("run", folder, *QUICK, "-c", "1", "--target", place.dsn())
    assert pgpaces(*words, "--json").json()["workload"] == folder.name
    made = place.databases() - before
    assert [name for name in made if not name.startswith("pgpaces_")] == []
    shown = pgpaces.well("show", "last")
    assert "\u202e" not in shown.out
    pgpaces.well("server", "clean", "--target", place.dsn())
    assert place.databases() == before


@pytest.mark.parametrize("value", NAMED)
def test_a_setting_arrives_as_it_was_given(pgpaces, place, tmp_path, value):
    script = tmp_path / "check.sql"
    literal = value.encode().hex()
    script.write_text(
        "SELECT 1 / (current_setting('canary.x') = "
        f"convert_from(decode('{literal}', 'hex'), 'UTF8'))::int;\n"
    )
    words = ("run", "-f", script, *QUICK[2:], "-c", "1", "--target", place.dsn(), "--json")
    answer = pgpaces(*words, "--set", f"canary.x={value}").json()
    assert answer["counts"]["on_time"] == answer["counts"]["due"] > 0


@pytest.mark.parametrize("name", ["a -c log_statement", "a\t-c\tlog_statement", "a\\ -c b", "'"])
def test_the_name_of_a_setting_is_one_word(pgpaces, place, tmp_path, name):
    script = tmp_path / "check.sql"
    script.write_text("SELECT 1;\n")
    words = ("run", "-f", script, *QUICK[2:], "-c", "1", "--target", place.dsn())
    refused = pgpaces(*words, "--set", f"{name}=all")
    assert refused.code != 0
    assert "Traceback" not in refused.err


@pytest.mark.parametrize("name", NAMED)
def test_a_tablespace_of_pgbenchs_tables_may_be_called_anything(pgpaces, pg15, name):
    with pg15.connect() as session:
        session.execute("SET allow_in_place_tablespaces = on")
        create = sql.SQL("CREATE TABLESPACE {} LOCATION ''").format(sql.Identifier(name))
        session.execute(create)
        session.execute("CREATE DATABASE spaces")
    try:
        words = ("pgbench", "-i", "--tablespace", name, "--index-tablespace", name)
        pgpaces.well(*words, "--partitions", "2", pg15.dsn("postgres", dbname="spaces"))
    finally:
        pg15.execute("DROP DATABASE spaces")
        with pg15.connect() as session:
            session.execute(sql.SQL("DROP TABLESPACE {}").format(sql.Identifier(name)))
