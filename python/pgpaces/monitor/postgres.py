"""The samples of a kill switch: queries a server once a second while a load runs.

Has its own session and thread. The thread only takes samples; analysis/kill_switch.py interprets
them, and callers poll `reason`. So a server or network without an answer delays only the thread.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pgpaces.analysis.kill_switch import BASELINE, WINDOW, Before, KillSwitchSample, verdict
from pgpaces.core.errors import ServerError
from pgpaces.core.sessions import errors, scalar
from pgpaces.monitor.session import Reopened, reported

PERIOD_S = 1.0
# The first queries of a session take longer: caches are empty.
_WARM = 2
_PATIENCE_S = 1.0

# Sessions other than the load's, which has a name, role and database, and than this one.
_SAMPLE = """
SELECT coalesce(
  percentile_cont(0.5) WITHIN GROUP (
    ORDER BY extract(epoch FROM pg_catalog.clock_timestamp() - query_start)::float8),
  0) * 1000
FROM pg_catalog.pg_stat_activity
WHERE {kind} state = 'active' AND query_start IS NOT NULL
  AND pid <> pg_catalog.pg_backend_pid()
  AND NOT (application_name = ANY (%(load)s) AND usename = session_user
           AND datname = %(dbname)s)
"""
_OF_CLIENTS = _SAMPLE.format(kind="backend_type = 'client backend' AND")
_OF_ALL = _SAMPLE.format(kind="")
_SEES_ALL = "SELECT pg_catalog.pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')"
_IS_SUPERUSER = "SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user"
# Kinds of backends, and roles that monitor.
_KINDS_SINCE = 100_000

TakeSample = Callable[[], KillSwitchSample]


class Watch:
    """Takes samples until it is closed. take: takes one; it may raise ServerError, or hang."""

    def __init__(
        self, take: TakeSample, factor: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._take, self._factor, self._clock = take, factor, clock
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._samples: deque[KillSwitchSample] = deque(maxlen=WINDOW)
        self._answered_at = clock()
        self._thread: threading.Thread | None = None
        self.blind = False
        self.before = Before(0.0, 0.0)

    def measure_before(self, period_s: float = PERIOD_S) -> None:
        """Measures the baseline for BASELINE seconds. Raises ServerError."""
        for _ in range(_WARM):
            self._take()
        samples = []
        for _ in range(BASELINE):
            samples.append(self._take())
            time.sleep(period_s)
        self.before = Before.of(samples)

    def begin(self, period_s: float = PERIOD_S) -> None:
        """Begins sampling, in a thread that ends with the program."""
        self._answered_at = self._clock()
        self._thread = threading.Thread(
            target=self._run, args=(period_s,), name="pgpaces-watch", daemon=True
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

    def reason(self) -> str | None:
        """Why the load must stop; None if it may continue. Returns at once."""
        with self._lock:
            silent_s = self._clock() - self._answered_at - PERIOD_S
            return verdict(self._factor, self.before, tuple(self._samples), silent_s=silent_s)

    def close(self) -> bool:
        """Stops sampling; false if the last query hangs."""
        self._ended.set()
        if self._thread is None:
            return True
        self._thread.join(_PATIENCE_S)
        return not self._thread.is_alive()


class _Session(Reopened):
    def __init__(self, keywords: Mapping[str, str], application: str) -> None:
        super().__init__(keywords, "pgpaces watch", prepare_threshold=None)
        self._names = {"load": reported(application), "dbname": keywords.get("dbname", "")}

    def sees_all(self) -> bool:
        return bool(self._value(_SEES_ALL, _IS_SUPERUSER))

    def take(self) -> KillSwitchSample:
        """Takes a sample. Raises ServerError."""
        # Opened outside the time of a sample.
        with errors("the kill switch cannot connect"):
            self.session()
        began = time.perf_counter()
        running_ms = float(self._value(_OF_CLIENTS, _OF_ALL))
        return KillSwitchSample((time.perf_counter() - began) * 1000, running_ms)

    def _value(self, query: str, before_10: str) -> Any:
        with errors("the kill switch cannot query the server"):
            session = self.session()
            chosen = query if session.info.server_version >= _KINDS_SINCE else before_10
            return scalar(session, chosen.encode(), self._names)


@contextlib.contextmanager
def watch(keywords: Mapping[str, str], application: str, factor: float) -> Iterator[Watch]:
    """A watch with its baseline, before its beginning. Raises ServerError.

    keywords: libpq's, with the load's database. application: the load's application_name; sessions
    of this name, role and database belong to the load.
    """
    session = _Session(keywords, application)
    monitor = Watch(session.take, factor)
    try:
        monitor.blind = not session.sees_all()
        monitor.measure_before()
        yield monitor
    finally:
        # A session in a hanging query ends with the program.
        if monitor.close():
            session.close()
