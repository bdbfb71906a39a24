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
from collections.abc import Callable, Iterator, Sequence
from typing import LiteralString

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
    Access,
    common,
    connect,
    locked,
    preparation_errors,
    size,
    soon,
    with_names,
)

_PREFIX, _NEW_PREFIX, _RUN = "pgpaces ", "pgpaces_new_", "_run"
# States: a copy for one trial, data that is being made, data that is complete, and for one command.
COPY, PREPARING, READY, TEMPORARY = "copy", "preparing", "ready", "temporary"
_FORCE_SINCE = 130_000
_NEW = re.compile(_NEW_PREFIX + "[0-9a-f]{16}")
# The end of CREATE DATABASE: a kill may come before the database has a comment.
UNFINISHED = sql.SQL(f" CONNECTION LIMIT {LOCK_CLASS}")
# PostgreSQL's limit of connections of a database whose DROP DATABASE was interrupted.
HALF_DROPPED = -2
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


class Database(Struct, frozen=True):
    """A database as the server's catalog has it. limit: of connections; role: who asks.

    droppable: the role may drop it.
    """

    name: str
    owned: Ownership | None
    limit: int
    owner: str
    role: str
    droppable: bool


def databases(
    session: Session, condition: LiteralString, parameters: Sequence[object] = ()
) -> list[Database]:
    """The databases that meet a condition.

    The server checks it: names of other databases may be in an encoding that it cannot convert.
    """
    query: LiteralString = (
        "SELECT datname, shobj_description(oid, 'pg_database'), datconnlimit,"
        " pg_get_userbyid(datdba), current_user, pg_has_role(datdba, 'USAGE')"
        " FROM pg_catalog.pg_database WHERE "
    )
    rows = session.execute(query + condition, parameters).fetchall()
    return [Database(name, Ownership.read(text), *more) for name, text, *more in rows]


def find(session: Session, dbname: str) -> Database | None:
    return next(iter(databases(session, "datname = %s", (dbname,))), None)


def set_ownership(admin: Session, dbname: str, owned: Ownership) -> None:
    admin.execute(with_names("COMMENT ON DATABASE {} IS ", dbname) + sql.Literal(owned.text()))


def drop(dbname: str, *, if_exists: bool = False) -> sql.Composed:
    return with_names("DROP DATABASE IF EXISTS {}" if if_exists else "DROP DATABASE {}", dbname)


def forced_drop(admin: Session, dbname: str, *, if_exists: bool = False) -> sql.Composed:
    """The statement that drops a database, if the server can also with sessions of killed runs."""
    force = " WITH (FORCE)" if admin.info.server_version >= _FORCE_SINCE else ""
    return drop(dbname, if_exists=if_exists) + sql.SQL(force)


def run_name(dbname: str) -> str:
    return dbname + _RUN


def create(admin: Session, dbname: str, owned: Ownership, *, make: Callable[[str], object]) -> None:
    """Creates a managed database, in place of an earlier one.

    make: creates it, UNFINISHED, under the name of its argument. Raises ConsentError for a database
    of others, psycopg.Error, and the errors of `make`; then drops it, if the server still runs.
    """
    if (found := find(admin, dbname)) is not None:
        if found.owned is None:
            raise ConsentError("database-not-owned", dbname=dbname)
        admin.execute(forced_drop(admin, dbname))
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


def drop_leftovers(admin: Session, locks: Session, *, say: Say, but: str = "") -> int:
    """Drops the databases that killed runs left on this server but one; returns the freed bytes.

    These are copies for trials and unfinished data that no process has locked, and databases
    before their rename. locks: the session of `common`. Raises psycopg.Error if the server is gone.
    """
    freed = 0
    for dbname in (name for name in _leftovers(admin, locks) if name != but):
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
    ours = (
        "NOT datistemplate AND pg_has_role(datdba, 'USAGE')"
        " AND shobj_description(oid, 'pg_database') LIKE 'pgpaces %%' ORDER BY 1"
    )
    used: list[str] = []
    with connect(access) as admin, common(access) as locks:
        freed = drop_leftovers(admin, locks, say=lambda _: None)
        for found in databases(admin, ours):
            # Another pgpaces is making one with the prefix.
            if found.owned is None or found.owned.own or found.name.startswith(_NEW_PREFIX):
                continue
            with preparation_errors(found.name), contextlib.suppress(psycopg.errors.ObjectInUse):
                if locked(locks, _lock_of(found.name, found.owned)):
                    # Another pgpaces may just have dropped it.
                    with contextlib.suppress(psycopg.errors.InvalidCatalogName):
                        bytes_taken = size(admin, found.name)
                        admin.execute(drop(found.name))
                        freed += bytes_taken
                    continue
            used.append(found.name)
    if used:
        raise PrepareError("databases-in-use", databases=used, freed_bytes=freed)
    return freed


def _leftovers(admin: Session, locks: Session) -> Iterator[str]:
    """The databases that killed runs left, each locked until the next one is requested.

    Without databases of other roles; none on a standby, where nothing can be dropped.
    """
    ours = "pg_has_role(datdba, 'USAGE') AND NOT pg_is_in_recovery() AND datname ~ '^pgpaces_'"
    for found in databases(admin, ours):
        owned = found.owned
        if _NEW.fullmatch(found.name):
            marked = owned is not None or found.limit in (LOCK_CLASS, HALF_DROPPED)
            if marked and not _is_being_made(admin, found.name):
                yield found.name
        elif owned is None:
            continue
        elif found.limit == HALF_DROPPED:
            yield found.name
        elif not owned.own and owned.state in (COPY, PREPARING, TEMPORARY):
            lock = (LOCK_CLASS, _lock_of(found.name, owned))
            if scalar(locks, "SELECT /* pgpaces */ pg_try_advisory_lock(%s, hashtext(%s))", lock):
                yield found.name
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
    return not soon(admin, lambda: not scalar(admin, query, (LOCK_CLASS, name)))
