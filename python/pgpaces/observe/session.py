"""The session that a sensor takes snapshots by: made anew where it broke, and what it costs.

Knows nothing of what is asked. Whoever asks catches psycopg.Error: a gap.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgpaces.locality import is_local

if TYPE_CHECKING:
    import psycopg

    Session = psycopg.Connection[tuple[Any, ...]]

APPLICATION = "pgpaces sensor"
# Sessions of ours that are no part of what is looked at.
OURS = (APPLICATION, "pgpaces host sensor", "pgpaces watch")
_CONNECT_TIMEOUT_S = 3
_TIMEOUTS_MS = {"statement_timeout": 5000, "lock_timeout": 1000}
# What our own statements have in them, so that nobody takes them for the load's.
MARK = "/* pgpaces sensor */"


class SessionSnapshot:
    """A session for snapshots. `rows` makes one where there is none. keywords: libpq's."""

    def __init__(self, keywords: Mapping[str, str], dbname: str) -> None:
        self._keywords = {
            **keywords,
            "dbname": dbname,
            "connect_timeout": str(_CONNECT_TIMEOUT_S),
        }
        self._made: Session | None = None
        self._direct = False
        self.cost = Backends(keywords)

    @property
    def alive(self) -> bool:
        """Whether there is a session that is not known to be broken."""
        return self._made is not None and not self._made.closed

    def session(self) -> Session:
        """The session, made where there is none. Raises psycopg.Error."""
        from pgpaces import sessions

        if self._made is None or self._made.closed:
            self._made = sessions.connect(self._keywords, APPLICATION)
            self._direct = self._is_direct(self._made)
            if self._direct:
                self.cost.serves(self._made.info.backend_pid)
        return self._made

    def _is_direct(self, session: Session) -> bool:
        """Whether one process of the server serves all the session.

        A pooler that gives each statement another one has none to name. Nothing may be prepared
        there: of two sessions each would execute what the other has prepared under its name.
        """
        row = session.execute("SELECT pg_catalog.pg_backend_pid()").fetchone()
        return row == (session.info.backend_pid,)

    def rows(
        self, query: str, parameters: Mapping[str, Any] | None = None
    ) -> list[tuple[Any, ...]]:
        """The rows of a statement that is prepared once a session. Raises psycopg.Error."""
        session = self.session()
        return session.execute(query.encode(), parameters, prepare=self._direct).fetchall()

    @contextlib.contextmanager
    def bounded(self) -> Iterator[Session]:
        """The session in a transaction whose statements end soon, with an error if need be."""
        session = self.session()
        with session.transaction():
            for name, ms in _TIMEOUTS_MS.items():
                session.execute(f"SET {MARK} LOCAL {name} = {ms}".encode())
            yield session

    def close(self) -> None:
        """Ends the session."""
        if self._made is not None:
            self._made.close()


class Backends:
    """CPU time of the server's processes that served a session, one after the other.

    Only of a server on this machine; cpu_s is None of others.
    """

    def __init__(self, keywords: Mapping[str, str]) -> None:
        self._here = is_local(keywords)
        self._ended_s = 0.0
        self._path: Path | None = None
        self._last_s: float | None = None

    def serves(self, pid: int) -> None:
        """Another process serves from now on."""
        self._ended_s += self._last_s or 0.0
        self._last_s = None
        self._path = Path(f"/proc/{pid}/stat") if self._here else None
        self.look()

    def look(self) -> None:
        """To be called now and then: a process that is gone has told its time before."""
        if self._path is None:
            return
        with contextlib.suppress(OSError, ValueError, IndexError):
            self._last_s = cpu_s(self._path.read_text())

    @property
    def cpu_s(self) -> float | None:
        """CPU seconds so far; None where they cannot be seen."""
        return None if self._last_s is None else self._ended_s + self._last_s


def cpu_s(stat: str) -> float:
    """User and system time of /proc/PID/stat, of a process of a PostgreSQL. Raises ValueError."""
    before, _, behind = stat.rpartition(")")
    if before.split("(", 1)[1] not in ("postgres", "postmaster"):
        raise ValueError("no PostgreSQL")
    words = behind.split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
