"""Source databases: read and never changed, copied as templates of ours.

On the same server by CREATE DATABASE ... TEMPLATE, from another through pg_dump | pg_restore. Knows
nothing of workloads.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pgpaces import psql
from pgpaces.database import copies
from pgpaces.database.access import Access, Say, connect, size
from pgpaces.errors import ConsentError, DatabaseAbsentError, PrepareError, ServerError
from pgpaces.locality import is_local

if TYPE_CHECKING:
    from pgpaces.database.access import Session

_MIB = 2**20


def is_dsn(text: str) -> bool:
    """Whether it is a connection string, by libpq's own rule; else it is a database's name."""
    return "=" in text or text.startswith(("postgresql://", "postgres://"))


def keywords_of(dsn: str) -> dict[str, str]:
    """The keywords of a connection string. Raises ServerError."""
    import psycopg

    try:
        given = psycopg.conninfo.conninfo_to_dict(dsn)
    except psycopg.Error:
        # Its message would quote what is wrong, which may be the password.
        raise ServerError(
            "the connection string of --from-database cannot be read",
            "a URI, or keywords such as 'host=pi4 dbname=sensors'",
        ) from None
    return {word: str(value) for word, value in given.items()}


def name_of(text: str) -> str:
    """The name of the source database."""
    if not is_dsn(text):
        return text
    keywords = keywords_of(text)
    return keywords.get("dbname") or keywords.get("user", "")


def identity(text: str) -> str:
    """What tells a source database from others; without its password."""
    if not is_dsn(text):
        return text
    keywords = keywords_of(text)
    return " ".join(keywords.get(w, "") for w in ("host", "hostaddr", "port", "dbname"))


@contextlib.contextmanager
def elsewhere(access: Access, source: str | None) -> Iterator[Session]:
    """An administrative session that is not in the source database: it must be free for a copy."""
    if source is None or is_dsn(source) or source != access.dbname:
        with connect(access) as admin:
            yield admin
        return
    other = "postgres" if source != "postgres" else "template1"
    with connect(access, other) as admin:
        yield admin


def create(access: Access, admin: Session, source: str, dbname: str, say: Say) -> None:
    """Makes `dbname` as a copy of the source database; empty where that is on another server.

    Raises ConsentError where sessions use it, DatabaseAbsentError, PrepareError, psycopg.Error.
    """
    if is_dsn(source):
        _for_dump(access, admin, source, dbname, say)
    else:
        _by_template(access, admin, source, dbname, say)


def fill(access: Access, admin: Session, source: str, dbname: str, say: Say) -> None:
    """Brings what `create` could not. Raises PrepareError, ServerError, psycopg.Error."""
    if is_dsn(source):
        _through_dump(access, admin, source, dbname, say)


def _by_template(access: Access, admin: Session, source: str, dbname: str, say: Say) -> None:
    import psycopg

    row = admin.execute(
        "SELECT pg_database_size(oid) FROM pg_catalog.pg_database WHERE datname = %s", (source,)
    ).fetchone()
    if row is None:
        raise DatabaseAbsentError(
            f"there is no database {source} on this server",
            "name one that is there, or give the DSN of its server",
        )
    bytes_needed = int(row[0])
    used = copies.users(admin, source)
    if used:
        raise ConsentError(
            f"database {source} cannot be copied while sessions use it: {used}",
            "end them for the time of the copy, or give its DSN (--from-database"
            f" 'dbname={source} host=...'): then pg_dump copies it, which works while it is used",
        )
    _check_room(access, admin, source, bytes_needed)
    say(f"copying {source} ({bytes_needed / _MIB:.0f} MiB)")
    try:
        _tell(copies.copy(admin, dbname, source), say)
    except psycopg.errors.InsufficientPrivilege as error:
        raise ConsentError(
            f"the role may not copy database {source}: {error.diag.message_primary}",
            "let its owner or a superuser run this, or give its DSN: then pg_dump copies it",
        ) from None
    except psycopg.errors.DiskFull as error:
        raise _no_room(source, bytes_needed, str(error.diag.message_primary)) from None


def _tell(refused: list[str], say: Say) -> None:
    if refused:
        say(f"warning: the copy is without settings of the original: {', '.join(refused)}")


def _check_room(access: Access, admin: Session, source: str, bytes_needed: int) -> None:
    """Raises PrepareError where the disk of the data is one that we see, and it is too full."""
    import psycopg

    if not is_local(access.keywords):
        return
    try:
        row: Any = admin.execute("SELECT current_setting('data_directory')").fetchone()
        found = os.statvfs(row[0])
    except (psycopg.Error, OSError):
        return
    free = found.f_bavail * found.f_frsize
    if free < bytes_needed:
        raise _no_room(source, bytes_needed, f"{free / _MIB:.0f} MiB are free")


def _no_room(source: str, bytes_needed: int, why: str) -> PrepareError:
    return PrepareError(
        f"there is no room for a copy of {source}: it takes {bytes_needed / _MIB:.0f} MiB; {why}",
        "make room, drop copies of earlier experiments (`pgpaces server clean`), or copy it to"
        " another server by giving its DSN as --from-database",
    )


def _for_dump(access: Access, admin: Session, source: str, dbname: str, say: Say) -> None:
    import psycopg
    from psycopg import sql

    from pgpaces.sessions import Identifier

    with _session_in(access, source) as session:
        psql.dump_programs(access.psql, access.folders, session.info.server_version // 10_000)
        row: Any = session.execute(
            "SELECT pg_database_size(oid), pg_encoding_to_char(encoding), datcollate, datctype"
            " FROM pg_catalog.pg_database WHERE datname = current_database()"
        ).fetchone()
        own = copies.settings_of(session, name_of(source))
    _check_room(access, admin, name_of(source), row[0])
    create = sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING {} LC_COLLATE {} LC_CTYPE {}")
    try:
        admin.execute(create.format(Identifier(dbname), *row[1:]))
    except (psycopg.errors.WrongObjectType, psycopg.errors.InvalidParameterValue) as error:
        say(f"warning: {error.diag.message_primary}; the copy sorts by the locale C")
        admin.execute(create.format(Identifier(dbname), row[1], "C", "C"))
    _tell(copies.give(admin, dbname, own), say)


def _session_in(access: Access, source: str) -> contextlib.AbstractContextManager[Session]:
    return connect(Access(keywords_of(source), access.psql))


def _through_dump(access: Access, admin: Session, source: str, dbname: str, say: Say) -> None:
    name = name_of(source)
    with _session_in(access, source) as session:
        version = session.info.server_version // 10_000
        bytes_needed = size(session, name)
    dump, restore = psql.dump_programs(access.psql, access.folders, version)

    def progress(seconds: float) -> None:
        share = f"{size(admin, dbname) / _MIB:.0f} of about {bytes_needed / _MIB:.0f} MiB"
        say(f"copying {name} by pg_dump, {share}, {seconds:.0f} s")

    dump_way = psql.Way(dump, keywords_of(source), name)
    psql.pipe(dump_way, psql.Way(restore, access.keywords, dbname), progress)
    # A dump brings neither statistics nor what vacuum knows; both decide about plans.
    say(f"analyzing the copy of {name}")
    with connect(access, dbname) as session:
        session.execute("VACUUM ANALYZE")
