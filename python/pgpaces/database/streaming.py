"""Standbys: until they have everything that their primary wrote, with the settings that it has.

Knows nothing of how they were made.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping

from pgpaces.database.access import Access, Say, common, connect
from pgpaces.errors import PlanError, ServerError

_TURN_S = 0.02
_TELL_S = 3.0
# So long nothing may be replayed before a standby is given up.
_STUCK_S = 60.0
_WRITTEN = (
    "SELECT (CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.{last}()"
    " ELSE pg_catalog.{current}() END - '0/0'::pg_lsn)::bigint"
)
_NAMES = {"last": "pg_last_wal_replay_lsn", "current": "pg_current_wal_lsn"}
_NAMES_OLD = {"last": "pg_last_xlog_replay_location", "current": "pg_current_xlog_location"}
_OLD_BELOW = 100_000


def wait_for_standbys(
    primary: Access, standbys: Mapping[str, Access], say: Say, check: Callable[[], None]
) -> None:
    """Until each standby has replayed what the primary has written by now.

    check: called again and again; may raise. Raises ServerError for a standby that gets nowhere,
    PlanError for a server that is none of the primary's.
    """
    wanted, own = _position(primary), _identity(primary)
    for name, access in standbys.items():
        _check(name, _identity(access), own)
        told = moved = time.monotonic()
        reached = -1
        while (position := _position(access)) < wanted:
            check()
            now = time.monotonic()
            if position > reached:
                reached, moved = position, now
            behind = f"{name} is {(wanted - position) / 2**20:.1f} MiB behind the primary"
            if now - moved > _STUCK_S:
                raise ServerError(
                    f"{behind} and has replayed nothing for {_STUCK_S:.0f} s",
                    "its log says why: a receiver that ended, or a query that recovery waits for",
                )
            if now - told > _TELL_S:
                say(f"waiting: {behind}")
                told = now
            time.sleep(_TURN_S)


def _check(name: str, found: tuple[bool, int | None], own: tuple[bool, int | None]) -> None:
    """Raises PlanError for a server that follows nobody, or somebody else."""
    (follows, cluster), (_, wanted) = found, own
    if not follows:
        raise PlanError(
            f"{name} is no standby: it is not in recovery and takes writes itself",
            "name a server that streams from the target",
        )
    if None not in (cluster, wanted) and cluster != wanted:
        raise PlanError(
            f"{name} is a standby of another server: its system identifier is {cluster}, that of"
            f" the primary {wanted}",
            "name a server that streams from the target",
        )


def _identity(access: Access) -> tuple[bool, int | None]:
    """Whether a server is in recovery, and its system identifier, if it tells us."""
    import psycopg

    with common(access) as session:
        row = session.execute("SELECT pg_catalog.pg_is_in_recovery()").fetchone()
        follows = row is not None and bool(row[0])
        try:
            row = session.execute("SELECT system_identifier FROM pg_control_system()").fetchone()
        except psycopg.Error:
            return follows, None
    return follows, None if row is None else int(row[0])


def _position(access: Access) -> int:
    with common(access) as session:
        old = session.info.server_version < _OLD_BELOW
        query = _WRITTEN.format(**(_NAMES_OLD if old else _NAMES))
        row = session.execute(query.encode()).fetchone()
    return 0 if row is None or row[0] is None else int(row[0])


@contextlib.contextmanager
def on_standbys(standbys: Mapping[str, Access], wanted: Mapping[str, str]) -> Iterator[None]:
    """Settings of the whole server on managed standbys, as on their primary, as long as this lasts.

    They do not stream: they are files of each server. Raises ServerError.
    """
    for access in standbys.values():
        for name, value in wanted.items():
            _alter_system(access, name, value)
    try:
        yield
    finally:
        for access in standbys.values():
            # A standby that is gone has nothing left to put back; the others have.
            with contextlib.suppress(ServerError):
                for name in wanted:
                    _alter_system(access, name, None)


def _alter_system(access: Access, name: str, value: str | None) -> None:
    from psycopg import sql

    from pgpaces.sessions import Identifier

    named = sql.SQL(".").join(Identifier(part) for part in name.split("."))
    change = (
        sql.SQL("ALTER SYSTEM RESET {}").format(named)
        if value is None
        else sql.SQL("ALTER SYSTEM SET {} = {}").format(named, sql.Literal(value))
    )
    with connect(access, "postgres") as session:
        session.execute(change)
        session.execute("SELECT pg_catalog.pg_reload_conf()")
