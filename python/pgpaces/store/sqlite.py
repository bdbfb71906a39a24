"""Opens a store's SQLite file, for reading also on a read-only file system.

Without SQLAlchemy, as for lists of runs; its pool gives a connection to one thread at a time.
Knows no tables.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from pgpaces.core.errors import StoreError

BUSY_MS = 5000


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
