"""Servers of our own with a real PostgreSQL: started, found, left, stopped, never left behind;
those that cannot start, and the users they run as.

Nothing waits by the clock: a server's processes hold its folder's lock, so waiting for the lock
is waiting until the last of them is gone.
"""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import msgspec
import psycopg
import pytest
from msgspec import Struct
from tests.errors import raises
from tests.needs import lacking, needs
from tests.processes import alive

from pgpaces.core.errors import PgpacesError, ServerError
from pgpaces.server import binaries, managed_server, os_user
from pgpaces.server.binaries import Installation, Source
from pgpaces.server.folder import Transport, server_folder
from pgpaces.server.managed_server import Server, ServerSpec
from pgpaces.server.os_user import OsUser

pytestmark = pytest.mark.postgres
GONE_S = 60.0
HOLD = "sys.stdin.read()"  # until we close its standard input, or kill it


@pytest.fixture(autouse=True)
def home(empty_home):
    return empty_home


@pytest.fixture
def spec():
    return ServerSpec(binaries.find())


class Child(Struct, frozen=True):
    """A pgpaces in a process of its own, that said one line about its server."""

    process: subprocess.Popen[str]
    said: str


@contextmanager
def another_pgpaces(start: str, then: str = HOLD) -> Iterator[Child]:
    """Run `start`, an expression that gives a server, in a Python of its own; print its pid."""
    script = f"""
import os, signal, sys
from pgpaces.server.binaries import find
from pgpaces.server.managed_server import ServerSpec, start
server = {start}
print(server.pid, flush=True)
{then}
"""
    path = (str(Path(managed_server.__file__).parents[2]), os.environ.get("PYTHONPATH", ""))
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
    )
    assert process.stdout is not None
    try:
        yield Child(process, process.stdout.readline().strip())
    finally:
        process.kill()
        process.communicate()


def value(server: Server, query: str, transport: Transport = Transport.SOCKET) -> object:
    with closing(psycopg.connect(server.dsn(transport=transport))) as connection:
        row = connection.execute(query.encode()).fetchone()
    return row[0] if row else None


def wait_until_gone(name: str = "pg18") -> None:
    """Until no process of that server lives, or the test fails."""
    lock = server_folder(name).lock(GONE_S)
    assert lock is not None, f"{name} is still there after {GONE_S} s"
    os.close(lock)


def supervisor_of(server: Server) -> int:
    """The parent of a postmaster."""
    stat = Path(f"/proc/{server.pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


def test_a_started_server_is_as_described_and_a_stopped_one_is_gone(spec):
    server = managed_server.start(spec)
    for query, shown in (
        ("SELECT current_setting('server_version')", server.version),
        ("SHOW data_checksums", "on"),
        ("SHOW server_encoding", "UTF8"),
        ("SHOW listen_addresses", ""),
        ("SELECT datcollate FROM pg_database LIMIT 1", "C"),
    ):
        assert value(server, query) == shown
    assert server.socket_dir.stat().st_mode & 0o077 == 0
    environment = {**os.environ, **server.environment()}
    psql = [server.bin / "psql", "-XAtc", "SELECT 40 + 2"]
    assert subprocess.check_output(psql, env=environment) == b"42\n"
    server.stop()
    assert not alive(server.pid)
    assert not server.socket_dir.exists()
    assert managed_server.running() == []
    server.stop()  # a second time is nothing


def test_settings_hold_for_one_start_and_data_stays(spec):
    with managed_server.start(
        ServerSpec(spec.installation, settings={"work_mem": "64MB"})
    ) as server:
        assert value(server, "SHOW work_mem") == "64MB"
        with psycopg.connect(server.dsn()) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 7 AS seven")
    with managed_server.start(spec) as server:
        assert value(server, "SHOW work_mem") == "4MB"
        assert value(server, "SELECT seven FROM kept") == 7


def test_tcp_asks_for_the_password_that_the_file_has(spec):
    with managed_server.start(ServerSpec(spec.installation, tcp=True)) as server:
        assert value(server, "SELECT 1", Transport.TCP) == 1
        assert server.password_file is not None
        assert server.password_file.stat().st_mode & 0o777 == 0o600
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(server.dsn(transport=Transport.TCP), passfile="", password="wrong")
    assert not server.password_file.exists()


@pytest.mark.parametrize("name", ["long" * 40, 'it\'s a, "home"'], ids=["long", "odd"])
def test_any_home_works(home, spec, monkeypatch, name):
    monkeypatch.setenv("PGPACES_HOME", str(home / name))
    with managed_server.start(spec) as server:
        assert value(server, "SELECT 1") == 1
        assert len(name) < 40 or len(str(server.socket_dir)) < 40
    assert not server.socket_dir.exists()


BUSY = """
import psycopg
connections = [psycopg.connect(server.dsn(), autocommit=True) for _ in range(4)]
for connection in connections:
    connection.pgconn.send_query(b"SELECT pg_sleep(3600)")
print("busy", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("then", [HOLD, BUSY, "del server; sys.stdin.read()"])
def test_kill_9_of_pgpaces_ends_its_server(spec, then):
    """Also amid queries, and where the server was dropped without a stop."""
    with another_pgpaces("start(ServerSpec(find()))", then) as child:
        assert child.process.stdout is not None
        assert then != BUSY or child.process.stdout.readline() == "busy\n"
        assert "del" in then or alive(int(child.said))
        if "del" not in then:
            child.process.kill()
        wait_until_gone()
        assert not alive(int(child.said))
        assert managed_server.running() == []
        assert not list(server_folder("pg18").path.glob("run*"))


def test_a_forked_child_that_outlives_us_does_not_keep_the_server():
    fork = """
forked = os.fork()
if forked == 0:
    os.close(1)
    signal.alarm(60)
    signal.pause()
print(forked, flush=True)
sys.stdin.read()
"""
    with another_pgpaces("start(ServerSpec(find()))", fork) as child:
        assert child.process.stdout is not None
        forked = int(child.process.stdout.readline())
        child.process.kill()
        wait_until_gone()
        os.kill(forked, signal.SIGKILL)  # it was still alive


def test_ctrl_c_reaches_pgpaces_and_not_its_server():
    then = """
import psycopg
try:
    print("ready", flush=True)
    sys.stdin.read()
except KeyboardInterrupt:
    with psycopg.connect(server.dsn()) as connection:
        print(connection.execute("SELECT 'still here'").fetchone()[0], flush=True)
"""
    with another_pgpaces("start(ServerSpec(find()))", then) as child:
        assert child.process.stdout is not None
        assert child.process.stdout.readline().strip() == "ready"
        os.killpg(child.process.pid, signal.SIGINT)
        assert child.process.stdout.readline().strip() == "still here"


def test_a_server_that_takes_long_to_end_is_told(spec):
    told: list[str] = []

    def thaw(words: str) -> None:
        told.append(words)
        if words.startswith("waiting for PostgreSQL"):
            os.kill(server.pid, signal.SIGCONT)

    server = managed_server.start(spec, on_progress=thaw)
    os.kill(server.pid, signal.SIGSTOP)
    server.stop()
    assert f"waiting for PostgreSQL (process {server.pid}) to stop, " in told[-1]


@needs("Linux")
def test_kill_9_of_the_supervisor_ends_the_server_and_it_can_be_started_again(spec):
    server = managed_server.start(spec)
    os.kill(supervisor_of(server), signal.SIGKILL)
    wait_until_gone()
    server.stop()
    assert not server.socket_dir.exists()
    with managed_server.start(spec) as again:
        assert value(again, "SELECT 1") == 1


def test_a_server_that_crashed_recovers_at_the_next_start(spec):
    server = managed_server.start(spec)
    with psycopg.connect(server.dsn()) as connection:
        connection.execute("CREATE TABLE committed AS SELECT 7 AS seven")
    os.kill(server.pid, signal.SIGKILL)
    wait_until_gone()
    server.stop()
    with managed_server.start(spec) as again:
        assert value(again, "SELECT seven FROM committed") == 7


def test_a_staying_server_goes_on_is_listed_and_can_be_stopped():
    with another_pgpaces("start(ServerSpec(find()), stay=True)", "") as child:
        assert child.process.wait(GONE_S) == 0
    [listed] = managed_server.running()
    assert (listed.name, listed.pid, listed.stays) == ("pg18", int(child.said), True)
    assert value(listed, "SELECT 1") == 1
    managed_server.stop("pg18")
    assert managed_server.running() == []
    assert not listed.socket_dir.exists()


def test_a_staying_server_is_used_and_left_by_the_next_run(spec):
    managed_server.start(spec, stay=True)
    with managed_server.start(spec) as used:
        assert used.stays
    [left] = managed_server.running()
    assert left.pid == used.pid
    left.stop()
    assert managed_server.running() == []


def test_of_many_that_start_a_staying_server_at_once_all_get_the_same():
    start = "start(ServerSpec(find()), stay=True)"
    with ExitStack() as stack, ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(stack.enter_context, another_pgpaces(start)) for _ in range(4)]
        pids = {run.result().said for run in runs}
    assert pids == {str(server.pid) for server in managed_server.running()}


def test_a_staying_server_survives_the_kill_9_of_its_starter():
    with another_pgpaces("start(ServerSpec(find()), stay=True)") as child:
        child.process.kill()
        child.process.wait()
        [left] = managed_server.running()
        assert value(left, "SELECT 1") == 1
    with another_pgpaces("start(ServerSpec(find(), 'another'))") as child:
        child.process.kill()
        child.process.wait()
        # The next one can start at once.
        with managed_server.start(ServerSpec(binaries.find(), "another")) as server:
            assert value(server, "SELECT 1") == 1


def test_a_staying_server_with_other_settings_is_refused(spec):
    managed_server.start(spec, stay=True)
    other = ServerSpec(spec.installation, settings={"work_mem": "64MB"})
    refused(other, "server-differs", server="pg18", what="settings")


def test_a_server_of_another_run_is_neither_taken_nor_stopped(spec):
    with another_pgpaces("start(ServerSpec(find()))") as child:
        for attempt in (lambda: managed_server.start(spec), lambda: managed_server.stop("pg18")):
            with raises(ServerError, "server-in-use", server="pg18", pid=child.process.pid):
                attempt()


def refused(spec: ServerSpec, name: str, **values: object) -> PgpacesError:
    """The error with which a server is not started."""
    with raises(ServerError, name, **values) as caught:
        managed_server.start(spec)
    return caught.value


@pytest.mark.parametrize(
    ("name", "value", "error", "fatal"),
    [
        ("nosuch", "1", "no-such-setting", 'FATAL: unrecognized configuration parameter "nosuch"'),
        ("shared_buffers", "plenty", "bad-value-of-setting", 'parameter "shared_buffers"'),
        ("shared_preload_libraries", "no", "no-such-module", 'FATAL: could not access file "no"'),
        ("wal_level", "x", "bad-value-of-setting", "Available values: minimal, replica, logical"),
    ],
)
def test_a_wrong_setting_is_refused_with_postgresqls_line(spec, name, value, error, fatal):
    found = refused(ServerSpec(spec.installation, settings={name: value}), error)
    assert fatal in found.values["why"]
    assert found.about == str(server_folder("pg18").log)
    # Nothing is left, and the next start works.
    left = {path.name for path in server_folder("pg18").path.iterdir()}
    assert left == {"data", "lock", "log", "pg_hba.conf"}
    with managed_server.start(spec) as server:
        assert server.pid


def test_a_port_in_use_is_refused_and_named(spec, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(managed_server, "choose_port", lambda *, tcp: port)
        refused(ServerSpec(spec.installation, tcp=True), "port-in-use")


def test_data_of_another_major_version_is_refused(spec):
    data = server_folder("pg18").path / "data"
    data.mkdir(parents=True)
    (data / "PG_VERSION").write_text("11\n")
    refused(spec, "data-of-other-version", maker="11", version=spec.installation.version)


def test_a_stale_postmaster_pid_does_not_hinder(spec):
    with managed_server.start(spec) as server:
        text = (server.data_dir / "postmaster.pid").read_text()
    done = subprocess.Popen(["true"])
    done.wait()
    stale = server.data_dir / "postmaster.pid"
    stale.write_text(text.replace(str(server.pid), str(done.pid), 1))
    os_user.give(stale, os_user.os_user_for(server.data_dir))
    with managed_server.start(spec) as server:
        assert server.pid


def test_data_that_a_server_of_others_uses_is_refused(spec):
    with managed_server.start(spec) as server:
        other = server_folder("thief")
        other.path.mkdir()
        (other.path / "data").symlink_to(server.data_dir)
        refused(ServerSpec(spec.installation, "thief"), "data-used-by-process", pid=str(server.pid))


@needs("an ordinary user")
def test_a_home_that_cannot_be_written_is_refused(home, spec, monkeypatch):
    (home / "closed").mkdir(mode=0o500)
    monkeypatch.setenv("PGPACES_HOME", str(home / "closed" / "home"))
    assert "Permission denied" in refused(spec, "home-unusable").message


@needs("root")
def test_root_runs_servers_as_an_unprivileged_user_who_owns_the_data_alone(home, spec):
    with managed_server.start(spec) as server:
        owner = server.data_dir.stat().st_uid
        assert pwd.getpwuid(owner).pw_name in os_user.CANDIDATES
        assert Path(f"/proc/{server.pid}").stat().st_uid == owner
        ours = (home, server.data_dir.parent, server.folder.log, server.folder.record_file)
        assert {path.stat().st_uid for path in ours} == {0}


@needs("root")
def test_data_stays_with_the_user_who_owns_it(spec):
    nobody = pwd.getpwnam("nobody")
    with managed_server.start(spec) as server:
        data = server.data_dir
    for path in (data, *data.rglob("*")):
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
    with managed_server.start(spec) as server:
        assert Path(f"/proc/{server.pid}").stat().st_uid == nobody.pw_uid


@needs("root")
def test_a_home_that_the_servers_user_cannot_enter_is_refused_and_left_as_it_is(
    home, spec, monkeypatch
):
    closed = home / "closed"
    closed.mkdir(mode=0o700)
    monkeypatch.setenv("PGPACES_HOME", str(closed / "home"))
    refused(spec, "cannot-enter-folder", folder=closed, own="")
    assert closed.stat().st_mode & 0o777 == 0o700


def hidden_package(home: Path) -> Installation:
    """The package's programs below a folder that only root can enter."""
    original = binaries.find()
    package = original.bin.parents[1]
    hidden = home / "hidden"
    hidden.mkdir(mode=0o700)
    for tree in (package, package.with_name(f"{package.name}.libs")):
        shutil.copytree(tree, hidden / tree.name, symlinks=True)
    folder = hidden / package.name / "pginstall" / "bin"
    return Installation(folder, original.version, original.major, Source.EMBEDDED)


@needs("root")
def test_programs_that_the_servers_user_cannot_reach_are_copied_once(home):
    hidden = hidden_package(home)
    with managed_server.start(ServerSpec(hidden)) as server:
        assert server.bin.is_relative_to(home / "cache")
        copied_at = server.bin.stat().st_ctime_ns
    with managed_server.start(ServerSpec(hidden)) as server:
        assert server.bin.stat().st_ctime_ns == copied_at
    assert [path.name for path in (home / "cache").glob(".*")] == []


@needs("root")
def test_programs_of_others_are_not_copied_but_their_folder_is_named(home):
    hidden = binaries.inspect(hidden_package(home).bin)
    refused(ServerSpec(hidden), "user-cannot-run", program=hidden.program("initdb"))


def python_for(user: OsUser) -> str | None:
    """A Python of our version or later that the user can run."""
    for program in (sys.executable, "/usr/bin/python3"):
        test = [program, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
        try:
            done = subprocess.run(test, cwd="/", env={}, check=False, **os_user.options_of(user))
        except OSError:
            continue
        if done.returncode == 0:
            return program
    return None


@needs("root")
def test_an_ordinary_user_starts_servers_as_itself(home, spec):
    entry = pwd.getpwnam("nobody")
    nobody = OsUser(entry.pw_name, entry.pw_uid, entry.pw_gid)
    if (python := python_for(nobody)) is None:
        lacking("a Python that every user may run")
    shutil.copytree(Path(managed_server.__file__).parents[1], home / "python" / "pgpaces")
    # What it needs of our environment, which nobody else may read.
    shutil.copytree(Path(msgspec.__file__).parent, home / "python" / "msgspec")
    os_user.let_all_read(home / "python")
    own = home / "own"
    os_user.make_private_folder(own, nobody)
    script = f"""
import os
from pgpaces.server import binaries, managed_server
installation = binaries.find({str(os_user.reachable(spec.installation, nobody, home / "c").bin)!r})
with managed_server.start(managed_server.ServerSpec(installation)) as server:
    print(os.stat(server.data_dir).st_uid, os.stat(server.folder.path).st_mode & 0o777)
print(managed_server.running())
"""
    done = subprocess.run(
        [python, "-c", script],
        cwd="/",
        env={"PYTHONPATH": str(home / "python"), "PGPACES_HOME": str(own), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        **os_user.options_of(nobody),
    )
    assert done.stdout.splitlines() == [f"{entry.pw_uid} {0o700}", "[]"], done.stderr
