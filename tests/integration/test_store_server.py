"""A store on a PostgreSQL server: reached as libpq reaches it, shared, durable, and silent about
passwords."""

import subprocess
import sys
from datetime import UTC, datetime

import psycopg
import pytest
from msgspec.structs import replace
from tests.errors import raises
from tests.servers import PASSWORD, Postgres
from tests.unit.sensors import collect, samples_of
from tests.unit.trials import judged_trial
from tests.unit.upgraded import check_upgrade, check_upgrades_at_once

from pgpaces.core.errors import StoreError, StoreVersionError
from pgpaces.core.findings import finding
from pgpaces.core.record import Interval, Tally
from pgpaces.core.series import Sample
from pgpaces.spec.result import Place, Trial
from pgpaces.store.connection import Connection
from pgpaces.store.listing import ExperimentRow
from pgpaces.store.store import Store, new_id

pytestmark = pytest.mark.postgres
NAME = "shared"


@pytest.fixture
def database(pg15, clean_client):
    """A server with an empty database for a store, which belongs to everybody."""
    pg15.execute(f"CREATE DATABASE {NAME}")
    with psycopg.connect(pg15.dsn("postgres", dbname=NAME)) as connection:
        connection.execute("GRANT ALL ON SCHEMA public TO public")
    yield pg15
    pg15.execute(f"DROP DATABASE {NAME} WITH (FORCE)")


def cut(server: Postgres) -> None:
    server.execute(
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{NAME}'"
    )


def begun(store: Store, seconds: int = 1) -> Trial:
    """A trial that the store holds without its seconds."""
    trial = replace(judged_trial(seconds), id=new_id())
    store.begin(trial)
    return trial


def kept(store: Store, trial: Trial) -> None:
    """Adds its seconds, and its end."""
    for interval in trial.intervals:
        store.add(trial.id, interval)
    store.finish(trial, {})


def test_many_may_make_one_store_at_the_same_time(database):
    code = "import sys, pgpaces.store.store as s; s.Store.open(sys.argv[1])"
    words = [sys.executable, "-c", code, database.dsn(dbname=NAME)]
    started = [subprocess.Popen(words, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    assert [process.communicate()[1] for process in started] == [""] * 4
    assert Store.open(database.dsn(dbname=NAME)).trials() == []


def test_a_store_of_version_1_is_upgraded_to_version_2(database, monkeypatch):
    store = Store.open(database.dsn(dbname=NAME))
    kept(store, trial := begun(store, 3))
    check_upgrade(database.dsn(dbname=NAME), trial.id, monkeypatch)


def test_many_may_upgrade_one_store_at_the_same_time(database):
    """Under a level at which a transaction does not see what was committed while it waited."""
    place = database.dsn(dbname=NAME)
    store = Store.open(place)
    database.execute("ALTER ROLE u_trust SET default_transaction_isolation = serializable")
    try:
        check_upgrades_at_once(store, place)
    finally:
        database.execute("ALTER ROLE u_trust RESET default_transaction_isolation")


def test_a_lost_connection_is_an_error_until_the_server_is_there_again(database):
    store = Store.open(database.dsn(dbname=NAME))
    trial = begun(store)
    database.execute(f"ALTER DATABASE {NAME} ALLOW_CONNECTIONS false")
    cut(database)
    with raises(StoreError, "store-database-absent"):
        store.add(trial.id, trial.intervals[0])
    database.execute(f"ALTER DATABASE {NAME} ALLOW_CONNECTIONS true")
    store.add(trial.id, trial.intervals[0])
    assert store.load(trial.id).intervals == trial.intervals


def test_a_commit_that_nobody_heard_of_is_not_made_twice(database, monkeypatch):
    store = Store.open(database.dsn(dbname=NAME))
    trial = begun(store)

    execute = Connection.execute

    def lose(connection: Connection, sql: str, *values: object) -> object:
        done = execute(connection, sql, *values)
        if sql == "COMMIT":
            raise psycopg.OperationalError("lost")
        return done

    with monkeypatch.context() as patch:
        patch.setattr(Connection, "execute", lose)
        with pytest.raises(StoreError):
            store.add(trial.id, trial.intervals[0])
    store.add(trial.id, trial.intervals[0])
    assert store.load(trial.id).intervals == trial.intervals


def test_it_is_durable_whatever_the_role_says(database):
    database.execute("ALTER ROLE u_trust SET synchronous_commit = off")
    try:
        store = Store.open(database.dsn(dbname=NAME))
        with store._backend.reading() as connection:
            assert connection.column("SHOW synchronous_commit") == ["on"]
    finally:
        database.execute("ALTER ROLE u_trust RESET synchronous_commit")


def test_it_is_reached_by_a_service_and_a_file_of_passwords_and_later_without_the_variables(
    database, clean_client, monkeypatch
):
    service, passwords = clean_client / "services", clean_client / "passwords"
    service.write_text(
        f"[board]\nhost=127.0.0.1\nport={database.port}\ndbname={NAME}\nuser=u_scram\n"
    )
    escaped = PASSWORD.replace("\\", "\\\\").replace(":", "\\:")
    passwords.write_text(f"*:*:*:*:{escaped}\n")
    passwords.chmod(0o600)
    monkeypatch.setenv("PGSERVICEFILE", str(service))
    monkeypatch.setenv("PGPASSFILE", str(passwords))
    store = Store.open("service=board")
    assert store.address == f"host=127.0.0.1 port={database.port} dbname={NAME} user=u_scram"
    assert (store.size_bytes(), store.path) == (0, None)
    for name in ("PGSERVICEFILE", "PGPASSFILE"):
        monkeypatch.delenv(name)
    cut(database)
    trial = begun(store)
    assert store.find("last") == trial.id


@pytest.mark.parametrize("source", ["url", "variable", "PGPASSWORD"])
def test_no_password_is_in_an_error_or_a_text_of_it(database, monkeypatch, source):
    canary = "canary%40secret"
    url = f"postgresql://u_scram@127.0.0.1:{database.port}/{NAME}"
    if source == "PGPASSWORD":
        monkeypatch.setenv("PGPASSWORD", "canary@secret")
    else:
        url = url.replace("u_scram", f"u_scram:{canary}")
    if source == "variable":
        monkeypatch.setenv("PGPACES_STORE", url)
    with raises(StoreError, "store-login-rejected") as found:
        Store.open(None if source == "variable" else url)
    assert "password authentication failed" in found.value.message
    assert "canary" not in found.value.message + str(found.value.hint) + repr(found.value)
    assert found.value.__suppress_context__


def test_no_password_is_in_a_store_that_is_open(database):
    words = database.tcp("u_scram", password=PASSWORD, dbname=NAME)
    store = Store.open(words)
    shown = f"{store!r} {store.address} {store._backend!r}"
    assert "s3:" not in shown
    assert "s3" not in str(vars(store))


@pytest.mark.parametrize("text", ["postgresql://u:can ary@h/d", "host=h pass=canary", "host='can"])
def test_what_libpq_cannot_read_is_not_quoted(text):
    with raises(StoreError, "store-connection-string") as found:
        Store.open(text)
    assert "can" not in found.value.message


@pytest.mark.parametrize(
    ("change", "kind", "name"),
    [
        ("DROP TABLE pgpaces", StoreError, "store-of-other-program"),
        ("UPDATE pgpaces SET version = 9999", StoreVersionError, "store-of-newer"),
    ],
)
def test_a_database_of_something_else_or_newer_is_refused(database, change, kind, name):
    with Store.open(database.dsn(dbname=NAME))._backend.writing() as connection:
        connection.execute(change)
    with raises(kind, name):
        Store.open(database.dsn(dbname=NAME))


def test_what_keeps_it_from_being_a_store_is_named(database):
    with psycopg.connect(database.dsn("postgres", dbname=NAME)) as connection:
        connection.execute("REVOKE ALL ON SCHEMA public FROM public")
    for dsn, name in (
        (database.dsn(dbname="nowhere"), "store-database-absent"),
        (database.dsn(dbname=NAME), "store-lacks-schema"),
        (database.dsn(dbname=NAME, port=1), "store-unreachable"),
    ):
        with raises(StoreError, name):
            Store.open(dsn)


def test_a_number_that_no_column_holds_is_an_error_in_words(database):
    store = Store.open(database.dsn(dbname=NAME))
    trial = begun(store)
    with pytest.raises(StoreError, match="out of range"):
        store.add(trial.id, Interval(0, (Tally(0, 0, due=2**63),)))


def test_what_goes_to_a_server_and_back_is_what_it_was(database, tmp_path):
    here, there = Store.open(tmp_path / "here.db"), Store.open(database.dsn(dbname=NAME))
    back = Store.open(tmp_path / "back.db")
    row = ExperimentRow(
        new_id(), "pi\0\udc80", datetime.now(UTC), None, "running", "0", {"\0": [1.5, None]}
    )
    here.begin_experiment(row)
    here.note_failure(row.id, "cell", 2, attempt=1, error="\0")
    trial = replace(
        judged_trial(1200), id=new_id(), notes=(finding("\0 \udc80", "\0"),), error="\0",
        place=Place(row.id, "cell", {"clients": "\udc80"}, 1),
        samples=collect([Sample(0, "host", "heat\0", float("inf"), "°C")]),
    )  # fmt: skip
    here.begin(trial)
    for interval in trial.intervals[::100]:
        here.add(trial.id, interval)
    here.add(trial.id, None, samples_of(trial.samples))
    here.finish(trial, {"due": 1, "p99_ms": None})
    here.finish_experiment(row.id, "finished")
    here.tag("\0\udc80", row.id)
    for source, goal in ((here, there), (there, back)):
        for id_ in source.uncopied(goal):
            assert source.copy(goal, id_) is None
        source.copy_names(goal)
        assert source.uncopied(goal) == goal.uncopied(source) == []
    for goal in (there, back):
        assert goal.load(trial.id) == here.load(trial.id)
        assert goal.experiment(row.id) == here.experiment(row.id)
        assert goal.failures(row.id) == here.failures(row.id)
        assert goal.placed(row.id) == here.placed(row.id)
        assert goal.find_experiment("\0\udc80") == row.id
