"""Looks ten times a second at what a server's sessions wait for, and at who blocks whom.

Of those sessions that execute something; one without a wait event is on a CPU, or waits for one.
What sessions of other roles do is hidden from a role that may not read all statistics. What looks
mean is for answers/waits.py.
"""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol

from pgpaces.answers.waits import CPU, PER_SECOND, Event, WaitTally
from pgpaces.observe.session import MARK, OURS, SessionSnapshot
from pgpaces.result import Blocked, Sample, Waits

PERIOD_S = 1 / PER_SECOND
# A server that needs longer is disturbed by it: then it is asked half as often.
SLOW_S = 0.02
_SLOW_OF = 10
_PERIOD_MAX_S = 1.6
_TEXT_MAX = 80
_BLOCKED_MAX, _WAITING_MAX = 100, 16
_ANY_OTHER = "(others)"

_WHO = """
CASE WHEN {a}.application_name = %(application)s
      AND {a}.usesysid = (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = session_user)
      AND {a}.datid = (SELECT oid FROM pg_catalog.pg_database
                       WHERE datname = pg_catalog.current_database()) THEN 'load'"""
# Not the view, which joins names to it that nobody needs.
_LOOK = f"""
SELECT {MARK} {_WHO.format(a="a")} ELSE 'others' END,
  coalesce(wait_event_type, '{CPU}'), coalesce(wait_event, ''), count(*)
FROM pg_catalog.pg_stat_get_activity(NULL) a
WHERE state = 'active' AND pid <> pg_catalog.pg_backend_pid()
  AND application_name <> ALL (%(ours)s) {{kind}}
GROUP BY 1, 2, 3
"""
_KIND = "AND backend_type = 'client backend'"
_BLOCKED = f"""
SELECT {MARK} {_WHO.format(a="w")} ELSE w.application_name END,
  w.wait_event_type || ':' || w.wait_event, coalesce(l.mode, ''),
  {_WHO.format(a="b")} ELSE coalesce(b.application_name, '') END,
  coalesce(b.state, ''), left(coalesce(b.query, ''), {_TEXT_MAX})
FROM (SELECT * FROM pg_catalog.pg_stat_get_activity(NULL)
      WHERE wait_event_type = 'Lock' LIMIT {_WAITING_MAX}) w
CROSS JOIN LATERAL unnest(pg_catalog.pg_blocking_pids(w.pid)) AS blocker(pid)
LEFT JOIN pg_catalog.pg_stat_get_activity(NULL) b ON b.pid = blocker.pid
LEFT JOIN pg_catalog.pg_locks l ON l.pid = w.pid AND NOT l.granted
"""

# Who waits, for what event and mode of a lock, for whom, in what state, with what statement.
Pair = tuple[str, str, str, str, str, str]


# From here on a statement of somebody else may hold a password; so may one in a URL.
_SECRET = re.compile(r"\w*(password|://).*", re.IGNORECASE)


def _shown(statement: str) -> str:
    """A statement in one line, without a password in it."""
    return _SECRET.sub("...", " ".join(statement.split()))


class Activity(Protocol):
    """What looks come from. Both raise psycopg.Error, or hang."""

    def look(self) -> Mapping[Event, int]:
        """Sessions in each event now."""

    def blocked(self) -> list[Pair]:
        """Who waits for a lock now, and for whom."""


class OfServer:
    """Looks by a session. application: the load's application_name."""

    def __init__(self, snapshot: SessionSnapshot, application: str) -> None:
        self.snapshot = snapshot
        self._given: dict[str, Any] = {"application": application, "ours": list(OURS)}

    def look(self) -> Mapping[Event, int]:
        """See Activity."""
        kind = _KIND if self.snapshot.session().info.server_version >= 100_000 else ""
        rows = self.snapshot.rows(_LOOK.format(kind=kind), self._given)
        return {(who, kind, event): count for who, kind, event, count in rows}

    def blocked(self) -> list[Pair]:
        """See Activity."""
        found = self.snapshot.rows(_BLOCKED, self._given)
        return [(row[0], row[1], row[2], row[3], row[4], row[5]) for row in found]


class Sampler:
    """Counts what looks see. period_s: between two; it grows where the server is slow."""

    def __init__(self, activity: Activity) -> None:
        self._activity = activity
        self._tally = WaitTally()
        self._took: deque[float] = deque(maxlen=_SLOW_OF)
        self._blocked: dict[Pair, tuple[int, int, int]] = {}
        self._asked_at: int | None = None
        self.period_s = PERIOD_S

    def look(self, start_s: float, lock: threading.Lock) -> None:
        """One look. start_s: when second 0 began, by time.monotonic(). Raises psycopg.Error.

        lock: held while it counts, so that whoever holds it may read what was counted.
        """
        began_s = time.monotonic()
        found = self._activity.look()
        at_s = time.monotonic()
        second = int((at_s - start_s) // 1)
        with lock:
            self._tally.add(round((began_s - start_s) * PER_SECOND), found)
            self._pace(at_s - began_s)
        if second != self._asked_at and any(kind == "Lock" for _, kind, _ in found):
            self._asked_at = second
            blocked = self._activity.blocked()
            with lock:
                for key in blocked:
                    self._block(key, second)

    def _pace(self, took_s: float) -> None:
        """Half as often, where more than half of the last looks were slow."""
        self._took.append(took_s)
        slow = sum(took > SLOW_S for took in self._took)
        if 2 * slow > _SLOW_OF and self.period_s < _PERIOD_MAX_S:
            self.period_s *= 2
            self._took.clear()

    def _block(self, found: Pair, second: int) -> None:
        waiting, event, mode, blocking, state, statement = found
        key = (waiting, event, mode, blocking, state, _shown(statement))
        if key not in self._blocked and len(self._blocked) >= _BLOCKED_MAX:
            key = (waiting, event, mode, blocking, state, _ANY_OTHER)
            if key not in self._blocked and len(self._blocked) >= 2 * _BLOCKED_MAX:
                return
        seen, first, _ = self._blocked.get(key, (0, second, second))
        self._blocked[key] = seen + 1, first, second

    @property
    def slowed(self) -> str | None:
        """Why it looked less often, if it did."""
        if self.period_s <= PERIOD_S:
            return None
        return (
            f"sensor: looking at wait events took over {SLOW_S * 1000:.0f} ms, so in the end it was"
            f" done every {self.period_s * 1000:.0f} ms"
        )

    def waits(self) -> Waits:
        """What was counted."""
        return self._tally.waits()

    def samples(self) -> list[Sample]:
        """The same by second."""
        return list(self._tally.samples())

    def blocked(self) -> tuple[Blocked, ...]:
        """Who blocked whom, the most often seen first."""
        found = [Blocked(*key, *seen) for key, seen in self._blocked.items()]
        return tuple(sorted(found, key=lambda one: -one.seen))
