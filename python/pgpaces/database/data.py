"""The data of a workload in a managed database, or in one named with --own."""

from __future__ import annotations

import contextlib
import hashlib
import re
import shlex
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import ClassVar

from msgspec import Struct, field

from pgpaces.core.errors import ConsentError, PlanError, ServerError
from pgpaces.core.hidden_fields import Redacted
from pgpaces.core.messages import message
from pgpaces.core.sessions import Session
from pgpaces.core.texts import Say, encoded
from pgpaces.database import copies, inputs, ownership, programs, psql
from pgpaces.database.access import (
    MAINTENANCE,
    Access,
    common,
    connect,
    is_dsn,
    locked,
    preparation_errors,
    size,
    source_identity,
    source_name,
    with_names,
)
from pgpaces.database.ownership import PREPARING, READY, TEMPORARY, Database, Ownership
from pgpaces.spec.setup import Prepared
from pgpaces.spec.workload import Workload


class DatasetSpec(Redacted, frozen=True):
    """The data of a workload at a scale, for a seed, in a managed database or in `own`.

    from_database: the source database to copy instead, a name on the same server or the DSN of
    another, complete without the environment; reused for the same `occasion`, which is any text.
    fresh: make the data again in any case. temporary: no other command uses it. variables: for the
    programs that make the data.
    """

    REDACTED: ClassVar = ("from_database",)  # it may hold a password
    workload: Workload
    scale: int
    seed: int
    own: str | None = None
    fresh: bool = False
    from_database: str | None = None
    occasion: str = ""
    temporary: bool = False
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
    workload, source = spec.workload, spec.from_database
    if source == MAINTENANCE:
        raise ConsentError("source-used-by-pgpaces", source=source)
    # Outside the source database, which a copy needs free.
    is_in_it = source is not None and source == access.dbname and not is_dsn(source)
    with connect(access, MAINTENANCE if is_in_it else None) as admin, common(access) as locks:
        fingerprint = _fingerprint(spec.identity(), admin.info.server_version // 10_000)
        dbname = spec.own or _dbname(spec, fingerprint)
        if not locked(locks, dbname):
            raise ServerError("database-locked", dbname=dbname)
        # That of its own name is of an earlier pass of a rehearsal, or is made again.
        ownership.drop_leftovers(admin, locks, say=say, but=dbname)
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
    dbname, spec, source = target.dbname, target.spec, target.spec.from_database
    found = ownership.find(admin, dbname)
    if found is not None and found.owned is not None:
        if not found.droppable:
            values = {"owner": found.owner, "role": found.role}
            raise ConsentError("database-of-other-role", dbname=dbname, **values)
        ready = found.owned.state in (READY, TEMPORARY)
        ready = ready and found.owned.fingerprint == target.fingerprint
        if ready and not spec.fresh and found.limit != ownership.HALF_DROPPED:
            return False
    if source is None:
        programs.check_extensions(admin, spec.workload)
    fill: copies.Fill = partial(_run_programs, access, spec, say=say)

    def make(name: str) -> None:
        nonlocal fill
        if source is not None:
            fill = copies.copy_source(access, admin, source, dbname=name, say=say)
        else:
            admin.execute(with_names("CREATE DATABASE {}", name) + ownership.UNFINISHED)

    with preparation_errors(dbname):
        if spec.own is not None:
            _empty_own(access, admin, target, found=found)
        else:
            ownership.create(admin, dbname, target.ownership(PREPARING), make=make)
    try:
        with preparation_errors(dbname):
            fill(dbname)
    except BaseException:
        _drop_managed(admin, target)
        raise
    state = TEMPORARY if spec.temporary else READY
    ownership.set_ownership(admin, dbname, target.ownership(state))
    return True


def _drop_managed(admin: Session, target: DatabaseTarget) -> None:
    """Drops it, if nobody else uses it: its mark says that it is unfinished."""
    if target.spec.own is None:
        with contextlib.suppress(Exception):
            admin.execute(ownership.drop(target.dbname))


def _run_programs(access: Access, spec: DatasetSpec, dbname: str, *, say: Say) -> None:
    """Makes the data of the workload in the database."""

    def say_step(step: str) -> None:
        say(message("data-prepared", workload=spec.workload.name, scale=spec.scale, step=step))

    client = psql.ClientProgram(access.psql, access.keywords, dbname)
    programs.make_data(client, spec.workload, spec.values(), say=say_step)


def _empty_own(
    access: Access, admin: Session, target: DatabaseTarget, *, found: Database | None
) -> None:
    """Marks and empties a database of --own. Raises ConsentError for other data without --fresh."""
    if found is None:
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
        if used and found.owned is None and not target.spec.fresh:
            raise ConsentError("own-not-empty", dbname=target.dbname, schemas=used)
        # Before anything is dropped: a role that may not mark it drops nothing, and after a kill
        # no mark says that the data is ready.
        ownership.set_ownership(admin, target.dbname, target.ownership(PREPARING))
        for name in used:
            session.execute(with_names("DROP SCHEMA {} CASCADE", name))
        session.execute("CREATE SCHEMA IF NOT EXISTS public")
