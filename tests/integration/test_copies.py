"""Databases of somebody's are copied and never touched; a trial begins on a server at rest."""

import contextlib
import json
import re
import shlex
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace
from tests.errors import raises
from tests.integration.datasets import altered, owned, prepared, silent, spec
from tests.needs import PG15_BIN, needs
from tests.servers import PASSWORD, access_to, quoted
from tests.waiting import until

from pgpaces.core.errors import (
    ConsentError,
    DatabaseAbsentError,
    PlanError,
    PrepareError,
    ServerError,
)
from pgpaces.database import access, changes, copies, data, identity, ownership, psql
from pgpaces.database.access import Access, connect
from pgpaces.spec.design import Design, Experiment
from pgpaces.spec.setup import Prepared
from pgpaces.trial import document
from pgpaces.trial.target_server import source_database

pytestmark = pytest.mark.postgres
SOURCE = 'sensors "a"'


def rows(access: Access, query: str, dbname: str = "postgres") -> list[Any]:
    with connect(access, dbname) as session:
        return [row[0] for row in session.execute(query.encode()).fetchall()]


@pytest.fixture
def source_name(access):
    """An external database, with data and a setting of its own."""
    with connect(access) as admin:
        admin.execute('CREATE DATABASE "sensors ""a"""')
        admin.execute('ALTER DATABASE "sensors ""a""" SET search_path = "two words", public')
    with connect(access, SOURCE) as session:
        session.execute("CREATE TABLE reading AS SELECT i FROM generate_series(1, 1000) i")
        session.execute("CREATE INDEX ON reading (i)")
    yield SOURCE
    with connect(access) as admin:
        admin.execute('DROP DATABASE "sensors ""a""" WITH (FORCE)')
    ownership.clean(access)


def test_a_copy_is_made_once_for_an_occasion_and_the_original_stays(access, source_name):
    before = rows(access, "SELECT count(*) FROM reading", source_name)
    wanted = spec(from_database=source_name, occasion="first")
    with data.prepare(access, wanted, silent) as made:
        assert made.created
        assert made.dbname.startswith("pgpaces_from_sensors_a_")
        assert rows(access, "SELECT count(*) FROM reading", made.dbname) == before
        assert rows(access, "SHOW search_path", made.dbname) == ['"two words", public']
        with connect(access, made.dbname) as session:
            session.execute("DROP TABLE reading")
    with data.prepare(access, wanted, silent) as again:
        assert (again.dbname, again.created) == (made.dbname, False)
    with data.prepare(access, replace(wanted, occasion="second"), silent) as other:
        assert other.dbname != made.dbname
        assert rows(access, "SELECT count(*) FROM reading", other.dbname) == before
    assert rows(access, "SELECT count(*) FROM reading", source_name) == before
    ownership.clean(access)
    left = rows(access, "SELECT datname FROM pg_database WHERE datname LIKE 'pgpaces_from%'")
    assert left == []
    assert rows(access, "SELECT count(*) FROM reading", source_name) == before


def test_a_trial_that_writes_gets_a_copy_of_the_copy(access, source_name):
    wanted = spec("tpcb-like", from_database=source_name)
    with data.prepare(access, wanted, silent) as made:
        assert made.cloned_from is not None
        assert made.dbname == f"{made.cloned_from}_run"
        assert rows(access, "SHOW search_path", made.dbname) == ['"two words", public']
        assert 0 < made.clone_seconds <= made.seconds
        assert 0 < made.settle_seconds <= made.seconds
        with connect(access, made.dbname) as session:
            session.execute("DROP TABLE reading")
    # It may be the database of the target itself.
    there = replace(access, keywords={**access.keywords, "dbname": source_name})
    with data.prepare(there, wanted, silent) as again:
        assert rows(access, "SELECT count(*) FROM reading", again.dbname) == [1000]
    assert rows(access, f"SELECT count(*) FROM pg_database WHERE datname = '{made.dbname}'") == [0]


def test_a_copy_has_the_empty_lists_of_the_original(access):
    with connect(access) as admin:
        admin.execute("CREATE DATABASE emptied")
        try:
            changes.set_to(admin, changes.SettingChange("search_path", "emptied", None), "")
            refused: list[str] = []
            copies.copy(admin, "emptied_copy", "emptied", say=refused.append)
            assert refused == []
            assert changes.settings_of(admin, "emptied_copy") == [("search_path", "")]
        finally:
            for name in ("emptied", "emptied_copy"):
                admin.execute(f"DROP DATABASE IF EXISTS {name}".encode())


def test_a_setting_of_the_original_that_the_role_may_not_give_is_told(pg18):
    role = replace(pg18, keywords={**pg18.keywords, "user": "copies_owner"})
    made_so = (
        "CREATE ROLE copies_owner LOGIN CREATEDB",
        "CREATE DATABASE owned OWNER copies_owner",
        "ALTER DATABASE owned SET log_statement_stats = on",
        "ALTER DATABASE owned SET work_mem = '5MB'",
    )
    told: list[str] = []
    with altered(pg18, *made_so, undo=("DROP DATABASE owned", "DROP ROLE copies_owner")):
        with data.prepare(role, spec(from_database="owned"), told.append) as made:
            assert rows(role, "SHOW work_mem", made.dbname) == ["5MB"]
        ownership.clean(role)
    [warning] = [text for text in told if text.startswith("warning")]
    assert "log_statement_stats (permission denied" in warning


def test_an_original_that_is_in_use_is_left_alone_and_dumped(access, source_name):
    used = replace(access, keywords={**access.keywords, "dbname": source_name})
    told: list[str] = []
    with (
        connect(used) as session,
        data.prepare(access, spec(from_database=source_name), told.append) as made,
    ):
        assert session.execute("SELECT 1").fetchone() == (1,)
        tables = "SELECT count(*) FROM pg_class WHERE oid >= 16384 AND relkind = 'r'"
        assert rows(access, tables, made.dbname) == rows(access, tables, source_name)
    [said] = [text for text in told if "1 of postgres (pgpaces admin)" in text]
    assert source_name in said


def test_connections_that_are_left_are_known_to_a_role_that_sees_little(pg18):
    """Of sessions of others it does not see what they are. Three are reserved for superusers."""

    def left(access: Access) -> int:
        room = identity.room(access, guest=False)
        return room.free if room else 0

    role = replace(pg18, keywords={**pg18.keywords, "user": "sees_little"})
    with (
        altered(pg18, "CREATE ROLE sees_little LOGIN", undo=("DROP ROLE sees_little",)),
        contextlib.ExitStack() as stack,
    ):
        for _ in range(5):
            stack.enter_context(connect(pg18))
        # Sessions of other tests end in between.
        until(lambda: left(role) == left(pg18) - 3)


class Full:
    f_bavail, f_frsize = 3, 2**20


@pytest.mark.parametrize(
    ("source", "kind", "name", "values"),
    [
        ("nosuch", DatabaseAbsentError, "source-missing", {}),
        ("postgres", ConsentError, "source-used-by-pgpaces", {}),
        (SOURCE, PrepareError, "copy-too-large", {"free_bytes": 3 * 2**20}),
    ],
)
@pytest.mark.usefixtures("source_name")
def test_what_cannot_be_copied_is_said_before_anything_is_copied(
    access, monkeypatch, source, kind, name, values
):
    monkeypatch.setattr("os.statvfs", lambda _: Full)
    with raises(kind, name, source=source, **values), prepared(access, from_database=source):
        pass


def test_what_is_handed_over_is_no_copy():
    with raises(PlanError, "cannot-combine", options=["--own", "--from-database"]):
        spec(from_database="a", own="b")


def dsn(access: Access, dbname: str, **more: str) -> str:
    words = ("host", "port", "user")
    return quoted({k: access.keywords[k] for k in words} | {"dbname": dbname} | more)


def with_programs(access: Access) -> Access:
    return replace(access, folders=(PG15_BIN,))


def test_a_connection_string_is_copied_by_pg_dump_while_it_is_used(access, source_name):
    source_dsn = dsn(access, source_name)
    used = replace(access, keywords={**access.keywords, "dbname": source_name})
    wanted = spec(from_database=source_dsn)
    with connect(used), data.prepare(with_programs(access), wanted, silent) as made:
        assert made.dbname.startswith("pgpaces_from_sensors_a_")
        assert rows(access, "SELECT count(*) FROM reading", made.dbname) == [1000]
        assert rows(access, "SHOW search_path", made.dbname) == ['"two words", public']
        query = "SELECT reltuples::int, relallvisible > 0 FROM pg_class WHERE relname = 'reading'"
        assert rows(access, query, made.dbname) == [1000], "it is analyzed"


def test_a_session_that_somebody_opens_in_a_copy_does_not_cost_the_copy(access, source_name):
    """As agents do that watch every database of a server."""
    opened: list[Any] = []

    def watch(said: str) -> None:
        for name in names_of_copies(access):
            if not opened and name.startswith("pgpaces_from_sensors_a_"):
                opened.append(psycopg.connect(**{**access.keywords, "dbname": name}))

    wanted = spec(from_database=dsn(access, source_name), fresh=True)
    with data.prepare(with_programs(access), wanted, watch) as made:
        assert opened, "a session was there before the copy was whole"
        assert rows(access, "SELECT count(*) FROM reading", made.dbname) == [1000]
    opened[0].close()


def names_of_copies(access: Access) -> list[str]:
    return rows(access, "SELECT datname FROM pg_database WHERE datname LIKE 'pgpaces_%'")


@pytest.mark.parametrize("to", ["15", "18"])
def test_a_copy_by_pg_dump_has_the_rows_of_its_source_and_sorts_like_it(pg15, pg18, to):
    create = "CREATE DATABASE sorted TEMPLATE template0 ENCODING 'UTF8'"
    icu = "LOCALE_PROVIDER icu ICU_LOCALE 'en-u-kn-true' LC_COLLATE 'C'"
    source, target = access_to(pg15), {"15": access_to(pg15), "18": with_programs(pg18)}[to]
    told: list[str] = []
    wanted, query = spec(from_database=dsn(source, "sorted")), "SELECT i FROM reading ORDER BY i"
    with altered(source, f"{create} {icu}", undo=("DROP DATABASE sorted",)):
        with connect(source, "sorted") as session:
            session.execute("CREATE TABLE reading AS SELECT unnest(ARRAY['a10', 'a9']) AS i")
        assert rows(source, query, "sorted") == ["a9", "a10"]
        with data.prepare(with_programs(target), wanted, told.append) as made:
            found = rows(target, query, made.dbname)
        ownership.clean(target)
    without_icu = any("ICU is not supported" in text for text in told)
    assert found == (["a10", "a9"] if without_icu else ["a9", "a10"])


@needs("PostgreSQL 15")
def test_a_newer_server_takes_a_newer_pg_dump(pg18):
    with raises(ServerError, "pg-dump-too-old", major=16, versions=["15"]):
        psql.dump_programs(PG15_BIN / "psql", (), 16)
    assert psql.dump_programs(PG15_BIN / "psql", (pg18.psql.parent,), 16)[0].parent != PG15_BIN
    assert psql.dump_programs(pg18.psql, (PG15_BIN,), 15)[0].parent == PG15_BIN


def test_a_copy_that_fails_says_why_and_leaves_nothing(pg18):
    weak = "CREATE ROLE copies_weak LOGIN"
    gone = ("DROP DATABASE locked", "DROP ROLE copies_weak")
    with altered(pg18, "CREATE DATABASE locked", weak, undo=gone):
        with connect(pg18, "locked") as session:
            session.execute("CREATE TABLE reading (i int)")
        with (
            raises(PrepareError, "copy-failed", dbname="locked") as failed,
            prepared(pg18, from_database=dsn(pg18, "locked", user="copies_weak")),
        ):
            pass
        assert re.search("pg_dump: error: .*permission denied for table", failed.value.message)
        query = "SELECT count(*) FROM pg_database WHERE datname LIKE 'pgpaces_from%'"
        assert rows(pg18, query) == [0]


def test_the_password_of_the_source_reaches_pg_dump_and_nobody_else(pg15, tmp_path):
    """A pg_dump that writes down what it was given."""
    folder, seen = tmp_path / "bin", tmp_path / "seen"
    folder.mkdir()
    real = shlex.quote(str(PG15_BIN / "pg_dump"))
    (folder / "pg_dump").write_text(
        f'#!/bin/sh\nif [ "$1" = --version ]; then exec {real} --version; fi\n'
        f'env > {seen}; echo "$@" >> {seen}; exec {real} "$@"\n'
    )
    (folder / "pg_dump").chmod(0o755)
    (folder / "pg_restore").symlink_to(PG15_BIN / "pg_restore")
    pg15.execute("CREATE DATABASE secret OWNER u_scram")
    pg15.execute("ALTER ROLE u_scram CREATEDB")
    try:
        words = {"host": "127.0.0.1", "port": pg15.port, "user": "u_scram", "password": PASSWORD,
                 "dbname": "secret", "sslmode": "disable"}  # fmt: skip
        access = replace(access_to(pg15), psql=folder / "psql")
        wanted = spec(from_database=quoted(words))
        assert "s3" not in repr(wanted)
        with data.prepare(access, wanted, silent) as made:
            assert "s3" not in repr(made)
        assert "s3" not in seen.read_text()
    finally:
        pg15.execute("DROP DATABASE secret")
        ownership.clean(access_to(pg15))


def test_a_template_that_is_used_is_named_with_who_uses_it(pg15):
    access = access_to(pg15)
    with prepared(access) as made:
        pass
    left = psycopg.connect(pg15.dsn("postgres", dbname=made.dbname, application_name="pgpaces"))
    try:
        used = "1 of postgres (pgpaces)"
        with connect(access) as admin, raises(PrepareError, "cannot-copy-in-use", sessions=used):
            copies.copy(admin, "pgpaces_never", made.dbname)
    finally:
        left.close()


def test_sessions_that_a_kill_left_in_a_copy_of_ours_do_not_keep_the_next_run_from_it(pg15):
    access = access_to(pg15)
    with prepared(access, "tpcb-like") as made:
        pass
    pg15.execute(f"CREATE DATABASE {made.dbname} TEMPLATE {made.cloned_from}")
    owned(access, made.dbname, "copy", fingerprint=made.fingerprint)
    left = psycopg.connect(pg15.dsn("postgres", dbname=made.dbname))
    with prepared(access, "tpcb-like") as again:
        assert again.dbname == made.dbname
    with pytest.raises(psycopg.OperationalError):
        left.execute("SELECT 1")


def test_a_role_that_may_not_checkpoint_is_noted(pg15):
    pg15.execute("ALTER ROLE u_trust CREATEDB")
    try:
        with prepared(access_to(pg15, "u_trust"), "tpcb-like", seed=77) as made:
            assert [note.name for note in made.notes] == ["checkpoint-not-permitted"]
    finally:
        ownership.clean(access_to(pg15))
        pg15.execute("ALTER ROLE u_trust NOCREATEDB")
    with prepared(access_to(pg15), "tpcb-like", seed=77) as made:
        assert made.notes == ()


def test_autovacuum_at_work_is_waited_for_and_then_noted(pg15, monkeypatch):
    made = Prepared("postgres", "f", created=False, seconds=1.0, size_bytes=0)
    seen = iter([True, True, False])
    monkeypatch.setattr(copies, "_is_being_vacuumed", lambda *_: next(seen))
    with connect(access_to(pg15)) as admin:
        settled = copies.settle(admin, made, checkpoint=False)
        assert (settled.notes, next(seen, None)) == ((), None)
        monkeypatch.setattr(copies, "_is_being_vacuumed", lambda *_: True)
        monkeypatch.setattr(copies, "VACUUM_S", 0.0)
        settled = copies.settle(admin, made, checkpoint=False)
        assert [note.name for note in settled.notes] == ["autovacuum-at-work"]


def test_a_copy_is_dropped_also_where_its_session_was_ended(pg15):
    with prepared(access_to(pg15), "tpcb-like") as made:
        pg15.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'pgpaces admin' AND pid <> pg_backend_pid()"
        )
    left = pg15.execute(f"SELECT count(*) FROM pg_database WHERE datname = '{made.dbname}'")
    assert left == [(0,)]


def test_an_experiment_forgets_the_password_of_its_source_database(monkeypatch):
    monkeypatch.setenv("PGPORT", "5499")
    monkeypatch.setenv("PGPASSWORD", "s3:env")
    for dsn in ("postgresql://u:s3%3Acr@h/d", "host=h user=u dbname=d"):
        asked = Experiment("x", "select-only", Design(), from_database=dsn)
        assert "s3" not in repr(asked)
        written = document.write(asked, "", "")
        assert "s3" not in json.dumps(written)
        again = document.read(written).experiment.from_database
        assert again is not None
        monkeypatch.setenv("PGPORT", "1")
        assert access.source_identity(again) == "h  5499 d", "and nothing else"
        assert access.source_identity(source_database(again) or "") == "h  5499 d"
        monkeypatch.setenv("PGPORT", "5499")
    assert source_database("sensors") == "sensors"
    assert "s3:env" in (source_database("host=h user=u dbname=d") or "")
