"""Copies of databases: of the data for a trial, and of source databases, which are only read.

On the same server by CREATE DATABASE ... TEMPLATE, from another by pg_dump | pg_restore.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg
from msgspec.structs import replace
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pgpaces.core.errors import ConsentError, DatabaseAbsentError, PrepareError
from pgpaces.core.findings import finding
from pgpaces.core.locality import is_local
from pgpaces.core.messages import message
from pgpaces.core.sessions import Identifier, Session, scalar
from pgpaces.core.texts import Say, Warned
from pgpaces.database import changes, ownership, psql
from pgpaces.database.access import (
    Access,
    connect,
    execute_within,
    is_dsn,
    keywords_of,
    preparation_errors,
    size,
    soon,
    source_name,
    with_names,
)
from pgpaces.database.ownership import COPY, Ownership
from pgpaces.spec.setup import Prepared

# At the end of a run: for an answer, and for the drop of a copy, which may need a checkpoint.
_ALIVE_S, _DROP_S = 2.0, 300.0
_CONNECT_S = "5"
VACUUM_S = 120.0
# Fills the database of a name.
Fill = Callable[[str], None]
# 468 MB took 7 s.
_DUMP_S_PER_BYTE = 15e-9
_STRATEGIES_SINCE = 150_000
_PROVIDERS_SINCE = 150_000
# By their code in pg_database.
_PROVIDERS = {
    "i": " LOCALE_PROVIDER icu ICU_LOCALE {}",
    "b": " LOCALE_PROVIDER builtin BUILTIN_LOCALE {}",
}
# Errors of a server that lacks a locale or a provider, by its version or build.
_UNSUPPORTED = (
    psycopg.errors.WrongObjectType,
    psycopg.errors.InvalidParameterValue,
    psycopg.errors.InvalidObjectDefinition,
    psycopg.errors.FeatureNotSupported,
    psycopg.errors.SyntaxError,
)


@contextlib.contextmanager
def clone(
    access: Access, admin: Session, origin: Prepared, *, workload: str, say: Say
) -> Iterator[Prepared]:
    """A copy of the prepared database for a trial that writes; dropped at the end."""
    dbname = ownership.run_name(origin.dbname)
    started = 0.0

    def make(name: str) -> None:
        nonlocal started
        started = time.monotonic()  # an earlier copy has been dropped
        copy(admin, name, origin.dbname)

    with preparation_errors(dbname):
        say(message("copying", dbname=origin.dbname))
        owned = Ownership(workload, origin.fingerprint, COPY)
        ownership.create(admin, dbname, owned, make=make)
        clone_seconds = time.monotonic() - started
    try:
        yield origin.but(
            dbname=dbname,
            seconds=origin.seconds + time.monotonic() - started,
            size_bytes=size(admin, dbname),
            cloned_from=origin.dbname,
            clone_seconds=clone_seconds,
        )
    finally:
        # If the server died or hangs, the next run drops it.
        with contextlib.suppress(Exception):
            _drop_copy(access, admin, dbname)


def _drop_copy(access: Access, admin: Session, dbname: str) -> None:
    """Drops it, in a new session if a restart of the server ended the old one."""
    answers = False
    if not (admin.closed or admin.broken):
        with contextlib.suppress(psycopg.Error):
            answers = execute_within(admin, sql.SQL("SELECT 1"), _ALIVE_S) and not admin.broken
    if answers:
        execute_within(admin, ownership.forced_drop(admin, dbname, if_exists=True), _DROP_S)
    elif admin.broken:
        keywords = {**access.keywords, "connect_timeout": _CONNECT_S}
        with connect(replace(access, keywords=keywords)) as session:
            drop = ownership.forced_drop(session, dbname, if_exists=True)
            execute_within(session, drop, _DROP_S)


def copy(admin: Session, dbname: str, template: str, *, say: Say = lambda _: None) -> None:
    """Makes a copy of a database with its settings; says which settings were refused.

    Raises PrepareError with the sessions that prevent the copy; psycopg.Error.
    """
    try:
        # With the strategy whose work is complete when the statement ends. By wal_log, the default,
        # pages go to the WAL and then to disk by the next checkpoint, whose cost a trial would
        # bear. Together with that checkpoint, file_copy took 0.46 to 0.93 of the time at every size
        # (docs/how-to/settings-and-data.md).
        create = with_names("CREATE DATABASE {} TEMPLATE {}", dbname, template)
        create += ownership.UNFINISHED
        if admin.info.server_version >= _STRATEGIES_SINCE:
            create += sql.SQL(" STRATEGY file_copy")
        admin.execute(create)
    except psycopg.errors.ObjectInUse:
        sessions = users(admin, template)
        raise PrepareError("cannot-copy-in-use", dbname=template, sessions=sessions) from None
    _give(admin, dbname, changes.settings_of(admin, template), say=say)


def _give(admin: Session, dbname: str, settings: list[tuple[str, str]], *, say: Say) -> None:
    """Gives a database settings, and says which ones the server refused."""
    refused = []
    for name, value in settings:
        try:
            changes.set_to(admin, changes.SettingChange(name, dbname), value)
        except psycopg.DatabaseError as error:
            if error.sqlstate is None:  # the session is gone
                raise
            refused.append(f"{name} ({error.diag.message_primary})")
    if refused:
        say(Warned(message("copy-lacks-settings", settings=refused)))


def users(admin: Session, dbname: str) -> str:
    """The sessions in a database: their count, role and application name."""
    query = (
        "SELECT count(*), coalesce(usename, 'no role'), coalesce(nullif(application_name, ''), '?')"
        " FROM pg_catalog.pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()"
        " GROUP BY 2, 3 ORDER BY 1 DESC LIMIT 8"
    )
    rows = admin.execute(query, (dbname,)).fetchall()
    return ", ".join(f"{count} of {role} ({application})" for count, role, application in rows)


def settle(admin: Session, prepared: Prepared, *, checkpoint: bool) -> Prepared:
    """Lets the server finish its work on a database, so that no trial bears the cost.

    Runs a checkpoint, if the role may, and waits until autovacuum is done there; the notes say
    what was not possible.
    """
    started = time.monotonic()
    notes = []
    if checkpoint:
        try:
            admin.execute("CHECKPOINT")
        except psycopg.errors.InsufficientPrivilege:
            notes.append(finding("checkpoint-not-permitted"))
    while _is_being_vacuumed(admin, prepared.dbname):
        if time.monotonic() > started + VACUUM_S:
            notes.append(finding("autovacuum-at-work", waited_s=VACUUM_S))
            break
        time.sleep(0.1)
    seconds = time.monotonic() - started
    return prepared.but(
        seconds=prepared.seconds + seconds,
        settle_seconds=seconds,
        notes=(*prepared.notes, *notes),
    )


def _is_being_vacuumed(admin: Session, dbname: str) -> bool:
    """Whether autovacuum works there.

    A role without pg_read_all_stats sees the vacuum, not the type of its backend. 9.6 has no
    column backend_type; the query of its workers shows their type.
    """
    query = (
        "SELECT EXISTS (SELECT FROM pg_catalog.pg_stat_activity a WHERE datname = %(name)s"
        " AND (pg_catalog.to_jsonb(a) ->> 'backend_type' = 'autovacuum worker'"
        " OR query LIKE 'autovacuum: %%' OR (usename IS NULL AND pid IN"
        " (SELECT pid FROM pg_catalog.pg_stat_progress_vacuum WHERE datname = %(name)s))))"
    )
    return bool(scalar(admin, query, {"name": dbname}))


def copy_source(access: Access, admin: Session, source: str, *, dbname: str, say: Say) -> Fill:
    """Makes `dbname` as a copy of the source database, which may be on another server.

    A source that sessions use is dumped. Returns how to fill the copy under the name that it has by
    then. Raises ConsentError, DatabaseAbsentError, PrepareError, ServerError, psycopg.Error.
    """
    if is_dsn(source):
        return _copy_by_pg_dump(access, admin, source, dbname=dbname, say=say)
    query = "SELECT pg_database_size(oid) FROM pg_catalog.pg_database WHERE datname = %s"
    needed_bytes = scalar(admin, query, (source,))
    if needed_bytes is None:
        raise DatabaseAbsentError("source-missing", source=source)
    if not soon(admin, lambda: not users(admin, source)):
        values = {"sessions": users(admin, source), "about_s": needed_bytes * _DUMP_S_PER_BYTE}
        say(message("source-in-use", dbname=source, **values))
        dsn = make_conninfo(**{**access.keywords, "dbname": source})
        return _copy_by_pg_dump(access, admin, dsn, dbname=dbname, say=say)
    _check_room(access, admin, source, needed_bytes=needed_bytes)
    say(message("copying-source", dbname=source, size_bytes=needed_bytes))
    try:
        copy(admin, dbname, source, say=say)
    except psycopg.errors.InsufficientPrivilege as error:
        why = error.diag.message_primary
        raise ConsentError("source-not-permitted", source=source, why=why) from None
    except psycopg.errors.DiskFull as error:
        values = {"needed_bytes": needed_bytes, "why": error.diag.message_primary}
        raise PrepareError("copy-fills-disk", source=source, **values) from None
    return lambda _: None


def _check_room(access: Access, admin: Session, source: str, *, needed_bytes: int) -> None:
    """Raises PrepareError if the disk of the data is on this machine and too full."""
    if not is_local(access.keywords):
        return
    try:
        disk = os.statvfs(scalar(admin, "SELECT current_setting('data_directory')"))
    except (psycopg.Error, OSError):
        return
    if (free := disk.f_bavail * disk.f_frsize) < needed_bytes:
        values = {"needed_bytes": needed_bytes, "free_bytes": free}
        raise PrepareError("copy-too-large", source=source, **values)


def _copy_by_pg_dump(access: Access, admin: Session, source: str, *, dbname: str, say: Say) -> Fill:
    """Creates it; it is filled under its own name, which sessions of others cannot prevent then."""
    name = source_name(source)
    with connect(Access(keywords_of(source), access.psql)) as session:
        version = session.info.server_version // 10_000
        dump, restore = psql.dump_programs(access.psql, access.folders, version)
        row: Any = session.execute(
            "SELECT pg_database_size(oid), pg_encoding_to_char(encoding), datcollate, datctype,"
            # From JSON, as older servers lack these columns.
            " coalesce(to_json(d) ->> 'datlocprovider', 'c'),"
            " coalesce(to_json(d) ->> 'datlocale', to_json(d) ->> 'daticulocale'),"
            " to_json(d) ->> 'daticurules'"
            " FROM pg_catalog.pg_database d WHERE datname = current_database()"
        ).fetchone()
        settings = changes.settings_of(session, name)
    _check_room(access, admin, name, needed_bytes=row[0])
    _create_sorted_like(admin, dbname, row[1:], say=say)
    _give(admin, dbname, settings, say=say)

    def fill(dbname: str) -> None:
        def progress(seconds: float) -> None:
            values = {"copied_bytes": size(admin, dbname), "needed_bytes": row[0]}
            say(message("copying-by-pg-dump", dbname=name, **values, waited_s=seconds))

        reader = psql.ClientProgram(dump, keywords_of(source), name)
        psql.pipe(reader, psql.ClientProgram(restore, access.keywords, dbname), progress)
        # A dump has neither statistics nor a visibility map; plans depend on both.
        say(message("copy-analyzed", dbname=name))
        with connect(access, dbname) as session:
            session.execute("VACUUM ANALYZE")

    return fill


def _create_sorted_like(admin: Session, dbname: str, source: Sequence[str], *, say: Say) -> None:
    """Creates an empty database that sorts as the source; else by libc's names, or by C."""
    encoding, collate, ctype, provider, *of_provider = source
    libc: sql.Composable = sql.SQL(
        " LOCALE_PROVIDER libc" if admin.info.server_version >= _PROVIDERS_SINCE else ""
    )
    own = libc
    if provider in _PROVIDERS:
        rules = " ICU_RULES {}" if of_provider[1] else ""
        own = sql.SQL(_PROVIDERS[provider] + rules).format(*of_provider)
    start = sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING {} LC_COLLATE {} LC_CTYPE {}")
    ways = [((collate, ctype), own), ((collate, ctype), libc), (("C", "C"), libc)]
    for place, (locale, end) in enumerate(ways):
        create = start.format(Identifier(dbname), encoding, *locale) + end + ownership.UNFINISHED
        try:
            admin.execute(create)
            break
        except _UNSUPPORTED as error:
            if place + 1 == len(ways):
                raise
            told = message("copy-sorted-otherwise", error=error.diag.message_primary)
            say(Warned(told))
