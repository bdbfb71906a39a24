"""The data of a workload in a managed database, or in one named with --own.

Knows nothing of load and results.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shlex
import time
from collections.abc import Iterator

from msgspec import Struct

from pgpaces.core.errors import ConsentError
from pgpaces.core.messages import message
from pgpaces.core.sessions import Session
from pgpaces.core.texts import Say, encoded
from pgpaces.database import (
    copies,
    creation,
    ownership,
    programs,
    psql,
    source,
    specification,
    steps,
)
from pgpaces.database.access import (
    Access,
    common,
    connect,
    hold,
    preparation_errors,
    size,
    with_names,
)
from pgpaces.database.ownership import PREPARING, READY, Ownership
from pgpaces.database.specification import DatasetSpec
from pgpaces.spec.setup import Prepared

_MAJORS = range(9, 100)


@contextlib.contextmanager
def prepare(access: Access, spec: DatasetSpec, say: Say) -> Iterator[Prepared]:
    """The database of a specification, ready and locked against other pgpaces until the end.

    Raises ConsentError for a database that pgpaces does not own, PrepareError if making it fails.
    """
    with source.session_outside(access, spec.from_database) as admin, common(access) as locks:
        major = admin.info.server_version // 10_000
        fingerprint = _fingerprint(_identity(spec), major)
        dbname = spec.own or _dbname(spec, fingerprint)
        hold(locks, dbname)
        creation.drop_leftovers(access, admin, locks, say=say)
        started = time.monotonic()
        target = DatabaseTarget(dbname, fingerprint, spec)
        created = _ensure(access, admin, target, say=say)
        seconds = time.monotonic() - started
        prepared = Prepared(dbname, fingerprint, created, seconds, size(admin, dbname))
        if spec.workload.writes and spec.own is None:
            with copies.clone(
                access, admin, prepared, workload=spec.workload.name, say=say
            ) as copy:
                yield copies.settle(admin, copy, checkpoint=True)
        else:
            if spec.workload.writes:
                # A database of --own is not copied: the next trial must make its data again.
                ownership.set_ownership(admin, dbname, target.ownership("used"))
            yield copies.settle(admin, prepared, checkpoint=created)


def as_is(access: Access) -> Prepared:
    """The database of the connection, unchanged. Raises ServerError."""
    with connect(access) as session:
        row = session.execute(
            "SELECT current_database(), pg_database_size(current_database())"
        ).fetchone()
    dbname, size = row or (access.dbname, 0)
    return Prepared(dbname, "", created=False, seconds=0.0, size_bytes=size)


class DatabaseTarget(Struct, frozen=True):
    dbname: str
    fingerprint: str
    spec: DatasetSpec

    def ownership(self, state: str) -> Ownership:
        return Ownership(
            self.spec.workload.name, self.fingerprint, state, self.spec.own is not None
        )


def _identity(spec: DatasetSpec) -> str:
    """All that the data depends on, except the server's version."""
    if spec.from_database is not None:
        return f"{specification.identity(spec.from_database)} {spec.occasion}"
    read = programs.identity(spec.workload, _values(spec))
    return f"{spec.workload.data_hash} {spec.scale} {spec.seed}{' ' if read else ''}{read}"


def _values(spec: DatasetSpec) -> dict[str, str]:
    return {**spec.variables, "scale": str(spec.scale), "seed": str(spec.seed)}


def _fingerprint(identity: str, major: int) -> str:
    return hashlib.sha256(encoded(f"{identity} {major}")).hexdigest()[:10]


def fingerprints(spec: DatasetSpec) -> frozenset[str]:
    """The fingerprints of its data on servers of any version. Raises RunError."""
    identity = _identity(spec)
    return frozenset(_fingerprint(identity, major) for major in _MAJORS)


def names(spec: DatasetSpec, major: int | None) -> tuple[str, ...]:
    """The databases of a trial on a server of this version: that of the data, and its copy.

    major: None if unknown; then `*` stands for the fingerprint. Raises RunError.
    """
    identity = _identity(spec)
    dbname = spec.own or _dbname(spec, "*" if major is None else _fingerprint(identity, major))
    copied = spec.workload.writes and spec.own is None
    return (dbname, creation.run_name(dbname)) if copied else (dbname,)


def _dbname(spec: DatasetSpec, fingerprint: str) -> str:
    """A name after the directory of the first init file: workloads with the same data share it."""
    if spec.from_database is not None:
        name = _plain(specification.name_of(spec.from_database), 35)
        return f"pgpaces_from_{name}_{fingerprint}"
    workload = spec.workload
    first = workload.init[0].path.resolve().parent.name if workload.init else workload.name
    return f"pgpaces_{_plain(first, 40)}_{fingerprint}"


def _plain(text: str, length: int) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:length]


def _ensure(access: Access, admin: Session, target: DatabaseTarget, *, say: Say) -> bool:
    """Makes the data unless the database has it; returns whether it did."""
    exists, comment = ownership.comment_on(admin, target.dbname)
    owned = Ownership.read(comment)
    ready = owned is not None and (owned.fingerprint, owned.state) == (target.fingerprint, READY)
    if exists and owned is not None:
        ownership.check_owner(admin, target.dbname)
    if ready and not target.spec.fresh and ownership.is_whole(admin, target.dbname):
        return False
    if target.spec.from_database is None:
        steps.check_extensions(admin, target.spec.workload)
    with preparation_errors(target.dbname):
        if target.spec.own is not None:
            _empty_own(access, admin, target, exists=exists, owned=owned)
        else:
            if exists and owned is None:
                raise ConsentError("database-not-owned", dbname=target.dbname)
            if exists:
                ownership.drop_owned(admin, target.dbname)
            _create(access, admin, target, say=say)
    try:
        with preparation_errors(target.dbname):
            _fill(access, admin, target, say=say)
    except BaseException:
        if target.spec.own is None:
            with contextlib.suppress(Exception):
                admin.execute(ownership.drop(target.dbname))
        raise
    ownership.set_ownership(admin, target.dbname, target.ownership(READY))
    return True


def _create(access: Access, admin: Session, target: DatabaseTarget, *, say: Say) -> None:
    from_database = target.spec.from_database

    def make(name: str) -> None:
        if from_database is not None:
            source.create(access, admin, from_database, dbname=name, say=say)
        else:
            admin.execute(with_names("CREATE DATABASE {}", name))

    creation.create(access, admin, target.dbname, owned=target.ownership(PREPARING), make=make)


def _fill(access: Access, admin: Session, target: DatabaseTarget, *, say: Say) -> None:
    spec = target.spec
    if spec.from_database is not None:
        source.fill(access, admin, spec.from_database, dbname=target.dbname, say=say)
        return
    name, scale = spec.workload.name, spec.scale

    def say_step(step: str) -> None:
        say(message("data-prepared", workload=name, scale=scale, step=step))

    client = psql.ClientProgram(access.psql, access.keywords, target.dbname)
    steps.make(client, spec.workload, _values(spec), say=say_step)


def _empty_own(
    access: Access, admin: Session, target: DatabaseTarget, *, exists: bool, owned: Ownership | None
) -> None:
    """Marks and empties a database of --own. Raises ConsentError for other data without --fresh."""
    if not exists:
        quoted = shlex.quote(target.dbname)
        raise ConsentError("own-missing", dbname=target.dbname, quoted=quoted)
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
            raise ConsentError("own-not-empty", dbname=target.dbname, schemas=used)
        # Before anything is dropped: a role that may not mark it drops nothing, and after a kill
        # no mark says that the data is ready.
        ownership.set_ownership(admin, target.dbname, target.ownership(PREPARING))
        for name in used:
            session.execute(with_names("DROP SCHEMA {} CASCADE", name))
        session.execute("CREATE SCHEMA IF NOT EXISTS public")
