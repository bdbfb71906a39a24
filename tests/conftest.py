"""What tests share: a home, real servers with every way to log in, the fake server, a short load.

Every server here ends with the test session, also when that is killed: a watchdog holds a pipe.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import SystemRandom
from typing import Any

import psycopg
import pytest
from hypothesis import settings
from msgspec import Struct
from msgspec.structs import replace

from pgpaces import _engine
from pgpaces.core.texts import encoded
from pgpaces.load.engine import EnginePlan
from pgpaces.monitor import generator_host as host
from tests.needs import PG15_BIN, check, lacking

pytest_plugins = ["tests.left_out"]

# A shell without job control ignores SIGINT in what it runs behind `&`, and children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# How long one example takes depends on what else the machine does.
settings.register_profile("pgpaces", deadline=None)
settings.load_profile("pgpaces")
# What is frozen has the times of this zone.
os.environ["TZ"] = "UTC"
time.tzset()
ROOT = Path(__file__).resolve().parents[1]
# Servers and stores wait for each write to reach a disk, so tests keep their files in memory.
DISK, MEMORY = Path("/tmp"), Path("/dev/shm")
IN_MEMORY = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 4 * 2**30
FAKE_SERVER = ROOT / "target/debug/pgpaces-fakeserver"
DEADLINE_S = 120.0
# Hard for every quoting rule on its way: conninfo, URI, password file, and beyond ASCII.
PASSWORD = "s3:cr\\t@/%27' ü"
SECOND_NS = 1_000_000_000


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder of the test's own, removed after it."""
    where = MEMORY if IN_MEMORY else None
    with tempfile.TemporaryDirectory(prefix="pgpaces-test-", dir=where) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def pgpaces_home() -> Iterator[Path]:
    """PGPACES_HOME of this session and its children: a folder that a server's user can enter."""
    with pytest.MonkeyPatch.context() as patch, _open_folder("pgpaces-home-") as path:
        patch.setenv("PGPACES_HOME", str(path))
        yield path


class _open_folder:  # noqa: N801 (a function in all but name)
    """A temporary folder that every user can enter; pytest's is root's alone.

    disk: on a disk, for a test about disks.
    """

    def __init__(self, prefix: str, *, disk: bool = False) -> None:
        where = DISK if disk or not IN_MEMORY else MEMORY
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=where))
        self.path.chmod(0o755)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def _server_user() -> dict[str, Any]:
    """What makes subprocess start a program as the user who may run PostgreSQL."""
    if os.geteuid() != 0:
        return {}
    entry = pwd.getpwnam("postgres")
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def quoted(words: dict[str, object]) -> str:
    """A conninfo string of keywords and values."""

    def value(text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    return " ".join(f"{word}={value(str(text))}" for word, text in words.items())


# --- certificates ---------------------------------------------------------------------------


class Certificates(Struct, frozen=True):
    """A test CA, another that nobody trusts, and what they signed. `x` is x.crt with x.key."""

    folder: Path

    def crt(self, name: str) -> Path:
        return self.folder / f"{name}.crt"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def _openssl(self, *words: object) -> None:
        command = ["openssl", *map(str, words)]
        subprocess.run(command, cwd=self.folder, check=True, capture_output=True)

    def _request(self, name: str, subject: str) -> tuple[object, ...]:
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        return ("req", *curve, "-keyout", self.key(name), "-subj", subject)

    def authority(self, name: str) -> None:
        extensions = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
        request = self._request(name, f"/CN={name}")
        self._openssl(*request, "-x509", "-days", 30, *extensions, "-out", self.crt(name))

    def sign(self, name: str, authority: str, common_name: str, extension: str) -> None:
        csr, ext = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        ext.write_text(extension + "\nbasicConstraints=critical,CA:FALSE\n")
        self._openssl(*self._request(name, f"/CN={common_name}"), "-out", csr)
        by = ("-CA", self.crt(authority), "-CAkey", self.key(authority), "-CAcreateserial")
        days = ("-days", 30, "-extfile", ext)
        self._openssl("x509", "-req", "-in", csr, *by, *days, "-out", self.crt(name))

    def version_1(self, name: str, authority: str, common_name: str) -> None:
        """As PostgreSQL's documentation has one signed: without extensions."""
        csr = self.folder / f"{name}.csr"
        self._openssl(*self._request(name, f"/CN={common_name}"), "-out", csr)
        by = ("-CA", self.crt(authority), "-CAkey", self.key(authority), "-CAcreateserial")
        self._openssl("x509", "-req", "-in", csr, *by, "-days", 30, "-out", self.crt(name))

    def self_signed(self, name: str, common_name: str) -> None:
        """As PostgreSQL's documentation makes one: RSA, CA:TRUE, no alternative name."""
        subject = ("-nodes", "-keyout", self.key(name), "-subj", f"/CN={common_name}")
        self._openssl("req", "-new", "-x509", "-days", 365, *subject, "-out", self.crt(name))


@pytest.fixture(scope="session")
def certificates() -> Iterator[Certificates]:
    """Server: server, wrong_name, common_name_only, documented, version_1. Client: u_cert, ..."""
    check("openssl")
    with _open_folder("pgpaces-tls-") as folder:
        made = Certificates(folder)
        for authority in ("ca", "other_ca"):
            made.authority(authority)
        names = "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1"
        made.sign("server", "ca", "localhost", names)
        made.sign("wrong_name", "ca", "pi4.example", "subjectAltName=DNS:pi4.example")
        made.sign("common_name_only", "ca", "localhost", "")
        made.self_signed("documented", "localhost")
        made.version_1("version_1", "ca", "localhost")
        for name, authority in (("u_cert", "ca"), ("u_other", "ca"), ("stranger", "other_ca")):
            common_name = "u_cert" if name == "stranger" else name
            made.sign(name, authority, common_name, "extendedKeyUsage=clientAuth")
        for key in folder.glob("*.key"):
            key.chmod(0o600)
        yield made


# --- PostgreSQL 15 --------------------------------------------------------------------------

# Users log in by the method of their name, over sockets and TCP alike.
RULES = """\
local   all postgres                trust
local   all u_trust,u_limited       trust
local   all u_password              password
local   all u_md5                   md5
local   all u_scram                 scram-sha-256
host    all postgres,u_trust,u_limited,u_absent  localhost trust
host    all u_password              localhost password
host    all u_md5                   localhost md5
host    all u_scram                 localhost scram-sha-256
hostssl all u_cert,u_other          localhost cert
host    all u_reject                localhost reject
hostssl   all u_hostssl             localhost trust
hostnossl all u_hostnossl           localhost trust
"""
ROLES = """
SET password_encryption = 'md5';
CREATE ROLE u_md5 LOGIN PASSWORD {password};
SET password_encryption = 'scram-sha-256';
CREATE ROLE u_password LOGIN PASSWORD {password};
CREATE ROLE u_scram LOGIN PASSWORD {password};
CREATE ROLE u_limited LOGIN CONNECTION LIMIT 1;
CREATE ROLE u_trust LOGIN; CREATE ROLE u_cert LOGIN; CREATE ROLE u_other LOGIN;
CREATE ROLE u_reject LOGIN; CREATE ROLE u_hostssl LOGIN; CREATE ROLE u_hostnossl LOGIN;
GRANT ALL ON SCHEMA public TO PUBLIC;
"""


def free_port() -> tuple[int, list[str]]:
    """A free port, and the loopback addresses on which it is free.

    Below those that systems deal out: it stays free until its server starts.
    """
    for port in SystemRandom().sample(range(20_000, 32_000), 100):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            try:
                socket.create_server(("::1", port), family=socket.AF_INET6).close()
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    continue
                return port, ["127.0.0.1"]
            return port, ["127.0.0.1", "::1"]
    raise AssertionError("no port is free")


@dataclass
class Postgres:
    """A PostgreSQL of our own that knows every way to log in; see RULES and ROLES."""

    folder: Path
    certificates: Certificates
    port: int = 0
    addresses: list[str] = field(default_factory=list)
    # The character set of its databases; None: as initdb makes them without a locale.
    encoding: str | None = "UTF8"
    _watchdog: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def has_ipv6(self) -> bool:
        return "::1" in self.addresses

    def tcp(self, user: str = "u_trust", **more: object) -> str:
        """A conninfo string for TCP without TLS, unless `more` says otherwise."""
        words = {"host": "127.0.0.1", "sslmode": "disable"} | more
        return self.dsn(user=user, **words)

    def tls(self, user: str = "u_trust", **more: object) -> str:
        """A conninfo string for TCP with TLS."""
        return self.dsn(user=user, **({"host": "127.0.0.1", "sslmode": "require"} | more))

    def dsn(self, user: str = "u_trust", **more: object) -> str:
        """A conninfo string; through the socket, unless `more` has a host."""
        words = {"host": self.folder, "port": self.port, "user": user, "dbname": "postgres"}
        return quoted({k: v for k, v in (words | more).items() if v is not None})

    def connect(self) -> psycopg.Connection[Any]:
        """A superuser's connection that commits every statement."""
        return psycopg.connect(self.dsn("postgres"), autocommit=True)

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        """Run SQL as superuser; the rows, if there are any."""
        with self.connect() as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def wait_until(self, sql: str) -> None:
        """Until the query gives true, asked again and again; or the test fails."""
        deadline = time.monotonic() + DEADLINE_S
        with self.connect() as connection:
            while connection.execute(sql.encode()).fetchone() != (True,):
                assert time.monotonic() < deadline, f"never true: {sql}"
                connection.execute("SELECT pg_sleep(0.02)")

    def program(self, name: str, *words: object) -> None:
        command = [str(PG15_BIN / name), "-D", str(self.data), *map(str, words)]
        done = subprocess.run(
            command, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            check=False, **_server_user(),
        )  # fmt: skip
        log = self.folder / "log"
        assert done.returncode == 0, (command, log.read_text()[-2000:] if log.exists() else "")

    def make(self, settings: dict[str, str]) -> None:
        """Make the data directory and its configuration."""
        self.port, self.addresses = free_port()
        encoding = ("-E", self.encoding) if self.encoding else ("--no-locale",)
        self.program("initdb", "-U", "postgres", "-A", "trust", "--no-sync", *encoding)
        values = {
            "listen_addresses": ",".join(self.addresses),
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
            "max_connections": "40",
            "fsync": "off",
            # Its snapshots would keep vacuum from what tests look at.
            "autovacuum": "off",
            "ssl": "on",
            "ssl_cert_file": self.own_key("server"),
            "ssl_key_file": str(self.data / "server.key"),
            "ssl_ca_file": str(self.certificates.crt("ca")),
        } | settings
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{name} = '{value}'\n" for name, value in values.items())
        rules = [RULES.replace("localhost", f"{a}/{128 if ':' in a else 32}") for a in
                 self.addresses]  # fmt: skip
        (self.data / "pg_hba.conf").write_text("".join(rules))

    def own_key(self, name: str) -> str:
        """Give the server a copy of a key that it accepts; where the certificate is."""
        key = self.data / f"{name}.key"
        shutil.copy(self.certificates.key(name), key)
        key.chmod(0o600)
        owner = self.data.stat()
        os.chown(key, owner.st_uid, owner.st_gid)
        return str(self.certificates.crt(name))

    def start(self) -> None:
        self.program("pg_ctl", "-l", self.folder / "log", "-w", "start")
        stop = f"read x; exec {PG15_BIN}/pg_ctl -D {self.data} -m immediate stop"
        self._watchdog = subprocess.Popen(
            ["sh", "-c", stop], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, cwd="/", start_new_session=True, **_server_user(),
        )  # fmt: skip
        self.execute(ROLES.format(password="'" + PASSWORD.replace("'", "''") + "'"))

    def restart(self) -> None:
        """As a crash: nobody is told, and the log is replayed."""
        self.program("pg_ctl", "-l", self.folder / "log", "-w", "-m", "immediate", "restart")

    def use_certificate(self, name: str) -> None:
        """Show another certificate to those who connect from now on."""
        self.execute(f"ALTER SYSTEM SET ssl_cert_file = '{self.own_key(name)}'")
        self.execute(f"ALTER SYSTEM SET ssl_key_file = '{self.data / name}.key'")
        before = self.execute("SELECT pg_conf_load_time()")[0][0]
        self.execute("SELECT pg_reload_conf()")
        self.wait_until(f"SELECT pg_conf_load_time() > '{before}'")

    def reset_certificate(self) -> None:
        """Show its own certificate again, with nothing left of another one."""
        for name in ("ssl_cert_file", "ssl_key_file"):
            self.execute(f"ALTER SYSTEM RESET {name}")
        before = self.execute("SELECT pg_conf_load_time()")[0][0]
        self.execute("SELECT pg_reload_conf()")
        self.wait_until(f"SELECT pg_conf_load_time() > '{before}'")

    def end(self) -> None:
        if self._watchdog is not None:
            self._watchdog.communicate()


def _postgres(
    prefix: str,
    certificates: Certificates,
    settings: dict[str, str],
    encoding: str | None = "UTF8",
) -> Iterator[Any]:
    check("PostgreSQL 15")
    with _open_folder(prefix) as folder:
        if user := _server_user():
            os.chown(folder, user["user"], user["group"])
        server = Postgres(folder, certificates, encoding=encoding)
        server.make(settings)
        try:
            server.start()
            yield server
        finally:
            server.end()


@pytest.fixture(scope="session")
def pg15(certificates: Certificates) -> Iterator[Postgres]:
    """PostgreSQL 15 on a socket and on loopback, with TLS, and a user for each login method."""
    yield from _postgres("pgpaces-pg15-", certificates, {})


@pytest.fixture(scope="session")
def pg15_tls12(certificates: Certificates) -> Iterator[Postgres]:
    """Another one, which stops at TLS 1.2 and whose certificates tests may change."""
    yield from _postgres("pgpaces-tls12-", certificates, {"ssl_max_protocol_version": "TLSv1.2"})


# --- the fake server ------------------------------------------------------------------------


@dataclass
class FakeServer:
    """A fake server that runs: where it is, and its remote control."""

    host: str
    port: int
    record: Path
    process: subprocess.Popen[str]
    _control: Any

    def dsn(self, **more: object) -> str:
        words = {"host": self.host, "port": self.port, "user": "u", "dbname": "d"}
        return quoted(words | {"sslmode": "disable"} | more)

    def control(self, line: str) -> Any:
        """Give one order; its answer, read from JSON where it is that."""
        self._control.write(f"{line}\n")
        self._control.flush()
        answer = self._control.readline().strip()
        assert not answer.startswith("error"), answer
        return answer if answer == "ok" else json.loads(answer)

    def recorded(self) -> list[dict[str, Any]]:
        """Every message with SQL that came so far."""
        self.control("stats")  # whoever answers has written what came before
        return [json.loads(line) for line in self.record.read_text().splitlines()]


@pytest.fixture(scope="session")
def fake_server_program() -> Path:
    """The fake server's program as the Rust tests build it; built where it is absent."""
    if not FAKE_SERVER.exists():
        command = ["cargo", "build", "--workspace", "--bins", "--locked"]
        subprocess.run(command, cwd=ROOT, check=True)
    return FAKE_SERVER


@pytest.fixture
def fake_server(fake_server_program: Path, tmp_path: Path) -> Iterator[Callable[..., FakeServer]]:
    """Start a fake server with options; it ends with the test, or with us."""
    started: list[FakeServer] = []

    def start(*options: object) -> FakeServer:
        record = tmp_path / f"record-{len(started)}"
        ours = ("--control", "127.0.0.1:0", "--record", record)
        process = subprocess.Popen(
            [str(word) for word in (fake_server_program, *ours, *options)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        _, host, port = process.stdout.readline().split()
        _, control_host, control_port = process.stdout.readline().split()
        with socket.create_connection((control_host, int(control_port))) as wire:
            server = FakeServer(host, int(port), record, process, wire.makefile("rw"))
        started.append(server)
        return server

    yield start
    for server in started:
        server._control.close()
        server.process.communicate()


# --- a load ---------------------------------------------------------------------------------

PLAN = EnginePlan(
    clients=2, threads=1, protocol="simple", describe=True, load="closed", rate=1.0,
    arrivals="even", shape=[], think="none", think_ns=0, policy="run", limit_ns=None, limits=[],
    duration_ns=None, transactions=1, start_every_ns=0, warmup_ns=0, grace_ns=5 * SECOND_NS,
    seed=1, variables=[],
    on_connect=[], backlog="serve", max_tries=1, continue_on_error=True, exit_on_abort=True,
    recover=True, connect_each=False, time_commands=False, verbose=False, notices=False,
    debug=False, poll="auto", log=None,
)  # fmt: skip


@dataclass
class Outcome:
    """A trial that is over, summed up; its identity has been checked."""

    due: int = 0
    on_time: int = 0
    late: int = 0
    skipped: int = 0
    unfinished: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    messages: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    lines: list[tuple[str, str]] = field(default_factory=list)
    connects: int = 0
    disconnects: int = 0
    connect_ns: int = 0
    aborted: int = 0
    retried: int = 0
    retries: int = 0
    per_script: Counter[int] = field(default_factory=Counter)
    outages: int = 0
    outage_ns_max: int = 0
    down: int = 0
    some_down_ns: int = 0
    all_down_ns: int = 0

    @property
    def done(self) -> int:
        return self.on_time + self.late

    def add(self, interval: _engine.Interval) -> None:
        assert min(interval.pending_ns, interval.waited_ns) >= 0, "nothing is due before its time"
        for tally in interval.tallies:
            self.due += tally.due
            self.on_time += tally.on_time
            self.late += tally.late
            self.skipped += tally.skipped
            self.unfinished += tally.unfinished
            self.retried += tally.retried
            self.retries += tally.retries
            self.failed.update(dict(tally.failed))
            self.per_script[tally.script] += tally.due
        self.messages.update(dict(interval.messages))
        self.notes += interval.notes
        self.connects += interval.connects
        self.disconnects += interval.disconnects
        self.lines += interval.lines
        self.connect_ns += interval.connect_ns
        self.aborted += len(interval.aborted)
        self.outages += interval.outages
        self.outage_ns_max = max(self.outage_ns_max, interval.outage_ns_max)
        self.down = interval.down
        self.some_down_ns += interval.some_down_ns
        self.all_down_ns += interval.all_down_ns


class Load:
    """A trial that is going on. `finish` waits for its end."""

    def __init__(self, dsn: str, scripts: list[tuple[str, int, str]], plan: EnginePlan) -> None:
        route = _engine.find_route(_engine.resolve(dsn, {}))
        self.outcome = Outcome()
        texts = [(name, weight, encoded(text)) for name, weight, text in scripts]
        self.run = _engine.Run(plan, texts, route)
        self.run.begin(0)

    def next(self) -> bool:
        """Wait for the next second; False when there is none."""
        interval = self.run.next_interval()
        if interval is not None:
            self.outcome.add(interval)
        return interval is not None

    def finish(self) -> Outcome:
        """Wait for the end; everything that was due has ended in exactly one class."""
        while self.next():
            pass
        o = self.outcome
        assert o.due == o.on_time + o.late + o.skipped + sum(o.failed.values()) + o.unfinished, o
        return o


StartLoad = Callable[..., Load]


@pytest.fixture
def poll() -> str:
    """How the engine waits for the connections of a load."""
    return "auto"


@pytest.fixture(params=["epoll", "io_uring"])
def each_poll(request: pytest.FixtureRequest) -> str:
    """Each way to wait; a module that calls this its `poll` runs its loads by both."""
    way: str = request.param
    if way == "io_uring" and (why := host.io_uring()):
        lacking("io_uring", why)
    return way


@pytest.fixture
def start_load(poll: str) -> Iterator[StartLoad]:
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
def run_load(start_load: StartLoad) -> Callable[..., Outcome]:
    """Run a load to its end; arguments as start_load."""
    return lambda *words, **changes: start_load(*words, **changes).finish()


@pytest.fixture
def clean_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No PG* variables, and an empty home: what a client finds by itself. The home."""
    for name in [name for name in os.environ if name.startswith("PG") and name.isupper()]:
        if name != "PGPACES_HOME":
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    return home
