"""The databases of a store: connections, durability, and upgrades of the schema.

All differences of SQLite and PostgreSQL are here. Knows no trials.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.exc import SQLAlchemyError

from pgpaces.core.errors import StoreError, StoreVersionError
from pgpaces.core.home import home, is_there, make_folder
from pgpaces.store import address, schema, sqlite, upgrades
from pgpaces.store.encoding import json_text
from pgpaces.store.listing import Cursor, decode_lossless

if TYPE_CHECKING:
    import psycopg

_OTHER = "choose another store with --store"
_OWN = f"{_OTHER}, or set PGPACES_HOME to a writable folder"
# Advisory lock during changes of the schema: "pgpaces" in ASCII.
_LOCK = 0x70677061636573
# How long one process waits on SQLite for the upgrade of another.
_UPGRADE_MS = 600_000
# The default timeout of a connection, after which its loss is noticed.
_PATIENCE_S = 10
_SQLITE_HINTS = {
    "full": "free some space, or choose another file with --store",
    "readonly": "make it writable, or choose another file with --store",
    "unable to open": f"make it readable and its folder writable; else {_OWN}",
    "locked": "another program holds it; try again",
    "disk I/O": "the disk is full or broken; choose another file with --store",
}
# Errors of using the file, not of its content.
_OF_USE = (sqlite3.OperationalError, sqlite3.IntegrityError, sqlite3.DataError)
# By SQLSTATE; a failed login has no SQLSTATE, only a text.
_POSTGRES_HINTS = {
    "42501": "grant this role CREATE and USAGE on the schema, and its tables",
    "3F000": "make a schema on its search_path, in which this role may CREATE",
    "53100": "the server's disk is full; free some space",
    "53200": "the server is out of memory",
    "53300": "the server has no connection left; raise max_connections, or close some",
    "25006": "it is read-only, as a standby is; name the primary",
}
_LOGIN_HINTS = {
    "pg_hba.conf": "let this user and host in by pg_hba.conf",
    'role "': "create the role, or name another user",
    'database "': "create it first: createdb",
    "password": "is the user right, and is its password in a password file or PGPASSWORD?",
    "": "does the server run, and does it let you in?",
}


class Backend(Struct, frozen=True):
    """The database of a store. address: for messages. path: of SQLite's file."""

    engine: sa.Engine
    address: str
    path: Path | None = None

    @contextlib.contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A connection with a consistent snapshot of the store."""
        with self.store_errors(), self.engine.connect() as connection:
            if self.path is None:
                connection.execution_options(isolation_level="REPEATABLE READ")
            else:
                connection.exec_driver_sql("BEGIN")
            yield connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction, durable after an exit without an error."""
        if self.path is not None and not self.path.exists():
            # SQLite would continue to write to the removed file.
            raise StoreError(
                f"the store {self.address} was removed while it was used",
                "put it back, or name another with --store; the results in it are lost",
            )
        with self.store_errors(), self.engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def store_errors(self) -> Iterator[None]:
        """Turns errors of the database into a StoreError with a hint."""
        try:
            yield
        except (SQLAlchemyError, self.engine.dialect.loaded_dbapi.Error) as error:
            explain = _explain_file if self.path else _explain_server
            message, hint = explain(self.address, error)
            raise StoreError(message, hint) from None
        except OSError as error:
            raise StoreError(
                f"the store {self.address} cannot be used: {error.strerror or error}", _OWN
            ) from None

    def insert_new(self, table: sa.Table) -> sa.Insert:
        """An insertion of those rows whose keys are not stored yet."""
        # Each dialect imports all its drivers.
        if self.path is None:
            from sqlalchemy.dialects import postgresql

            return postgresql.insert(table).on_conflict_do_nothing()
        from sqlalchemy.dialects import sqlite

        return sqlite.insert(table).on_conflict_do_nothing()

    def size_bytes(self) -> int:
        return 0 if self.path is None else sqlite.size_bytes(self.path)


@contextlib.contextmanager
def cursor(connection: sa.Connection) -> Iterator[Cursor]:
    """A cursor of the driver, for queries without SQLAlchemy."""
    driver: Any = connection.connection.driver_connection
    with contextlib.closing(driver.cursor()) as driver_cursor:
        if connection.dialect.name == "postgresql":
            yield Cursor(driver_cursor, "%s")
            return
        driver.text_factory, before = decode_lossless, driver.text_factory
        try:
            yield Cursor(driver_cursor, "?")
        finally:
            driver.text_factory = before


def opened(place: Path | str | None) -> Backend:
    """The database at a place, with the newest schema; creates a file that is absent."""
    location = address.located(place)
    if not isinstance(location, Path):
        return _up_to_date(_server(location))
    backend = Backend(_engine(location, sqlite.writable), str(location), location)
    if location.parent == home():
        with backend.store_errors():
            make_folder(location.parent)
    elif not _test(location.parent, str(location), Path.is_dir):
        raise StoreError(
            f"the store {location} cannot be made: there is no folder {location.parent}",
            "check the path, or make the folder",
        )
    return _up_to_date(backend)


def existing(place: Path | str | None) -> Backend:
    """The existing store at a place, which may be read-only."""
    location = address.located(place)
    if not isinstance(location, Path):
        backend = _server(location)
    elif not _test(location, str(location), _has_content):
        raise _absent(str(location), default=not address.named(place))
    else:
        can_write = os.access(location, os.W_OK) and os.access(location.parent, os.W_OK)
        connect = sqlite.writable if can_write else sqlite.readable
        backend = Backend(_engine(location, connect), str(location), location)
    with backend.store_errors(), backend.engine.connect() as connection:
        empty = not _version(connection, backend.address)
    if empty and isinstance(location, Path) and location.parent == home():
        return opened(location)  # a kill came between the file and its tables
    if empty:
        raise _absent(backend.address)
    return _up_to_date(backend)


def _has_content(path: Path) -> bool:
    return path.exists() and not (path.is_file() and not path.stat().st_size)


def _test(path: Path, shown: str, test: Callable[[Path], bool]) -> bool:
    """The result of a test of a path. Raises StoreError for an OSError in it."""
    try:
        return test(path)
    except OSError as error:
        raise StoreError(
            f"the store {shown} cannot be used: {error.strerror or error}", _OWN
        ) from None


def _absent(shown: str, *, default: bool = False) -> StoreError:
    if default:
        return StoreError(f"there are no results yet in {shown}", "try: pgpaces run reporting")
    return StoreError(
        f"there is no store {shown}",
        "check the place; `pgpaces run` makes a store where there is none",
    )


def _engine(path: Path, connect: Callable[[Path], sqlite3.Connection]) -> sa.Engine:
    url = sa.URL.create("sqlite", database=str(path))
    return sa.create_engine(url, creator=lambda: connect(path))


def _explain_file(shown: str, error: Exception) -> tuple[str, str | None]:
    origin = getattr(error, "orig", error)
    if is_there(shown, Path.is_dir):
        return f"the store {shown} is a folder", f"name a file in it, or {_OTHER}"
    if isinstance(origin, sqlite3.DatabaseError) and not isinstance(origin, _OF_USE):
        return f"{shown} is not a store of pgpaces: {origin}", _OTHER
    text = str(origin)
    hint = next((hint for sign, hint in _SQLITE_HINTS.items() if sign in text), None)
    return f"the store {shown} cannot be used: {text}", hint


class _Connector(Struct):
    """Connects to a server: first as written, later with the keywords that libpq resolved.

    So later connections do not depend on the environment, which may have changed: PG* are hidden
    while a managed server is measured.
    """

    written: str
    keywords: address.Keywords
    resolved: bool = False

    def connect(self) -> psycopg.Connection[Any]:
        """A connection with durable commits, in UTF-8."""
        import psycopg
        from psycopg.conninfo import make_conninfo
        from psycopg.types.json import set_json_dumps

        written, keywords = self.written, dict[str, str]()
        if self.resolved:
            written, keywords = "", self.keywords
        elif not ("connect_timeout" in self.keywords or "PGCONNECT_TIMEOUT" in os.environ):
            keywords = {"connect_timeout": str(_PATIENCE_S)}
        conninfo = make_conninfo(written, client_encoding="UTF8", **keywords)
        connection = psycopg.connect(conninfo, prepare_threshold=None)
        set_json_dumps(json_text, connection)
        if not self.resolved:
            self.keywords = self._resolve(connection)
            self.resolved = True
        connection.execute(
            "SELECT set_config('synchronous_commit', 'on', false)"
            " WHERE current_setting('synchronous_commit') = 'off'"
        )
        connection.commit()
        return connection

    def _resolve(self, connection: psycopg.Connection[Any]) -> address.Keywords:
        """All keywords that libpq resolved, with the password unless it is in a password file."""
        omitted = {"service", "servicefile", "client_encoding"}
        resolved = {
            option.keyword.decode(): option.val.decode()
            for option in connection.pgconn.info
            if option.val is not None and option.val != option.compiled
        }
        defaults = {
            "connect_timeout": str(_PATIENCE_S),
            "tcp_user_timeout": str(_PATIENCE_S * 1000),
            "keepalives_idle": str(_PATIENCE_S),
            "keepalives_interval": "2",
            "keepalives_count": "3",
            "fallback_application_name": "pgpaces store",
        }
        return defaults | {k: v for k, v in resolved.items() if v and k not in omitted}


def _server(written: str) -> Backend:
    keywords = address.parsed(written)
    connector = _Connector(written, keywords)
    engine = sa.create_engine(
        "postgresql+psycopg://",
        creator=connector.connect,
        pool_size=1,
        pool_pre_ping=True,
        hide_parameters=True,
    )
    backend = Backend(engine, address.shown(keywords))
    with backend.store_errors(), engine.connect() as connection:
        encoding = connection.exec_driver_sql("SHOW server_encoding").scalar()
    backend = Backend(engine, address.shown(connector.keywords))
    if encoding != "UTF8":
        raise StoreError(
            f"the store {backend.address} has encoding {encoding}, expected UTF8",
            "create the database with: createdb -E UTF8 -T template0",
        )
    return backend


def _explain_server(shown: str, error: Exception) -> tuple[str, str | None]:
    import psycopg

    origin = getattr(error, "orig", error)
    state = getattr(origin, "sqlstate", None) or ""
    text = " ".join(str(origin).split())
    hint = _POSTGRES_HINTS.get(state)
    if not state and isinstance(origin, psycopg.OperationalError):
        hint = next(hint for sign, hint in _LOGIN_HINTS.items() if sign in text)
    return f"the store {shown} cannot be used: {text}", hint


def _up_to_date(backend: Backend) -> Backend:
    """Creates the tables of an empty database, or upgrades older ones, in one transaction."""
    with backend.store_errors(), backend.engine.connect() as connection:
        if _version(connection, backend.address) != upgrades.newest():
            connection.rollback()
            _lock(connection, backend)
            if version := _version(connection, backend.address):
                for upgrade in upgrades.UPGRADES[version - 1 :]:
                    upgrade(connection)
                connection.execute(sa.update(schema.version).values(version=upgrades.newest()))
            else:
                schema.metadata.create_all(connection, checkfirst=False)
                connection.execute(sa.insert(schema.version).values(version=upgrades.newest()))
            connection.commit()
    return backend


def _version(connection: sa.Connection, shown: str) -> int:
    """The version of the schema; 0 for an empty database.

    Raises StoreVersionError for a version that this pgpaces does not know, StoreError for a
    database of another program.
    """
    tables = set(sa.inspect(connection).get_table_names())
    if not tables:
        return 0
    if {"alembic_version", "trial", "tally"} <= tables:
        raise StoreVersionError(
            f"the store {shown} was written by an older pgpaces, and this one cannot read it",
            f"read it with the older pgpaces, or {_OTHER}",
        )
    version = None
    if schema.version.name in tables:
        version = connection.execute(sa.select(schema.version)).scalar()
    if not isinstance(version, int) or version < 1:
        raise StoreError(f"{shown} is a database of another program", _OTHER)
    if version > upgrades.newest():
        raise StoreVersionError(
            f"the store {shown} was written by a newer pgpaces (version {version}, not"
            f" {upgrades.newest()})",
            f"upgrade pgpaces, or {_OTHER}",
        )
    return version


def _lock(connection: sa.Connection, backend: Backend) -> None:
    """Begins a transaction that changes the schema; waits for another one to end."""
    if backend.path is None:
        # A stricter level would hide what another process committed while this one waited.
        connection.execution_options(isolation_level="READ COMMITTED")
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        return
    # Without BEGIN, SQLite's driver would commit each change of the schema by itself.
    for statement in (f"PRAGMA busy_timeout = {_UPGRADE_MS}", "BEGIN IMMEDIATE"):
        connection.exec_driver_sql(statement)
    connection.exec_driver_sql(f"PRAGMA busy_timeout = {sqlite.BUSY_MS}")
