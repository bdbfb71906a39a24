"""PostgreSQL servers of the tests, with every way to log in.

Each ends with the test session, also when that is killed: a watchdog holds a pipe.
"""

import contextlib
import errno
import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import SystemRandom
from typing import Any

import psycopg

from pgpaces.database.access import Access
from tests.certificates import Certificates
from tests.folders import open_folder
from tests.needs import PG15_BIN, check
from tests.waiting import DEADLINE_S

# Hard for every quoting rule on its way: conninfo, URI, password file, and beyond ASCII.
PASSWORD = "s3:cr\\t@/%27' ü"


def server_user() -> dict[str, Any]:
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

    @contextlib.contextmanager
    def meanwhile(self, sql: str, undo: str) -> Iterator[None]:
        """The server after this SQL; at the end that which takes it back."""
        self.execute(sql)
        try:
            yield
        finally:
            self.execute(undo)

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
            check=False, **server_user(),
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
            stderr=subprocess.DEVNULL, cwd="/", start_new_session=True, **server_user(),
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

    def end(self) -> None:
        if self._watchdog is not None:
            self._watchdog.communicate()


def postgres_15(
    prefix: str,
    certificates: Certificates,
    settings: dict[str, str],
    encoding: str | None = "UTF8",
) -> Iterator[Any]:
    check("PostgreSQL 15")
    with open_folder(prefix) as folder:
        if user := server_user():
            os.chown(folder, user["user"], user["group"])
        server = Postgres(folder, certificates, encoding=encoding)
        server.make(settings)
        try:
            server.start()
            yield server
        finally:
            server.end()


@contextlib.contextmanager
def standby_of(primary: Postgres, address: str = "") -> Iterator[Postgres]:
    """A streaming replica `standby1` that answers queries.

    address: it listens there too, on the port of the primary.
    """
    with (primary.data / "pg_hba.conf").open("a") as rules:
        rules.write("local replication postgres trust\n")
    primary.execute("SELECT pg_reload_conf()")
    with open_folder("pgpaces-standby-") as folder:
        if user := server_user():
            os.chown(folder, user["user"], user["group"])
        made = Postgres(folder, primary.certificates)
        made.port, made.addresses = (primary.port, [address]) if address else free_port()
        source = primary.dsn("postgres", dbname=None, application_name="standby1")
        how = ("-R", "-c", "fast", "-X", "stream", "--no-sync")
        made.program("pg_basebackup", *how, "-d", source)
        with (made.data / "postgresql.auto.conf").open("a") as conf:
            conf.write(f"port = {made.port}\nunix_socket_directories = '{folder}'\n")
            conf.write(f"listen_addresses = '{address}'\nmax_standby_streaming_delay = 0\n")
        try:
            made.program("pg_ctl", "-l", folder / "log", "-w", "start")
            yield made
        finally:
            if (made.data / "postmaster.pid").exists():
                made.program("pg_ctl", "-m", "immediate", "stop")


def access_to(server: Any, user: str = "postgres", **more: str) -> Access:
    """The way to a server of the tests."""
    words = {"host": str(server.folder), "port": str(server.port), "user": user}
    return Access({**words, "dbname": "postgres", **more}, PG15_BIN / "psql")
