"""Servers of our own with a real PostgreSQL: started, found, left, stopped, never left behind.

Nothing waits by the clock: a server's processes hold its folder's lock, so waiting for the lock
is waiting until the last of them is gone.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import psycopg
import pytest
from msgspec import Struct
from tests.needs import lacking, needs

from pgpaces.core.errors import ServerError
from pgpaces.server import binaries, embedded
from pgpaces.server.embedded import Server, ServerSpec
from pgpaces.server.folder import server_folder
from pgpaces.server.record import Transport

pytestmark = pytest.mark.postgres
GONE_S = 60.0
HOLD = "sys.stdin.read()"  # until we close its standard input, or kill it


@pytest.fixture(autouse=True)
def home(empty_home: Path) -> Path:
    return empty_home


@pytest.fixture
def spec() -> ServerSpec:
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
from pgpaces.server.embedded import ServerSpec, start
server = {start}
print(server.pid, flush=True)
{then}
"""
    path = (str(Path(embedded.__file__).parents[2]), os.environ.get("PYTHONPATH", ""))
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


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def supervisor_of(server: Server) -> int:
    """The parent of a postmaster."""
    stat = Path(f"/proc/{server.pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


def test_a_started_server_answers_and_a_stopped_one_is_gone(spec: ServerSpec) -> None:
    server = embedded.start(spec)
    assert value(server, "SELECT current_setting('server_version')") == server.version
    server.stop()
    assert not is_alive(server.pid)
    assert not server.socket_dir.exists()
    assert embedded.running() == []
    server.stop()  # a second time is nothing


def test_a_server_checks_its_pages_speaks_utf8_and_sorts_by_bytes(spec: ServerSpec) -> None:
    with embedded.start(spec) as server:
        assert value(server, "SHOW data_checksums") == "on"
        assert value(server, "SHOW server_encoding") == "UTF8"
        assert value(server, "SELECT datcollate FROM pg_database LIMIT 1") == "C"


def test_a_server_listens_on_its_private_socket_alone(spec: ServerSpec) -> None:
    with embedded.start(spec) as server:
        assert value(server, "SHOW listen_addresses") == ""
        assert server.socket_dir.stat().st_mode & 0o077 == 0


def test_the_environment_is_enough_for_another_program(spec: ServerSpec) -> None:
    with embedded.start(spec) as server:
        done = subprocess.run(
            [server.bin / "psql", "-XAtc", "SELECT 40 + 2"],
            env={**os.environ, **server.environment()},
            capture_output=True,
            text=True,
            check=True,
        )
    assert done.stdout.strip() == "42"


def test_data_is_there_again_after_the_next_start(spec: ServerSpec) -> None:
    with embedded.start(spec) as server, psycopg.connect(server.dsn()) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS seven")
    with embedded.start(spec) as server:
        assert value(server, "SELECT seven FROM kept") == 7


def test_settings_hold_for_one_start_and_leave_nothing_behind(spec: ServerSpec) -> None:
    with embedded.start(ServerSpec(spec.installation, settings={"work_mem": "64MB"})) as server:
        assert value(server, "SHOW work_mem") == "64MB"
    with embedded.start(spec) as server:
        assert value(server, "SHOW work_mem") == "4MB"


def test_two_servers_of_different_names_run_side_by_side(spec: ServerSpec) -> None:
    with (
        embedded.start(spec) as first,
        embedded.start(ServerSpec(spec.installation, "other")) as second,
    ):
        assert {s.name for s in embedded.running()} == {"other", "pg18"}
        assert value(first, "SELECT 1") == value(second, "SELECT 1") == 1


def test_tcp_asks_for_the_password_that_the_file_has(spec: ServerSpec) -> None:
    with embedded.start(ServerSpec(spec.installation, tcp=True)) as server:
        assert value(server, "SELECT 1", Transport.TCP) == 1
        assert server.password_file is not None
        assert server.password_file.stat().st_mode & 0o777 == 0o600
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(server.dsn(transport=Transport.TCP), passfile="", password="wrong")
    assert not server.password_file.exists()


def test_installed_versions_start_as_the_embedded_one_does() -> None:
    installed = [i for i in binaries.installations() if i.source != "package" and i.major >= 10]
    if not installed:
        lacking("PostgreSQL 15")
    with embedded.start(ServerSpec(installed[0])) as server:
        found = str(value(server, "SHOW server_version")).split()[0]
        assert found == server.version == installed[0].version
        assert value(server, "SHOW data_checksums") == "on"


def test_a_very_long_home_works(
    home: Path, spec: ServerSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPACES_HOME", str(home / ("long" * 40)))
    with embedded.start(spec) as server:
        assert value(server, "SELECT 1") == 1
        assert len(str(server.socket_dir)) < 40
    assert not server.socket_dir.exists()


def test_a_home_with_spaces_quotes_and_commas_works(
    home: Path, spec: ServerSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPACES_HOME", str(home / 'it\'s a, "home"'))
    with embedded.start(spec) as server:
        assert value(server, "SELECT 1") == 1


def test_data_goes_to_the_chosen_disk(home: Path, spec: ServerSpec) -> None:
    disk = home / "ssd"
    disk.mkdir()
    with embedded.start(ServerSpec(spec.installation, data_dir=disk)) as server:
        assert value(server, "SHOW data_directory") == str(disk / "pgpaces-pg18" / "data")


def test_kill_9_of_pgpaces_ends_its_server() -> None:
    with another_pgpaces("start(ServerSpec(find()))") as child:
        assert is_alive(int(child.said))
        child.process.kill()
        wait_until_gone()
        assert not is_alive(int(child.said))
        assert embedded.running() == []
        assert not list(server_folder("pg18").path.glob("run*"))


def test_kill_9_amid_queries_ends_the_server_too() -> None:
    busy = """
import psycopg
connections = [psycopg.connect(server.dsn(), autocommit=True) for _ in range(4)]
for connection in connections:
    connection.pgconn.send_query(b"SELECT pg_sleep(3600)")
print("busy", flush=True)
sys.stdin.read()
"""
    with another_pgpaces("start(ServerSpec(find()))", busy) as child:
        assert child.process.stdout is not None
        assert child.process.stdout.readline().strip() == "busy"
        child.process.kill()
        wait_until_gone()


def test_a_forked_child_that_outlives_us_does_not_keep_the_server() -> None:
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


def test_the_next_pgpaces_can_start_at_once_after_a_kill_9(spec: ServerSpec) -> None:
    with another_pgpaces("start(ServerSpec(find()))") as child:
        child.process.kill()
        child.process.wait()
        with embedded.start(spec) as server:
            assert value(server, "SELECT 1") == 1


def test_ctrl_c_reaches_pgpaces_and_not_its_server() -> None:
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


def test_a_server_that_takes_long_to_end_is_told(spec: ServerSpec) -> None:
    told: list[str] = []

    def thaw(words: str) -> None:
        told.append(words)
        if words.startswith("waiting for PostgreSQL"):
            os.kill(server.pid, signal.SIGCONT)

    server = embedded.start(spec, on_progress=thaw)
    os.kill(server.pid, signal.SIGSTOP)
    server.stop()
    assert f"waiting for PostgreSQL (process {server.pid}) to end; its log: " in told[-1]


def test_a_server_dropped_without_a_stop_ends() -> None:
    with another_pgpaces("start(ServerSpec(find()))", "del server; sys.stdin.read()"):
        wait_until_gone()


@needs("Linux")
def test_kill_9_of_the_supervisor_ends_the_server_and_it_can_be_started_again(
    spec: ServerSpec,
) -> None:
    server = embedded.start(spec)
    os.kill(supervisor_of(server), signal.SIGKILL)
    wait_until_gone()
    server.stop()
    assert not server.socket_dir.exists()
    with embedded.start(spec) as again:
        assert value(again, "SELECT 1") == 1


def test_a_server_that_crashed_recovers_at_the_next_start(spec: ServerSpec) -> None:
    server = embedded.start(spec)
    with psycopg.connect(server.dsn()) as connection:
        connection.execute("CREATE TABLE committed AS SELECT 7 AS seven")
    os.kill(server.pid, signal.SIGKILL)
    wait_until_gone()
    server.stop()
    with embedded.start(spec) as again:
        assert value(again, "SELECT seven FROM committed") == 7


def test_a_staying_server_goes_on_is_listed_and_can_be_stopped() -> None:
    with another_pgpaces("start(ServerSpec(find()), stay=True)", "") as child:
        assert child.process.wait(GONE_S) == 0
    [listed] = embedded.running()
    assert (listed.name, listed.pid, listed.stays) == ("pg18", int(child.said), True)
    assert value(listed, "SELECT 1") == 1
    embedded.stop("pg18")
    assert embedded.running() == []
    assert not listed.socket_dir.exists()


def test_a_staying_server_is_used_and_left_by_the_next_run(spec: ServerSpec) -> None:
    embedded.start(spec, stay=True)
    with embedded.start(spec) as used:
        assert used.stays
    [left] = embedded.running()
    assert left.pid == used.pid
    left.stop()
    assert embedded.running() == []


def test_of_many_that_start_a_staying_server_at_once_all_get_the_same() -> None:
    start = "start(ServerSpec(find()), stay=True)"
    with ExitStack() as stack, ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(stack.enter_context, another_pgpaces(start)) for _ in range(4)]
        pids = {run.result().said for run in runs}
    assert pids == {str(server.pid) for server in embedded.running()}


def test_a_staying_server_survives_the_kill_9_of_its_starter() -> None:
    with another_pgpaces("start(ServerSpec(find()), stay=True)") as child:
        child.process.kill()
        child.process.wait()
        [left] = embedded.running()
        assert value(left, "SELECT 1") == 1


def test_a_staying_server_with_other_settings_is_refused(spec: ServerSpec) -> None:
    embedded.start(spec, stay=True)
    with pytest.raises(ServerError, match="other settings") as caught:
        embedded.start(ServerSpec(spec.installation, settings={"work_mem": "64MB"}))
    assert "pgpaces server stop pg18" in str(caught.value.hint)


def test_a_server_of_another_run_is_neither_taken_nor_stopped(spec: ServerSpec) -> None:
    with another_pgpaces("start(ServerSpec(find()))") as child:
        for attempt in (lambda: embedded.start(spec), lambda: embedded.stop("pg18")):
            with pytest.raises(ServerError, match=f"process {child.process.pid}") as caught:
                attempt()
            assert "--name" in str(caught.value.hint)
