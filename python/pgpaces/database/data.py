"""Makes sure that a database holds the data of a workload, in a managed database or handed over.

Knows nothing of load and results.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shlex
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from pgpaces import programs, psql
from pgpaces.database import changes, copies, creation, ownership, source, steps
from pgpaces.database.access import Access, Say, common, connect, explained, hold, size
from pgpaces.database.ownership import PREPARING, READY, Ownership
from pgpaces.database.specification import DatasetSpec
from pgpaces.errors import ConsentError
from pgpaces.facts import Prepared
from pgpaces.texts import encoded

if TYPE_CHECKING:
    from pgpaces.database.access import Session

_MAJORS = range(9, 100)


@contextlib.contextmanager
def prepare(access: Access, spec: DatasetSpec, say: Say) -> Iterator[Prepared]:
    """The database that `spec` asks for, ready and held against other pgpaces until the end.

    Raises ConsentError for a database that is not ours, PrepareError where making it fails.
    """
    changes.put_back_left_behind(access, None, say)
    with source.elsewhere(access, spec.from_database) as admin, common(access) as held:
        major = admin.info.server_version // 10_000
        fingerprint = _fingerprint(_identity(spec), major)
        dbname = spec.own or _dbname(spec, fingerprint)
        hold(held, dbname)
        creation.drop_left_behind(access, admin, held, say)
        started = time.monotonic()
        created = _ensure(access, admin, DatabaseTarget(dbname, fingerprint, spec), say)
        seconds = time.monotonic() - started
        prepared = Prepared(dbname, fingerprint, created, seconds, size(admin, dbname))
        if spec.workload.writes and spec.own is None:
            with copies.clone(access, admin, prepared, spec.workload.name, say) as copy:
                yield copies.settle(admin, copy, checkpoint=True)
        else:
            if spec.workload.writes:
                # No copy is made of a database handed over: the next trial must make it anew.
                ownership.set_ownership(
                    admin, dbname, DatabaseTarget(dbname, fingerprint, spec).ownership("used")
                )
            yield copies.settle(admin, prepared, checkpoint=created)


def as_is(access: Access) -> Prepared:
    """The database that the connection leads to, untouched. Raises ServerError."""
    with connect(access) as session:
        row = session.execute(
            "SELECT current_database(), pg_database_size(current_database())"
        ).fetchone()
    dbname, size = row or (access.dbname, 0)
    return Prepared(dbname, "", created=False, seconds=0.0, size_bytes=size)


class DatabaseTarget(Struct, frozen=True):
    """A database to make sure of."""

    dbname: str
    fingerprint: str
    spec: DatasetSpec

    def ownership(self, state: str) -> Ownership:
        """Its ownership in a state."""
        return Ownership(
            self.spec.workload.name, self.fingerprint, state, self.spec.own is not None
        )


def _identity(spec: DatasetSpec) -> str:
    """What the data depends on beside the server's version."""
    if spec.from_database is not None:
        return f"{source.identity(spec.from_database)} {spec.occasion}"
    values = {**spec.variables, "scale": str(spec.scale), "seed": str(spec.seed)}
    read = programs.identity(spec.workload, values)
    return f"{spec.workload.data_hash} {spec.scale} {spec.seed}{' ' if read else ''}{read}"


def _fingerprint(identity: str, major: int) -> str:
    return hashlib.sha256(encoded(f"{identity} {major}")).hexdigest()[:10]


def fingerprints(spec: DatasetSpec) -> frozenset[str]:
    """What its data is known by, on servers of any version. Raises RunError."""
    identity = _identity(spec)
    return frozenset(_fingerprint(identity, major) for major in _MAJORS)


def names(spec: DatasetSpec, major: int | None) -> tuple[str, ...]:
    """The databases that a trial works in, on a server of this version: its data's, and the copy.

    major: None where it is not known; then `*` stands for what depends on it. Raises RunError.
    """
    identity = _identity(spec)
    dbname = spec.own or _dbname(spec, "*" if major is None else _fingerprint(identity, major))
    copied = spec.workload.writes and spec.own is None
    return (dbname, creation.run_name(dbname)) if copied else (dbname,)


def _dbname(spec: DatasetSpec, fingerprint: str) -> str:
    """A name after the folder that makes the data: workloads with the same data share it."""
    if spec.from_database is not None:
        name = _plain(source.name_of(spec.from_database), 35)
        return f"pgpaces_from_{name}_{fingerprint}"
    workload = spec.workload
    first = workload.init[0].path.resolve().parent.name if workload.init else workload.name
    return f"pgpaces_{_plain(first, 40)}_{fingerprint}"


def _plain(text: str, length: int) -> str:
    """A name as part of one of ours, which must not be longer than a name may be."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:length]


def _ensure(access: Access, admin: Session, target: DatabaseTarget, say: Say) -> bool:
    """Makes sure that the database holds the data; true if it was made now."""
    exists, comment = ownership.comment_on(admin, target.dbname)
    owned = Ownership.read(comment)
    ready = owned is not None and (owned.fingerprint, owned.state) == (target.fingerprint, READY)
    if exists and owned is not None:
        ownership.check_owner(admin, target.dbname)
    if ready and not target.spec.fresh and ownership.is_whole(admin, target.dbname):
        return False
    if target.spec.from_database is None:
        steps.check_extensions(admin, target.spec.workload)
    with explained(target.dbname):
        if target.spec.own is not None:
            _empty_own(access, target, exists, owned)
            ownership.set_ownership(admin, target.dbname, target.ownership(PREPARING))
        else:
            if exists and owned is None:
                raise ownership.refuse(target.dbname)
            if exists:
                ownership.drop_owned(admin, target.dbname)
            _create(access, admin, target, say)
    try:
        with explained(target.dbname):
            _fill(access, admin, target, say)
    except BaseException:
        if target.spec.own is None:
            with contextlib.suppress(Exception):
                admin.execute(ownership.drop(target.dbname))
        raise
    ownership.set_ownership(admin, target.dbname, target.ownership(READY))
    return True


def _create(access: Access, admin: Session, target: DatabaseTarget, say: Say) -> None:
    from psycopg import sql

    from pgpaces.sessions import Identifier

    from_database = target.spec.from_database

    def make(name: str) -> None:
        if from_database is not None:
            source.create(access, admin, from_database, name, say)
        else:
            admin.execute(sql.SQL("CREATE DATABASE {}").format(Identifier(name)))

    creation.create(access, admin, target.dbname, target.ownership(PREPARING), make)


def _fill(access: Access, admin: Session, target: DatabaseTarget, say: Say) -> None:
    spec = target.spec
    if spec.from_database is not None:
        source.fill(access, admin, spec.from_database, target.dbname, say)
        return
    what = f"{spec.workload.name} at scale {spec.scale}"
    values = {**spec.variables, "scale": str(spec.scale), "seed": str(spec.seed)}
    way = psql.Way(access.psql, access.keywords, target.dbname)
    steps.make(way, spec.workload, values, lambda text: say(f"preparing {what}: {text}"))


def _empty_own(
    access: Access, target: DatabaseTarget, exists: bool, owned: Ownership | None
) -> None:
    """A database that the user handed over: used if empty, emptied if that was said too."""
    from psycopg import sql

    from pgpaces.sessions import Identifier

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
        if used and owned is None and not target.spec.fresh:
            raise ConsentError(
                f"database {target.dbname} is not empty: schema {', '.join(used)}",
                "--own takes an empty database; add --fresh to drop everything that is in it",
            )
        for name in used:
            session.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(Identifier(name)))
        session.execute("CREATE SCHEMA IF NOT EXISTS public")
