"""The facts of a server that a repetition of a trial needs, and their changes.

Changes nothing there.
"""

from __future__ import annotations

import re
from collections.abc import Collection

import psycopg

from pgpaces.core.sessions import Session, scalar
from pgpaces.database.access import Access, connect
from pgpaces.spec.facts import ServerFacts


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


_CHANGES = {
    "system_identifier": "it is another server: its system identifier was {}, and is {}",
    "version": "its version was {}, and is {}",
    "configure": "its programs were built with {}, and are with {}",
    "data_directory": "its data was in {}, and is in {}",
    "postmaster_started": "it was restarted: before, it ran since {}, now since {}",
}


def server_changes(
    before: ServerFacts, after: ServerFacts, ignoring: Collection[str] = ()
) -> list[str]:
    """The changes of a server between two of its `facts`, in words.

    A fact that one of them lacks is no change. ignoring: settings that pgpaces changed.
    """
    sentences = []
    for key, words in _CHANGES.items():
        old, new = getattr(before, key), getattr(after, key)
        if old is not None and new is not None and old != new:
            sentences.append(words.format(old, new))
    ignored = {name.lower() for name in ignoring}
    for name in sorted(before.settings.keys() | after.settings.keys()):
        old, new = (each.settings.get(name, "its default") for each in (before, after))
        if name.lower() not in ignored and old != new:
            sentences.append(f"its setting {name} was {old}, and is {new}")
    return sentences


# Settings of a server's place, not of its behavior.
_PLACES = (
    "data_directory|config_file|hba_file|ident_file|external_pid_file|unix_socket_directories"
    "|listen_addresses|port|ssl_.*_file|server_version_num|archive_directory|cluster_name"
)


def settings_of(access: Access) -> dict[str, str]:
    """All settings of a server in an administrative session, without places and secrets.

    Raises ServerError.
    """
    with connect(access) as session:
        rows = session.execute(
            "SELECT name, current_setting(name) FROM pg_catalog.pg_settings"
            " WHERE source <> 'client' ORDER BY 1"
        ).fetchall()
    return {
        name: value
        for name, value in rows
        if not re.fullmatch(_PLACES, name) and not _may_hold_secrets(name)
    }


def _may_hold_secrets(setting: str) -> bool:
    """Connection strings, commands, and settings of extensions, which may hold anything."""
    words = ("password", "conninfo", "command", "secret", ".")
    return any(word in setting for word in words)


def is_superuser(access: Access) -> bool:
    """Whether the role of the connection is a superuser. Raises ServerError."""
    with connect(access) as session:
        return session.info.parameter_status("is_superuser") == "on"


# 9.6 has no column backend_type, and shows clients only; of other roles it is hidden.
_FREE = """
SELECT pg_catalog.pg_backend_pid(),
       current_setting('max_connections')::int
       - CASE WHEN r.rolsuper THEN 0 ELSE
           current_setting('superuser_reserved_connections')::int
           + coalesce(current_setting('reserved_connections', true)::int, 0) END
       - (SELECT count(*) FROM pg_catalog.pg_stat_activity a
          WHERE a.pid <> pg_catalog.pg_backend_pid()
            AND coalesce(pg_catalog.to_jsonb(a) ->> 'backend_type',
                CASE WHEN a.datid IS NOT NULL AND a.usesysid IS NOT NULL
                THEN 'client backend' END) = 'client backend')
FROM pg_catalog.pg_roles r WHERE r.rolname = session_user
"""


def free_connections(access: Access) -> int | None:
    """The number of free connections of the server for its role; None if it is not known."""
    with connect(access) as session:
        return free_without(session)


def free_without(session: Session) -> int | None:
    """The number of free connections once this session has ended; None if it is not known.

    Behind a pooler it is not: the server's number says nothing of the pooler's.
    """
    try:
        pid, free = session.execute(_FREE).fetchone() or (0, 0)
    except psycopg.Error:
        return None
    return int(free) if pid == session.info.backend_pid else None
