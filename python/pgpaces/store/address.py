"""The address of a store, and connections to its SQLite file.

An address is a file of SQLite, or a database of a PostgreSQL server. Messages show addresses, so
they hold no password; the keywords of a connection may.
"""

from __future__ import annotations

import os
import re
import sqlite3
from pathlib import Path

from pgpaces.core.errors import StoreError
from pgpaces.core.home import home, is_there

_URL = re.compile(r"\s*postgres(ql)?://", re.IGNORECASE)
_SCHEME = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]*://")
# A file with such a name needs a folder before it: ./host=pi
_CONNINFO = re.compile(r"\s*(host|hostaddr|port|dbname|user|password|service|passfile|ssl\w+)\s*=")
# libpq's keywords and their values.
Keywords = dict[str, str]
BUSY_MS = 5000


def default() -> Path | str:
    """$PGPACES_STORE, else results.db in pgpaces' home."""
    chosen = os.environ.get("PGPACES_STORE")
    return located(chosen) if chosen else home() / "results.db"


def named(place: Path | str | None) -> bool:
    """Whether a store is named: by a place, or by $PGPACES_STORE."""
    return place is not None or bool(os.environ.get("PGPACES_STORE"))


def located(place: Path | str | None) -> Path | str:
    """A file, or the connection string of a PostgreSQL server; None is the default store.

    Raises StoreError for what cannot be a file: a URL of another kind, the home of an unknown user,
    a device.
    """
    if place is None:
        return default()
    if isinstance(place, str) and (_URL.match(place) or _CONNINFO.match(place)):
        return place
    if isinstance(place, str) and (scheme := _SCHEME.match(place)):
        raise StoreError("store-scheme", scheme=scheme[0])
    try:
        path = Path(place).expanduser()
    except RuntimeError as error:
        raise StoreError("store-unknown-home", store=str(place), why=str(error)) from None
    if place == "":
        raise StoreError("store-unnamed")
    if str(path) == ":memory:":
        raise StoreError("store-in-memory")
    if is_there(path) and not (is_there(path, Path.is_file) or is_there(path, Path.is_dir)):
        raise StoreError("store-not-a-file", store=str(path))
    return path


def parsed(written: str) -> Keywords:
    """The keywords in a connection string, without libpq's defaults. Raises StoreError."""
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        return {name: str(value) for name, value in conninfo_to_dict(written).items()}
    except psycopg.Error:
        # libpq's message may quote the string, and so a password.
        raise StoreError("store-connection-string") from None


def default_shown() -> str:
    """The address of the default store. Raises StoreError."""
    place = default()
    return str(place) if isinstance(place, Path) else shown(parsed(place))


def shown(keywords: Keywords) -> str:
    """The address of a database by the keywords of its connection, as --store takes it.

    It has no secrets, so the password is to be in a password file.
    """
    from psycopg.conninfo import make_conninfo

    names = ("service", "host", "hostaddr", "port", "dbname", "user")
    own = {name: keywords[name] for name in names if name in keywords}
    return make_conninfo("", **own) or "postgresql://"


def writable(path: Path) -> sqlite3.Connection:
    """For reading and writing, with durable commits. Creates the file."""
    connection = _connected(path)
    for pragma in ("journal_mode = WAL", "synchronous = FULL"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def _connected(place: Path | str, *, uri: bool = False) -> sqlite3.Connection:
    """A connection in autocommit mode that reads texts which are not UTF-8, too."""
    connection = sqlite3.connect(
        place, uri=uri, timeout=BUSY_MS / 1000, check_same_thread=False, isolation_level=None
    )
    connection.text_factory = lambda text: text.decode(errors="surrogateescape")
    return connection


def size_bytes(path: Path) -> int:
    """The size of a store's file and its write-ahead log; 0 where there is none."""
    files = (path, path.with_name(f"{path.name}-wal"))
    return sum(file.stat().st_size for file in files if file.exists())


def readable(path: Path) -> sqlite3.Connection:
    """For reading, also on a read-only file system. Raises sqlite3.Error, StoreError.

    While a file is in use, a write-ahead log and a shared-memory file are next to it. Where these
    cannot be created, nothing writes, and the file is complete unless a log remains.
    """
    try:
        connection = _opened(path, "mode=ro")
    except sqlite3.OperationalError:
        if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
            raise
        log = path.with_name(path.name + "-wal")
        if log.exists() and log.stat().st_size:
            raise StoreError(
                "store-log-unreadable", store=str(path), file=path.name, log=log.name
            ) from None
        connection = _opened(path, "mode=ro&immutable=1")
    return connection


def _opened(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?{mode}"
    connection = _connected(uri, uri=True)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection
