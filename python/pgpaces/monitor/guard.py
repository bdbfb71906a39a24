"""The guard: looks once a second whether a load harms the other users of a server.

It logs in as any application would, and asks in a session of its own. Both happen in a thread that
only takes samples; analysis/stopping.py interprets them, and callers poll `reason`. So a server or
network without an answer delays only the thread.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping

import psycopg

from pgpaces.analysis.stopping import BASELINE, STREAK, GuardSample, reason_to_stop
from pgpaces.core.errors import ConnectionsError, ServerError
from pgpaces.core.findings import Finding, finding
from pgpaces.core.sessions import errors, scalar
from pgpaces.monitor.session import Reopened, reported

APPLICATION = "pgpaces guard"
PERIOD_S, BEFORE_S = 1.0, 3.0
_PATIENCE_S = 1.0

# Sessions of others: the load's have a name, role and database.
_SAMPLE = """
WITH other AS (
  SELECT a.state, a.query_start FROM pg_catalog.pg_stat_activity a
  WHERE a.pid <> pg_catalog.pg_backend_pid()
    AND coalesce(pg_catalog.to_jsonb(a) ->> 'backend_type',
        CASE WHEN a.datid IS NOT NULL AND a.usesysid IS NOT NULL
        THEN 'client backend' END) = 'client backend'
    AND NOT (a.application_name LIKE 'pgpaces %%' AND a.usename = session_user)
    AND NOT (a.application_name = ANY (%(load)s) AND a.usename = session_user
             AND a.datname = %(dbname)s))
SELECT count(*), coalesce(percentile_cont(0.5) WITHIN GROUP (
    ORDER BY extract(epoch FROM pg_catalog.clock_timestamp() - query_start)::float8)
    FILTER (WHERE state = 'active'), 0) * 1000
FROM other
"""
_LAG = "SELECT coalesce(max(extract(epoch FROM replay_lag)), 0)::float8 FROM pg_stat_replication"
_SEES_ALL = """
SELECT rolsuper OR pg_catalog.pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')
FROM pg_catalog.pg_roles WHERE rolname = current_user
"""

TakeSample = Callable[[], GuardSample]


class Guard:
    """Takes samples until it is closed. take: takes one; it may raise ServerError, or hang.

    look: the same without a login. blind: statements of other roles are hidden from it. lacks: why
    it sees no sessions at all, and watches logins only.
    """

    def __init__(
        self, take: TakeSample, look: TakeSample, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._take, self._look, self._clock = take, look, clock
        self.blind, self.lacks = False, ""
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._samples: deque[GuardSample] = deque(maxlen=STREAK)
        self._answered_at = clock()
        self._thread: threading.Thread | None = None
        self.before = GuardSample()

    def measure_before(self, period_s: float = BEFORE_S / BASELINE) -> None:
        """Measures what others have without the load, if there are any. Raises ServerError."""
        samples = [self._look()]  # the first one of a session takes longer: caches are empty
        if samples[0].others:
            samples = []
            for _ in range(BASELINE):
                samples.append(self._look())
                time.sleep(period_s)
        self.before = GuardSample.before(samples)

    def begin(self, period_s: float = PERIOD_S) -> None:
        self._answered_at = self._clock()
        self._thread = threading.Thread(
            target=self._run, args=(period_s,), name="pgpaces-guard", daemon=True
        )
        self._thread.start()

    def _run(self, period_s: float) -> None:
        while not self._ended.wait(period_s):
            # The next sample reopens a broken session; until then the server counts as silent.
            with contextlib.suppress(ServerError):
                sample = self._take()
                with self._lock:
                    self._samples.append(sample)
                    self._answered_at = self._clock()

    def reason(self) -> Finding | None:
        """Why the load must stop; None if it may continue. Returns at once."""
        with self._lock:
            silent_s = self._clock() - self._answered_at - PERIOD_S
            return reason_to_stop(self.before, tuple(self._samples), silent_s=silent_s)

    def notes(self, reason: Finding | None) -> Iterator[Finding]:
        """Notes for the trial. reason: why the load was stopped, if it was."""
        if self.lacks:
            yield finding("guard-watches-logins", why=self.lacks)
        if self.before.others and self.blind:
            yield finding("other-roles-hidden")
        if self.before.others and reason is not None:
            yield reason

    def close(self) -> bool:
        """Stops sampling; false if the last query hangs."""
        self._ended.set()
        if self._thread is None:
            return True
        self._thread.join(_PATIENCE_S)
        return not self._thread.is_alive()


class _Session(Reopened):
    def __init__(
        self, keywords: Mapping[str, str], application: str, log_in: Callable[[], object]
    ) -> None:
        super().__init__(keywords, APPLICATION, prepare_threshold=None)
        self._log_in = log_in
        self._names = {"load": reported(application), "dbname": keywords.get("dbname", "")}

    def take(self) -> GuardSample:
        """Logs in, and takes a sample. Raises ServerError."""
        try:
            self._log_in()
        except ConnectionsError as error:
            return GuardSample(refused=error.message)
        return self.look()

    def look(self) -> GuardSample:
        """Takes a sample. Raises ServerError."""
        with errors("guard-cannot-query"):
            session = self.session()  # opened outside the time of a sample
            began = time.perf_counter()
            row = session.execute(_SAMPLE.encode(), self._names).fetchone()
            probe_ms = (time.perf_counter() - began) * 1000
            others, age_ms = row or (0, 0.0)
            lag_s = 0.0
            with contextlib.suppress(psycopg.DatabaseError):  # before 10, or without the right
                lag_s = float(scalar(session, _LAG))
            return GuardSample(probe_ms, float(age_ms), int(others), lag_s)


@contextlib.contextmanager
def guarding(
    keywords: Mapping[str, str], application: str, log_in: Callable[[], object]
) -> Iterator[Guard]:
    """A guard that knows what others have without the load.

    keywords: libpq's, with the load's database. application: the load's application_name; sessions
    of this name, role and database belong to the load. log_in: logs in once, as APPLICATION.
    """
    session = _Session(keywords, application, log_in)
    guard = Guard(session.take, session.look)
    try:
        try:
            with errors("guard-cannot-query"):
                guard.blind = not scalar(session.session(), _SEES_ALL)
            guard.measure_before()
        except ServerError as error:
            guard.lacks = error.message
        yield guard
    finally:
        # A session in a hanging query ends with the program.
        if guard.close():
            session.close()
