"""Creates and drops managed databases, so that a kill at any moment leaves none for good.

A database is created under a random name, marked as owned, then renamed: no managed database has
its final name without ownership. Until the rename, a note in pgpaces' home holds the random name,
under a lock that ends with the process. Knows nothing of data, load and results.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg

from pgpaces.core.errors import PrepareError
from pgpaces.core.home import home, make_folder, matching
from pgpaces.core.messages import message
from pgpaces.core.sessions import Session, scalar
from pgpaces.core.texts import Say, Warned
from pgpaces.database import ownership
from pgpaces.database.access import (
    LOCK_CLASS,
    Access,
    common,
    connect,
    locked,
    preparation_errors,
    server_id,
    size,
    with_names,
)
from pgpaces.database.ownership import COPY, PREPARING, Ownership

_PREFIX = "pgpaces_new_"
_RUN = "_run"
# For a backend to end: a copy of a database checks for interrupts at every file.
_ENDED_S = 10.0


def run_name(dbname: str) -> str:
    return dbname + _RUN


def create(
    access: Access, admin: Session, dbname: str, *, owned: Ownership, make: Callable[[str], object]
) -> None:
    """Creates a managed database. make: creates it under the name of its argument.

    Raises psycopg.Error and the errors of `make`; then drops it, if the server still runs.
    """
    name = _PREFIX + secrets.token_hex(8)
    # The backend holds it while it works on the database, also after its client was killed.
    admin.execute("SELECT /* pgpaces */ pg_advisory_lock(%s, hashtext(%s))", (LOCK_CLASS, name))
    with _noted(name, server_id(admin, access)) as note:
        try:
            make(name)
            ownership.set_ownership(admin, name, owned)
            admin.execute(with_names("ALTER DATABASE {} RENAME TO {}", name, dbname))
        except BaseException:
            with contextlib.suppress(Exception):
                admin.execute(ownership.drop(name, if_exists=True))
                note.unlink(missing_ok=True)
            raise
        note.unlink(missing_ok=True)
    admin.execute("SELECT /* pgpaces */ pg_advisory_unlock(%s, hashtext(%s))", (LOCK_CLASS, name))


def _folder() -> Path:
    return home() / "databases"


@contextlib.contextmanager
def _noted(name: str, server: str) -> Iterator[Path]:
    """A durable, locked note of a database that is being created.

    Without a writable home, a kill leaves a database that no later run drops, but none needs
    its name.
    """
    path = _folder() / name
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            make_folder(path.parent)
            file = stack.enter_context(path.open("x"))
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(server)
            file.flush()
            os.fsync(file.fileno())
        yield path


def drop_leftovers(access: Access, admin: Session, locks: Session, *, say: Say) -> int:
    """Drops the databases that killed runs left on this server; returns the freed bytes.

    These are copies for trials and unfinished data that no process has locked, and databases
    before their rename. locks: the session of `common`. Raises psycopg.Error if the server is gone.
    """
    freed = 0
    for dbname in _leftovers(access, admin, locks):
        try:
            bytes_taken = size(admin, dbname)
            say(message("leftover-dropped", dbname=dbname))
            ownership.drop_owned(admin, dbname)
            (_folder() / dbname).unlink(missing_ok=True)
            freed += bytes_taken
        except psycopg.DatabaseError as error:
            if error.sqlstate is None:
                raise
            say(Warned(message("leftover-stays", dbname=dbname, error=error.diag.message_primary)))
    return freed


def clean(access: Access) -> int:
    """Drops every database that pgpaces created as this role; returns the freed bytes.

    A database of --own stays: the user created it. Raises PrepareError, also for databases in use,
    when all others are dropped.
    """
    used: list[str] = []
    with connect(access) as admin, common(access) as locks:
        freed = drop_leftovers(access, admin, locks, say=lambda _: None)
        for dbname, (owned, bytes_taken) in ownership.owned_databases(access).items():
            if owned.own or dbname.startswith(_PREFIX):  # another pgpaces is making that one
                continue
            with preparation_errors(dbname), contextlib.suppress(psycopg.errors.ObjectInUse):
                if locked(locks, _lock_of(dbname, owned)):
                    admin.execute(ownership.drop(dbname))
                    freed += bytes_taken
                    continue
            used.append(dbname)
    if used:
        raise PrepareError("databases-in-use", databases=used, freed_bytes=freed)
    return freed


def _leftovers(access: Access, admin: Session, locks: Session) -> Iterator[str]:
    """The databases that killed runs left, each locked until the next one is requested.

    Without databases of other roles; none on a standby, where nothing can be dropped.
    """
    query = (
        # -2: DROP DATABASE was interrupted; no session can connect to it any more.
        "SELECT datname, shobj_description(oid, 'pg_database'), datconnlimit = -2"
        " FROM pg_catalog.pg_database"
        " WHERE pg_has_role(datdba, 'USAGE') AND NOT pg_is_in_recovery() AND datname ~ '^pgpaces_'"
    )
    notes = list(_leftover_notes(admin, access))
    for dbname, comment, half_dropped in admin.execute(query).fetchall():
        owned = Ownership.read(comment)
        unnamed = owned and dbname.startswith(_PREFIX)
        if dbname in notes or (owned and half_dropped) or (unnamed and not _makers(admin, dbname)):
            yield dbname
        elif owned and not owned.own and owned.state in (COPY, PREPARING):
            lock = (LOCK_CLASS, _lock_of(dbname, owned))
            if scalar(locks, "SELECT /* pgpaces */ pg_try_advisory_lock(%s, hashtext(%s))", lock):
                yield dbname
                locks.execute("SELECT /* pgpaces */ pg_advisory_unlock(%s, hashtext(%s))", lock)


def _lock_of(dbname: str, owned: Ownership) -> str:
    """The name that a trial locks: a copy has no lock of its own."""
    return dbname.removesuffix(_RUN) if owned.state == COPY else dbname


def _leftover_notes(admin: Session, access: Access) -> Iterator[str]:
    """Databases in notes about this server by ended processes; ends the backends on them.

    Removes notes without a database.
    """
    paths = matching(_folder(), f"{_PREFIX}*")
    server = server_id(admin, access) if paths else ""
    for path in paths:
        try:
            with path.open() as file:
                # The lock is free if the process that wrote the note has ended.
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if file.read() != server:
                    continue
        except (OSError, ValueError):
            continue
        deadline = time.monotonic() + _ENDED_S
        while (pids := _makers(admin, path.name)) and time.monotonic() < deadline:
            with contextlib.suppress(psycopg.errors.InsufficientPrivilege):
                admin.execute("SELECT pg_terminate_backend(pid) FROM unnest(%s) pid", (pids,))
            admin.execute("SELECT pg_sleep(0.05)")
        exists, _ = ownership.comment_on(admin, path.name)
        if exists:
            yield path.name
        elif not _makers(admin, path.name):
            path.unlink(missing_ok=True)


def _makers(admin: Session, name: str) -> list[int]:
    query = (
        "SELECT pid FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND classid::bigint = %s"
        " AND objid::bigint = hashtext(%s)::bigint & 4294967295 AND objsubid = 2"
    )
    return [int(pid) for (pid,) in admin.execute(query, (LOCK_CLASS, name)).fetchall()]
