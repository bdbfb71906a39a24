"""Copies of a prepared database for trials that write.

Knows nothing of how the data was made.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pgpaces.database import marks
from pgpaces.database.access import Access, Say, explained, within
from pgpaces.database.marks import Mark
from pgpaces.database.wishes import Prepared

if TYPE_CHECKING:
    from pgpaces.database.access import Session

# At the end of a run: for a sign of life, and for the drop of a copy, which may need a checkpoint.
_ALIVE_S, _DROP_S = 5.0, 300.0


@contextlib.contextmanager
def clone(
    access: Access, admin: Session, origin: Prepared, workload: str, say: Say
) -> Iterator[Prepared]:
    """A copy of the prepared database for a trial that writes; dropped at the end."""
    from psycopg import sql

    dbname = f"{origin.dbname}_run"
    name, template = sql.Identifier(dbname), sql.Identifier(origin.dbname)
    drop = sql.SQL("DROP DATABASE IF EXISTS {}").format(name)
    started = time.monotonic()
    with explained(dbname):
        exists, comment = marks.comment_on(admin, dbname)
        if exists and Mark.read(comment) is None:
            marks.check_left_behind(access, admin, dbname, origin.dbname)
        say(f"copying {origin.dbname}")
        admin.execute(drop)
        admin.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(name, template))
        marks.set_mark(admin, dbname, Mark(workload, origin.fingerprint, "copy"))
    try:
        seconds = origin.seconds + time.monotonic() - started
        yield Prepared(
            dbname, origin.fingerprint, origin.created, seconds, origin.size_bytes, origin.dbname
        )
    finally:
        # Where the server died or stands still, the next run drops it.
        with contextlib.suppress(Exception):
            if within(admin, sql.SQL("SELECT 1"), _ALIVE_S):
                within(
                    admin, sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name), _DROP_S
                )
