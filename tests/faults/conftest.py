"""Servers to be broken: a PostgreSQL that no other test uses, its processes, its standby."""

import contextlib
import os
import subprocess
import sys
from collections import Counter

import psutil
import pytest
from tests.faults.machines import SERVER
from tests.faults.network import Proxy
from tests.needs import check, lacking
from tests.servers import postgres_15, standby_of

# `make faults` injects each fault this often.
TIMES = int(os.environ.get("TIMES", "1"))


def pytest_generate_tests(metafunc):
    if TIMES > 1 and "seed" not in metafunc.fixturenames:
        metafunc.fixturenames.append("again")
        metafunc.parametrize("again", range(TIMES))


def pytest_collection_modifyitems(items):
    """A fault of several cases is injected TIMES times in sum, and in each case once."""
    cases = Counter(item.nodeid.partition("[")[0] for item in items)
    items[:] = [
        item
        for item in items
        if getattr(item, "callspec", None) is None
        or item.callspec.params.get("again", 0) * cases[item.nodeid.partition("[")[0]] < TIMES**2
    ]


@pytest.fixture(autouse=True)
def _no_command_left():
    """A command that outlives a test that failed would make the next one fail too."""
    yield
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):  # it has just ended
            if child.cmdline()[1:3] == ["-m", "pgpaces"]:
                child.kill()


@pytest.fixture(scope="module")
def fragile(certificates):
    """PostgreSQL 15 for tests that kill and freeze it; it runs at the end of each."""
    yield from postgres_15("pgpaces-fragile-", certificates, {"log_connections": "on"})


@pytest.fixture
def proxy():
    """Start a proxy before a server: `(host, port)`."""
    with contextlib.ExitStack() as stack:
        yield lambda host, port: stack.enter_context(Proxy(host, port))


@pytest.fixture
def standby(fragile):
    with standby_of(fragile) as replica:
        yield replica


@pytest.fixture
def small_disk(tmp_path):
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


SLEEP = "\\set ms random(1, 10)\nSELECT pg_sleep(:ms / 1000.0);\n"


@pytest.fixture
def start(reachable, tmp_path):
    """Starts the command of the how-to, once its load has begun."""

    def start(*words: str) -> subprocess.Popen[bytes]:
        script = tmp_path / "sleep.sql"
        script.write_text(SLEEP)
        dsn = reachable.dsn("u_trust", host=SERVER)
        environment = {**os.environ, "HOME": str(tmp_path)}
        environment["PGPACES_STORE"] = str(tmp_path / "results.db")
        command = [sys.executable, "-m", "pgpaces", "run", "-f", str(script), "--target", dsn]
        command += ["--rate", "40", "-L", "500ms", "-c", "6", "--warmup", "0s", "-P", "1", "--json"]
        command.append("--allow-fail")
        pipe = subprocess.PIPE
        child = subprocess.Popen([*command, *words], stdout=pipe, stderr=pipe, env=environment)
        assert child.stderr is not None
        while b" s: " not in (line := child.stderr.readline()):
            assert line, child.stdout.read() if child.stdout else ""
        return child

    return start


@pytest.fixture(scope="module")
def reachable(certificates):
    """PostgreSQL 15 that listens on every address, for machines of these tests."""
    for server in postgres_15("pgpaces-far-", certificates, {"listen_addresses": "*"}):
        with (server.data / "pg_hba.conf").open("a") as file:
            file.write("host all all 10.98.7.0/24 trust\n")
        server.execute("SELECT pg_reload_conf()")
        yield server
