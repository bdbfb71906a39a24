"""The databases of a store: connections, durability, and upgrades of the schema.

All differences of SQLite and PostgreSQL are here.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgpaces.core.errors import StoreError, StoreVersionError
from pgpaces.core.home import home, is_there, make_folder
from pgpaces.store import address, schema, upgrades
from pgpaces.store.connection import Connection

if TYPE_CHECKING:
    import psycopg

# Advisory lock during changes of the schema: "pgpaces" in ASCII.
_LOCK = 0x70677061636573
# How long one process waits on SQLite for the upgrade of another.
_UPGRADE_MS = 600_000
# The default timeout of a connection, after which its loss is noticed.
_PATIENCE_S = 10
# Names of errors by SQLite's primary code.
_SQLITE_ERRORS = {
    sqlite3.SQLITE_FULL: "store-full",
    sqlite3.SQLITE_READONLY: "store-read-only",
    sqlite3.SQLITE_CANTOPEN: "store-unusable",
    sqlite3.SQLITE_BUSY: "store-locked",
    sqlite3.SQLITE_LOCKED: "store-locked",
    sqlite3.SQLITE_IOERR: "store-disk-failed",
}
# Errors of using the file, not of its content.
_OF_USE = (sqlite3.OperationalError, sqlite3.IntegrityError, sqlite3.DataError)
# By SQLSTATE; a failed login has no SQLSTATE, only a text.
_POSTGRES_ERRORS = {
    "42501": "store-lacks-right",
    "3F000": "store-lacks-schema",
    "53100": "store-full",
    "53300": "store-too-many-connections",
    "25006": "store-on-standby",
}
_LOGIN_ERRORS = {
    "pg_hba.conf": "store-not-allowed",
    'role "': "store-role-absent",
    'database "': "store-database-absent",
    "password": "store-login-rejected",
    "": "store-unreachable",
}
_IDLE_MAX = 2  # connections that wait for their next use


class Backend:
    """The database of a store. address: for messages. path: of SQLite's file."""

    def __init__(self, connect: Callable[[], Any], address: str, path: Path | None = None) -> None:
        self.connect, self.address, self.path = connect, address, path
        self._idle: list[Connection] = []

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection with a consistent snapshot of the store."""
        level = "" if self.path else " ISOLATION LEVEL REPEATABLE READ"
        with self.transaction(f"BEGIN{level}") as connection:
            yield connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction, durable after an exit without an error."""
        if self.path is not None and not self.path.exists():
            # SQLite would continue to write to the removed file.
            raise StoreError("store-removed", store=self.address)
        with self.transaction("BEGIN IMMEDIATE" if self.path else "BEGIN") as connection:
            yield connection

    @contextlib.contextmanager
    def transaction(self, begin: str, busy_ms: int = address.BUSY_MS) -> Iterator[Connection]:
        with self.store_errors():
            connection = self._connection()
            try:
                if connection.sqlite:
                    connection.execute(f"PRAGMA busy_timeout = {busy_ms}")
                connection.execute(begin)
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                connection.driver.close()
                raise
            if len(self._idle) < _IDLE_MAX:
                self._idle.append(connection)
            else:
                connection.driver.close()

    def _connection(self) -> Connection:
        """An idle connection that still works, or a new one."""
        with contextlib.suppress(IndexError):  # other threads take connections, too
            while True:
                connection = self._idle.pop()
                try:
                    connection.execute("SELECT 1")
                except Exception:
                    connection.driver.close()
                else:
                    return connection
        return Connection(self.connect(), sqlite=self.path is not None)

    def close(self) -> None:
        """Closes its connections; further use opens new ones."""
        with contextlib.suppress(IndexError):  # other threads take connections, too
            while True:
                self._idle.pop().driver.close()

    @contextlib.contextmanager
    def store_errors(self) -> Iterator[None]:
        """Turns errors of the database into a StoreError with a hint."""
        try:
            yield
        except OSError as error:
            why = error.strerror or str(error)
            raise StoreError("store-unusable", store=self.address, why=why) from None
        except Exception as error:
            if not isinstance(error, _driver_error(self.path)):
                raise
            if self.path and is_there(self.path, Path.is_dir):
                raise StoreError("store-is-folder", store=self.address) from None
            why = " ".join(str(error).split())
            if not self.path:
                name = _server_error(error, why)
            elif isinstance(error, sqlite3.DatabaseError) and not isinstance(error, _OF_USE):
                name = "not-a-store"
            else:
                code = getattr(error, "sqlite_errorcode", 0) & 0xFF
                name = _SQLITE_ERRORS.get(code, "store-failed")
            raise StoreError(name, store=self.address, why=why) from None

    def size_bytes(self) -> int:
        return 0 if self.path is None else address.size_bytes(self.path)


def _driver_error(path: Path | None) -> type[Exception]:
    if path is not None:
        return sqlite3.Error
    import psycopg

    return psycopg.Error


def opened(place: Path | str | None) -> Backend:
    """The database at a place, with the newest schema; creates a file that is absent."""
    location = address.located(place)
    if not isinstance(location, Path):
        return _up_to_date(_server(location))
    backend = Backend(lambda: address.writable(location), str(location), location)
    with backend.store_errors():
        if location.parent == home():
            make_folder(location.parent)
        elif not location.parent.is_dir():
            folder = str(location.parent)
            raise StoreError("store-without-folder", store=str(location), folder=folder)
    return _up_to_date(backend)


def existing(place: Path | str | None) -> Backend:
    """The existing store at a place, which may be read-only."""
    location = address.located(place)
    if not isinstance(location, Path):
        backend = _server(location)
    else:
        can_write = os.access(location, os.W_OK) and os.access(location.parent, os.W_OK)
        connect = address.writable if can_write else address.readable
        backend = Backend(lambda: connect(location), str(location), location)
        with backend.store_errors():
            empty = not location.exists() or (location.is_file() and not location.stat().st_size)
        if empty and address.named(place):
            raise StoreError("store-absent", store=str(location))
        if empty:
            command = "pgpaces run reporting"
            raise StoreError("none-yet", what="run", store=str(location), command=command)
    with backend.reading() as connection:
        empty = not _version(connection, backend.address)
    if empty and isinstance(location, Path) and location.parent == home():
        return opened(location)  # a kill came between the file and its tables
    if empty:
        raise StoreError("store-absent", store=backend.address)
    return _up_to_date(backend)


def _connected(written: str, keywords: address.Keywords) -> psycopg.Connection[Any]:
    """A connection to a server with durable commits, in UTF-8."""
    import psycopg
    from psycopg.conninfo import make_conninfo
    from psycopg.types.string import TextLoader

    conninfo = make_conninfo(written, client_encoding="UTF8", **keywords)
    connection = psycopg.connect(conninfo, autocommit=True, prepare_threshold=None)
    connection.adapters.register_loader("json", TextLoader)
    connection.execute(
        "SELECT set_config('synchronous_commit', 'on', false)"
        " WHERE current_setting('synchronous_commit') = 'off'"
    )
    return connection


def _server(written: str) -> Backend:
    """Connects as written, and later with the keywords that libpq resolved.

    So later connections do not depend on the environment, which may have changed: PG* are hidden
    while a managed server is measured.
    """
    keywords = address.parsed(written)
    has_timeout = "connect_timeout" in keywords or "PGCONNECT_TIMEOUT" in os.environ
    patience = {} if has_timeout else {"connect_timeout": str(_PATIENCE_S)}
    backend = Backend(lambda: _connected(written, patience), address.shown(keywords))
    with backend.reading() as connection:
        encoding = connection.column("SHOW server_encoding")[0]
        info = connection.driver.info
        # As it was given: one of a password file is read again when a connection is made.
        given = {o.keyword: o.val for o in connection.driver.pgconn.info}.get(b"password")
    omitted = ("service", "servicefile", "client_encoding")
    resolved = {
        "connect_timeout": str(_PATIENCE_S),
        "tcp_user_timeout": str(_PATIENCE_S * 1000),
        "keepalives_idle": str(_PATIENCE_S),
        "keepalives_interval": "2",
        "keepalives_count": "3",
        "fallback_application_name": "pgpaces store",
        **({"password": given.decode()} if given else {}),
        **{name: v for name, v in info.get_parameters().items() if name not in omitted},
    }
    backend.connect = lambda: _connected("", resolved)
    backend.address = address.shown(resolved)
    if encoding != "UTF8":
        raise StoreError("store-encoding", store=backend.address, encoding=encoding)
    return backend


def _server_error(error: BaseException, text: str) -> str:
    import psycopg

    state = getattr(error, "sqlstate", None) or ""
    if not state and isinstance(error, psycopg.OperationalError):
        return next(name for sign, name in _LOGIN_ERRORS.items() if sign in text)
    return _POSTGRES_ERRORS.get(state, "store-failed")


def _up_to_date(backend: Backend) -> Backend:
    """Creates the tables of an empty database, or upgrades older ones, in one transaction."""
    with backend.reading() as connection:
        if _version(connection, backend.address) == upgrades.newest():
            return backend
    # A stricter level would hide what another process committed while this one waited.
    begin = "BEGIN IMMEDIATE" if backend.path else "BEGIN ISOLATION LEVEL READ COMMITTED"
    with backend.transaction(begin, _UPGRADE_MS) as connection:
        if not connection.sqlite:
            connection.execute("SELECT pg_advisory_xact_lock(?)", _LOCK)
        if version := _version(connection, backend.address):
            for upgrade in upgrades.UPGRADES[version - 1 :]:
                upgrade(connection)
            connection.execute("UPDATE pgpaces SET version = ?", upgrades.newest())
            return backend
        for table in schema.ALL:
            for statement in table.statements(sqlite=connection.sqlite):
                connection.execute(statement)
        connection.insert(schema.version, [{"version": upgrades.newest()}])
    return backend


def _version(connection: Connection, shown: str) -> int:
    """The version of the schema; 0 for an empty database.

    Raises StoreVersionError for a version that this pgpaces does not know, StoreError for a
    database of another program.
    """
    query = "SELECT tablename FROM pg_catalog.pg_tables WHERE schemaname = current_schema()"
    if connection.sqlite:
        query = "SELECT name FROM sqlite_master WHERE type = 'table'"
    tables = set(connection.column(query))
    if not tables:
        return 0
    version = None
    if schema.version.name in tables:
        version = next(iter(connection.column("SELECT version FROM pgpaces")), None)
    if not isinstance(version, int) or version < 1:
        raise StoreError("store-of-other-program", store=shown)
    if version > (newest := upgrades.newest()):
        raise StoreVersionError("store-of-newer", store=shown, version=version, newest=newest)
    return version
