"""The mark on databases of ours, and what may be done without one: nothing.

The mark is the database's comment: it says what the data is, and whether it is complete. Knows
nothing of how data is made.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from pgpaces.database.access import Access, connect
from pgpaces.errors import ConsentError

if TYPE_CHECKING:
    from psycopg import sql

    from pgpaces.database.access import Session

_MARK = "pgpaces "
# States of data: of a copy for one trial, of data that is being made, and of such as may be used.
COPY, PREPARING, READY = "copy", "preparing", "ready"
_FORCE_SINCE = 130_000


@dataclass(frozen=True, slots=True)
class Mark:
    """What a database of ours says of itself; own: it was handed over, not made by us."""

    workload: str
    fingerprint: str
    state: str
    own: bool = False

    def text(self) -> str:
        """The comment on the database."""
        return _MARK + json.dumps(asdict(self))

    @classmethod
    def read(cls, comment: str | None) -> Mark | None:
        """The mark in a comment; None where it is not ours."""
        if comment is None or not comment.startswith(_MARK):
            return None
        try:
            values = json.loads(comment.removeprefix(_MARK))
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


def set_mark(admin: Session, dbname: str, mark: Mark) -> None:
    """Marks a database; a comment that it had is lost."""
    from psycopg import sql

    from pgpaces.sessions import Identifier

    statement = sql.SQL("COMMENT ON DATABASE {} IS {}")
    admin.execute(statement.format(Identifier(dbname), sql.Literal(mark.text())))


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
    """Why a database without a mark is left alone: none of ours has its name before its mark."""
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


def drop_ours(admin: Session, dbname: str) -> None:
    """Drops a database with our mark that nobody holds: who is in it was left behind by a kill."""
    from psycopg import sql

    force = " WITH (FORCE)" if admin.info.server_version >= _FORCE_SINCE else ""
    admin.execute(drop(dbname) + sql.SQL(force))


def ours(access: Access) -> dict[str, tuple[Mark, int]]:
    """The databases on a server that bear our mark, with their size in bytes."""
    query = (
        "SELECT datname, shobj_description(oid, 'pg_database'), pg_database_size(oid)"
        " FROM pg_catalog.pg_database WHERE NOT datistemplate"
        # Names of other databases may be in an encoding that the server cannot convert.
        " AND shobj_description(oid, 'pg_database') LIKE 'pgpaces %' ORDER BY 1"
    )
    with connect(access) as admin:
        rows = admin.execute(query).fetchall()
    marks = ((name, Mark.read(comment), size) for name, comment, size in rows)
    return {name: (mark, size) for name, mark, size in marks if mark is not None}
