"""Before/after snapshots of a load: sizes, and statistics of statements.

Notes say what cannot be read and what would show more. Knows no thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pgpaces.observe import sizes
from pgpaces.observe.session import SessionSnapshot
from pgpaces.observe.sizes import Sizes, Statements, View
from pgpaces.result import Executed, Grown
from pgpaces.sessions import Session

T = TypeVar("T")
_STATEMENTS = "the extension pg_stat_statements in this database (what statements did)"


class Snapshots:
    """The snapshots before and after a load. notes, more: those of a CounterReader, extended."""

    def __init__(
        self, snapshot: SessionSnapshot, notes: dict[str, None], more: dict[str, None]
    ) -> None:
        self._snapshot, self._notes, self._more = snapshot, notes, more
        self._sizes: Sizes | None = None
        self._view: View | None = None
        self._statements: Statements | None = None
        self.grown: tuple[Grown, ...] = ()
        self.executed: tuple[Executed, ...] = ()

    def before(self) -> None:
        """Call it before the load. Raises psycopg.Error if the session is broken."""
        self._sizes = self._read("sizes", sizes.sizes)
        self._view = self._read("statements", View.of)
        if self._view is None:
            self._more[_STATEMENTS] = None
        else:
            self._statements = self._read("statements", self._view.read)

    def after(self) -> None:
        """Call it after the load. Raises as `before`."""
        if self._sizes is not None and (after := self._read("sizes", sizes.sizes)) is not None:
            self.grown = sizes.grown(self._sizes, after)
        view, before = self._view, self._statements
        if view is None or before is None:
            return

        def executed(session: Session) -> tuple[Executed, ...]:
            return view.executed(session, before, view.read(session))

        self.executed = self._read("statements", executed) or ()

    def _read(self, what: str, read: Callable[[Session], T]) -> T | None:
        """The result of `read`; None with a note if the server refuses or needs too long."""
        with self._snapshot.refusals(what, self._notes), self._snapshot.bounded() as session:
            return read(session)
        return None
