"""The databases behind a store: how each is connected to, made durable and brought up to date.

SQLite and PostgreSQL differ here and nowhere else. Knows no trials.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.exc import SQLAlchemyError

from pgpaces.errors import StoreError, StoreVersionError
from pgpaces.home import home, is_there
from pgpaces.store import address, schema, sqlite
from pgpaces.store.encoding import HEAD, json_text
from pgpaces.store.listing import Cursor, as_far_as_it_is_text

if TYPE_CHECKING:
    import psycopg

_MIGRATIONS = Path(__file__).parents[1] / "migrations"
_OTHER = "choose another store with --store"
_OWN = f"{_OTHER}, or set PGPACES_HOME to a folder of yours"
# Held while the schema changes: "pgpaces" in ASCII.
_LOCK = 0x70677061636573
# Of a connection that nobody decided otherwise about: what is lost is noticed in so many seconds.
_PATIENCE_S = 10
_SQLITE_HINTS = {
    "full": "free some space, or choose another file with --store",
    "readonly": "make it writable, or choose another file with --store",
    "unable to open": f"may you read it, and write in its folder? else {_OWN}",
    "locked": "another program holds it; try again",
    "disk I/O": "the disk is full or broken; choose another file with --store",
}
# What is wrong with how it is used, or where it lies, and not with what is in it.
_OF_USE = (sqlite3.OperationalError, sqlite3.IntegrityError, sqlite3.DataError)
# By SQLSTATE, or its first two characters; libpq tells none of a login that failed, only texts.
_POSTGRES_HINTS = {
    "42501": "grant this role CREATE and USAGE on the schema, and its tables",
    "3F000": "make a schema on its search_path, in which this role may CREATE",
    "53": "the server has no room left; free some",
    "25006": "it is read-only, as a standby is; name the primary",
}
_LOGIN_HINTS = {
    'database "': "create it first: createdb",
    "password": "is the user right, and is its password in a password file or PGPASSWORD?",
    "": "does the server run, and does it let you in?",
}


class Backend(Struct, frozen=True):
    """A database that results lie in. address: for messages. path: of SQLite's file."""

    engine: sa.Engine
    address: str
    path: Path | None = None

    @contextlib.contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A connection that sees one moment of the store, whoever writes meanwhile."""
        with self.explained(), self.engine.connect() as connection:
            if self.path is None:
                connection.execution_options(isolation_level="REPEATABLE READ")
            else:
                connection.exec_driver_sql("BEGIN")
            yield connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction. When this is left without an error, it is durable."""
        if self.path is not None and not self.path.exists():
            # SQLite would go on writing to a file that nobody finds any more.
            raise StoreError(
                f"the store {self.address} was removed while it was used",
                "put it back, or name another with --store: what was stored in it is lost",
            )
        with self.explained(), self.engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Turns what the database says into a StoreError with the way out."""
        try:
            yield
        except (SQLAlchemyError, self.engine.dialect.loaded_dbapi.Error) as error:
            explain = _explained_file if self.path else _explained_server
            message, hint = explain(self.address, error)
            raise StoreError(message, hint) from None
        except OSError as error:
            raise StoreError(
                f"the store {self.address} cannot be used: {error.strerror or error}", _OWN
            ) from None

    def size_bytes(self) -> int:
        """What SQLite takes on its disk, with what is not in its file yet; 0 of a server's."""
        if self.path is None:
            return 0
        files = (self.path, self.path.with_name(self.path.name + "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())


@contextlib.contextmanager
def cursor(connection: sa.Connection) -> Iterator[Cursor]:
    """The driver's own, for what needs nothing of SQLAlchemy."""
    driver: Any = connection.connection.driver_connection
    with contextlib.closing(driver.cursor()) as made:
        if connection.dialect.name == "postgresql":
            yield Cursor(made, "%s")
            return
        driver.text_factory, before = as_far_as_it_is_text, driver.text_factory
        try:
            yield Cursor(made, "?")
        finally:
            driver.text_factory = before


def opened(place: Path | str | None) -> Backend:
    """The database at a place, with the newest schema; a file is made where there is none.

    Raises StoreError, StoreVersionError.
    """
    found = address.default() if place is None else address.located(place)
    if not isinstance(found, Path):
        return _up_to_date(_server(found))
    backend = Backend(_engine(found, sqlite.writable), str(found), found)
    if found.parent == home():
        with backend.explained():
            found.parent.mkdir(parents=True, exist_ok=True)
    elif not _reached(found.parent, str(found), Path.is_dir):
        raise StoreError(
            f"the store {found} cannot be made: there is no folder {found.parent}",
            "is the path right? else make the folder",
        )
    return _up_to_date(backend)


def existing(place: Path | str | None) -> Backend:
    """The store at a place where there is one, which it may be impossible to write to.

    Raises StoreError, StoreVersionError.
    """
    found = address.default() if place is None else address.located(place)
    if not isinstance(found, Path):
        backend = _server(found)
    elif not _reached(found, str(found), _holds_something):
        raise _absent(str(found), default=place is None)
    else:
        can_write = os.access(found, os.W_OK) and os.access(found.parent, os.W_OK)
        connect = sqlite.writable if can_write else sqlite.readable
        backend = Backend(_engine(found, connect), str(found), found)
    with backend.explained(), backend.engine.connect() as connection:
        empty = not sa.inspect(connection).get_table_names()
    if empty and isinstance(found, Path) and found.parent == home():
        return opened(found)  # a kill came between the file and its tables
    if empty:
        raise _absent(backend.address)
    return _up_to_date(backend)


def _holds_something(path: Path) -> bool:
    return path.exists() and not (path.is_file() and not path.stat().st_size)


def _reached(path: Path, shown: str, is_so: Callable[[Path], bool]) -> bool:
    """Whether it is so. Raises StoreError where the system does not say."""
    try:
        return is_so(path)
    except OSError as error:
        raise StoreError(
            f"the store {shown} cannot be used: {error.strerror or error}", _OWN
        ) from None


def _absent(shown: str, *, default: bool = False) -> StoreError:
    if default:
        return StoreError(f"there are no results yet in {shown}", "try: pgpaces run reporting")
    return StoreError(
        f"there is no store {shown}",
        "is it the right place? `pgpaces run` makes a store where there is none",
    )


def _up_to_date(backend: Backend) -> Backend:
    with backend.explained(), backend.engine.connect() as connection:
        if _version(connection) != HEAD:
            with _alone(backend):
                _upgrade(connection, backend)
    return backend


# --- SQLite -----------------------------------------------------------------------------------


def _engine(path: Path, connect: Callable[[Path], sqlite3.Connection]) -> sa.Engine:
    url = sa.URL.create("sqlite", database=str(path))
    return sa.create_engine(url, creator=lambda: connect(path))


def _explained_file(shown: str, error: Exception) -> tuple[str, str | None]:
    origin = getattr(error, "orig", error)
    if is_there(shown, Path.is_dir):
        return f"the store {shown} is a folder", f"name a file in it, or {_OTHER}"
    if isinstance(origin, sqlite3.DatabaseError) and not isinstance(origin, _OF_USE):
        return f"{shown} is not a store of pgpaces: {origin}", _OTHER
    text = str(origin)
    hint = next((hint for sign, hint in _SQLITE_HINTS.items() if sign in text), None)
    return f"the store {shown} cannot be used: {text}", hint


# --- PostgreSQL -------------------------------------------------------------------------------


class _Way(Struct):
    """The way to a server: as it was written, and once it worked, as libpq resolved it.

    So that later connections do not depend on an environment that may have changed: PG* are hidden
    while a managed server is measured.
    """

    written: str
    keywords: address.Keywords
    worked: bool = False

    def connect(self) -> psycopg.Connection[Any]:
        """A connection that is durable, and speaks UTF-8."""
        import psycopg
        from psycopg.conninfo import make_conninfo
        from psycopg.types.json import set_json_dumps

        written, more = ("", self.keywords) if self.worked else (self.written, self._first())
        conninfo = make_conninfo(written, client_encoding="UTF8", **more)
        made = psycopg.connect(conninfo, prepare_threshold=None)
        set_json_dumps(json_text, made)
        if not self.worked:
            self.keywords = self._resolved(made)
            self.worked = True
        made.execute(
            "SELECT set_config('synchronous_commit', 'on', false)"
            " WHERE current_setting('synchronous_commit') = 'off'"
        )
        made.commit()
        return made

    def _first(self) -> address.Keywords:
        said = "connect_timeout" in self.keywords or "PGCONNECT_TIMEOUT" in os.environ
        return {} if said else {"connect_timeout": str(_PATIENCE_S)}

    def _resolved(self, made: psycopg.Connection[Any]) -> address.Keywords:
        """Everything that libpq found out, the password too, unless a file of passwords has it."""
        gone = {"service", "servicefile", "client_encoding"}
        found = {
            option.keyword.decode(): option.val.decode()
            for option in made.pgconn.info
            if option.val is not None and option.val != option.compiled
        }
        patience = {
            "connect_timeout": str(_PATIENCE_S),
            "tcp_user_timeout": str(_PATIENCE_S * 1000),
            "keepalives_idle": str(_PATIENCE_S),
            "keepalives_interval": "2",
            "keepalives_count": "3",
            "fallback_application_name": "pgpaces store",
        }
        return patience | {k: v for k, v in found.items() if v and k not in gone}


def _server(written: str) -> Backend:
    given = address.parsed(written)
    way = _Way(written, given)
    engine = sa.create_engine(
        "postgresql+psycopg://",
        creator=way.connect,
        pool_size=1,
        pool_pre_ping=True,
        hide_parameters=True,
    )
    backend = Backend(engine, address.shown(given))
    with backend.explained(), engine.connect() as connection:
        encoding = connection.exec_driver_sql("SHOW server_encoding").scalar()
    backend = Backend(engine, address.shown(way.keywords))
    if encoding != "UTF8":
        raise StoreError(
            f"the store {backend.address} has encoding {encoding}, expected UTF8",
            "create the database with: createdb -E UTF8 -T template0",
        )
    return backend


def _explained_server(shown: str, error: Exception) -> tuple[str, str | None]:
    import psycopg

    origin = getattr(error, "orig", error)
    state = getattr(origin, "sqlstate", None) or ""
    text = " ".join(str(origin).split())
    hint = _POSTGRES_HINTS.get(state) or _POSTGRES_HINTS.get(state[:2])
    if not state and isinstance(origin, psycopg.OperationalError):
        hint = next(hint for sign, hint in _LOGIN_HINTS.items() if sign in text)
    return f"the store {shown} cannot be used: {text}", hint


# --- the schema -------------------------------------------------------------------------------


def _version(connection: sa.Connection) -> str | None:
    """The version of the schema; None where there is none yet."""
    current = None
    if sa.inspect(connection).has_table("alembic_version"):
        current = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
    connection.rollback()
    return None if current is None else str(current)


@contextlib.contextmanager
def _alone(backend: Backend) -> Iterator[None]:
    """Keeps others from changing the schema at the same time."""
    if backend.path is None:
        with backend.engine.connect() as guard:
            guard.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
            yield
        return
    descriptor = os.open(backend.path.parent, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _upgrade(connection: sa.Connection, backend: Backend) -> None:
    """Brings the schema to HEAD; alembic is imported only where there is an older one."""
    current, shown = _version(connection), backend.address  # another session may have been quicker
    if current == HEAD:
        return
    if current is None:
        if sa.inspect(connection).get_table_names():
            raise StoreError(f"{shown} is a database of something else", _OTHER)
        connection.rollback()
        if backend.path is not None:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        schema.metadata.create_all(connection, checkfirst=False)
        connection.execute(sa.insert(schema.version), {"version_num": HEAD})
        connection.commit()
        return
    if current > HEAD:
        raise StoreVersionError(
            f"the store {shown} was written by a newer pgpaces (version {current}, we know {HEAD})",
            f"upgrade pgpaces, or {_OTHER}",
        )
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    connection.commit()
