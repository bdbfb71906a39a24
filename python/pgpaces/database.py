"""Prepares the target: our own databases with a mark, their data, copies of them, and facts.

We never drop, truncate or overwrite what has no mark. The mark is the database's comment: it
says what the data is, and whether it is complete. Knows nothing of load and results.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import select
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgpaces import psql
from pgpaces.errors import ConsentError, PrepareError, ServerError
from pgpaces.plan import without_secrets
from pgpaces.workload import Workload

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

    Session = psycopg.Connection[tuple[Any, ...]]

Say = Callable[[str], None]
_MARK = "pgpaces "
_LOCK_CLASS = 0x70677061  # "pgpa"
# At the end of a run: for a sign of life, and for the drop of a copy, which may need a checkpoint.
_ALIVE_S, _DROP_S = 5.0, 300.0


@dataclass(frozen=True, slots=True)
class Access:
    """How to administer a server: libpq keywords (the password among them) and psql."""

    keywords: Mapping[str, str]
    psql: Path

    def __repr__(self) -> str:
        """Without the password."""
        return f"Access({without_secrets(self.keywords)})"

    @property
    def dbname(self) -> str:
        """The database that we administer from."""
        return self.keywords.get("dbname", "")


@dataclass(frozen=True, slots=True)
class Wish:
    """The data wanted: a workload's, at a scale, for a seed, in a database of ours or `own`."""

    workload: Workload
    scale: int
    seed: int
    own: str | None = None
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class Prepared:
    """A database with its data: its name, and what making it took.

    created: made now, not used again. cloned_from: the database this is a copy of, if it is one.
    """

    dbname: str
    fingerprint: str
    created: bool
    seconds: float
    size_bytes: int
    cloned_from: str | None = None


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


@contextlib.contextmanager
def connect(access: Access, dbname: str | None = None) -> Iterator[Session]:
    """An administrative session in autocommit. What goes wrong in it is a ServerError."""
    import psycopg

    keywords: dict[str, Any] = dict(access.keywords)
    keywords["application_name"] = "pgpaces admin"
    if dbname is not None:
        keywords["dbname"] = dbname
    try:
        with psycopg.connect(autocommit=True, **keywords) as session:
            yield session
    except psycopg.Error as error:
        raise ServerError(f"an administrative session failed: {str(error).strip()}") from None


@contextlib.contextmanager
def prepare(access: Access, wish: Wish, say: Say) -> Iterator[Prepared]:
    """The database that `wish` asks for, ready and held against other pgpaces until the end.

    Raises ConsentError for a database that is not ours, PrepareError where making it fails.
    """
    with connect(access) as admin, _common(access) as common:
        major = admin.info.server_version // 10_000
        fingerprint = _fingerprint(wish, major)
        dbname = wish.own or _dbname(wish.workload, fingerprint)
        _hold(common, dbname)
        started = time.monotonic()
        created = _ensure(access, admin, Target(dbname, fingerprint, wish), say)
        seconds = time.monotonic() - started
        prepared = Prepared(dbname, fingerprint, created, seconds, _size(admin, dbname))
        if wish.workload.writes and wish.own is None:
            with _clone(access, admin, prepared, wish.workload.name, say) as copy:
                yield copy
        else:
            if wish.workload.writes:
                # No copy is made of a database handed over: the next trial must make it anew.
                _set_mark(admin, dbname, Target(dbname, fingerprint, wish).mark("used"))
            yield prepared


def as_is(access: Access) -> Prepared:
    """The database that the connection leads to, untouched. Raises ServerError."""
    with connect(access) as session:
        row = session.execute(
            "SELECT current_database(), pg_database_size(current_database())"
        ).fetchone()
    dbname, size = row or (access.dbname, 0)
    return Prepared(dbname, "", created=False, seconds=0.0, size_bytes=size)


@contextlib.contextmanager
def _common(access: Access) -> Iterator[Session]:
    """A session in the database that every pgpaces can find: locks are a database's own."""
    with contextlib.ExitStack() as stack:
        try:
            session = stack.enter_context(connect(access, "postgres"))
        except ServerError:
            session = stack.enter_context(connect(access))
        yield session


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


def _hold(admin: Session, dbname: str) -> None:
    """Keeps other pgpaces from this database as long as the session lasts."""
    query = "SELECT pg_try_advisory_lock(%s, hashtext(%s))"
    row = admin.execute(query, (_LOCK_CLASS, dbname)).fetchone()
    if row is None or not row[0]:
        raise ServerError(
            f"another pgpaces is using database {dbname} on this server",
            "wait until it is done, or use another --scale or --data-seed to get a database apart",
        )


def _check_owner(admin: Session, dbname: str) -> None:
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


def _comment(admin: Session, dbname: str) -> tuple[bool, str | None]:
    """Whether the database exists, and its comment."""
    query = (
        "SELECT shobj_description(oid, 'pg_database') FROM pg_catalog.pg_database"
        " WHERE datname = %s"
    )
    row = admin.execute(query, (dbname,)).fetchone()
    return (False, None) if row is None else (True, row[0])


def _set_mark(admin: Session, dbname: str, mark: Mark) -> None:
    from psycopg import sql

    statement = sql.SQL("COMMENT ON DATABASE {} IS {}")
    admin.execute(statement.format(sql.Identifier(dbname), sql.Literal(mark.text())))


def _ensure(access: Access, admin: Session, target: Target, say: Say) -> bool:
    """Makes sure that the database holds the data; true if it was made now."""
    exists, comment = _comment(admin, target.dbname)
    mark = Mark.read(comment)
    ready = mark is not None and (mark.fingerprint, mark.state) == (target.fingerprint, "ready")
    if exists and mark is not None:
        _check_owner(admin, target.dbname)
    if ready and not target.wish.fresh:
        return False
    with _explained(target.dbname):
        if target.wish.own is not None:
            _empty_own(access, target, exists, mark)
        else:
            if exists and mark is None:
                _check_left_behind(access, admin, target.dbname, "template1")
            _create(admin, target.dbname, exists)
        _set_mark(admin, target.dbname, target.mark("preparing"))
    try:
        wish = target.wish
        what = f"{wish.workload.name} at scale {wish.scale}"
        variables = {"scale": wish.scale, "seed": wish.seed}
        way = psql.Way(access.psql, access.keywords, target.dbname)
        psql.run(way, wish.workload.init, variables, lambda text: say(f"preparing {what}: {text}"))
    except BaseException:
        if target.wish.own is None:
            with contextlib.suppress(Exception):
                admin.execute(_drop(target.dbname))
        raise
    _set_mark(admin, target.dbname, target.mark("ready"))
    return True


def _check_left_behind(access: Access, admin: Session, dbname: str, template: str) -> None:
    """Raises ConsentError for a database without a mark, unless a kill kept us from marking it.

    Such a one bears the name that we give and no comment, is our own role's, and holds what its
    template holds, by the OIDs of all that was ever made there. So nothing of anybody's is in it.
    """
    query = (
        "SELECT shobj_description(oid, 'pg_database') IS NULL"
        " AND pg_get_userbyid(datdba) = current_user"
        " FROM pg_catalog.pg_database WHERE datname = %s"
    )
    row = admin.execute(query, (dbname,)).fetchone()
    if row is None or not row[0] or _made(access, dbname) != _made(access, template):
        raise ConsentError(
            f"database {dbname} exists and has no mark of pgpaces",
            "rename or drop it; pgpaces never changes a database that is not its own",
        )


def _made(access: Access, dbname: str) -> list[int]:
    """The OIDs of what was made in a database since initdb, which a copy shares."""
    catalogs = ("pg_class", "pg_proc", "pg_type", "pg_namespace", "pg_largeobject_metadata")
    parts = (f"SELECT oid::bigint FROM pg_catalog.{name} WHERE oid >= 16384" for name in catalogs)
    with connect(access, dbname) as session:
        rows = session.execute(f"{' UNION ALL '.join(parts)} ORDER BY 1".encode()).fetchall()
    return [int(oid) for (oid,) in rows]


def _drop(dbname: str) -> sql.Composed:
    from psycopg import sql

    return sql.SQL("DROP DATABASE {}").format(sql.Identifier(dbname))


def _create(admin: Session, dbname: str, exists: bool) -> None:
    from psycopg import sql

    if exists:
        admin.execute(_drop(dbname))
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


@contextlib.contextmanager
def _explained(dbname: str) -> Iterator[None]:
    import psycopg

    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        raise ConsentError(
            f"the role may not make database {dbname}: {error.diag.message_primary}",
            "grant it CREATEDB, or have a database made for it and name that with --own DBNAME",
        ) from None
    except psycopg.errors.ObjectInUse as error:
        detail = error.diag.message_detail or ""
        raise PrepareError(
            f"database {dbname} is in use: {error.diag.message_primary} {detail}".strip(),
            "end the sessions that use it, then run again",
        ) from None
    except psycopg.Error as error:
        raise PrepareError(f"preparing database {dbname} failed: {str(error).strip()}") from None


@contextlib.contextmanager
def _clone(
    access: Access, admin: Session, origin: Prepared, workload: str, say: Say
) -> Iterator[Prepared]:
    """A copy of the prepared database for a trial that writes; dropped at the end."""
    from psycopg import sql

    dbname = f"{origin.dbname}_run"
    name, template = sql.Identifier(dbname), sql.Identifier(origin.dbname)
    drop = sql.SQL("DROP DATABASE IF EXISTS {}").format(name)
    started = time.monotonic()
    with _explained(dbname):
        exists, comment = _comment(admin, dbname)
        if exists and Mark.read(comment) is None:
            _check_left_behind(access, admin, dbname, origin.dbname)
        say(f"copying {origin.dbname}")
        admin.execute(drop)
        admin.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(name, template))
        _set_mark(admin, dbname, Mark(workload, origin.fingerprint, "copy"))
    try:
        seconds = origin.seconds + time.monotonic() - started
        yield Prepared(
            dbname, origin.fingerprint, origin.created, seconds, origin.size_bytes, origin.dbname
        )
    finally:
        # Where the server died or stands still, the next run drops it.
        with contextlib.suppress(Exception):
            if _within(admin, sql.SQL("SELECT 1"), _ALIVE_S):
                _within(
                    admin, sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name), _DROP_S
                )


def _within(admin: Session, statement: sql.Composable, seconds: float) -> bool:
    """Runs a statement; false, and the session closed, where there is no answer in time."""
    connection = admin.pgconn
    deadline = time.monotonic() + seconds
    connection.send_query(statement.as_bytes(admin))
    while connection.is_busy():
        if not select.select([connection.socket], [], [], max(0, deadline - time.monotonic()))[0]:
            admin.close()
            return False
        connection.consume_input()
    while connection.get_result() is not None:
        pass
    return True


def _size(admin: Session, dbname: str) -> int:
    row = admin.execute("SELECT pg_database_size(%s)", (dbname,)).fetchone()
    return 0 if row is None else int(row[0])


def ours(access: Access) -> dict[str, tuple[Mark, int]]:
    """The databases on a server that bear our mark, with their size in bytes."""
    query = (
        "SELECT datname, shobj_description(oid, 'pg_database'), pg_database_size(oid)"
        " FROM pg_catalog.pg_database WHERE NOT datistemplate ORDER BY 1"
    )
    with connect(access) as admin:
        rows = admin.execute(query).fetchall()
    marks = ((name, Mark.read(comment), size) for name, comment, size in rows)
    return {name: (mark, size) for name, mark, size in marks if mark is not None}


def clean(access: Access) -> int:
    """Drops every database that we made; the bytes that this frees. Raises PrepareError.

    One that was handed over stays: it is for whoever made it to drop.
    """
    freed = 0
    with connect(access) as admin, _common(access) as common:
        for dbname, (mark, size) in ours(access).items():
            if mark.own:
                continue
            _hold(common, dbname)
            with _explained(dbname):
                admin.execute(_drop(dbname))
            freed += size
    return freed


def facts(access: Access, dbname: str) -> dict[str, Any]:
    """What must be known of a server to repeat a trial: version, identity, settings.

    settings: those that are not at their default, in the session that the load gets.
    """
    import psycopg

    with connect(access, dbname) as session:
        version = session.execute("SELECT version()").fetchone()
        settings = session.execute(
            "SELECT name, current_setting(name) FROM pg_catalog.pg_settings"
            " WHERE source NOT IN ('default', 'override', 'client')"
            " OR (source = 'client' AND name NOT IN ('application_name', 'client_encoding'))"
            " ORDER BY 1"
        ).fetchall()
        found: dict[str, Any] = {
            "version": session.info.parameter_status("server_version") or "unknown",
            "version_text": version[0] if version else "",
            "version_number": session.info.server_version,
            "settings": {name: value for name, value in settings if not _may_hold_secrets(name)},
        }
        optional = {
            "system_identifier": "SELECT system_identifier::text FROM pg_control_system()",
            "data_directory": "SELECT current_setting('data_directory')",
            "configure": "SELECT setting FROM pg_config() WHERE name = 'CONFIGURE'",
        }
        for key, query in optional.items():
            try:
                row = session.execute(query).fetchone()
                found[key] = row[0] if row else None
            except psycopg.Error:
                found[key] = None
    return found


def _may_hold_secrets(setting: str) -> bool:
    """Connection strings, commands, and settings of extensions, which may hold anything."""
    words = ("password", "conninfo", "command", "secret", ".")
    return any(word in setting for word in words)


def free_connections(access: Access) -> int | None:
    """How many more sessions the server lets in; None where it does not say."""
    import psycopg

    query = (
        "SELECT current_setting('max_connections')::int"
        " - current_setting('superuser_reserved_connections')::int"
        " - coalesce(current_setting('reserved_connections', true)::int, 0)"
        " - (SELECT count(*) FROM pg_catalog.pg_stat_activity"
        "    WHERE backend_type = 'client backend')"
    )
    with connect(access) as admin:
        try:
            row = admin.execute(query).fetchone()
        except psycopg.Error:
            return None
    return None if row is None else int(row[0])
