"""Samples wait events and blocked sessions of a server ten times a second.

Only of active sessions; one without a wait event is on a CPU, or waits for one. Sessions of other
roles are hidden from a role without pg_read_all_stats. analysis/waits.py interprets the samples.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping

from pgpaces.analysis.waits import CPU, PER_SECOND, Event, WaitTally
from pgpaces.core.findings import Finding, finding
from pgpaces.core.texts import redacted
from pgpaces.monitor.session import APPLICATIONS, MARK, SessionSnapshot, reported
from pgpaces.spec.result import Blocked

PERIOD_S = 1 / PER_SECOND
# A longer query would disturb the server: then sampling is half as frequent.
SLOW_S = 0.02
_SLOW_OF = 10
_PERIOD_MAX_S = 1.6
_TEXT_MAX = 80
_BLOCKED_MAX, _WAITING_MAX = 100, 16
_ANY_OTHER = "(others)"

_OWNER = """
CASE WHEN {a}.application_name = ANY (%(load)s)
      AND {a}.usesysid = (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = session_user)
      AND {a}.datid = (SELECT oid FROM pg_catalog.pg_database
                       WHERE datname = pg_catalog.current_database()) THEN 'load'"""
# Not the view, which joins names that are not needed.
_SAMPLE = f"""
SELECT {MARK} {_OWNER.format(a="a")} ELSE 'others' END,
  coalesce(wait_event_type, '{CPU}'), coalesce(wait_event, ''), count(*)
FROM pg_catalog.pg_stat_get_activity(NULL) a
WHERE state = 'active' AND pid <> pg_catalog.pg_backend_pid()
  AND application_name <> ALL (%(ours)s) {{kind}}
GROUP BY 1, 2, 3
"""
_KIND = "AND backend_type = 'client backend'"
_BLOCKED = f"""
SELECT {MARK} {_OWNER.format(a="w")} ELSE w.application_name END,
  w.wait_event_type || ':' || w.wait_event, coalesce(l.mode, ''),
  {_OWNER.format(a="b")} ELSE coalesce(b.application_name, '') END,
  coalesce(b.state, ''), coalesce(
    CASE WHEN length(b.query) > {_TEXT_MAX} THEN left(b.query, {_TEXT_MAX - 3}) || '...'
    ELSE b.query END, '')
FROM (SELECT * FROM pg_catalog.pg_stat_get_activity(NULL)
      WHERE wait_event_type = 'Lock' LIMIT {_WAITING_MAX}) w
CROSS JOIN LATERAL unnest(pg_catalog.pg_blocking_pids(w.pid)) AS blocker(pid)
LEFT JOIN pg_catalog.pg_stat_get_activity(NULL) b ON b.pid = blocker.pid
LEFT JOIN pg_catalog.pg_locks l ON l.pid = w.pid AND NOT l.granted
"""

# The waiting session, its event and lock mode; the blocking session, its state and statement.
Pair = tuple[str, str, str, str, str, str]


class Activity:
    """Samples of a server. Its methods raise psycopg.Error, or hang.

    application: the load's application_name.
    """

    def __init__(self, snapshot: SessionSnapshot, application: str) -> None:
        self.snapshot = snapshot
        self._parameters = {"load": reported(application), "ours": list(APPLICATIONS)}

    def sample(self) -> Mapping[Event, int]:
        kind = _KIND if self.snapshot.session().info.server_version >= 100_000 else ""
        rows = self.snapshot.rows(_SAMPLE.format(kind=kind), self._parameters)
        return {(who, kind, event): count for who, kind, event, count in rows}

    def blocked(self) -> list[Pair]:
        rows = self.snapshot.rows(_BLOCKED, self._parameters)
        return [(row[0], row[1], row[2], row[3], row[4], row[5]) for row in rows]


class Sampler:
    """Counts samples. period_s: the interval; it grows if the server is slow."""

    def __init__(self, activity: Activity) -> None:
        self._activity = activity
        self.tally = WaitTally()
        self._durations_s: deque[float] = deque(maxlen=_SLOW_OF)
        self._blocked: dict[Pair, tuple[int, int, int]] = {}
        self._blocked_second: int | None = None
        self.period_s = PERIOD_S

    @property
    def snapshot(self) -> SessionSnapshot:
        return self._activity.snapshot

    def take(self, start_s: float, lock: threading.Lock) -> None:
        """Takes a sample. start_s: begin of second 0, by time.monotonic(). Raises psycopg.Error.

        lock: held while it counts; hold it to read the counts.
        """
        began_s = time.monotonic()
        sessions = self._activity.sample()
        at_s = time.monotonic()
        second = int((at_s - start_s) // 1)
        with lock:
            self.tally.add(round((began_s - start_s) * PER_SECOND), sessions)
            # Half as often if more than half of the last samples were slow.
            self._durations_s.append(at_s - began_s)
            slow = sum(each > SLOW_S for each in self._durations_s)
            if 2 * slow > _SLOW_OF and self.period_s < _PERIOD_MAX_S:
                self.period_s *= 2
                self._durations_s.clear()
        if second != self._blocked_second and any(kind == "Lock" for _, kind, _ in sessions):
            self._blocked_second = second
            blocked = self._activity.blocked()
            with lock:
                for key in blocked:
                    self._block(key, second)

    def _block(self, pair: Pair, second: int) -> None:
        waiting, event, mode, blocking, state, statement = pair
        key = (waiting, event, mode, blocking, state, redacted(statement))
        if key not in self._blocked and len(self._blocked) >= _BLOCKED_MAX:
            key = (waiting, event, mode, blocking, state, _ANY_OTHER)
            if key not in self._blocked and len(self._blocked) >= 2 * _BLOCKED_MAX:
                return
        count, first, _ = self._blocked.get(key, (0, second, second))
        self._blocked[key] = count + 1, first, second

    @property
    def slowed(self) -> Finding | None:
        if self.period_s <= PERIOD_S:
            return None
        return finding("wait-sampling-slowed", slow_s=SLOW_S, period_s=self.period_s)

    def blocked(self) -> tuple[Blocked, ...]:
        """Blocking sessions, the most frequent first."""
        pairs = [Blocked(*key, *counts) for key, counts in self._blocked.items()]
        return tuple(sorted(pairs, key=lambda one: -one.samples))
