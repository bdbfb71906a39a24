"""The sessions of monitors: reopened after an error.

Knows nothing of its queries. Callers catch psycopg.Error: a gap.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import psycopg

from pgpaces.core import sessions
from pgpaces.core.findings import Notes, finding
from pgpaces.core.sessions import Session
from pgpaces.core.texts import encoded

APPLICATION = "pgpaces sensor"
# Sessions of pgpaces itself, which sensors ignore.
APPLICATIONS = (APPLICATION, "pgpaces guard")
_CONNECT_TIMEOUT_S = 3
_TIMEOUTS_MS = {"statement_timeout": 5000, "lock_timeout": 1000}
# A comment in the sensors' statements, which tells them from the load's.
MARK = "/* pgpaces sensor */"
_NAME_BYTES_MAX = 63


def reported(application: str) -> list[str]:
    """An application_name as servers report it: by the rules since 16, and by those before."""

    def ascii_only(other: str) -> str:
        parts = (chr(b) if 32 <= b <= 126 else other.format(b) for b in encoded(application))
        return "".join(parts)[:_NAME_BYTES_MAX]

    return [ascii_only("\\x{:02x}"), ascii_only("?")]


def first_line(error: Exception) -> str:
    """The first line of its message; without one its class."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


class Reopened:
    """A session that is opened when needed, and again once it is broken. keywords: libpq's."""

    def __init__(self, keywords: Mapping[str, str], application: str, **more: Any) -> None:
        self._keywords = {**keywords, "connect_timeout": str(_CONNECT_TIMEOUT_S)}
        self._application, self._more = application, more
        self._session: Session | None = None

    @property
    def alive(self) -> bool:
        return self._session is not None and not self._session.closed

    def session(self) -> Session:
        if self._session is None or self._session.closed:
            self._session = sessions.connect(self._keywords, self._application, **self._more)
        return self._session

    def close(self) -> None:
        if self._session is not None:
            self._session.close()


class SessionSnapshot(Reopened):
    def __init__(self, keywords: Mapping[str, str], dbname: str) -> None:
        super().__init__({**keywords, "dbname": dbname}, APPLICATION)
        self._direct = False

    def session(self) -> Session:
        new, session = not self.alive, super().session()
        if new:
            # A pooler in statement or transaction mode reports another pid. There, nothing may be
            # prepared: two sessions would execute each other's prepared statements.
            pid = sessions.scalar(session, "SELECT pg_catalog.pg_backend_pid()")
            self._direct = bool(pid == session.info.backend_pid)
        return session

    def rows(
        self, query: str, parameters: Mapping[str, Any] | None = None
    ) -> list[tuple[Any, ...]]:
        """The rows of a query, which is prepared once per session. Raises psycopg.Error."""
        session = self.session()
        return session.execute(query.encode(), parameters, prepare=self._direct).fetchall()

    @contextlib.contextmanager
    def refusals(self, what: str, notes: Notes) -> Iterator[None]:
        """Adds a note if the server refuses something. Raises psycopg.Error without a session."""
        try:
            yield
        except psycopg.DatabaseError as error:
            if error.sqlstate is None or not self.alive:
                raise
            notes.add(finding("reading-refused", what=what, error=error.diag.message_primary))

    @contextlib.contextmanager
    def bounded(self) -> Iterator[Session]:
        session = self.session()
        with session.transaction():
            for name, ms in _TIMEOUTS_MS.items():
                session.execute(f"SET {MARK} LOCAL {name} = {ms}".encode())
            yield session
