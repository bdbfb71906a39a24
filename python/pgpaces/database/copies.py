"""Copies of databases, and a server that is at rest when a trial begins.

Knows nothing of how the data was made.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pgpaces.database import creation, ownership
from pgpaces.database.access import Access, Say, connect, explained, size, within
from pgpaces.database.changes import SettingChange, statement
from pgpaces.database.ownership import COPY, Ownership
from pgpaces.errors import PrepareError
from pgpaces.facts import Prepared

if TYPE_CHECKING:
    from psycopg import sql

    from pgpaces.database.access import Session

# At the end of a run: for a sign of life, and for the drop of a copy, which may need a checkpoint.
_ALIVE_S, _DROP_S = 2.0, 300.0
_CONNECT_S = "5"
VACUUM_S = 120.0
_STRATEGIES_SINCE = 150_000


@contextlib.contextmanager
def clone(
    access: Access, admin: Session, origin: Prepared, workload: str, say: Say
) -> Iterator[Prepared]:
    """A copy of the prepared database for a trial that writes; dropped at the end."""
    dbname = creation.run_name(origin.dbname)
    started = time.monotonic()
    with explained(dbname):
        exists, comment = ownership.comment_on(admin, dbname)
        if exists and Ownership.read(comment) is None:
            raise ownership.refuse(dbname)
        say(f"copying {origin.dbname}")
        if exists:
            ownership.drop_owned(admin, dbname)
        copying = time.monotonic()
        owned = Ownership(workload, origin.fingerprint, COPY)
        creation.create(access, admin, dbname, owned, lambda name: copy(admin, name, origin.dbname))
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
        # Where the server died or stands still, the next run drops it.
        with contextlib.suppress(Exception):
            _drop_copy(access, admin, dbname)


def _drop_copy(access: Access, admin: Session, dbname: str) -> None:
    """Through a session of its own where a restart of the server ended the one that made it."""
    from psycopg import sql

    from pgpaces.sessions import Identifier

    drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(Identifier(dbname))
    if not (admin.closed or admin.broken) and _answers(admin):
        within(admin, drop, _DROP_S)
    elif admin.broken:
        keywords = {**access.keywords, "connect_timeout": _CONNECT_S}
        with connect(replace(access, keywords=keywords)) as again:
            within(again, drop, _DROP_S)


def _answers(admin: Session) -> bool:
    from psycopg import Error, sql

    try:
        return within(admin, sql.SQL("SELECT 1"), _ALIVE_S) and not admin.broken
    except Error:
        return False


def copy(admin: Session, dbname: str, template: str) -> list[str]:
    """Makes a database as a copy of another, with the settings of that; those it did not take.

    Raises PrepareError with the sessions that keep it from being copied; psycopg.Error.
    """
    import psycopg

    try:
        admin.execute(_create(dbname, template, admin.info.server_version))
    except psycopg.errors.ObjectInUse:
        raise PrepareError(
            f"database {template} cannot be copied while sessions use it: {users(admin, template)}",
            "end them (pg_terminate_backend), then run again",
        ) from None
    return give(admin, dbname, settings_of(admin, template))


def give(admin: Session, dbname: str, settings: list[tuple[str, str]]) -> list[str]:
    """Gives a database settings of its own; those that the role may not give, or nobody knows."""
    import psycopg

    refused = []
    for name, value in settings:
        try:
            admin.execute(statement(SettingChange(name, dbname, None), value))
        except psycopg.DatabaseError as error:
            if error.sqlstate is None:  # the session is gone
                raise
            refused.append(f"{name} ({error.diag.message_primary})")
    return refused


def _create(dbname: str, template: str, version: int) -> sql.Composed:
    """The statement. Of the two strategies the one whose work is over when it ends.

    By wal_log, the default, the pages are written to the log and then by the next checkpoint, which
    a trial would pay for or wait for. Together with that checkpoint, file_copy took 0.46 to 0.93 of
    the time at every size tried (docs/how-to/settings-and-data.md).
    """
    from psycopg import sql

    from pgpaces.sessions import Identifier

    parts = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
        Identifier(dbname), Identifier(template)
    )
    return parts + sql.SQL(" STRATEGY file_copy") if version >= _STRATEGIES_SINCE else parts


def settings_of(admin: Session, dbname: str) -> list[tuple[str, str]]:
    """A database's own settings, which no copy of it has by itself."""
    query = (
        "SELECT split_part(entry, '=', 1), substr(entry, strpos(entry, '=') + 1)"
        " FROM pg_catalog.pg_db_role_setting s"
        " JOIN pg_catalog.pg_database d ON d.oid = s.setdatabase, unnest(setconfig) entry"
        " WHERE setrole = 0 AND datname = %s"
    )
    return [(str(name), str(value)) for name, value in admin.execute(query, (dbname,)).fetchall()]


def users(admin: Session, dbname: str) -> str:
    """Who is in a database: how many sessions of which role, and what they call themselves."""
    query = (
        "SELECT count(*), coalesce(usename, 'nobody'), coalesce(nullif(application_name, ''), '?')"
        " FROM pg_catalog.pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()"
        " GROUP BY 2, 3 ORDER BY 1 DESC LIMIT 8"
    )
    found = admin.execute(query, (dbname,)).fetchall()
    return ", ".join(f"{count} of {role} ({application})" for count, role, application in found)


def settle(admin: Session, prepared: Prepared, *, checkpoint: bool) -> Prepared:
    """Lets the server finish what it has to do about a database, so that no trial pays for it.

    Writes what is dirty to disk, where the role may ask for that, and waits until autovacuum is
    done there; what could not be had is in the notes.
    """
    import psycopg

    started = time.monotonic()
    notes = []
    if checkpoint:
        try:
            admin.execute("CHECKPOINT")
        except psycopg.errors.InsufficientPrivilege:
            notes.append(
                "no CHECKPOINT before the load: the role may not; grant it pg_checkpoint"
                " (PostgreSQL 15 and later)"
            )
    deadline = started + VACUUM_S
    while _is_vacuumed(admin, prepared.dbname):
        if time.monotonic() > deadline:
            notes.append(f"autovacuum was still at work after {VACUUM_S:.0f} s, and may disturb")
            break
        time.sleep(0.1)
    seconds = time.monotonic() - started
    return prepared.but(
        seconds=prepared.seconds + seconds,
        settle_seconds=seconds,
        notes=(*prepared.notes, *notes),
    )


def _is_vacuumed(admin: Session, dbname: str) -> bool:
    """A role without pg_read_all_stats sees no worker's type, but that somebody vacuums there.

    9.6 has no column backend_type, and its workers say in their query what they are.
    """
    query = (
        "SELECT EXISTS (SELECT FROM pg_catalog.pg_stat_activity a WHERE datname = %(name)s"
        " AND (pg_catalog.to_jsonb(a) ->> 'backend_type' = 'autovacuum worker'"
        " OR query LIKE 'autovacuum: %%' OR (usename IS NULL AND pid IN"
        " (SELECT pid FROM pg_catalog.pg_stat_progress_vacuum WHERE datname = %(name)s))))"
    )
    row = admin.execute(query, {"name": dbname}).fetchone()
    return bool(row and row[0])
