"""Servers to be broken: a PostgreSQL that no other test uses, its processes, its standby."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.conftest import DEADLINE_S, PG15_BIN, Load, Postgres, _open_folder, _postgres
from tests.conftest import _server_user as server_user
from tests.faults.machines import SERVER
from tests.faults.network import Proxy
from tests.needs import check, lacking

NAME = "pgpaces faults"
SECOND_NS = 1_000_000_000


@pytest.fixture(scope="module")
def fragile(certificates: Any) -> Iterator[Postgres]:
    """PostgreSQL 15 for tests that kill and freeze it; it runs at the end of each."""
    yield from _postgres("pgpaces-fragile-", certificates, {"log_connections": "on"})


@pytest.fixture
def proxy() -> Iterator[Callable[[str, int], Proxy]]:
    """Start a proxy before a server: `(host, port)`."""
    with contextlib.ExitStack() as stack:
        yield lambda host, port: stack.enter_context(Proxy(host, port))


def until(condition: Callable[[], bool], what: str = "") -> None:
    """Until this is so; or the test fails."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"never: {what or condition}"
        threading.Event().wait(0.01)


def lets_in(server: Postgres) -> bool:
    """Whether a connection comes about now."""
    try:
        server.connect().close()
    except psycopg.OperationalError:
        return False
    return True


def postmaster(server: Postgres) -> int:
    return int((server.data / "postmaster.pid").read_text().split()[0])


def children(pid: int) -> list[int]:
    check("Linux")
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def everything(server: Postgres) -> list[int]:
    """The postmaster and all that it started."""
    return [postmaster(server), *children(postmaster(server))]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def command_of(pid: int) -> bytes:
    """The command line of a process; empty if that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def start_again(server: Postgres) -> None:
    """Start a server whose postmaster died; what it left behind must be gone first."""
    words = ("-l", server.folder / "log", "-w", "start")
    command = [str(PG15_BIN / "pg_ctl"), "-D", str(server.data), *map(str, words)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}

    def starts() -> bool:
        done = subprocess.run(command, cwd="/", check=False, **quiet, **server_user())
        return done.returncode == 0

    until(starts, "a start")


@contextlib.contextmanager
def frozen(pids: list[int]) -> Iterator[None]:
    """These processes stand still."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def backends(server: Postgres, name: str = NAME) -> list[int]:
    sql = f"SELECT pid FROM pg_stat_activity WHERE application_name = '{name}' ORDER BY 1"
    return [pid for (pid,) in server.execute(sql)]


def seconds_until_end(load: Load) -> tuple[Any, float]:
    """What became of a load, and how long that took from now."""
    begun = time.monotonic()
    return load.finish(), time.monotonic() - begun


@pytest.fixture
def standby(fragile: Postgres, certificates: Any) -> Iterator[Postgres]:
    """A streaming replica of `fragile` that answers queries."""
    with _open_folder("pgpaces-standby-") as folder:
        if user := server_user():
            os.chown(folder, user["user"], user["group"])
        replica = Postgres(folder, certificates)
        with (fragile.data / "pg_hba.conf").open("a") as rules:
            rules.write("local replication postgres trust\n")
        fragile.execute("SELECT pg_reload_conf()")
        fragile.execute("SELECT pg_create_physical_replication_slot('standby')")
        source = fragile.dsn("postgres", dbname=None)
        command = [PG15_BIN / "pg_basebackup", "-D", replica.data, "-R", "-X", "stream"]
        command += ["-c", "fast", "--no-sync", "-S", "standby", "-d", source]
        subprocess.run([*map(str, command)], cwd="/", check=True, **server_user())
        replica.port, replica.addresses = fragile.port, ["127.0.0.1"]
        with (replica.data / "postgresql.conf").open("a") as conf:
            conf.write("listen_addresses = ''\nmax_standby_streaming_delay = 0\n")
            conf.write(f"unix_socket_directories = '{folder}'\n")
        shutil.rmtree(replica.data / "pg_wal" / "archive_status", ignore_errors=True)
        (replica.data / "pg_wal" / "archive_status").mkdir(mode=0o700)
        if user:
            os.chown(replica.data / "pg_wal" / "archive_status", user["user"], user["group"])
        replica.program("pg_ctl", "-l", folder / "log", "-w", "start")
        try:
            yield replica
        finally:
            replica.program("pg_ctl", "-m", "immediate", "stop")
            fragile.execute("SELECT pg_drop_replication_slot('standby')")


def measured_in_child(code: str, **values: object) -> str:
    """What a Python program of its own prints; `{name!r}` in it stands for a value."""
    tests = str(Path(__file__).parents[1])
    text = code.format(tests=tests, **values)
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def session(server: Postgres, user: str = "u_trust") -> psycopg.Connection[Any]:
    """A session in autocommit."""
    return psycopg.connect(server.dsn(user), autocommit=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "pgpaces", str(folder)]
    check("root")
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        lacking("the right to mount")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path) -> Path:
    """Leave no byte free."""
    rest = disk / "rest"
    with rest.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return rest


SLEEP = "\\set ms random(1, 10)\nSELECT pg_sleep(:ms / 1000.0);\n"


@pytest.fixture
def start(reachable: Postgres, tmp_path: Path) -> Callable[..., subprocess.Popen[bytes]]:
    """Starts the command of the how-to, once its load has begun."""

    def start(*words: str) -> subprocess.Popen[bytes]:
        script = tmp_path / "sleep.sql"
        script.write_text(SLEEP)
        dsn = reachable.dsn("u_trust", host=SERVER)
        environment = {**os.environ, "HOME": str(tmp_path)}
        environment["PGPACES_STORE"] = str(tmp_path / "results.db")
        command = [sys.executable, "-m", "pgpaces", "run", "-f", str(script), "--target", dsn]
        command += ["--rate", "40", "-L", "500ms", "-c", "6", "--warmup", "0s", "-P", "1", "--json"]
        pipe = subprocess.PIPE
        child = subprocess.Popen([*command, *words], stdout=pipe, stderr=pipe, env=environment)
        assert child.stderr is not None
        while b" s: " not in (line := child.stderr.readline()):
            assert line, child.stdout.read() if child.stdout else ""
        return child

    return start


@pytest.fixture(scope="module")
def reachable(certificates: Any) -> Iterator[Postgres]:
    """PostgreSQL 15 that listens on every address, for machines of these tests."""
    for server in _postgres("pgpaces-far-", certificates, {"listen_addresses": "*"}):
        with (server.data / "pg_hba.conf").open("a") as file:
            file.write("host all all 10.98.7.0/24 trust\n")
        server.execute("SELECT pg_reload_conf()")
        yield server
