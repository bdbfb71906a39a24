"""The data of a workload in a managed database, or in one named with --own."""

from __future__ import annotations

import contextlib
import hashlib
import re
import shlex
import time
from collections.abc import Iterator, Mapping
from typing import ClassVar

from msgspec import Struct, field

from pgpaces.core.errors import ConsentError, PlanError, ServerError
from pgpaces.core.messages import message
from pgpaces.core.redaction import Redacted
from pgpaces.core.sessions import Session
from pgpaces.core.texts import Say, encoded
from pgpaces.database import copies, inputs, ownership, programs, psql
from pgpaces.database.access import (
    Access,
    common,
    connect,
    locked,
    preparation_errors,
    size,
    source_identity,
    source_name,
    with_names,
)
from pgpaces.database.ownership import PREPARING, READY, Ownership
from pgpaces.spec.setup import Prepared
from pgpaces.spec.workload import Workload

_MAJORS = range(9, 100)


class DatasetSpec(Redacted, frozen=True):
    """The data of a workload at a scale, for a seed, in a managed database or in `own`.

    from_database: the source database to copy instead, a name on the same server or the DSN of
    another, complete without the environment; reused for the same `occasion`, which is any text.
    fresh: make the data again in any case. variables: for the programs that make the data.
    """

    REDACTED: ClassVar = ("from_database",)  # it may hold a password
    workload: Workload
    scale: int
    seed: int
    own: str | None = None
    fresh: bool = False
    from_database: str | None = None
    occasion: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises PlanError for options that exclude each other."""
        if self.own is not None and self.from_database is not None:
            raise PlanError("cannot-combine", options=["--own", "--from-database"])

    @property
    def is_copied(self) -> bool:
        """Whether each trial gets a copy of the data."""
        return self.workload.writes and self.own is None

    def values(self) -> dict[str, str]:
        return {**self.variables, "scale": str(self.scale), "seed": str(self.seed)}

    def identity(self) -> str:
        """All that the data depends on, except the server's version. Raises RunError."""
        if self.from_database is not None:
            return f"{source_identity(self.from_database)} {self.occasion}"
        read = inputs.identity(self.workload, self.values())
        return f"{self.workload.data_hash} {self.scale} {self.seed}{' ' if read else ''}{read}"


@contextlib.contextmanager
def prepare(access: Access, spec: DatasetSpec, say: Say) -> Iterator[Prepared]:
    """The database of a specification, ready and locked against other pgpaces until the end.

    Raises ConsentError for a database that pgpaces does not own, PrepareError if making it fails.
    """
    workload = spec.workload
    with copies.session_outside(access, spec.from_database) as admin, common(access) as locks:
        fingerprint = _fingerprint(spec.identity(), admin.info.server_version // 10_000)
        dbname = spec.own or _dbname(spec, fingerprint)
        if not locked(locks, dbname):
            raise ServerError("database-locked", dbname=dbname)
        ownership.drop_leftovers(admin, locks, say=say)
        started = time.monotonic()
        target = DatabaseTarget(dbname, fingerprint, spec)
        created = _ensure(access, admin, target, say=say)
        seconds = time.monotonic() - started
        prepared = Prepared(dbname, fingerprint, created, seconds, size(admin, dbname))
        if spec.is_copied:
            with copies.clone(access, admin, prepared, workload=workload.name, say=say) as copy:
                yield copies.settle(admin, copy, checkpoint=True)
            return
        if workload.writes:
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
        name, is_own = self.spec.workload.name, self.spec.own is not None
        return Ownership(name, self.fingerprint, state, is_own)


def _fingerprint(identity: str, major: int) -> str:
    return hashlib.sha256(encoded(f"{identity} {major}")).hexdigest()[:10]


def fingerprints(spec: DatasetSpec) -> frozenset[str]:
    """The fingerprints of its data on servers of any version. Raises RunError."""
    identity = spec.identity()
    return frozenset(_fingerprint(identity, major) for major in _MAJORS)


def names(spec: DatasetSpec, major: int | None) -> tuple[str, ...]:
    """The databases of a trial on a server of this version: that of the data, and its copy.

    major: None if unknown; then `*` stands for the fingerprint. Raises RunError.
    """
    identity = spec.identity()
    dbname = spec.own or _dbname(spec, "*" if major is None else _fingerprint(identity, major))
    return (dbname, ownership.run_name(dbname)) if spec.is_copied else (dbname,)


def _dbname(spec: DatasetSpec, fingerprint: str) -> str:
    """A name after the directory of the first init file: workloads with the same data share it."""

    def plain(text: str, length: int) -> str:
        return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:length]

    if spec.from_database is not None:
        return f"pgpaces_from_{plain(source_name(spec.from_database), 35)}_{fingerprint}"
    workload = spec.workload
    first = workload.init[0].path.resolve().parent.name if workload.init else workload.name
    return f"pgpaces_{plain(first, 40)}_{fingerprint}"


def _ensure(access: Access, admin: Session, target: DatabaseTarget, *, say: Say) -> bool:
    """Makes the data unless the database has it; returns whether it did."""
    dbname, spec = target.dbname, target.spec
    exists, comment = ownership.comment_on(admin, dbname)
    owned = Ownership.read(comment)
    ready = owned is not None and (owned.fingerprint, owned.state) == (target.fingerprint, READY)
    if exists and owned is not None:
        ownership.check_owner(admin, dbname)
    if ready and not spec.fresh and ownership.is_whole(admin, dbname):
        return False
    if spec.from_database is None:
        programs.check_extensions(admin, spec.workload)

    with preparation_errors(dbname):
        if spec.own is not None:
            _empty_own(access, admin, target, exists=exists, owned=owned)
        else:
            if exists and owned is None:
                raise ConsentError("database-not-owned", dbname=dbname)
            if exists:
                admin.execute(ownership.forced_drop(admin, dbname))
            _create(access, admin, target, say=say)
    try:
        with preparation_errors(dbname):
            _fill(access, admin, target, say=say)
    except BaseException:
        if spec.own is None:
            with contextlib.suppress(Exception):
                admin.execute(ownership.drop(dbname))
        raise
    ownership.set_ownership(admin, dbname, target.ownership(READY))
    return True


def _create(access: Access, admin: Session, target: DatabaseTarget, *, say: Say) -> None:
    source = target.spec.from_database

    def make(name: str) -> None:
        if source is not None:
            copies.create_from_source(access, admin, source, dbname=name, say=say)
        else:
            admin.execute(with_names("CREATE DATABASE {}", name) + ownership.UNFINISHED)

    ownership.create(admin, target.dbname, target.ownership(PREPARING), make=make)


def _fill(access: Access, admin: Session, target: DatabaseTarget, *, say: Say) -> None:
    dbname, spec = target.dbname, target.spec

    def say_step(step: str) -> None:
        say(message("data-prepared", workload=spec.workload.name, scale=spec.scale, step=step))

    if spec.from_database is not None:
        copies.fill_from_source(access, admin, spec.from_database, dbname=dbname, say=say)
    else:
        client = psql.ClientProgram(access.psql, access.keywords, dbname)
        programs.make_data(client, spec.workload, spec.values(), say=say_step)


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
