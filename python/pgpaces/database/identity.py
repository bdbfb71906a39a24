"""What must be known of a server to repeat a trial, and whether it is still the same one.

Changes nothing there.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from pgpaces.database.access import Access, connect
from pgpaces.facts import ServerFacts


def facts(access: Access, dbname: str) -> ServerFacts:
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
        found: dict[str, str | None] = {}
        optional = {
            "system_identifier": "SELECT system_identifier::text FROM pg_control_system()",
            "data_directory": "SELECT current_setting('data_directory')",
            "postmaster_started": (
                "SELECT to_char(pg_postmaster_start_time() AT TIME ZONE 'UTC',"
                ' \'YYYY-MM-DD"T"HH24:MI:SS.US"Z"\')'
            ),
            "configure": "SELECT setting FROM pg_config() WHERE name = 'CONFIGURE'",
        }
        for key, query in optional.items():
            try:
                row = session.execute(query).fetchone()
                found[key] = row[0] if row else None
            except psycopg.Error:
                found[key] = None
        return ServerFacts(
            version=session.info.parameter_status("server_version") or "unknown",
            version_text=version[0] if version else "",
            version_number=session.info.server_version,
            settings={name: value for name, value in settings if not _may_hold_secrets(name)},
        ).but(**found)


_SAME = {
    "system_identifier": "it is another server: its system identifier was {}, and is {}",
    "version": "its version was {}, and is {}",
    "configure": "its programs were built with {}, and are with {}",
    "data_directory": "its data was in {}, and is in {}",
    "postmaster_started": "it was restarted: before, it ran since {}, now since {}",
}


def same_server(
    before: ServerFacts, after: ServerFacts, ignoring: Collection[str] = ()
) -> list[str]:
    """What changed of a server between two of its `facts`, in words; empty: nothing.

    What one of them does not know is no change. ignoring: settings that were meant to change.
    """
    found = []
    for key, words in _SAME.items():
        old, new = getattr(before, key), getattr(after, key)
        if old is not None and new is not None and old != new:
            found.append(words.format(old, new))
    spared = {name.lower() for name in ignoring}
    was_set, now_set = before.settings, after.settings
    for name in sorted(was_set.keys() | now_set.keys()):
        if name.lower() not in spared and was_set.get(name) != now_set.get(name):
            was, now = was_set.get(name, "its default"), now_set.get(name, "its default")
            found.append(f"its setting {name} was {was}, and is {now}")
    return found


# Where a server is, not how it behaves.
_PLACES = (
    "data_directory|config_file|hba_file|ident_file|external_pid_file|unix_socket_directories"
    "|listen_addresses|port|ssl_.*_file|server_version_num|archive_directory|cluster_name"
)


def settings_of(access: Access) -> dict[str, str]:
    """Every setting of a server with the value that a session of ours has, but for places.

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
    """Whether the role that we are there may do everything. Raises ServerError."""
    with connect(access) as session:
        return session.info.parameter_status("is_superuser") == "on"


def free_connections(access: Access) -> int | None:
    """How many more sessions the server lets in; None where it does not say."""
    import psycopg

    # 9.6 has no column backend_type, and shows clients only.
    query = (
        "SELECT current_setting('max_connections')::int"
        " - current_setting('superuser_reserved_connections')::int"
        " - coalesce(current_setting('reserved_connections', true)::int, 0)"
        " - (SELECT count(*) FROM pg_catalog.pg_stat_activity a WHERE"
        "    coalesce(pg_catalog.to_jsonb(a) -> 'backend_type', '\"client backend\"')"
        "    = '\"client backend\"')"
    )
    with connect(access) as admin:
        try:
            row = admin.execute(query).fetchone()
        except psycopg.Error:
            return None
    return None if row is None else int(row[0])
