"""Who owns a database: pgpaces changes only those whose comment says they are its own.

The ownership is the database's comment: it says what the data is, and whether it is complete. Knows
nothing of how data is made.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import asdict

from pgpaces.database.access import Access, connect
from pgpaces.errors import ConsentError

if TYPE_CHECKING:
    from psycopg import sql

    from pgpaces.database.access import Session

_PREFIX = "pgpaces "
# States of data: of a copy for one trial, of data that is being made, and of such as may be used.
COPY, PREPARING, READY = "copy", "preparing", "ready"
_FORCE_SINCE = 130_000


class Ownership(Struct, frozen=True):
    """What a managed database says of itself; own: it was handed over, not made by us."""

    workload: str
    fingerprint: str
    state: str
    own: bool = False

    def text(self) -> str:
        """The comment on the database."""
        return _PREFIX + json.dumps(asdict(self))

    @classmethod
    def read(cls, comment: str | None) -> Ownership | None:
        """The ownership that a comment states; None where it is not ours."""
        if comment is None or not comment.startswith(_PREFIX):
            return None
        try:
            values = json.loads(comment.removeprefix(_PREFIX))
            return cls(
                values["workload"],
                values["fingerprint"],
                values["state"],
                bool(values.get("own")),
            )
        except (ValueError, KeyError, TypeError):
            return None


def is_whole(admin: Session, dbname: str) -> bool:
    """Whether nothing broke off while the server dropped it: then it lets no session in."""
    query = "SELECT datconnlimit <> -2 FROM pg_catalog.pg_database WHERE datname = %s"
    row = admin.execute(query, (dbname,)).fetchone()
    return row is not None and bool(row[0])


def comment_on(admin: Session, dbname: str) -> tuple[bool, str | None]:
    """Whether the database exists, and its comment."""
    query = (
        "SELECT shobj_description(oid, 'pg_database') FROM pg_catalog.pg_database"
        " WHERE datname = %s"
    )
    row = admin.execute(query, (dbname,)).fetchone()
    return (False, None) if row is None else (True, row[0])


def set_ownership(admin: Session, dbname: str, owned: Ownership) -> None:
    """Makes a database ours; a comment that it had is lost."""
    from psycopg import sql

    from pgpaces.sessions import Identifier

    statement = sql.SQL("COMMENT ON DATABASE {} IS {}")
    admin.execute(statement.format(Identifier(dbname), sql.Literal(owned.text())))


def check_owner(admin: Session, dbname: str) -> None:
    """Raises ConsentError for a database that another role made."""
    query = (
        "SELECT pg_has_role(datdba, 'USAGE'), pg_get_userbyid(datdba), current_user"
        " FROM pg_catalog.pg_database WHERE datname = %s"
    )
    row = admin.execute(query, (dbname,)).fetchone()
    if row is not None and not row[0]:
        raise ConsentError(
            f"database {dbname} was made by pgpaces as role {row[1]}, and {row[2]} is not in it",
            f"log in as {row[1]}, or use another --data-seed to get a database apart",
        )


def refuse(dbname: str) -> ConsentError:
    """Why a database without ownership is left alone: none of ours has its name before it."""
    return ConsentError(
        f"database {dbname} exists and has no mark of pgpaces",
        "rename or drop it; pgpaces never changes a database that is not its own",
    )


def drop(dbname: str, *, if_exists: bool = False) -> sql.Composed:
    """The statement that drops a database."""
    from psycopg import sql

    from pgpaces.sessions import Identifier

    words = "DROP DATABASE IF EXISTS {}" if if_exists else "DROP DATABASE {}"
    return sql.SQL(words).format(Identifier(dbname))


def drop_owned(admin: Session, dbname: str) -> None:
    """Drops a database that we own and nobody holds: who is in it was left behind by a kill."""
    from psycopg import sql

    force = " WITH (FORCE)" if admin.info.server_version >= _FORCE_SINCE else ""
    admin.execute(drop(dbname) + sql.SQL(force))


def ours(access: Access) -> dict[str, tuple[Ownership, int]]:
    """The databases on a server that pgpaces owns, with their size in bytes."""
    query = (
        "SELECT datname, shobj_description(oid, 'pg_database'),"
        " coalesce(pg_database_size(oid), 0)"
        " FROM pg_catalog.pg_database WHERE NOT datistemplate"
        # Names of other databases may be in an encoding that the server cannot convert.
        " AND shobj_description(oid, 'pg_database') LIKE 'pgpaces %' ORDER BY 1"
    )
    with connect(access) as admin:
        rows = admin.execute(query).fetchall()
    found = ((name, Ownership.read(comment), size) for name, comment, size in rows)
    return {name: (owned, size) for name, owned, size in found if owned is not None}
