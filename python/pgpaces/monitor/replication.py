"""Replication, from a primary's views of standbys and slots and from a standby; once a second.

The SQL returns rows as JSON, so that all of them come with the counters in one result. Turning
them into samples is pure. Knows no connection.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pgpaces.analysis import server_counters as rules
from pgpaces.core.series import Sample

SINCE = 100_000
SOURCE, SLOTS = rules.REPLICATION, rules.SLOTS
# What the samples of a trial say.
_NOW = "pg_catalog.pg_current_wal_insert_lsn()"
_LAGS = ("sent", "write", "flush", "replay")
_DELAYS = ("write", "flush", "replay")


def _lag(column: str, name: str) -> str:
    return f"pg_catalog.pg_wal_lsn_diff({_NOW}, {column})::bigint AS {name}"


def _seconds(column: str) -> str:
    return f"extract(epoch FROM {column})::float8 AS {column}"


# Without pg_read_all_stats, rows of others have a pid and NULLs. Base backups are no standbys.
STANDBYS = f"""
SELECT application_name AS name, state,
  {", ".join(_lag(f"{lag}_lsn", f"{lag}_bytes") for lag in _LAGS)},
  {", ".join(_seconds(f"{delay}_lag") for delay in _DELAYS)}
FROM pg_catalog.pg_stat_replication
WHERE NOT pg_catalog.pg_is_in_recovery() AND state IS DISTINCT FROM 'backup'
ORDER BY application_name, backend_start, pid LIMIT 16
"""
SLOTS_QUERY = f"""
SELECT slot_name AS name, {_lag("restart_lsn", "retained")}
FROM pg_catalog.pg_replication_slots
WHERE NOT pg_catalog.pg_is_in_recovery() AND restart_lsn IS NOT NULL
ORDER BY slot_name LIMIT 16
"""
# A standby that has replayed everything has no lag, however old the last transaction is. One that
# receives nothing does not know its lag.
STANDBY = """
SELECT receiving, pg_catalog.pg_wal_lsn_diff(replayed, '0/0')::bigint AS position,
  pg_catalog.pg_wal_lsn_diff(received, replayed)::bigint AS unreplayed,
  CASE WHEN NOT receiving THEN NULL
       WHEN received <= replayed THEN 0
       ELSE extract(epoch FROM pg_catalog.clock_timestamp()
                               - pg_catalog.pg_last_xact_replay_timestamp())::float8 END AS delay
FROM (SELECT
  EXISTS (SELECT FROM pg_catalog.pg_stat_wal_receiver WHERE pid IS NOT NULL) AS receiving,
  pg_catalog.pg_last_wal_receive_lsn() AS received,
  pg_catalog.pg_last_wal_replay_lsn() AS replayed) now
WHERE pg_catalog.pg_is_in_recovery()
"""


def column(query: str) -> str:
    return f"(SELECT coalesce(json_agg(subquery), '[]')::text FROM ({query}) subquery)"


Row = Mapping[str, Any]


def rows(text: str) -> list[Row]:
    return list(json.loads(text))


def samples(
    second: int, standbys: list[Row], slots: list[Row], *, own: list[Row]
) -> Iterator[Sample]:
    """Samples of a second's rows. A hidden or unknown value is a gap."""
    for name, row in named(standbys):
        yield Sample(second, SOURCE, f"{name} streaming", float(row["state"] == "streaming"))
        for lag in _LAGS:
            yield from _sample(
                second, SOURCE, f"{name} {lag}_lag", value=row[f"{lag}_bytes"], unit="B"
            )
        for delay in _DELAYS:
            yield from _sample(
                second, SOURCE, f"{name} {delay}_delay", value=row[f"{delay}_lag"], unit="s"
            )
    for row in slots:
        yield from _sample(
            second, SLOTS, f"{row['name']} retained", value=row["retained"], unit="B"
        )
    for row in own:
        yield Sample(second, SOURCE, "receiving", float(bool(row["receiving"])))
        yield from _sample(second, SOURCE, "unreplayed", value=row["unreplayed"], unit="B")
        yield from _sample(second, SOURCE, "replay_delay", value=row["delay"], unit="s")


def named(standbys: list[Row]) -> Iterator[tuple[str, Row]]:
    """Standbys by application_name; the second one of a name is `name 2`."""
    counts: dict[str, int] = {}
    for row in standbys:
        if row["state"] is None:
            continue
        name = row["name"] or "standby"
        counts[name] = counts.get(name, 0) + 1
        yield (name if counts[name] == 1 else f"{name} {counts[name]}"), row


def _sample(
    second: int, source: str, name: str, *, value: float | None, unit: str
) -> Iterator[Sample]:
    """0 for a standby that has passed the position that was read, or whose clock is ahead."""
    if value is not None:
        yield Sample(second, source, name, float(f"{max(0.0, value):.7g}"), unit)
