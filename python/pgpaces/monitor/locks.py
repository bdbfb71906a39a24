"""Samples which sessions wait for which locks, and for whom, many times a second.

For a rehearsal: it needs every wait of at least the latency limit, with the process ids.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

import psycopg

from pgpaces.analysis.rehearsal import Look, Wait
from pgpaces.core.sessions import Session, connect
from pgpaces.core.texts import encoded
from pgpaces.monitor.session import APPLICATION, MARK, reported

# The usual name of a program's sessions: the guard of other sessions ignores them.
PROGRAM = "pgpaces program"
# The period is a fifth of the latency limit, within these bounds.
_OF_LIMIT, _PERIOD_MIN_NS, _PERIOD_MAX_NS = 5, 10_000_000, 100_000_000
# pg_blocking_pids stops the lock manager for a moment: only for those that wait longest.
_LOOKED_UP = 32
_SINCE = 140_000
# Waits; and the locks that sessions hold, as rows without a pid. pg_locks is read once for both.
_LOOK = f"""
WITH locks AS (SELECT * FROM pg_catalog.pg_locks)
SELECT {MARK} w.pid, w.blockers, l.mode,
  CASE WHEN l.locktype = 'relation' THEN l.relation::pg_catalog.regclass::text ELSE '' END,
  {{age}}, ARRAY(SELECT coalesce(nullif(b.application_name, ''), b.usename, b.backend_type, '?')
    || coalesce(' (' || nullif(b.state, 'active') || ')', '')
    FROM pg_catalog.pg_stat_activity b WHERE w.pid = ANY (%s) AND b.pid = ANY (w.blockers))
FROM (SELECT pid, CASE WHEN row_number() OVER (ORDER BY query_start) <= {_LOOKED_UP}
        THEN pg_catalog.pg_blocking_pids(pid) END AS blockers
      FROM pg_catalog.pg_stat_activity
      WHERE wait_event_type = 'Lock' AND datname = pg_catalog.current_database()) w
  JOIN locks l ON l.pid = w.pid AND NOT l.granted
UNION ALL
SELECT NULL, NULL, mode, relation::pg_catalog.regclass::text, NULL, NULL FROM locks
WHERE pid = ANY (%s) AND locktype = 'relation' AND granted AND relation >= 16384
"""
# Sessions of a program that migrates: all that are neither the load's nor those of pgpaces.
_OTHERS = f"""
SELECT {MARK} pid FROM pg_catalog.pg_stat_activity
WHERE datname = pg_catalog.current_database() AND usename IS NOT NULL
  AND (application_name = '{PROGRAM}'
    OR application_name NOT LIKE 'pgpaces%%' AND application_name <> ALL (%s))
"""
_OF_LOAD = f"""
SELECT DISTINCT {MARK} l.relation::pg_catalog.regclass::text, l.mode
FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
WHERE a.application_name = ANY (%s) AND a.datname = pg_catalog.current_database()
  AND l.locktype = 'relation' AND l.granted AND l.relation >= 16384
"""
_AGE = "extract(epoch FROM pg_catalog.clock_timestamp() - l.waitstart)::float8"


def period_ns(limit_ns: int) -> int:
    return min(max(limit_ns // _OF_LIMIT, _PERIOD_MIN_NS), _PERIOD_MAX_NS)


class LockSampler:
    """Samples in a thread of its own until `stop`.

    now_ns: the time since the load's measured part began. statement: the number of the migration's
    statement that runs, if one does. pids: of the migration's sessions; None: all sessions of the
    database that are neither the load's, by its application_name, nor those of pgpaces.
    """

    def __init__(
        self,
        keywords: Mapping[str, str],
        *,
        period_ns: int,
        now_ns: Callable[[], int],
        statement: Callable[[], int | None],
        pids: Sequence[int] | None,
        application: str,
    ) -> None:
        self.looks: list[Look] = []
        self._session: Session = connect(keywords, APPLICATION, prepare_threshold=0)
        self._period_ns, self._now_ns = period_ns, now_ns
        self._statement, self._pids = statement, pids
        self._load = reported(application)
        age = _AGE if self._session.info.server_version >= _SINCE else "NULL::float8"
        self._query = encoded(_LOOK.format(age=age))
        self._of_load: dict[str, set[str]] = {}
        self._stopped, self._migrates = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="pgpaces-locks", daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def migrates(self) -> None:
        """From now on locks of the load are no longer read, to see more of the migration."""
        self._migrates.set()

    def of_load(self) -> dict[str, frozenset[str]]:
        """The relations that the load was seen to lock, with the modes."""
        return {name: frozenset(modes) for name, modes in [*self._of_load.items()]}

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        self._session.close()

    def _run(self) -> None:
        next_ns = time.monotonic_ns()
        while not self._stopped.wait(max(0, next_ns - time.monotonic_ns()) / 1e9):
            try:
                self._look()
            except psycopg.Error:  # the server is gone, which the load reports
                return
            next_ns = max(next_ns + self._period_ns, time.monotonic_ns())

    def _look(self) -> None:
        number, pids = self._statement(), self._pids
        if not self._migrates.is_set():
            rows = self._session.execute(encoded(_OF_LOAD), (self._load,)).fetchall()
            for relation, mode in rows:
                self._of_load.setdefault(relation, set()).add(mode)
        if pids is None:
            rows = self._session.execute(encoded(_OTHERS), (self._load,)).fetchall()
            pids = [pid for (pid,) in rows]
        asked_ns = self._now_ns()
        of_pids = list(pids)
        own = [] if number is None else of_pids
        rows = self._session.execute(self._query, (of_pids, own)).fetchall()
        at_ns = (asked_ns + self._now_ns()) // 2
        waits = tuple(
            Wait(
                pid,
                tuple(blockers or ()),
                mode,
                relation,
                None if age_s is None else at_ns - round(age_s * 1e9),
                tuple(who),
            )
            for pid, blockers, mode, relation, age_s, who in rows
            if pid is not None
        )
        held = frozenset((relation, mode) for pid, _, mode, relation, *_ in rows if pid is None)
        if number != self._statement():  # they may be of the next one
            held = frozenset()
        if waits or held:
            self.looks.append(Look(at_ns, number, waits, frozenset(pids), held))
