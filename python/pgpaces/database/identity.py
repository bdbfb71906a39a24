"""The facts of a server that a repetition of a trial needs, and their changes.

Changes nothing there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import psycopg
from msgspec import Struct

from pgpaces.core.errors import ServerError
from pgpaces.core.findings import Finding, finding
from pgpaces.core.sessions import Session, scalar
from pgpaces.database.access import Access, connect
from pgpaces.spec.setup import ServerFacts


def facts(access: Access, dbname: str) -> ServerFacts:
    """The facts of a server: version, identity, settings.

    settings: those that are not at their default, in a session of the load.
    """
    with connect(access, dbname) as session:
        version_text = scalar(session, "SELECT version()")
        settings = session.execute(
            "SELECT name, current_setting(name) FROM pg_catalog.pg_settings"
            " WHERE source NOT IN ('default', 'override', 'client')"
            " OR (source = 'client' AND name NOT IN ('application_name', 'client_encoding'))"
            " ORDER BY 1"
        ).fetchall()
        optional: dict[str, str | None] = {}
        queries = {
            "system_identifier": "SELECT system_identifier::text FROM pg_control_system()",
            "data_directory": "SELECT current_setting('data_directory')",
            "postmaster_started": (
                "SELECT to_char(pg_postmaster_start_time() AT TIME ZONE 'UTC',"
                ' \'YYYY-MM-DD"T"HH24:MI:SS.US"Z"\')'
            ),
            "configure": "SELECT setting FROM pg_config() WHERE name = 'CONFIGURE'",
        }
        for key, query in queries.items():
            try:
                optional[key] = scalar(session, query)
            except psycopg.Error:
                optional[key] = None
        return ServerFacts(
            version=session.info.parameter_status("server_version") or "unknown",
            version_text=version_text,
            version_number=session.info.server_version,
            settings={name: value for name, value in settings if not _may_hold_secrets(name)},
        ).but(**optional)


# What PostgreSQL calls these facts.
_FACTS = {
    "system_identifier": "system_identifier",
    "version": "server_version",
    "configure": "CONFIGURE",
    "data_directory": "data_directory",
    "postmaster_started": "pg_postmaster_start_time",
}


def server_changes(
    before: ServerFacts, after: ServerFacts, ignoring: Collection[str] = ()
) -> Iterator[Finding]:
    """The changes of a server between two of its `facts`.

    A fact that one of them lacks is no change. ignoring: settings that pgpaces changed.
    """
    for key, fact in _FACTS.items():
        old, new = getattr(before, key), getattr(after, key)
        if old is not None and new is not None and old != new:
            yield finding("server-changed", fact=fact, before=old, now=new)
    ignored = {name.lower() for name in ignoring}
    for name in sorted(before.settings.keys() | after.settings.keys()):
        old, new = (each.settings.get(name, "DEFAULT") for each in (before, after))
        if name.lower() not in ignored and old != new:
            yield finding("server-changed", fact=name, before=old, now=new)


def _may_hold_secrets(setting: str) -> bool:
    """Connection strings, commands, and settings of extensions, which may hold anything."""
    return any(w in setting for w in ("password", "conninfo", "command", "secret", "."))


def is_superuser(access: Access) -> bool:
    """Whether the role of the connection is a superuser. Raises ServerError."""
    with connect(access) as session:
        return session.info.parameter_status("is_superuser") == "on"


# 9.6 has no column backend_type, and shows clients only; of other roles it is hidden. Limits of
# roles and databases do not hold for superusers.
_ROOM = """
WITH client AS (
  SELECT * FROM pg_catalog.pg_stat_activity a
  WHERE a.pid <> pg_catalog.pg_backend_pid()
    AND coalesce(pg_catalog.to_jsonb(a) ->> 'backend_type',
        CASE WHEN a.datid IS NOT NULL AND a.usesysid IS NOT NULL
        THEN 'client backend' END) = 'client backend')
SELECT pg_catalog.pg_backend_pid(), r.rolsuper, current_setting('max_connections')::int,
       current_setting('superuser_reserved_connections')::int
       + coalesce(current_setting('reserved_connections', true)::int, 0),
       (SELECT count(*) FROM client),
       CASE WHEN NOT r.rolsuper AND r.rolconnlimit >= 0 THEN
         r.rolconnlimit - (SELECT count(*) FROM client WHERE usesysid = r.oid) END,
       CASE WHEN NOT r.rolsuper AND d.datconnlimit >= 0 THEN
         d.datconnlimit - (SELECT count(*) FROM client WHERE datid = d.oid) END
FROM pg_catalog.pg_roles r, pg_catalog.pg_database d
WHERE r.rolname = session_user AND d.datname = current_database()
"""


class Room(Struct, frozen=True):
    """The connections of a server or a pooler. most: it takes; others: sessions that it has now.

    free: for this role. On a server that others use, also a superuser leaves the reserved ones.
    """

    most: int
    others: int
    free: int


def room(access: Access, *, guest: bool) -> Room | None:
    """The connections of a server; None if they are not known. guest: others use it as well.

    Behind a pooler it is the pooler's, if that is a PgBouncer that lets this role look.
    """
    with connect(access) as session:
        direct = room_of(session, guest=guest)
    if direct is not None:
        return direct
    try:
        with connect(access, "pgbouncer") as console:
            config = {row[0]: row[1] for row in console.execute("SHOW CONFIG")}
            lists = {row[0]: row[1] for row in console.execute("SHOW LISTS")}
            most, others = int(config["max_client_conn"]), int(lists["used_clients"]) - 1
    except (ServerError, KeyError, ValueError, TypeError):
        return None
    return Room(most, others, most - others)


def room_of(session: Session, *, guest: bool = False) -> Room | None:
    """The connections once this session has ended; None if they are not known.

    Behind a pooler they are not: the server's number says nothing of the pooler's.
    """
    try:
        row = session.execute(_ROOM).fetchone()
    except psycopg.Error:
        return None
    if row is None or row[0] != session.info.backend_pid:
        return None
    superuser, most, reserved, others, *limits = row[1:]
    free = most - others - (0 if superuser and not guest else reserved)
    return Room(most, others, min(free, *(limit for limit in limits if limit is not None), free))
