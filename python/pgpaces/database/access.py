"""The way to a server: how it is administered, and how what goes wrong there is told.

Knows nothing of ownership, data and copies.
"""

from __future__ import annotations

import contextlib
import hashlib
import select
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pgpaces.errors import ConsentError, PrepareError, ServerError
from pgpaces.plan import without_secrets

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

    Session = psycopg.Connection[tuple[Any, ...]]

Say = Callable[[str], None]
LOCK_CLASS = 0x70677061  # "pgpa"
_NOTICED_S = 2.0


class Access(Struct, frozen=True):
    """How to administer a server: libpq keywords (the password among them) and psql.

    folders: of programs, the preferred first, where pg_dump is looked for.
    """

    keywords: Mapping[str, str]
    psql: Path
    folders: tuple[Path, ...] = ()

    def __repr__(self) -> str:
        """Without the password."""
        return f"Access({without_secrets(self.keywords)})"

    @property
    def dbname(self) -> str:
        """The database that we administer from."""
        return self.keywords.get("dbname", "")


@contextlib.contextmanager
def connect(
    access: Access, dbname: str | None = None, *, as_the_load: bool = False
) -> Iterator[Session]:
    """An administrative session in autocommit. What goes wrong in it is a ServerError.

    as_the_load: with the client encoding that the load gets.
    """
    import psycopg

    from pgpaces import sessions

    keywords = dict(access.keywords)
    if dbname is not None:
        keywords["dbname"] = dbname
    try:
        with sessions.connect(keywords, "pgpaces admin", as_the_load=as_the_load) as session:
            yield session
    except psycopg.Error as error:
        raise ServerError(f"an administrative session failed: {str(error).strip()}") from None


@contextlib.contextmanager
def common(access: Access) -> Iterator[Session]:
    """A session in the database that every pgpaces can find: locks are a database's own."""
    with contextlib.ExitStack() as stack:
        try:
            session = stack.enter_context(connect(access, "postgres"))
        except ServerError:
            session = stack.enter_context(connect(access))
        yield session


def locked(admin: Session, name: str) -> bool:
    """Takes a lock for as long as the session lasts; false where another pgpaces keeps it.

    The server needs a moment to notice that one which was killed is gone.
    """
    query = "SELECT pg_try_advisory_lock(%s, hashtext(%s))"
    deadline = time.monotonic() + _NOTICED_S
    while True:
        row = admin.execute(query, (LOCK_CLASS, name)).fetchone()
        if row is not None and row[0]:
            return True
        if time.monotonic() > deadline:
            return False
        admin.execute("SELECT pg_sleep(0.05)")


def hold(admin: Session, dbname: str) -> None:
    """Keeps other pgpaces from this database as long as the session lasts."""
    if not locked(admin, dbname):
        raise ServerError(
            f"another pgpaces is using database {dbname} on this server",
            "wait until it is done, or use another --scale or --data-seed to get a database apart",
        )


@contextlib.contextmanager
def explained(dbname: str) -> Iterator[None]:
    """What goes wrong while a database is made, as a ConsentError or a PrepareError."""
    import psycopg

    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        raise ConsentError(
            f"the role may not make database {dbname}: {error.diag.message_primary}",
            "grant it CREATEDB, or have a database made for it and name that with --own DBNAME",
        ) from None
    except psycopg.errors.DiskFull as error:
        raise PrepareError(
            f"there is no room for database {dbname}: {error.diag.message_primary}",
            "make room, or drop what earlier runs left (`pgpaces server clean`)",
        ) from None
    except psycopg.errors.ObjectInUse as error:
        detail = error.diag.message_detail or ""
        raise PrepareError(
            f"database {dbname} is in use: {error.diag.message_primary} {detail}".strip(),
            "end the sessions that use it, then run again",
        ) from None
    except psycopg.Error as error:
        raise PrepareError(f"preparing database {dbname} failed: {str(error).strip()}") from None


def within(admin: Session, statement: sql.Composable, seconds: float) -> bool:
    """Runs a statement; false, and the session closed, where there is no answer in time."""
    connection = admin.pgconn
    deadline = time.monotonic() + seconds
    connection.send_query(statement.as_bytes(admin))
    while connection.is_busy():
        if not select.select([connection.socket], [], [], max(0, deadline - time.monotonic()))[0]:
            admin.close()
            return False
        connection.consume_input()
    while connection.get_result() is not None:
        pass
    return True


def size(admin: Session, dbname: str) -> int:
    """Of a database, in bytes; 0 of one that a kill left half dropped."""
    row = admin.execute("SELECT coalesce(pg_database_size(%s), 0)", (dbname,)).fetchone()
    return 0 if row is None else int(row[0])


def server_id(admin: Session, access: Access) -> str:
    """What tells a server from others: its system identifier, or its address if it hides that."""
    import psycopg

    try:
        row = admin.execute("SELECT system_identifier::text FROM pg_control_system()").fetchone()
        return str(row[0]) if row else ""
    except psycopg.errors.InsufficientPrivilege:
        place = [access.keywords.get(word, "") for word in ("host", "hostaddr", "port")]
        return hashlib.sha256("\0".join(place).encode()).hexdigest()[:16]
