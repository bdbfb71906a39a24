"""Looks at a server once a second while somebody else loads it: the samples of a kill switch.

A session of our own and a thread of our own. The thread only ever asks; what the answers mean is
for answers/kill_switch.py, and whoever wants to know must call `reason`: so a server that does not
answer, or a network that is silent, delays nobody but the thread.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pgpaces.answers.kill_switch import BASELINE, Before, KillSwitchSample, verdict
from pgpaces.errors import ServerError

if TYPE_CHECKING:
    import psycopg

PERIOD_S = 1.0
# The first answers of a session take longer: caches are empty.
_WARM = 2
_CONNECT_TIMEOUT_S = 3
_PATIENCE_S = 1.0

# The load is told from others by what it says of itself; our session's own entry is left out.
_LOOK = """
SELECT coalesce(
  percentile_cont(0.5) WITHIN GROUP (
    ORDER BY extract(epoch FROM pg_catalog.clock_timestamp() - query_start)::float8),
  0) * 1000
FROM pg_catalog.pg_stat_activity
WHERE backend_type = 'client backend' AND state = 'active' AND query_start IS NOT NULL
  AND pid <> pg_catalog.pg_backend_pid()
  AND NOT (application_name = %(application)s AND usename = session_user
           AND datname = %(dbname)s)
"""
_SEES_ALL = "SELECT pg_catalog.pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')"

Look = Callable[[], KillSwitchSample]


class Watch:
    """Takes samples until it is closed. `look` takes one; it may raise ServerError, or hang."""

    def __init__(
        self, look: Look, factor: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._look, self._factor, self._clock = look, factor, clock
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._seen: list[KillSwitchSample] = []
        self._answered_at = clock()
        self._thread: threading.Thread | None = None
        self.blind = False
        self.before = Before(0.0, 0.0)

    def measure_before(self, period_s: float = PERIOD_S) -> None:
        """Learns what is usual; takes BASELINE seconds. Raises ServerError."""
        for _ in range(_WARM):
            self._look()
        samples = []
        for _ in range(BASELINE):
            samples.append(self._look())
            time.sleep(period_s)
        self.before = Before.of(samples)

    def begin(self, period_s: float = PERIOD_S) -> None:
        """Takes samples from now on, in a thread that ends with the program."""
        self._answered_at = self._clock()
        self._thread = threading.Thread(
            target=self._go_on, args=(period_s,), name="pgpaces-watch", daemon=True
        )
        self._thread.start()

    def _go_on(self, period_s: float) -> None:
        while not self._ended.wait(period_s):
            # A session that broke is made anew by the next look; until then the server is silent.
            with contextlib.suppress(ServerError):
                sample = self._look()
                with self._lock:
                    self._seen.append(sample)
                    self._answered_at = self._clock()

    def reason(self) -> str | None:
        """Why the load must stop; None as long as it may go on. Returns at once."""
        with self._lock:
            silent_s = self._clock() - self._answered_at - PERIOD_S
            return verdict(self._factor, self.before, self._seen[-16:], silent_s)

    def close(self) -> bool:
        """Takes no further samples; false if the last look hangs."""
        self._ended.set()
        if self._thread is None:
            return True
        self._thread.join(_PATIENCE_S)
        return not self._thread.is_alive()


class _Session:
    """The session that looks, made anew where it broke."""

    def __init__(self, keywords: Mapping[str, str], application: str) -> None:
        self._keywords = {
            **keywords,
            "connect_timeout": str(_CONNECT_TIMEOUT_S),
        }
        self._names = {"application": application, "dbname": keywords.get("dbname", "")}
        self._made: psycopg.Connection[tuple[Any, ...]] | None = None

    def session(self) -> psycopg.Connection[tuple[Any, ...]]:
        """Raises psycopg.Error."""
        from pgpaces import sessions

        if self._made is None or self._made.closed:
            self._made = sessions.connect(self._keywords, "pgpaces watch", prepare_threshold=None)
        return self._made

    def sees_all(self) -> bool:
        """Whether the role may see what other roles execute."""
        row = self._asked(_SEES_ALL)
        return bool(row and row[0])

    def look(self) -> KillSwitchSample:
        """One sample. Raises ServerError."""
        self.session_or_error()
        began = time.perf_counter()
        row = self._asked(_LOOK)
        return KillSwitchSample((time.perf_counter() - began) * 1000, float(row[0]) if row else 0.0)

    def session_or_error(self) -> None:
        """Connects where there is no session, so that no sample counts that. Raises ServerError."""
        import psycopg

        try:
            self.session()
        except psycopg.Error as error:
            raise ServerError(f"the kill switch cannot connect: {str(error).strip()}") from None

    def _asked(self, query: str) -> tuple[Any, ...] | None:
        import psycopg

        try:
            return self.session().execute(query.encode(), self._names).fetchone()
        except psycopg.Error as error:
            raise ServerError(f"the kill switch cannot look: {str(error).strip()}") from None

    def close(self) -> None:
        if self._made is not None:
            self._made.close()


@contextlib.contextmanager
def watch(keywords: Mapping[str, str], application: str, factor: float) -> Iterator[Watch]:
    """A watch that knows what is usual on the server, not begun yet.

    keywords: libpq's, with the load's database. application: the load's application_name; sessions
    of this name, role and database are not others. Raises ServerError.
    """
    session = _Session(keywords, application)
    made = Watch(session.look, factor)
    try:
        made.blind = not session.sees_all()
        made.measure_before()
        yield made
    finally:
        # A session that is being waited for goes with the program.
        if made.close():
            session.close()
