"""The address of a store, and its SQLite file, opened without SQLAlchemy as for lists of runs.

An address is a file of SQLite, or a database of a PostgreSQL server. Messages show addresses, so
they hold no password; the keywords of a connection may.
"""

from __future__ import annotations

import os
import re
import sqlite3
from pathlib import Path
from urllib.parse import quote

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

    A URL, or a service. It has no secrets, so the password is to be in a password file.
    """
    if "service" in keywords and "host" not in keywords:
        from psycopg.conninfo import make_conninfo

        names = ("service", "hostaddr", "port", "dbname", "user")
        return make_conninfo("", **{name: keywords[name] for name in names if name in keywords})
    user = f"{_quoted(keywords['user'])}@" if "user" in keywords else ""
    host, ports = keywords.get("host", ""), keywords.get("port", "").split(",")
    rest = {"hostaddr": keywords.get("hostaddr", "")}
    if "/" in host or "@" in host:  # a folder of sockets
        rest |= {"host": host, "port": keywords.get("port", "")}
        host, ports = "", [""]
    elif not host:
        host = rest.pop("hostaddr")
    hosts = [f"[{each}]" if ":" in each else _quoted(each) for each in host.split(",")]
    pairs = zip(hosts, ports if len(ports) > 1 else ports * len(hosts), strict=False)
    places = ",".join(f"{each}:{port}" if port else each for each, port in pairs)
    query = "&".join(f"{name}={_quoted(value, '/,:')}" for name, value in rest.items() if value)
    dbname = _quoted(keywords.get("dbname", ""))
    return f"postgresql://{user}{places}/{dbname}" + (f"?{query}" if query else "")


def _quoted(text: str, safe: str = "") -> str:
    return quote(text, safe, errors="surrogateescape")


def writable(path: Path) -> sqlite3.Connection:
    """For reading and writing, with durable commits. Creates the file."""
    connection = sqlite3.connect(path, timeout=BUSY_MS / 1000, check_same_thread=False)
    for pragma in ("journal_mode = WAL", "synchronous = FULL"):
        connection.execute(f"PRAGMA {pragma}")
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
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_MS / 1000, check_same_thread=False)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection
