"""How managed databases come into being and go, so that a kill at any moment leaves none for good.

A database is created under a random name, then owned, then given its name: none of ours ever has
its name without ownership. Until it has it, a note in pgpaces' home holds the random name, under
a lock that ends with the process. Knows nothing of data, load and results.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pgpaces.database import ownership
from pgpaces.database.access import (
    LOCK_CLASS,
    Access,
    Say,
    common,
    connect,
    explained,
    hold,
    server_id,
    size,
)
from pgpaces.database.ownership import COPY, PREPARING, Ownership
from pgpaces.home import home

if TYPE_CHECKING:
    from pgpaces.database.access import Session

_PREFIX = "pgpaces_new_"
_RUN = "_run"
# A backend that was told to end has ended; copying a database looks out for that at every file.
_ENDED_S = 10.0


def run_name(dbname: str) -> str:
    """What the copy of a database for one trial is called."""
    return dbname + _RUN


def create(
    access: Access, admin: Session, dbname: str, owned: Ownership, make: Callable[[str], object]
) -> None:
    """Creates a managed database. make: creates it, under the name that it is given.

    Raises what `make` raises, psycopg.Error; nothing is left then, unless the server is gone.
    """
    from psycopg import sql

    from pgpaces.sessions import Identifier

    name = _PREFIX + secrets.token_hex(8)
    # As long as a backend works on it, also one whose client was killed.
    admin.execute("SELECT pg_advisory_lock(%s, hashtext(%s))", (LOCK_CLASS, name))
    with _noted(name, server_id(admin, access)) as note:
        try:
            make(name)
            ownership.set_ownership(admin, name, owned)
            rename = sql.SQL("ALTER DATABASE {} RENAME TO {}")
            admin.execute(rename.format(Identifier(name), Identifier(dbname)))
        except BaseException:
            with contextlib.suppress(Exception):
                admin.execute(ownership.drop(name, if_exists=True))
                note.unlink(missing_ok=True)
            raise
        note.unlink(missing_ok=True)
    admin.execute("SELECT pg_advisory_unlock(%s, hashtext(%s))", (LOCK_CLASS, name))


def _folder() -> Path:
    return home() / "databases"


@contextlib.contextmanager
def _noted(name: str, server: str) -> Iterator[Path]:
    """A durable note of a database that is being created, locked as long as this lasts.

    Where the home takes none, what a kill leaves stays, but is in the way of nothing.
    """
    path = _folder() / name
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(path.open("x"))
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(server)
            file.flush()
            os.fsync(file.fileno())
        yield path


# --- what a kill left -------------------------------------------------------------------------


def drop_left_behind(access: Access, admin: Session, held: Session, say: Say) -> int:
    """Drops what a pgpaces that was killed left on this server; the bytes that this frees.

    That are copies for trials and unfinished data that no process holds, and databases without
    their name yet.
    held: the session of `common`. Raises psycopg.Error where the server is gone.
    """
    import psycopg

    freed = 0
    for dbname in _left(access, admin, held):
        try:
            bytes_taken = size(admin, dbname)
            say(f"dropping {dbname}, which a run that was killed left behind")
            ownership.drop_owned(admin, dbname)
            (_folder() / dbname).unlink(missing_ok=True)
            freed += bytes_taken
        except psycopg.DatabaseError as error:
            if error.sqlstate is None:
                raise
            say(f"warning: a killed run left {dbname} behind: {error.diag.message_primary}")
    return freed


def clean(access: Access, say: Say = lambda _: None) -> int:
    """Drops every database that we made; the bytes that this frees. Raises PrepareError.

    One that was handed over stays: it is for whoever made it to drop.
    """
    with connect(access) as admin, common(access) as held:
        freed = drop_left_behind(access, admin, held, say)
        for dbname, (owned, bytes_taken) in ownership.ours(access).items():
            if owned.own or dbname.startswith(_PREFIX):  # another pgpaces is making that one
                continue
            hold(held, dbname)
            with explained(dbname):
                admin.execute(ownership.drop(dbname))
            freed += bytes_taken
    return freed


def _left(access: Access, admin: Session, held: Session) -> Iterator[str]:
    """The databases that a kill left. Until the next one is asked for, no other pgpaces takes it.

    Those of other roles are left to them, and on a standby nothing can be dropped.
    """
    query = (
        # -2: DROP DATABASE was stopped in its middle; nothing can connect to it any more.
        "SELECT datname, shobj_description(oid, 'pg_database'), datconnlimit = -2"
        " FROM pg_catalog.pg_database"
        " WHERE pg_has_role(datdba, 'USAGE') AND NOT pg_is_in_recovery() AND datname ~ '^pgpaces_'"
    )
    notes = list(_left_notes(admin, access))
    for dbname, comment, half_dropped in admin.execute(query).fetchall():
        owned = Ownership.read(comment)
        unnamed = owned and dbname.startswith(_PREFIX)
        if dbname in notes or (owned and half_dropped) or (unnamed and not _makers(admin, dbname)):
            yield dbname
        elif owned and not owned.own and owned.state in (COPY, PREPARING):
            lock = (LOCK_CLASS, dbname.removesuffix(_RUN) if owned.state == COPY else dbname)
            row = held.execute("SELECT pg_try_advisory_lock(%s, hashtext(%s))", lock).fetchone()
            if row and row[0]:
                yield dbname
                held.execute("SELECT pg_advisory_unlock(%s, hashtext(%s))", lock)


def _left_notes(admin: Session, access: Access) -> Iterator[str]:
    """What is noted about this server by processes that have ended, and no backend makes now.

    A note without a database goes.
    """
    paths = list(_folder().glob(f"{_PREFIX}*"))
    server = server_id(admin, access) if paths else ""
    for path in paths:
        if not _is_left(path, server):
            continue
        _end_makers(admin, path.name)
        exists, _ = ownership.comment_on(admin, path.name)
        if exists:
            yield path.name
        elif not _makers(admin, path.name):
            path.unlink(missing_ok=True)


def _is_left(path: Path, server: str) -> bool:
    """Whether a note is about this server, and whoever wrote it has ended."""
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file.read() == server
    except (OSError, ValueError):
        return False


def _makers(admin: Session, name: str) -> list[int]:
    """The backends that work on a database without its name."""
    query = (
        "SELECT pid FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND classid::bigint = %s"
        " AND objid::bigint = hashtext(%s)::bigint & 4294967295 AND objsubid = 2"
    )
    return [int(pid) for (pid,) in admin.execute(query, (LOCK_CLASS, name)).fetchall()]


def _end_makers(admin: Session, name: str) -> None:
    """Ends what a process that was killed has its backend do still."""
    import psycopg

    deadline = time.monotonic() + _ENDED_S
    while (pids := _makers(admin, name)) and time.monotonic() < deadline:
        with contextlib.suppress(psycopg.errors.InsufficientPrivilege):
            admin.execute("SELECT pg_terminate_backend(pid) FROM unnest(%s) pid", (pids,))
        admin.execute("SELECT pg_sleep(0.05)")
