"""Makes sure that a database holds the data of a workload, in a database of ours or handed over.

Knows nothing of load and results.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgpaces import psql
from pgpaces.database import copies, marks
from pgpaces.database.access import Access, Say, common, connect, explained, hold, size
from pgpaces.database.marks import Mark
from pgpaces.database.wishes import Prepared, Wish
from pgpaces.errors import ConsentError
from pgpaces.workload import Workload

if TYPE_CHECKING:
    from pgpaces.database.access import Session


@contextlib.contextmanager
def prepare(access: Access, wish: Wish, say: Say) -> Iterator[Prepared]:
    """The database that `wish` asks for, ready and held against other pgpaces until the end.

    Raises ConsentError for a database that is not ours, PrepareError where making it fails.
    """
    with connect(access) as admin, common(access) as held:
        major = admin.info.server_version // 10_000
        fingerprint = _fingerprint(wish, major)
        dbname = wish.own or _dbname(wish.workload, fingerprint)
        hold(held, dbname)
        started = time.monotonic()
        created = _ensure(access, admin, Target(dbname, fingerprint, wish), say)
        seconds = time.monotonic() - started
        prepared = Prepared(dbname, fingerprint, created, seconds, size(admin, dbname))
        if wish.workload.writes and wish.own is None:
            with copies.clone(access, admin, prepared, wish.workload.name, say) as copy:
                yield copy
        else:
            if wish.workload.writes:
                # No copy is made of a database handed over: the next trial must make it anew.
                marks.set_mark(admin, dbname, Target(dbname, fingerprint, wish).mark("used"))
            yield prepared


def as_is(access: Access) -> Prepared:
    """The database that the connection leads to, untouched. Raises ServerError."""
    with connect(access) as session:
        row = session.execute(
            "SELECT current_database(), pg_database_size(current_database())"
        ).fetchone()
    dbname, size = row or (access.dbname, 0)
    return Prepared(dbname, "", created=False, seconds=0.0, size_bytes=size)


@dataclass(frozen=True, slots=True)
class Target:
    """A database to make sure of."""

    dbname: str
    fingerprint: str
    wish: Wish

    def mark(self, state: str) -> Mark:
        """Its mark in a state."""
        return Mark(self.wish.workload.name, self.fingerprint, state, self.wish.own is not None)


def _fingerprint(wish: Wish, major: int) -> str:
    text = f"{wish.workload.data_hash} {wish.scale} {wish.seed} {major}"
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def _dbname(workload: Workload, fingerprint: str) -> str:
    """A name after the folder that makes the data: workloads with the same data share it."""
    first = workload.init[0].path.resolve().parent.name if workload.init else workload.name
    plain = re.sub(r"[^a-z0-9]+", "_", first.lower()).strip("_")[:40]
    return f"pgpaces_{plain}_{fingerprint}"


def _ensure(access: Access, admin: Session, target: Target, say: Say) -> bool:
    """Makes sure that the database holds the data; true if it was made now."""
    exists, comment = marks.comment_on(admin, target.dbname)
    mark = Mark.read(comment)
    ready = mark is not None and (mark.fingerprint, mark.state) == (target.fingerprint, "ready")
    if exists and mark is not None:
        marks.check_owner(admin, target.dbname)
    if ready and not target.wish.fresh:
        return False
    with explained(target.dbname):
        if target.wish.own is not None:
            _empty_own(access, target, exists, mark)
        else:
            if exists and mark is None:
                marks.check_left_behind(access, admin, target.dbname, "template1")
            _create(admin, target.dbname, exists)
        marks.set_mark(admin, target.dbname, target.mark("preparing"))
    try:
        wish = target.wish
        what = f"{wish.workload.name} at scale {wish.scale}"
        variables = {"scale": wish.scale, "seed": wish.seed}
        way = psql.Way(access.psql, access.keywords, target.dbname)
        psql.run(way, wish.workload.init, variables, lambda text: say(f"preparing {what}: {text}"))
    except BaseException:
        if target.wish.own is None:
            with contextlib.suppress(Exception):
                admin.execute(marks.drop(target.dbname))
        raise
    marks.set_mark(admin, target.dbname, target.mark("ready"))
    return True


def _create(admin: Session, dbname: str, exists: bool) -> None:
    from psycopg import sql

    if exists:
        admin.execute(marks.drop(dbname))
    admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(dbname)))


def _empty_own(access: Access, target: Target, exists: bool, mark: Mark | None) -> None:
    """A database that the user handed over: used if empty, emptied if that was said too."""
    from psycopg import sql

    if not exists:
        raise ConsentError(
            f"database {target.dbname} does not exist",
            f"create it (createdb {shlex.quote(target.dbname)}), or leave --own out:"
            " pgpaces makes its own",
        )
    with connect(access, target.dbname) as session:
        schemas = session.execute(
            "SELECT nspname, (SELECT count(*) FROM pg_catalog.pg_class WHERE relnamespace = n.oid)"
            " + (SELECT count(*) FROM pg_catalog.pg_proc WHERE pronamespace = n.oid)"
            " + (SELECT count(*) FROM pg_catalog.pg_type WHERE typnamespace = n.oid)"
            " FROM pg_catalog.pg_namespace n"
            " WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'"
        ).fetchall()
        used = [name for name, count in schemas if count or name != "public"]
        if used and mark is None and not target.wish.fresh:
            raise ConsentError(
                f"database {target.dbname} is not empty: schema {', '.join(used)}",
                "--own takes an empty database; add --fresh to drop everything that is in it",
            )
        for name in used:
            session.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(name)))
        session.execute("CREATE SCHEMA IF NOT EXISTS public")
