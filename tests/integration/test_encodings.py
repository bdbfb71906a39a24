"""Every command works on a database of any encoding, with names and scripts in that encoding."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result
from msgspec import Struct
from tests.commands import value_of
from tests.errors import sentence
from tests.servers import postgres_15, quoted

from pgpaces.cli import pgbench
from pgpaces.cli.main import cli
from pgpaces.core.errors import ServerError, StoreError, WorkloadError
from pgpaces.core.texts import decoded
from pgpaces.store.store import Store

pytestmark = [pytest.mark.postgres, pytest.mark.usefixtures("short_count")]


class Charset(Struct, frozen=True):
    """An encoding, a word in it as the server keeps it, and as a page shows it."""

    id: str
    encoding: str
    word: bytes
    shown: str


CHARSETS = {
    "SQL_ASCII": Charset("SQL_ASCII", "SQL_ASCII", b"caf\xe9\xff", "caf��"),
    "SQL_ASCII-utf8": Charset("SQL_ASCII-utf8", "SQL_ASCII", "表é🐘".encode(), "表é🐘"),
    "LATIN1": Charset("LATIN1", "LATIN1", "café".encode("latin-1"), "café"),
    "EUC_JP": Charset("EUC_JP", "EUC_JP", "表数据".encode("euc_jp"), "表数据"),
    "UTF8": Charset("UTF8", "UTF8", "表é🐘".encode(), "表é🐘"),
}
SCRIPT = (
    b"\\set id random(1, 100)\n"
    b"-- %s\n"
    b'UPDATE "t %s" SET "c %s" = \'%s\' WHERE id = :id;\n'
    b'SELECT id AS "%s" FROM "t %s" WHERE "c %s" = \'%s\' LIMIT 1\n\\gset\n'
)
FEW = ("-t", "4", "-c", "2")


@dataclass
class Place:
    """A database in a charset, with a table called after its word, and a script that uses it."""

    words: dict[str, object]
    charset: Charset
    folder: Path

    def dsn(self, **more: object) -> str:
        return quoted(self.words | more)

    def filled(self, text: bytes) -> bytes:
        return text.replace(b"%s", self.charset.word)

    def execute(self, *statements: bytes) -> list[tuple[Any, ...]]:
        """Runs statements in the encoding of the database; the last one's rows, as bytes."""
        with psycopg.connect(self.dsn(), autocommit=True) as session:
            if self.charset.encoding != "SQL_ASCII":
                session.execute("SELECT set_config('client_encoding', %s, false)",
                                [self.charset.encoding])  # fmt: skip
            for statement in statements:
                cursor = session.execute(self.filled(statement))
            return cursor.fetchall() if cursor.description else []

    def trial(self) -> Any:
        """The trial stored last."""
        store = Store.open(self.folder / "results.db")
        return store.load(store.find("last"))

    def invoke(self, *words: object, **environment: str) -> Result:
        store = {"PGPACES_STORE": str(self.folder / "results.db")}
        return CliRunner().invoke(cli, list(map(str, words)), env=store | environment)

    def __call__(self, *words: object, **environment: str) -> str:
        ended = self.invoke(*words, **environment)
        assert ended.exit_code == 0, (ended.output, ended.stderr, ended.exception)
        return ended.stdout

    @property
    def script(self) -> Path:
        path = self.folder / "script.sql"
        path.write_bytes(self.filled(SCRIPT))
        return path

    @property
    def workload(self) -> Path:
        folder = self.folder / "workload"
        folder.mkdir()
        (folder / "script.sql").write_bytes(self.filled(SCRIPT))
        (folder / "workload.toml").write_text(
            'description = "any"\nwrites = true\ninit = []\n[[scripts]]\nfile = "script.sql"\n'
        )
        return folder


@pytest.fixture(scope="module")
def server(pgpaces_home, certificates):
    """A server as initdb makes it without a locale."""
    settings = {"shared_preload_libraries": "pg_stat_statements"}
    for server in postgres_15("pgpaces-ascii-", certificates, settings, None):
        # Every database sees this name, and most can neither read nor convert it.
        with psycopg.connect(server.dsn("postgres"), autocommit=True) as session:
            session.execute(b'CREATE DATABASE "caf\xe9"')
        yield {"host": server.folder, "port": server.port, "user": "postgres"}


# One with several bytes a character, which a server converts as well, stands for LATIN1.
TRIED = [
    pytest.param(name, id=name, marks=pytest.mark.slow if name == "LATIN1" else ())
    for name in CHARSETS
]


@pytest.fixture(scope="module", params=TRIED)
def database(request, server):
    """Where the database is, and its charset."""
    charset = CHARSETS[request.param]
    dbname = "db_" + request.param.lower().replace("-", "_")
    admin = Place({**server, "dbname": "postgres"}, CHARSETS["SQL_ASCII"], Path())
    admin.execute(
        f"CREATE DATABASE {dbname} ENCODING '{charset.encoding}' TEMPLATE template0"
        " LC_COLLATE 'C' LC_CTYPE 'C'".encode()
    )
    place = Place({**server, "dbname": dbname}, charset, Path())
    place.execute(
        b"CREATE EXTENSION pg_stat_statements",
        b'CREATE TABLE "t %s" (id int PRIMARY KEY, "c %s" text)',
        b"INSERT INTO \"t %s\" SELECT i, '%s' FROM generate_series(1, 100) i",
        b'ANALYZE "t %s"',
    )
    return {"words": place.words, "charset": charset}


@pytest.fixture
def place(database, tmp_path):
    return Place(folder=tmp_path, **database)


def counts_of(answer: dict[str, Any]) -> tuple[int, int]:
    return answer["counts"]["due"], answer["counts"]["on_time"]


@dataclass
class Face:
    """pgbench's face: what it wrote to stdout and stderr, and its exit code."""

    captured: pytest.CaptureFixture[bytes]

    def __call__(self, *words: object) -> tuple[int, bytes, bytes]:
        code = pgbench.main(list(map(str, words)), "pgbench")
        return code, *self.captured.readouterr()


@pytest.fixture
def face(capfdbinary, tmp_path, monkeypatch):
    monkeypatch.setenv("PGPACES_STORE", str(tmp_path / "results.db"))
    return Face(capfdbinary)


@pytest.mark.parametrize("partitions", [(), ("--partitions", "2")], ids=["whole", "cut"])
def test_pgbenchs_face_makes_its_tables_and_runs(place, face, partitions):
    code, _, said = face("-i", "-q", "-I", "dtGvp", *partitions, place.dsn())
    assert code == 0, said
    code, report, said = face("-S", *FEW, place.dsn())
    assert (code, b"actually processed: 8/8\n" in report) == (0, True), said
    assert (b"partitions: 2\n" in report) == bool(partitions)
    code, report, said = face("-n", "-r", "-f", place.script, *FEW, place.dsn())
    assert (code, b"failed transactions: 0 (0.000%)" in report) == (0, True), said
    assert place.filled(b'UPDATE "t %s"') in report
    tables = "accounts, pgbench_branches, pgbench_history, pgbench_tellers"
    place.execute(f"DROP TABLE pgbench_{tables}".encode())


def test_pgbenchs_face_tells_the_servers_words_as_they_came(place, face):
    code, _, said = face(
        "-i", "-I", "t", f"--tablespace={decoded(place.charset.word)}", place.dsn()
    )
    assert code == 1
    assert b'tablespace "' + place.charset.word + b'" does not exist' in said


def test_a_run_says_how_the_statements_of_its_script_were_executed(place):
    ran = place("run", "-f", place.script, *FEW, "--target", place.dsn(), "--json")
    assert counts_of(value_of(ran)) == (8, 8)
    trial = place.trial()
    assert len(trial.explained) == 2, trial.notes
    assert all(f"t {place.charset.shown}" in each.summary for each in trial.explained)
    (observed,) = trial.observed
    word = decoded(place.charset.word) if "SQL_ASCII" in place.charset.id else place.charset.shown
    assert any(word in each.name for each in observed.grown)
    for command in ("show", "why", "export"):
        place(command, "last")


@pytest.mark.slow
def test_a_client_encoding_that_was_set_changes_nothing_for_administrative_sessions(place):
    """It is the load's: what the script was written in is what the server is told."""
    words = ("run", "-f", place.script, *FEW, "--target", place.dsn(), "--json")
    dbname = f"ALTER DATABASE {place.words['dbname']}".encode()
    place.execute(dbname + b" SET client_encoding = SQL_ASCII")
    try:
        assert counts_of(value_of(place(*words))) == (8, 8)
    finally:
        place.execute(dbname + b" RESET client_encoding")
    for encoding in ("SQL_ASCII", place.charset.encoding, "auto"):
        ran = value_of(place(*words, PGCLIENTENCODING=encoding, LC_ALL="C"))
        assert counts_of(ran) == (8, 8)


@pytest.mark.slow
def test_a_copy_is_made_and_an_experiment_is_run_and_told(place):
    """Trials of a sweep in copies of the database; then what was found, in every form."""
    words = ("--from-database", place.words["dbname"], "--target", place.dsn(dbname="postgres"))
    place("sweep", place.workload, *words, "-t", "4", "-c", "1,2")
    for form in ("html", "md", "json"):
        place("report", "last", "-o", place.folder / f"page.{form}")
    assert place.trial().state == "finished"
    for told in (("runs",), ("compare", "clients=1", "clients=2", "--json")):
        place(*told)
    place("server", "clean", "--target", place.dsn())


def test_a_copy_through_pg_dump_holds_the_same_names(place):
    words = ("--from-database", place.dsn(), "--target", place.dsn(dbname="postgres"))
    ran = place("run", place.workload, *words, *FEW, "--json")
    assert counts_of(value_of(ran)) == (8, 8)
    place("server", "clean", "--target", place.dsn(dbname="postgres"))


def test_statements_become_scripts_in_the_encoding_of_their_database(place):
    place.execute(b"SELECT pg_stat_statements_reset()")
    statement = b'SELECT id FROM "t %s" WHERE "c %s" = \'%s\''
    for _ in range(3):
        place.execute(statement)
    folder, log = place.folder / "made", place.folder / "server.log"
    log.write_bytes(place.filled(b"LOG:  statement: " + statement + b"\n"))
    words = ("workload", "from-statements", folder, "--target", place.dsn())
    if place.charset.id == "SQL_ASCII":  # the parser knows UTF-8 only
        made = place.invoke(*words)
        assert isinstance(made.exception, WorkloadError)
        assert sentence("statement-not-utf-8") in made.exception.values["details"]
        return
    place(*words, "--log", log)
    (script,) = folder.glob("*.sql")
    assert place.filled(b'"t %s"') in script.read_bytes()
    assert b"from the log" in script.read_bytes()
    assert place.filled(b"'%s'") in script.read_bytes()
    data = ("--from-database", place.words["dbname"], "--target", place.dsn(dbname="postgres"))
    ran = place("run", folder, *data, *FEW, "--json")
    assert counts_of(value_of(ran)) == (8, 8)


@pytest.mark.parametrize("database", [name for name in CHARSETS if name != "UTF8"], indirect=True)
def test_a_store_is_refused_where_text_is_not_utf_8(place):
    for words in (("runs",), ("show", "last")):
        error = place.invoke(*words, "--store", place.dsn()).exception
        assert isinstance(error, StoreError)
        assert (error.name, error.values["encoding"]) == ("store-encoding", place.charset.encoding)


def test_pgbenchs_face_runs_where_python_has_no_such_encoding(server, face):
    admin = Place({**server, "dbname": "postgres"}, CHARSETS["SQL_ASCII"], Path())
    dbname = "db_euc_tw"
    made = f"CREATE DATABASE {dbname} ENCODING 'EUC_TW' TEMPLATE template0 LC_COLLATE 'C'"
    admin.execute(f"{made} LC_CTYPE 'C'".encode())
    assert face("-i", "-q", "-I", "dtGvp", admin.dsn(dbname=dbname))[0] == 0
    code, report, said = face("-S", *FEW, admin.dsn(dbname=dbname))
    assert (code, b"actually processed: 8/8\n" in report) == (0, True), said


def test_a_database_whose_name_is_not_utf_8_is_refused_in_words(server, face, tmp_path):
    name = decoded(b"na\xefve")
    script = tmp_path / "script.sql"
    script.write_text("SELECT 1;")
    place = Place(server, CHARSETS["UTF8"], tmp_path)
    refused = place.invoke(
        "run", "-f", script, "--target", f"{place.dsn()} dbname={name}"
    ).exception
    assert isinstance(refused, ServerError)
    assert refused.name == "connection-not-utf-8"
    code, _, said = face(
        "-S", "-t", "1", "-h", server["host"], "-p", server["port"], "-U", "postgres", name
    )
    assert (code, b'database "na\xefve" does not exist' in said) == (1, True)
