"""What tests share: a home, real servers with every way to log in, the fake server, a short load.

Every server here ends with the test session, also when that is killed: a watchdog holds a pipe.
"""

import contextlib
import gc
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from msgspec.structs import replace

from pgpaces.core.texts import encoded
from tests.certificates import Certificates
from tests.commands import Command
from tests.engine_load import PLAN, Load
from tests.fake_server import FAKE_SERVER, running_fake_server
from tests.folders import IN_MEMORY, MEMORY, ROOT, open_folder
from tests.needs import check
from tests.servers import postgres_15

pytest_plugins = ["tests.left_out", "tests.early_imports"]

# A shell without job control ignores SIGINT in what it runs behind `&`, and children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# How long one example takes depends on what else the machine does. The slow tests try `many`.
settings.register_profile("pgpaces", deadline=None, max_examples=50)
settings.register_profile("many", deadline=None, max_examples=400)
settings.load_profile("pgpaces")
# What is frozen has the times of this zone.
os.environ["TZ"] = "UTC"
time.tzset()


def pytest_collection_finish():
    gc.freeze()  # what thousands of tests consist of is there to the end


@pytest.fixture
def tmp_path():
    """A folder of the test's own, removed after it."""
    where = MEMORY if IN_MEMORY else None
    with tempfile.TemporaryDirectory(prefix="pgpaces-test-", dir=where) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def pgpaces_home():
    """PGPACES_HOME of this session and its children: a folder that a server's user can enter."""
    with pytest.MonkeyPatch.context() as patch, open_folder("pgpaces-home-") as path:
        patch.setenv("PGPACES_HOME", str(path))
        yield path


@pytest.fixture
def pgpaces(pgpaces_home, tmp_path):
    """The command with a store of its own."""
    return Command(pgpaces_home, tmp_path / "results.db")


@pytest.fixture(scope="session")
def certificates():
    """Server: server, wrong_name, common_name_only, documented, version_1. Client: u_cert, ..."""
    check("openssl")
    with open_folder("pgpaces-tls-") as folder:
        made = Certificates(folder)
        for authority in ("ca", "other_ca"):
            made.authority(authority)
        names = "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1"
        made.sign("server", "ca", "localhost", names)
        made.sign("wrong_name", "ca", "pi4.example", "subjectAltName=DNS:pi4.example")
        made.sign("common_name_only", "ca", "localhost", "")
        made.sign("expired", "ca", "localhost", names, days=-1)
        made.self_signed("documented", "localhost")
        made.self_signed("ed25519", "localhost", "ed25519")
        made.version_1("version_1", "ca", "localhost")
        for name, authority in (("u_cert", "ca"), ("u_other", "ca"), ("stranger", "other_ca")):
            common_name = "u_cert" if name == "stranger" else name
            made.sign(name, authority, common_name, "extendedKeyUsage=clientAuth")
        for key in folder.glob("*.key"):
            key.chmod(0o600)
        yield made


@pytest.fixture(scope="session")
def pg15(certificates):
    """PostgreSQL 15 on a socket and on loopback, with TLS, and a user for each login method."""
    yield from postgres_15("pgpaces-pg15-", certificates, {})


@pytest.fixture(scope="session")
def pg15_tls12(certificates):
    """Another one, which stops at TLS 1.2 and whose certificates tests may change."""
    yield from postgres_15("pgpaces-tls12-", certificates, {"ssl_max_protocol_version": "TLSv1.2"})


@pytest.fixture(scope="session")
def fake_server_program():
    """The fake server's program as the Rust tests build it; built where it is absent."""
    if not FAKE_SERVER.exists():
        command = ["cargo", "build", "--workspace", "--bins", "--locked"]
        subprocess.run(command, cwd=ROOT, check=True)
    return FAKE_SERVER


@pytest.fixture
def fake_server(fake_server_program, tmp_path):
    """Start a fake server with options; it ends with the test, or with us."""
    with contextlib.ExitStack() as stack:
        yield lambda *options: stack.enter_context(
            running_fake_server(fake_server_program, tmp_path, *options)
        )


@pytest.fixture
def poll():
    """How the engine waits for the connections of a load."""
    return "auto"


@pytest.fixture
def start_load(poll):
    """Start a load: `(dsn, script or [(name, weight, text)], **changes to PLAN)`."""
    started: list[Load] = []

    def start(dsn: str, script: str | list[tuple[str, int, str]], **changes: Any) -> Load:
        scripts = [("t", 1, script)] if isinstance(script, str) else script
        if "variables" in changes:
            pairs = changes["variables"]
            changes["variables"] = [(encoded(name), encoded(text)) for name, text in pairs]
        load = Load(dsn, scripts, replace(PLAN, **{"poll": poll, **changes}))
        started.append(load)
        return load

    yield start
    for load in started:
        load.run.abort()


@pytest.fixture
def run_load(start_load):
    """Run a load to its end; arguments as start_load."""
    return lambda *words, **changes: start_load(*words, **changes).finish()


@pytest.fixture
def clean_client(tmp_path, monkeypatch):
    """No PG* variables, and an empty home: what a client finds by itself. The home."""
    for name in [name for name in os.environ if name.startswith("PG") and name.isupper()]:
        if name != "PGPACES_HOME":
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    return home
