"""Administrative sessions of a server, their errors, and what a connection string says."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import LiteralString

import psycopg
from msgspec import Struct
from psycopg import sql

from pgpaces.core import sessions
from pgpaces.core.errors import ConsentError, PrepareError, ServerError
from pgpaces.core.sessions import Identifier, Session, scalar
from pgpaces.server.supervisor import readable
from pgpaces.spec.target import without_secrets

LOCK_CLASS = 0x70677061  # "pgpa"
# The database that every pgpaces can open.
MAINTENANCE = "postgres"
# A server needs a moment to notice that a client is gone.
NOTICED_S = 2.0
_IDLE_TIMEOUT_SINCE = 140_000


class Access(Struct, frozen=True):
    """How to administer a server: libpq keywords (the password among them) and psql.

    folders: where to look for pg_dump, the preferred first.
    """

    keywords: Mapping[str, str]
    psql: Path
    folders: tuple[Path, ...] = ()

    def __repr__(self) -> str:
        return f"Access({without_secrets(self.keywords)})"

    @property
    def dbname(self) -> str:
        return self.keywords.get("dbname", "")


def is_dsn(text: str) -> bool:
    """Whether it is a connection string, by libpq's rule; else it is the name of a database."""
    return "=" in text or text.startswith(("postgresql://", "postgres://"))


def keywords_of(dsn: str) -> dict[str, str]:
    """The keywords of a connection string. Raises ServerError."""
    try:
        keywords = psycopg.conninfo.conninfo_to_dict(dsn)
    except psycopg.Error:
        # psycopg's message would quote the wrong part, which may be the password.
        raise ServerError("from-database-malformed") from None
    return {word: str(value) for word, value in keywords.items()}


def typed(dsn: str) -> dict[str, str]:
    """The secrets of a connection string, as it has them, and its service.

    Other machines do not find these themselves.
    """
    keywords = keywords_of(dsn) if is_dsn(dsn) else {}
    shown = without_secrets(keywords)
    return {n: value for n, value in keywords.items() if n not in shown or n == "service"}


def source_name(text: str) -> str:
    if not is_dsn(text):
        return text
    keywords = keywords_of(text)
    return keywords.get("dbname") or keywords.get("user", "")


def source_identity(text: str) -> str:
    """The address of a source database: a name on the same server, or the parts of a DSN."""
    if not is_dsn(text):
        return text
    keywords = keywords_of(text)
    return " ".join(keywords.get(w, "") for w in ("host", "hostaddr", "port", "dbname"))


@contextlib.contextmanager
def connect(
    access: Access, dbname: str | None = None, *, as_the_load: bool = False
) -> Iterator[Session]:
    """An administrative session in autocommit. Its errors become a ServerError.

    as_the_load: with the client encoding of the load.
    """
    keywords = dict(access.keywords)
    if dbname is not None:
        keywords["dbname"] = dbname
    with (
        sessions.errors("admin-session-failed"),
        sessions.connect(keywords, "pgpaces admin", as_the_load=as_the_load) as session,
    ):
        yield session


@contextlib.contextmanager
def common(access: Access) -> Iterator[Session]:
    """A session in a database that every pgpaces can open: advisory locks are local to one.

    It lasts however long it is idle: otherwise its locks would end in the middle of a load.
    """
    with contextlib.ExitStack() as stack:
        try:
            session = stack.enter_context(connect(access, MAINTENANCE))
        except ServerError:
            session = stack.enter_context(connect(access))
        if session.info.server_version >= _IDLE_TIMEOUT_SINCE:
            session.execute("SET idle_session_timeout = 0")
        yield session


def soon(admin: Session, is_so: Callable[[], bool]) -> bool:
    """Whether it is so now or soon: a server needs a moment to notice that a client is gone."""
    deadline = time.monotonic() + NOTICED_S
    while not (so := is_so()) and time.monotonic() < deadline:
        admin.execute("SELECT pg_sleep(0.05)")
    return so


def locked(admin: Session, name: str) -> bool:
    """Takes a lock until the end of the session; false if another pgpaces has it."""
    query = "SELECT /* pgpaces */ pg_try_advisory_lock(%s, hashtext(%s))"
    return soon(admin, lambda: bool(scalar(admin, query, (LOCK_CLASS, name))))


@contextlib.contextmanager
def preparation_errors(dbname: str) -> Iterator[None]:
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        why = error.diag.message_primary
        raise ConsentError("cannot-create-database", dbname=dbname, why=why) from None
    except psycopg.errors.DiskFull as error:
        why = error.diag.message_primary
        raise PrepareError("no-space-for-database", dbname=dbname, why=why) from None
    except psycopg.errors.ObjectInUse as error:
        why = f"{error.diag.message_primary} {error.diag.message_detail or ''}".strip()
        raise PrepareError("database-in-use", dbname=dbname, why=why) from None
    except psycopg.Error as error:
        why = str(error).strip()
        raise PrepareError("cannot-prepare-database", dbname=dbname, why=why) from None


def execute_within(admin: Session, statement: sql.Composable, seconds: float) -> bool:
    """Runs a statement; without an answer in time, closes the session and returns false."""
    connection = admin.pgconn
    deadline = time.monotonic() + seconds
    connection.send_query(statement.as_bytes(admin))
    while connection.is_busy():
        if not readable(connection.socket, deadline - time.monotonic()):
            admin.close()
            return False
        connection.consume_input()
    while connection.get_result() is not None:
        pass
    return True


def size(admin: Session, dbname: str) -> int:
    """The size of a database in bytes; 0 for a half-dropped one."""
    return int(scalar(admin, "SELECT coalesce(pg_database_size(%s), 0)", (dbname,)))


def with_names(text: LiteralString, *names: str) -> sql.Composed:
    return sql.SQL(text).format(*map(Identifier, names))
