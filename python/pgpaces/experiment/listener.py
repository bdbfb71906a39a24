"""Who hears what happens: the pipeline knows no terminal."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from msgspec import Struct, field

from pgpaces.record import Interval
from pgpaces.result import Trial

if TYPE_CHECKING:
    from pgpaces.design import Slot
    from pgpaces.errors import PgpacesError
    from pgpaces.experiment.trial import Outcome


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


class SweepListener(Listener):
    """Hears how an experiment goes. Machines call it from threads of their own."""

    def trial(self, machine: str, slot: Slot, attempt: int, progress: Progress) -> Listener:
        """A trial begins; who is to hear of it."""
        return Listener()

    def done(self, machine: str, slot: Slot, found: Outcome | PgpacesError) -> None:
        """A trial has ended, or could not begin."""

    def due(self, machine: str, slot: Slot, why: str) -> None:
        """What comes next, of trials that are chosen as it goes, and why."""

    def away(self, machine: str, error: PgpacesError, trials: int) -> None:
        """A server was not there for several trials; so many of its trials are left out."""


class Progress(Struct):
    """How far an experiment is. done: trials that were run, also before it was resumed.

    total: None where nobody knows beforehand.
    """

    total: int | None
    done: int = 0
    failed: int = 0
    spent_s: dict[str, list[float]] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ended(self, machine: str, seconds: float, left: int, *, well: bool) -> None:
        """Another trial of a machine is over; so many are left."""
        with self._lock:
            self.done += well
            self.failed += not well
            self.left[machine] = left
            self.spent_s.setdefault(machine, []).append(seconds)

    def seconds_left(self) -> float | None:
        """Until the last machine is done, if its trials go on as they went; None before any."""
        with self._lock:
            means = {m: sum(spent) / len(spent) for m, spent in self.spent_s.items()}
            if not means:
                return None
            usual = sum(means.values()) / len(means)
            return max((means.get(m, usual) * n for m, n in self.left.items()), default=0.0)

    def left_out(self, machine: str, left: int) -> None:
        """Another trial of a machine is not even tried: what others take is told by them."""
        with self._lock:
            self.failed += 1
            self.left[machine] = left

    def place(self) -> str:
        """Which trial runs: `3/18`, or `3` where nobody knows how many there will be."""
        of = "" if self.total is None else f"/{self.total}"
        return f"{self.done + self.failed + 1}{of}"
