"""Standbys: waiting until they have replayed what their primary wrote, and their settings."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping

import psycopg

from pgpaces.core.errors import PlanError, ServerError
from pgpaces.core.messages import message
from pgpaces.core.sessions import scalar
from pgpaces.core.texts import Say
from pgpaces.database.access import Access, common, connect
from pgpaces.database.changes import SYSTEM, SettingChange, set_to

_SINCE = 100_000
_TURN_S = 0.02
_REPORT_S = 3.0
# Without progress for this time, the wait for a standby fails.
_STUCK_S = 60.0
_WRITTEN = (
    "SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()"
    " ELSE pg_current_wal_lsn() END - '0/0'::pg_lsn)::bigint"
)


def check_version(primary: Access) -> None:
    """Raises PlanError for a server whose standbys pgpaces cannot follow."""
    with common(primary) as session:
        if session.info.server_version < _SINCE:
            raise PlanError("standbys-need-10")


def wait_for_standbys(
    primary: Access, standbys: Mapping[str, Access], say: Say, *, check: Callable[[], None]
) -> None:
    """Waits until each standby has replayed what the primary has written so far.

    check: called repeatedly; may raise. Raises ServerError for a standby without progress,
    PlanError for a server that is not a standby of the primary.
    """
    target, (_, cluster) = _position(primary), _identity(primary)
    for name, access in standbys.items():
        follows, own = _identity(access)
        if not follows:
            raise PlanError("not-a-standby", server=name)
        if None not in (own, cluster) and own != cluster:
            raise PlanError(
                "standby-of-other-server", standby=name, identifier=own, expected=cluster
            )
        reported = moved = time.monotonic()
        reached = -1
        while (position := _position(access)) < target:
            check()
            now = time.monotonic()
            if position > reached:
                reached, moved = position, now
            behind = target - position
            if now - moved > _STUCK_S:
                values = {"behind_bytes": behind, "wait_s": _STUCK_S}
                raise ServerError("standby-stuck", standby=name, **values)
            if now - reported > _REPORT_S:
                say(message("standby-lags", standby=name, behind_bytes=behind))
                reported = now
            time.sleep(_TURN_S)


def _identity(access: Access) -> tuple[bool, int | None]:
    """Whether a server is in recovery, and its system identifier, if the role may read it."""
    with common(access) as session:
        follows = bool(scalar(session, "SELECT pg_catalog.pg_is_in_recovery()"))
        with contextlib.suppress(psycopg.Error):
            query = "SELECT system_identifier FROM pg_control_system()"
            return follows, int(scalar(session, query))
        return follows, None


def _position(access: Access) -> int:
    with common(access) as session:
        return int(scalar(session, _WRITTEN) or 0)


@contextlib.contextmanager
def on_standbys(standbys: Mapping[str, Access], settings: Mapping[str, str]) -> Iterator[None]:
    """Settings of the whole server on managed standbys, as on their primary. Raises ServerError.

    They are in a file of each server and do not stream.
    """
    for access in standbys.values():
        for name, value in settings.items():
            _alter_system(access, name, value)
    try:
        yield
    finally:
        for access in standbys.values():
            # A standby that has ended needs no reset; the others do.
            with contextlib.suppress(ServerError):
                for name in settings:
                    _alter_system(access, name, None)


def _alter_system(access: Access, name: str, value: str | None) -> None:
    with connect(access, "postgres") as session:
        set_to(session, SettingChange(name, SYSTEM), value)
        session.execute("SELECT pg_catalog.pg_reload_conf()")
