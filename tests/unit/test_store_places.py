"""Where a store may be: named ones are there already or made in a folder that is; ours is made."""

import os
import shutil
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner

from pgpaces.cli.main import cli
from pgpaces.core import home
from pgpaces.core.errors import PgpacesError, StoreError
from pgpaces.store import address, backend, upgrades
from pgpaces.store.store import Store
from tests.errors import raises, sentence
from tests.needs import needs
from tests.unit.calling import refused
from tests.unit.stored import keep_trial, whole_trial
from tests.unit.trials import changed
from tests.unit.upgraded import to_version_2

READING = [
    "runs",
    "runs -E",
    "runs --tag x",
    "show last",
    "export last",
    "report last",
    "compare a b",
    "check last --baseline a",
    "trend",
    "why",
    "disk --list",
    "runs copy ./elsewhere.db",
    "runs tag a last",
    "runs baseline a last",
    "runs delete last --yes",
    "sweep --resume",
    "capacity --resume",
]


@pytest.mark.parametrize(
    "written",
    [
        "postgresql://u@pi:5433/db",
        "postgresql://",
        "host=/run/postgresql port=5433 dbname=db",
        "hostaddr=::1 port=5433 dbname=db",
        "host=a,b,::1 port=1,2,3 user=u",
        "user=a@b dbname='two words/\u00e9?'",
        "service='my lab' dbname=db",
    ],
)
def test_the_address_of_a_store_leads_to_it_without_its_password(written):
    keywords = address.parsed(written)
    found = address.shown({**keywords, "password": "secret", "sslpassword": "secret"})
    assert address.located(found) == found
    assert address.parsed(found) == keywords
    assert "secret" not in found


def error_of(command: str, store: Path) -> PgpacesError:
    return refused(CliRunner().invoke(cli, [*command.split(), "--store", str(store)]))


@pytest.mark.parametrize("command", READING)
def test_a_store_that_is_not_there_is_an_error_for_who_reads_or_changes_it(
    tmp_path, monkeypatch, command
):
    monkeypatch.chdir(tmp_path)
    absent = tmp_path / "typo" / "x.db"
    monkeypatch.setenv("PGPACES_STORE", str(absent))
    for error in (error_of(command, absent), refused(CliRunner().invoke(cli, command.split()))):
        expected = (StoreError, "store-absent", {"store": str(absent)})
        assert (type(error), error.name, error.values) == expected
    assert not list(tmp_path.iterdir()), "and nothing is made"
    empty = tmp_path / "x.db"
    empty.touch()
    assert error_of(command, empty).message == sentence("store-absent", store=empty)
    assert empty.stat().st_size == 0


def test_a_store_is_made_in_a_folder_that_is_there_and_in_no_other(tmp_path):
    assert Store.open(tmp_path / "x.db").trials() == []
    with raises(StoreError, "store-without-folder", folder=str(tmp_path / "typo")):
        Store.open(tmp_path / "typo" / "x.db")
    assert not (tmp_path / "typo").exists()


@pytest.mark.parametrize("open_", [Store.open, Store.existing])
def test_a_folder_is_no_store(tmp_path, open_):
    with raises(StoreError, "store-is-folder", store=str(tmp_path)):
        open_(tmp_path)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("place", "name", "values"),
    [
        ("", "store-unnamed", {}),
        (":memory:", "store-in-memory", {}),
        ("./:memory:", "store-in-memory", {}),
        ("/dev/null", "store-not-a-file", {"store": "/dev/null"}),
        ("pipe", "store-not-a-file", {"store": "pipe"}),
    ],
)
@pytest.mark.parametrize("command", ["run select-only", "runs", "show last"])
def test_what_keeps_nothing_is_no_store(tmp_path, monkeypatch, command, place, name, values):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    error = refused(CliRunner().invoke(cli, [*command.split(), "--store", place]))
    assert (type(error), error.name, error.values) == (StoreError, name, values)


def test_a_store_that_was_removed_takes_nothing_and_says_so(tmp_path):
    store = Store.open(tmp_path / "x.db")
    for file in tmp_path.iterdir():
        file.unlink()
    with raises(StoreError, "store-removed", store=store.address):
        keep_trial(store, whole_trial())


@pytest.mark.parametrize("open_", [Store.open, Store.existing])
def test_threads_share_a_store(tmp_path, open_):
    Store.open(tmp_path / "x.db").close()
    store: Store = open_(tmp_path / "x.db")  # type: ignore[operator]
    for _ in range(2):
        with ThreadPoolExecutor(1) as other:
            other.submit(keep_trial, store, whole_trial()).result()
        keep_trial(store, whole_trial())
    assert len(store.trials()) == 4


def test_the_default_store_is_made_with_its_folder_by_what_writes(tmp_path, monkeypatch):
    monkeypatch.delenv("PGPACES_STORE", raising=False)
    monkeypatch.setenv("PGPACES_HOME", str(tmp_path / "not" / "there"))
    with raises(StoreError, "none-yet", what="run"):
        Store.existing()
    assert not (tmp_path / "not").exists()
    assert Store.open().trials() == []
    assert Store.existing().trials() == []
    (tmp_path / "file").touch()
    monkeypatch.setenv("PGPACES_HOME", str(tmp_path / "file" / "home"))
    with raises(StoreError, "store-unusable", why="File exists"):
        Store.open()


@pytest.fixture
def sealed(tmp_path, monkeypatch):
    """A store in which nothing can be written, as on a medium that is mounted read-only."""
    path = tmp_path / "sealed" / "results.db"
    path.parent.mkdir()
    store = Store.open(path)
    trial = whole_trial()
    keep_trial(store, changed(trial, workload=trial.workload.but(scale=1)))
    store.close()
    connect = sqlite3.connect

    def refusing(where: str | Path, *more: object, **options: object) -> sqlite3.Connection:
        if "immutable" not in str(where):
            raise sqlite3.OperationalError("unable to open database file")
        return connect(where, *more, **options)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(sqlite3, "connect", refusing)
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    return path


@pytest.mark.parametrize("command", ["runs", "runs -E", "export last", "report last", "why"])
def test_a_store_that_cannot_be_written_can_be_read(sealed, command):
    before = sealed.read_bytes()
    done = CliRunner().invoke(cli, [*command.split(), "--store", str(sealed)])
    assert done.exit_code == 0, done.exception
    assert sealed.read_bytes() == before
    assert [each.name for each in sealed.parent.iterdir()] == ["results.db"]


def test_a_store_that_cannot_be_written_is_neither_changed_nor_upgraded(sealed, monkeypatch):
    before = sealed.read_bytes()
    for command in ("runs tag x last", "runs delete last --yes"):
        assert error_of(command, sealed).name == "store-read-only"
    monkeypatch.setattr(upgrades, "UPGRADES", (to_version_2,))
    assert error_of("runs", sealed).name == "store-read-only"
    assert sealed.read_bytes() == before


def test_a_log_of_changes_that_cannot_be_read_is_not_passed_over(sealed):
    sealed.with_name("results.db-wal").write_bytes(b"changes")
    error = error_of("show last", sealed)
    assert (error.name, error.values["log"]) == ("store-log-unreadable", "results.db-wal")


@needs("root")
def test_somebody_elses_store_can_be_read(tmp_path):
    """As `nobody`, who may write neither the file nor its folder."""
    import tempfile

    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        folder.chmod(0o755)
        store = Store.open(folder / "results.db")
        keep_trial(store, whole_trial())
        store.close()
        code = (
            f"import sys; sys.path[:0] = {sys.path!r}\n"
            "import os, sqlite3\n"
            "from pgpaces.store.store import Store\n"
            "os.setuid(65534)\n"
            f"print(len(Store.existing({str(folder / 'results.db')!r}).trials()))\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
        assert done.stdout == "1\n", done.stderr
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("user", [0, 1000])
@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"PGPACES_HOME": "/a", "XDG_DATA_HOME": "/b"}, "/a"),
        ({"XDG_DATA_HOME": "/b"}, "/b/pgpaces"),
        ({}, None),
        ({"XDG_DATA_HOME": ""}, None),
        ({"XDG_DATA_HOME": "relative"}, None),
    ],
    ids=str,
)
def test_the_home_is_where_the_environment_says(monkeypatch, user, variables, expected):
    for name in ("PGPACES_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    found = home.home()
    if expected is not None:
        assert found == Path(expected)
    elif user == 0:
        assert found == Path(home.ROOT_HOME)
    else:
        assert found.name == "pgpaces"
        assert found.is_absolute()


@pytest.mark.parametrize(
    ("kind", "text", "name"),
    [
        ("InsufficientPrivilege", "permission denied", "store-lacks-right"),
        ("OperationalError", 'database "results" does not exist', "store-database-absent"),
        ("OperationalError", 'role "pi" does not exist', "store-role-absent"),
        ("OperationalError", 'no pg_hba.conf entry for host "10.0.0.2"', "store-not-allowed"),
        ("OperationalError", 'password authentication failed for "pi"', "store-login-rejected"),
        ("OperationalError", "connection refused", "store-unreachable"),
        ("TooManyConnections", "sorry, too many clients already", "store-too-many-connections"),
        ("DiskFull", "could not extend file", "store-full"),
        ("ReadOnlySqlTransaction", "cannot execute INSERT", "store-on-standby"),
        ("OutOfMemory", "out of memory", "store-failed"),
    ],
)
def test_a_server_that_refuses_a_store_names_what_to_change(kind, text, name):
    error = getattr(psycopg.errors, kind, psycopg.OperationalError)(text)
    assert backend._server_error(error, text) == name
