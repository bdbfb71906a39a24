"""Copies of databases, and waiting until the server is at rest.

Knows nothing of how the data was made.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import psycopg
from msgspec.structs import replace
from psycopg import sql

from pgpaces.core.errors import ConsentError, PrepareError
from pgpaces.core.findings import finding
from pgpaces.core.messages import message
from pgpaces.core.sessions import Session, scalar
from pgpaces.core.texts import Say
from pgpaces.database import changes, creation, ownership
from pgpaces.database.access import (
    Access,
    connect,
    execute_within,
    preparation_errors,
    size,
    with_names,
)
from pgpaces.database.ownership import COPY, Ownership
from pgpaces.spec.setup import Prepared

# At the end of a run: for an answer, and for the drop of a copy, which may need a checkpoint.
_ALIVE_S, _DROP_S = 2.0, 300.0
_CONNECT_S = "5"
VACUUM_S = 120.0
_STRATEGIES_SINCE = 150_000


@contextlib.contextmanager
def clone(
    access: Access, admin: Session, origin: Prepared, *, workload: str, say: Say
) -> Iterator[Prepared]:
    """A copy of the prepared database for a trial that writes; dropped at the end."""
    dbname = creation.run_name(origin.dbname)
    started = time.monotonic()
    with preparation_errors(dbname):
        exists, comment = ownership.comment_on(admin, dbname)
        if exists and Ownership.read(comment) is None:
            raise ConsentError("database-not-owned", dbname=dbname)
        say(message("copying", dbname=origin.dbname))
        if exists:
            ownership.drop_owned(admin, dbname)
        copying = time.monotonic()
        owned = Ownership(workload, origin.fingerprint, COPY)
        creation.create(
            access, admin, dbname, owned=owned, make=lambda name: copy(admin, name, origin.dbname)
        )
        clone_seconds = time.monotonic() - copying
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
    if not (admin.closed or admin.broken) and _answers(admin):
        execute_within(admin, ownership.forced_drop(admin, dbname, if_exists=True), _DROP_S)
    elif admin.broken:
        keywords = {**access.keywords, "connect_timeout": _CONNECT_S}
        with connect(replace(access, keywords=keywords)) as session:
            drop = ownership.forced_drop(session, dbname, if_exists=True)
            execute_within(session, drop, _DROP_S)


def _answers(admin: Session) -> bool:
    try:
        return execute_within(admin, sql.SQL("SELECT 1"), _ALIVE_S) and not admin.broken
    except psycopg.Error:
        return False


def copy(admin: Session, dbname: str, template: str) -> list[str]:
    """Makes a copy of a database with its settings; returns the settings that were refused.

    Raises PrepareError with the sessions that prevent the copy; psycopg.Error.
    """
    try:
        # With the strategy whose work is complete when the statement ends. By wal_log, the default,
        # pages go to the WAL and then to disk by the next checkpoint, whose cost a trial would
        # bear. Together with that checkpoint, file_copy took 0.46 to 0.93 of the time at every size
        # (docs/how-to/settings-and-data.md).
        create = with_names("CREATE DATABASE {} TEMPLATE {}", dbname, template)
        if admin.info.server_version >= _STRATEGIES_SINCE:
            create += sql.SQL(" STRATEGY file_copy")
        admin.execute(create)
    except psycopg.errors.ObjectInUse:
        sessions = users(admin, template)
        raise PrepareError("cannot-copy-in-use", dbname=template, sessions=sessions) from None
    return give(admin, dbname, changes.settings_of(admin, template))


def give(admin: Session, dbname: str, settings: list[tuple[str, str]]) -> list[str]:
    """Gives a database settings; returns those that the server refused."""
    refused = []
    for name, value in settings:
        try:
            changes.set_to(admin, changes.SettingChange(name, dbname, None), value)
        except psycopg.DatabaseError as error:
            if error.sqlstate is None:  # the session is gone
                raise
            refused.append(f"{name} ({error.diag.message_primary})")
    return refused


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
    deadline = started + VACUUM_S
    while _is_being_vacuumed(admin, prepared.dbname):
        if time.monotonic() > deadline:
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
