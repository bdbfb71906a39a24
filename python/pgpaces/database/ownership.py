"""Ownership of databases: pgpaces changes only those whose comment says that it owns them.

The comment also identifies the data and says whether it is complete. Knows nothing of how data is
made.
"""

from __future__ import annotations

import json

from msgspec import Struct
from msgspec.structs import asdict
from psycopg import sql

from pgpaces.core.errors import ConsentError
from pgpaces.core.sessions import Session, scalar
from pgpaces.database.access import Access, connect, with_names

_PREFIX = "pgpaces "
# States: a copy for one trial, data that is being made, data that is complete.
COPY, PREPARING, READY = "copy", "preparing", "ready"
_FORCE_SINCE = 130_000


class Ownership(Struct, frozen=True):
    """The comment of a managed database. own: the user created it, for --own."""

    workload: str
    fingerprint: str
    state: str
    own: bool = False

    def text(self) -> str:
        return _PREFIX + json.dumps(asdict(self))

    @classmethod
    def read(cls, comment: str | None) -> Ownership | None:
        """The ownership in a comment; None for a comment of others."""
        if comment is None or not comment.startswith(_PREFIX):
            return None
        try:
            values = json.loads(comment.removeprefix(_PREFIX))
            workload, fingerprint, state = (values[k] for k in ("workload", "fingerprint", "state"))
            return cls(workload, fingerprint, state, bool(values.get("own")))
        except (ValueError, KeyError, TypeError):
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


def drop_owned(admin: Session, dbname: str) -> None:
    """Drops an owned and unlocked database, also with sessions, which are of killed runs."""
    admin.execute(forced_drop(admin, dbname))


def forced_drop(admin: Session, dbname: str, *, if_exists: bool = False) -> sql.Composed:
    """The statement that drops a database with its sessions, where the server's version can."""
    force = " WITH (FORCE)" if admin.info.server_version >= _FORCE_SINCE else ""
    return drop(dbname, if_exists=if_exists) + sql.SQL(force)


def owned_databases(access: Access) -> dict[str, tuple[Ownership, int]]:
    """The databases that pgpaces owns on a server and the role may drop; their sizes in bytes."""
    query = (
        "SELECT datname, shobj_description(oid, 'pg_database'),"
        " coalesce(pg_database_size(oid), 0)"
        " FROM pg_catalog.pg_database WHERE NOT datistemplate AND pg_has_role(datdba, 'USAGE')"
        # Names of other databases may be in an encoding that the server cannot convert.
        " AND shobj_description(oid, 'pg_database') LIKE 'pgpaces %' ORDER BY 1"
    )
    with connect(access) as admin:
        rows = admin.execute(query).fetchall()
    comments = ((name, Ownership.read(comment), size) for name, comment, size in rows)
    return {name: (owned, size) for name, owned, size in comments if owned is not None}
