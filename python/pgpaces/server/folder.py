"""A managed server's directory on disk: its record, and the lock on it.

    HOME/servers/NAME/   data/ run/ log log.1 lock server.json pg_hba.conf pgpass
    HOME/cache/          copies of programs
    DIR/pgpaces-NAME/    data/ pgpaces.json      where --data-dir DIR chose the disk

Every process of a running server inherits the lock and so holds it. It shows that the server
runs even if pgpaces died or a pid was reused. Another pgpaces finds the server by its record,
which never holds a password: TCP names a password file.
"""

import contextlib
import fcntl
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path

import msgspec
from msgspec import Struct, field

from pgpaces.core.errors import ServerError
from pgpaces.core.home import home, make_folder, matching
from pgpaces.server.os_user import OsUser, give, make_private_folder

SOCKET_PATH_BYTES_MAX = 103 if sys.platform == "darwin" else 107  # sun_path without its zero
SHORT_FOLDERS = "/tmp"
MARKER = "pgpaces.json"
CERTIFICATE, KEY = "tls.crt", "tls.key"
POLL_S = 0.02
STATUS_LINE = 7  # of postmaster.pid, counted from 0; since PostgreSQL 10


class Transport(StrEnum):
    SOCKET = "socket"
    TCP = "tcp"


class ServerRecord(Struct, frozen=True):
    """One managed server. `pid` is the postmaster's, 0 while it is starting."""

    name: str
    version: str
    major: int
    bin: Path
    socket_dir: Path
    port: int
    data_dir: Path
    pid: int
    owner_pid: int
    stays: bool
    superuser: str = "postgres"
    tcp_host: str | None = None
    password_file: Path | None = None
    certificate: Path | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    def keywords(
        self, dbname: str = "postgres", transport: Transport = Transport.SOCKET
    ) -> dict[str, str]:
        """The address as libpq's keywords; TCP with TLS that is fully verified, or without TLS."""
        words = {
            "host": self.host(transport),
            "port": str(self.port),
            "user": self.superuser,
            "dbname": dbname,
        }
        if transport is Transport.SOCKET:
            return words
        words["passfile"] = str(self.password_file)
        if self.certificate is None:
            return words | {"sslmode": "disable"}
        return words | {"sslmode": "verify-full", "sslrootcert": str(self.certificate)}

    def dsn(self, dbname: str = "postgres", transport: Transport = Transport.SOCKET) -> str:
        words = self.keywords(dbname, transport)
        return " ".join(f"{word}={quoted(value)}" for word, value in words.items())

    def environment(self, transport: Transport = Transport.SOCKET) -> dict[str, str]:
        """The address as libpq's variables."""
        words = self.keywords(transport=transport)
        return {f"PG{w.replace('dbname', 'database').upper()}": words[w] for w in words}

    def host(self, transport: Transport) -> str:
        """The host for clients on this machine; ValueError for TCP if the server has none."""
        if transport is Transport.SOCKET:
            return str(self.socket_dir)
        if self.tcp_host is None:
            raise ValueError(f"server {self.name} was started without TCP")
        return self.tcp_host


def quoted(value: str) -> str:
    """A value of a conninfo string, quoted where libpq needs it."""
    if value and not any(c.isspace() or c in "'\\" for c in value):
        return value
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def to_json(record: ServerRecord) -> str:
    return json.dumps(msgspec.to_builtins(record, enc_hook=str), indent=1) + "\n"


def from_json(text: str) -> ServerRecord | None:
    """The record in a file's text; None for an incomplete one."""
    try:
        return msgspec.convert(
            json.loads(text), ServerRecord, dec_hook=lambda kind, path: kind(path)
        )
    except ValueError:
        return None


class ServerFolder(Struct, frozen=True):
    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def log(self) -> Path:
        """The server's log since its last start; `log.1` is that of the start before."""
        return self.path / "log"

    @property
    def access(self) -> Path:
        """The pg_hba.conf, outside the data directory."""
        return self.path / "pg_hba.conf"

    @property
    def password_file(self) -> Path:
        """The password for TCP, in libpq's format."""
        return self.path / "pgpass"

    @property
    def record_file(self) -> Path:
        """The record of the server, as long as it runs."""
        return self.path / "server.json"

    @property
    def runtime_files(self) -> tuple[Path, ...]:
        keys = (self.path / CERTIFICATE, self.path / KEY)
        return (self.record_file, self.password_file, *keys)

    def data_home(self, chosen: Path | None) -> Path:
        """The directory that contains data/: this one, or pgpaces-NAME on the chosen disk."""
        return chosen.absolute() / f"pgpaces-{self.name}" if chosen else self.path

    def read(self) -> ServerRecord | None:
        try:
            return from_json(self.record_file.read_text())
        except OSError:
            return None

    def write(self, record: ServerRecord) -> None:
        fresh = self.record_file.with_suffix(".new")
        fresh.write_text(to_json(record))
        fresh.replace(self.record_file)

    def running(self) -> ServerRecord | None:
        """The record of the server if it runs and is ready; else None."""
        record = self.live()
        return record if record is not None and is_ready(record.data_dir, record.pid) else None

    def live(self) -> ServerRecord | None:
        """The record of the server if its process runs, ready or not, as while it ends."""
        record = self.read()
        if record is None or postmaster_pid(record.data_dir) != record.pid:
            return None
        lock = self.lock()
        if lock is None:
            return record
        os.close(lock)
        return None

    def lock(self, timeout_s: float = 0.0) -> int | None:
        """A descriptor that holds the lock; None if another process holds it until the timeout."""
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return descriptor
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    os.close(descriptor)
                    return None
            except OSError:
                os.close(descriptor)
                raise
            time.sleep(POLL_S)

    def forget(self, record: ServerRecord) -> None:
        """Remove the files of a running server. The caller must hold the lock."""
        for path in self.runtime_files:
            path.unlink(missing_ok=True)
        shutil.rmtree(record.socket_dir, ignore_errors=True)

    def rotate_log(self) -> None:
        """Begin an empty log that only its owner can read, and keep the one before."""
        if self.log.exists():
            self.log.replace(self.path / "log.1")
        os.close(os.open(self.log, os.O_WRONLY | os.O_CREAT, 0o600))


def server_folder(name: str) -> ServerFolder:
    return ServerFolder(home() / "servers" / name)


def server_folders() -> Iterator[ServerFolder]:
    for record_file in matching(home() / "servers", "*/server.json"):
        yield ServerFolder(record_file.parent)


def postmaster_pid(data_dir: Path) -> int | None:
    """The process id in postmaster.pid; None without one."""
    lines = _postmaster_lines(data_dir)
    return int(lines[0]) if lines and lines[0].isdecimal() else None


def data_series(data_dir: Path) -> str | None:
    """The version that made the data: "15", or "9.6"; None without data. Raises ServerError."""
    try:
        return (data_dir / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ServerError("cannot-read-data", path=data_dir, why=error.strerror) from None


def is_ready(data_dir: Path, pid: int) -> bool:
    """Whether the postmaster `pid` accepts connections, by the file that pg_ctl reads, too."""
    lines = _postmaster_lines(data_dir)
    if pid == 0 or len(lines) < STATUS_LINE or lines[0] != str(pid):
        return False
    if len(lines) == STATUS_LINE:
        # The data may be of a version that writes no status: 9.6.
        with contextlib.suppress(OSError):
            if (data_dir / "PG_VERSION").read_text().startswith("9."):
                from psycopg.conninfo import make_conninfo

                way = {"host": lines[4], "port": lines[3]}
                return answers(make_conninfo(**way, user="postgres", dbname="postgres"))
    return len(lines) > STATUS_LINE and lines[STATUS_LINE].strip() == "ready"


def answers(dsn: str) -> bool:
    from psycopg import pq

    return pq.PGconn.ping(dsn.encode()) == pq.Ping.OK


def _postmaster_lines(data_dir: Path) -> list[str]:
    try:
        return (data_dir / "postmaster.pid").read_text().splitlines()
    except OSError:
        return []


def make_data_home(folder: ServerFolder, chosen: Path | None) -> Path:
    """The directory that contains data/; on a chosen disk it is created with a marker.

    Raises ServerError if the chosen directory is missing, or the subdirectory has other files.
    """
    path = folder.data_home(chosen)
    if chosen is None:
        return path
    if not chosen.is_dir():
        raise ServerError("no-folder-for-data", path=chosen)
    if path.exists() and any(path.iterdir()) and not (path / MARKER).exists():
        raise ServerError("folder-of-others", path=path)
    make_folder(path)
    (path / MARKER).write_text(json.dumps({"made_by": "pgpaces", "server": folder.name}) + "\n")
    return path


def make_socket_folder(folder: ServerFolder, port: int, os_user: OsUser | None) -> Path:
    """An empty private folder for the socket: run/, or a short one where the path is too long."""
    path = folder.path / "run"
    if fits_socket(path, port):
        shutil.rmtree(path, ignore_errors=True)  # sockets of a server that was killed
        make_private_folder(path, os_user)
        return path
    path = Path(tempfile.mkdtemp(prefix="pgpaces-", dir=SHORT_FOLDERS))
    give(path, os_user)
    return path


def fits_socket(directory: Path, port: int) -> bool:
    """Whether a socket's path fits: sun_path is short, and libpq splits hosts at commas."""
    socket_path = os.fsencode(directory / f".s.PGSQL.{port}")
    return len(socket_path) <= SOCKET_PATH_BYTES_MAX and b"," not in socket_path
