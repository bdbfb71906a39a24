"""Copies of source databases, which pgpaces reads and never changes.

On the same server by CREATE DATABASE ... TEMPLATE, from another by pg_dump | pg_restore. Knows
nothing of workloads.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg import sql

from pgpaces.core.errors import ConsentError, DatabaseAbsentError, PrepareError
from pgpaces.core.locality import is_local
from pgpaces.core.messages import message
from pgpaces.core.sessions import Identifier, Session, scalar
from pgpaces.core.texts import Say, Warned
from pgpaces.database import changes, copies, psql
from pgpaces.database.access import MAINTENANCE, NOTICED_S, Access, connect, size
from pgpaces.database.specification import is_dsn, keywords_of, name_of

# By their code in pg_database: the end of CREATE DATABASE, and the first version that has it.
_PROVIDERS = {
    "c": (" LOCALE_PROVIDER libc", 150_000),
    "i": (" LOCALE_PROVIDER icu ICU_LOCALE {}", 150_000),
    "b": (" LOCALE_PROVIDER builtin BUILTIN_LOCALE {}", 170_000),
}
_RULES_SINCE = 160_000


@contextlib.contextmanager
def session_outside(access: Access, source: str | None) -> Iterator[Session]:
    """An administrative session outside the source database, which a copy needs free.

    Raises ConsentError for the database in which every pgpaces has sessions.
    """
    if source == MAINTENANCE:
        raise ConsentError("source-used-by-pgpaces", source=source)
    is_in_it = source is not None and source == access.dbname and not is_dsn(source)
    with connect(access, MAINTENANCE if is_in_it else None) as admin:
        yield admin


def create(access: Access, admin: Session, source: str, *, dbname: str, say: Say) -> None:
    """Makes `dbname` as a copy of the source database; empty if that is on another server.

    Raises ConsentError where sessions use it, DatabaseAbsentError, PrepareError, psycopg.Error.
    """
    if is_dsn(source):
        _create_for_dump(access, admin, source, dbname=dbname, say=say)
        return
    query = "SELECT pg_database_size(oid) FROM pg_catalog.pg_database WHERE datname = %s"
    bytes_needed = scalar(admin, query, (source,))
    if bytes_needed is None:
        raise DatabaseAbsentError("source-missing", source=source)
    # Sessions that were just closed get a moment to be gone.
    deadline = time.monotonic() + NOTICED_S
    while (used := copies.users(admin, source)) and time.monotonic() < deadline:
        admin.execute("SELECT pg_sleep(0.05)")
    if used:
        dsn = f"dbname={source} host=..."
        raise ConsentError("cannot-copy-in-use", dbname=source, sessions=used, dsn=dsn)
    _check_room(access, admin, source, bytes_needed=bytes_needed)
    say(message("copying-source", dbname=source, size_bytes=bytes_needed))
    try:
        _warn(copies.copy(admin, dbname, source), say)
    except psycopg.errors.InsufficientPrivilege as error:
        why = error.diag.message_primary
        raise ConsentError("source-not-permitted", source=source, why=why) from None
    except psycopg.errors.DiskFull as error:
        why = error.diag.message_primary
        raise PrepareError(
            "copy-fills-disk", source=source, needed_bytes=bytes_needed, why=why
        ) from None


def fill(access: Access, admin: Session, source: str, *, dbname: str, say: Say) -> None:
    """Copies the data from another server. Raises PrepareError, ServerError, psycopg.Error."""
    if not is_dsn(source):
        return
    name = name_of(source)
    with _session_in(access, source) as session:
        version = session.info.server_version // 10_000
        bytes_needed = size(session, name)
    dump, restore = psql.dump_programs(access.psql, access.folders, version)

    def progress(seconds: float) -> None:
        copied = size(admin, dbname)
        values = {"copied_bytes": copied, "needed_bytes": bytes_needed, "waited_s": seconds}
        say(message("copying-by-pg-dump", dbname=name, **values))

    reader = psql.ClientProgram(dump, keywords_of(source), name)
    psql.pipe(reader, psql.ClientProgram(restore, access.keywords, dbname), progress)
    # A dump has neither statistics nor a visibility map; plans depend on both.
    say(message("copy-analyzed", dbname=name))
    with connect(access, dbname) as session:
        session.execute("VACUUM ANALYZE")


def _warn(refused: list[str], say: Say) -> None:
    if refused:
        say(Warned(message("copy-lacks-settings", settings=refused)))


def _check_room(access: Access, admin: Session, source: str, *, bytes_needed: int) -> None:
    """Raises PrepareError if the disk of the data is on this machine and too full."""
    if not is_local(access.keywords):
        return
    try:
        disk = os.statvfs(scalar(admin, "SELECT current_setting('data_directory')"))
    except (psycopg.Error, OSError):
        return
    free = disk.f_bavail * disk.f_frsize
    if free < bytes_needed:
        raise PrepareError(
            "copy-too-large", source=source, needed_bytes=bytes_needed, free_bytes=free
        )


def _create_for_dump(access: Access, admin: Session, source: str, *, dbname: str, say: Say) -> None:
    with _session_in(access, source) as session:
        psql.dump_programs(access.psql, access.folders, session.info.server_version // 10_000)
        row: Any = session.execute(
            "SELECT pg_database_size(oid), pg_encoding_to_char(encoding), datcollate, datctype,"
            # From JSON, as older servers lack these columns.
            " coalesce(to_json(d) ->> 'datlocprovider', 'c'),"
            " coalesce(to_json(d) ->> 'datlocale', to_json(d) ->> 'daticulocale'),"
            " to_json(d) ->> 'daticurules'"
            " FROM pg_catalog.pg_database d WHERE datname = current_database()"
        ).fetchone()
        settings = changes.settings_of(session, name_of(source))
    _check_room(access, admin, name_of(source), bytes_needed=row[0])
    create = sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING {} LC_COLLATE {} LC_CTYPE {}")
    version = admin.info.server_version
    libc = provider(version, "c") or sql.Composed([])
    end = provider(version, *row[4:6], rules=row[6])
    if end is None:
        say(Warned(message("copy-sorted-by-libc")))
    try:
        admin.execute(create.format(Identifier(dbname), *row[1:4]) + (end or libc))
    except (
        psycopg.errors.WrongObjectType,
        psycopg.errors.InvalidParameterValue,
        psycopg.errors.FeatureNotSupported,  # it was built without ICU
    ) as error:
        say(Warned(message("copy-sorted-by-c", error=error.diag.message_primary)))
        admin.execute(create.format(Identifier(dbname), row[1], "C", "C") + libc)
    _warn(copies.give(admin, dbname, settings), say)


def provider(
    version: int, code: str, locale: str | None = None, *, rules: str | None = None
) -> sql.Composed | None:
    """The end of CREATE DATABASE for a locale provider, by its code in pg_database.

    Without one, the provider of template0 would be taken. None where the server is too old for it.
    """
    words, since = _PROVIDERS.get(code, ("", math.inf))
    since = max(since, _RULES_SINCE if rules else 0)
    if version < since:
        return sql.Composed([]) if code == "c" else None
    values = [value for value in (locale, rules) if value and code != "c"]
    return sql.SQL(f"{words} ICU_RULES {{}}" if rules else words).format(*values)


def _session_in(access: Access, source: str) -> contextlib.AbstractContextManager[Session]:
    return connect(Access(keywords_of(source), access.psql))
