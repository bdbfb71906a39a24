"""Before/after snapshots of a load: settings, sizes, and statistics of statements.

Notes say what cannot be read and what would show more. Knows no thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from pgpaces.core.sessions import Session
from pgpaces.monitor import sizes
from pgpaces.monitor.session import MARK, SessionSnapshot
from pgpaces.monitor.sizes import Sizes, Statements, View
from pgpaces.spec.result import Executed, Finding, Grown

T = TypeVar("T")
# Texts are only compared: connection strings and commands may hold secrets.
_SETTINGS = (
    f"SELECT {MARK} name, pg_catalog.current_setting(name, true), vartype <> 'string'"
    " FROM pg_catalog.pg_settings"
)
# Of each setting its value, and whether it may be shown.
Settings = Mapping[str, tuple[str, bool]]
_STATEMENTS = "the extension pg_stat_statements in this database (what statements did)"


def settings(session: Session) -> Settings:
    """The settings of a session. Raises psycopg.Error."""
    return {name: (value, shown) for name, value, shown in session.execute(_SETTINGS.encode())}


def changed(before: Settings, after: Settings) -> Iterator[Finding]:
    pairs = ((name, old, after[name]) for name, old in before.items() if name in after)
    parts = [
        f"{name} {old[0]} -> {new[0]}" if old[1] else name for name, old, new in pairs if old != new
    ]
    if parts:
        text = f"settings of the server changed during the run: {', '.join(sorted(parts))}"
        yield Finding("server", "warning", text)


class Snapshots:
    """The snapshots before and after a load. notes, more: those of a CounterReader, extended."""

    def __init__(
        self, snapshot: SessionSnapshot, notes: dict[str, None], more: dict[str, None]
    ) -> None:
        self._snapshot, self._notes, self._more = snapshot, notes, more
        self._settings: Settings | None = None
        self._sizes: Sizes | None = None
        self._view: View | None = None
        self._statements: Statements | None = None
        self.changed: tuple[Finding, ...] = ()
        self.grown: tuple[Grown, ...] = ()
        self.executed: tuple[Executed, ...] = ()

    def before(self) -> None:
        """Call it before the load. Raises psycopg.Error if the session is broken."""
        self._settings = self._read("settings", settings)
        self._sizes = self._read("sizes", sizes.sizes)
        self._view = self._read("statements", View.of)
        if self._view is None:
            self._more[_STATEMENTS] = None
        else:
            self._statements = self._read("statements", self._view.read)

    def after(self) -> None:
        """Call it after the load. Raises as `before`."""
        if self._settings is not None and (now := self._read("settings", settings)) is not None:
            self.changed = tuple(changed(self._settings, now))
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
