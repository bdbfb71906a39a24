"""A store's SQLite file, opened as far as the file system lets us: a copy on a CD can be read too.

Without SQLAlchemy, as lists of runs are; its pool gives a connection to one thread at a time.
Knows no tables.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from pgpaces.errors import StoreError

_BUSY_S = 5.0


def writable(path: Path) -> sqlite3.Connection:
    """For reading and writing; what is committed is durable. Makes the file."""
    connection = sqlite3.connect(path, timeout=_BUSY_S, check_same_thread=False)
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "busy_timeout = 5000"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def readable(path: Path) -> sqlite3.Connection:
    """For reading, also where nothing can be written. Raises sqlite3.Error, StoreError.

    A log of changes stands beside the file while it is used: it is read by everybody's shared
    memory, which is a file too. Where that cannot be made, no one writes, and the file says all,
    unless a log was left.
    """
    try:
        connection = _opened(path, "mode=ro")
    except sqlite3.OperationalError:
        if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
            raise
        log = path.with_name(path.name + "-wal")
        if log.exists() and log.stat().st_size:
            raise StoreError(
                f"the store {path} cannot be read: its last changes are in {log.name}, and nothing"
                " can be written there",
                f"copy {path.name} and {log.name} to a folder of yours, and read them there",
            ) from None
        connection = _opened(path, "mode=ro&immutable=1")
    return connection


def _opened(path: Path, how: str) -> sqlite3.Connection:
    where = f"{path.absolute().as_uri()}?{how}"
    connection = sqlite3.connect(where, uri=True, timeout=_BUSY_S, check_same_thread=False)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection
