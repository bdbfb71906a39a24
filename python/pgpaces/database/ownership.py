"""Managed databases: their owner is in their comment, and a kill leaves none for good.

pgpaces changes only databases whose comment says that it owns them; the comment also identifies
the data and says whether it is complete. A database is created under a random name, with a limit
of connections that marks it as unfinished; then it gets its comment, and then its name: no managed
database has its final name without ownership.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import time
from collections.abc import Callable, Iterator

import msgspec
import psycopg
from msgspec import Struct
from psycopg import sql

from pgpaces.core.errors import ConsentError, PrepareError
from pgpaces.core.messages import message
from pgpaces.core.sessions import Session, scalar
from pgpaces.core.texts import Say, Warned
from pgpaces.database.access import (
    LOCK_CLASS,
    NOTICED_S,
    Access,
    common,
    connect,
    locked,
    preparation_errors,
    size,
    with_names,
)

_PREFIX, _NEW_PREFIX, _RUN = "pgpaces ", "pgpaces_new_", "_run"
# States: a copy for one trial, data that is being made, data that is complete.
COPY, PREPARING, READY = "copy", "preparing", "ready"
_FORCE_SINCE = 130_000
_NEW = re.compile(_NEW_PREFIX + "[0-9a-f]{16}")
# The end of CREATE DATABASE: a kill may come before the database has a comment.
UNFINISHED = sql.SQL(f" CONNECTION LIMIT {LOCK_CLASS}")
# PostgreSQL's limit of connections of a database whose DROP DATABASE was interrupted.
_HALF_DROPPED = -2
_NOTICES_SINCE = 140_000


class Ownership(Struct, frozen=True):
    """The comment of a managed database. own: the user created it, for --own."""

    workload: str
    fingerprint: str
    state: str
    own: bool = False

    def text(self) -> str:
        # In ASCII, which every encoding of a database has.
        return _PREFIX + json.dumps(msgspec.to_builtins(self))

    @classmethod
    def read(cls, comment: str | None) -> Ownership | None:
        """The ownership in a comment; None for a comment of others."""
        if comment is None or not comment.startswith(_PREFIX):
            return None
        try:
            return msgspec.convert(json.loads(comment.removeprefix(_PREFIX)), cls)
        except ValueError:
            return None


def is_whole(admin: Session, dbname: str) -> bool:
    """Whether no DROP DATABASE of it was interrupted, after which no session can connect."""
    query = "SELECT datconnlimit <> -2 FROM pg_catalog.pg_database WHERE datname = %s"
    return bool(scalar(admin, query, (dbname,)))


def comment_on(admin: Session, dbname: str) -> tuple[bool, str | None]:
    query = (
        "SELECT shobj_description(oid, 'pg_database') FROM pg_catalog.pg_database"
        " WHERE datname = %s"
    )
    row = admin.execute(query, (dbname,)).fetchone()
    return (False, None) if row is None else (True, row[0])


def set_ownership(admin: Session, dbname: str, owned: Ownership) -> None:
    admin.execute(with_names("COMMENT ON DATABASE {} IS ", dbname) + sql.Literal(owned.text()))


def check_owner(admin: Session, dbname: str) -> None:
    """Raises ConsentError for a database of another role."""
    query = (
        "SELECT pg_has_role(datdba, 'USAGE'), pg_get_userbyid(datdba), current_user"
        " FROM pg_catalog.pg_database WHERE datname = %s"
    )
    row = admin.execute(query, (dbname,)).fetchone()
    if row is not None and not row[0]:
        raise ConsentError("database-of-other-role", dbname=dbname, owner=row[1], role=row[2])


def drop(dbname: str, *, if_exists: bool = False) -> sql.Composed:
    return with_names("DROP DATABASE IF EXISTS {}" if if_exists else "DROP DATABASE {}", dbname)


def forced_drop(admin: Session, dbname: str, *, if_exists: bool = False) -> sql.Composed:
    """The statement that drops a database, if the server can also with sessions of killed runs."""
    force = " WITH (FORCE)" if admin.info.server_version >= _FORCE_SINCE else ""
    return drop(dbname, if_exists=if_exists) + sql.SQL(force)


def run_name(dbname: str) -> str:
    return dbname + _RUN


def create(admin: Session, dbname: str, owned: Ownership, *, make: Callable[[str], object]) -> None:
    """Creates a managed database. make: creates it, UNFINISHED, under the name of its argument.

    Raises psycopg.Error and the errors of `make`; then drops it, if the server still runs.
    """
    name = _NEW_PREFIX + secrets.token_hex(8)
    if admin.info.server_version >= _NOTICES_SINCE:
        # So that the server notices a kill of pgpaces during a long copy, where its system can.
        with contextlib.suppress(psycopg.errors.InvalidParameterValue):
            admin.execute("SET client_connection_check_interval = '1s'")
    # The backend holds it while it works on the database, also after its client was killed.
    admin.execute("SELECT /* pgpaces */ pg_advisory_lock(%s, hashtext(%s))", (LOCK_CLASS, name))
    try:
        make(name)
        set_ownership(admin, name, owned)
        admin.execute(with_names("ALTER DATABASE {} CONNECTION LIMIT -1", name))
        admin.execute(with_names("ALTER DATABASE {} RENAME TO {}", name, dbname))
    except BaseException:
        with contextlib.suppress(Exception):
            admin.execute(drop(name, if_exists=True))
        raise
    admin.execute("SELECT /* pgpaces */ pg_advisory_unlock(%s, hashtext(%s))", (LOCK_CLASS, name))


def drop_leftovers(admin: Session, locks: Session, *, say: Say) -> int:
    """Drops the databases that killed runs left on this server; returns the freed bytes.

    These are copies for trials and unfinished data that no process has locked, and databases
    before their rename. locks: the session of `common`. Raises psycopg.Error if the server is gone.
    """
    freed = 0
    for dbname in _leftovers(admin, locks):
        try:
            bytes_taken = size(admin, dbname)
            say(message("leftover-dropped", dbname=dbname))
            admin.execute(forced_drop(admin, dbname))
            freed += bytes_taken
        except psycopg.errors.InvalidCatalogName:  # its maker has just renamed it
            continue
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
    query = (
        "SELECT datname, shobj_description(oid, 'pg_database'),"
        " coalesce(pg_database_size(oid), 0)"
        " FROM pg_catalog.pg_database WHERE NOT datistemplate AND pg_has_role(datdba, 'USAGE')"
        # Names of other databases may be in an encoding that the server cannot convert.
        " AND shobj_description(oid, 'pg_database') LIKE 'pgpaces %' ORDER BY 1"
    )
    used: list[str] = []
    with connect(access) as admin, common(access) as locks:
        freed = drop_leftovers(admin, locks, say=lambda _: None)
        for dbname, comment, bytes_taken in admin.execute(query).fetchall():
            owned = Ownership.read(comment)
            # Another pgpaces is making one with the prefix.
            if owned is None or owned.own or dbname.startswith(_NEW_PREFIX):
                continue
            with preparation_errors(dbname), contextlib.suppress(psycopg.errors.ObjectInUse):
                if locked(locks, _lock_of(dbname, owned)):
                    admin.execute(drop(dbname))
                    freed += bytes_taken
                    continue
            used.append(dbname)
    if used:
        raise PrepareError("databases-in-use", databases=used, freed_bytes=freed)
    return freed


def _leftovers(admin: Session, locks: Session) -> Iterator[str]:
    """The databases that killed runs left, each locked until the next one is requested.

    Without databases of other roles; none on a standby, where nothing can be dropped.
    """
    query = (
        "SELECT datname, shobj_description(oid, 'pg_database'), datconnlimit"
        " FROM pg_catalog.pg_database"
        " WHERE pg_has_role(datdba, 'USAGE') AND NOT pg_is_in_recovery() AND datname ~ '^pgpaces_'"
    )
    for dbname, comment, limit in admin.execute(query).fetchall():
        owned = Ownership.read(comment)
        if _NEW.fullmatch(dbname):
            ours = owned is not None or limit in (LOCK_CLASS, _HALF_DROPPED)
            if ours and not _is_being_made(admin, dbname):
                yield dbname
        elif owned is None:
            continue
        elif limit == _HALF_DROPPED:
            yield dbname
        elif not owned.own and owned.state in (COPY, PREPARING):
            lock = (LOCK_CLASS, _lock_of(dbname, owned))
            if scalar(locks, "SELECT /* pgpaces */ pg_try_advisory_lock(%s, hashtext(%s))", lock):
                yield dbname
                locks.execute("SELECT /* pgpaces */ pg_advisory_unlock(%s, hashtext(%s))", lock)


def _lock_of(dbname: str, owned: Ownership) -> str:
    """The name that a trial locks: a copy has no lock of its own."""
    return dbname.removesuffix(_RUN) if owned.state == COPY else dbname


def _is_being_made(admin: Session, name: str) -> bool:
    """Whether a backend works on it; the server needs a moment to notice that one is killed."""
    query = (
        "SELECT EXISTS (SELECT FROM pg_catalog.pg_locks WHERE locktype = 'advisory'"
        " AND classid::bigint = %s AND objid::bigint = hashtext(%s)::bigint & 4294967295"
        " AND objsubid = 2)"
    )
    deadline = time.monotonic() + NOTICED_S
    while is_made := bool(scalar(admin, query, (LOCK_CLASS, name))):
        if time.monotonic() > deadline:
            break
        admin.execute("SELECT pg_sleep(0.05)")
    return is_made
