"""Who hears what happens: the pipeline knows no terminal."""

from __future__ import annotations

from pgpaces.record import Interval
from pgpaces.result import Trial


class Listener:
    """Hears what happens. Override what is wanted."""

    def say(self, text: str) -> None:
        """A stage has begun or goes on."""

    def started(self, trial: Trial, connect_ns: int) -> None:
        """The load runs; connecting took so long."""

    def interval(self, interval: Interval) -> None:
        """A second has passed and is stored."""

    def stopping(self, count: int) -> None:
        """The user asked to stop, for the first or a further time."""
