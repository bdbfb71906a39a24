"""Receivers of the events of a trial, because what runs trials knows no terminal."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from msgspec import Struct, field

from pgpaces.core.record import Interval
from pgpaces.spec.result import Estimate, Trial

if TYPE_CHECKING:
    from pgpaces.core.errors import PgpacesError
    from pgpaces.spec.design import Ask
    from pgpaces.trial.trial import Outcome


class Listener:
    """Receives the events of a trial. Override the methods that you need."""

    def say(self, text: str) -> None:
        """A stage has begun or makes progress."""

    def started(self, trial: Trial, connect_ns: int) -> None:
        """The load runs; connect_ns: how long it took to connect."""

    def interval(self, interval: Interval) -> None:
        """A second has passed and is stored."""

    def looked(self, missed: Estimate, certain_in_s: float | None) -> None:
        """The missed share so far, and when it is certain if it stays; None: not known."""

    def stopping(self, count: int) -> None:
        """The user asked to stop, for the first or a further time."""


class SweepListener(Listener):
    """Receives the events of an experiment. Each machine calls it from its own thread."""

    def trial(self, machine: str, ask: Ask, attempt: int, *, progress: Progress) -> Listener:
        return Listener()

    def done(self, machine: str, ask: Ask, outcome: Outcome | PgpacesError) -> None:
        """A trial has ended, or could not begin."""

    def due(self, machine: str, ask: Ask) -> None:
        """The next trial of an adaptive experiment, and why it was chosen."""

    def away(self, machine: str, error: PgpacesError, trials: int) -> None:
        """A server was unreachable for several trials; trials: the number left out for it."""


class Progress(Struct):
    """The progress of an experiment. done: trials that were run, also before it was resumed.

    total: None if it is not known in advance.
    """

    total: int | None
    done: int = 0
    failed: int = 0
    spent_s: dict[str, list[float]] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ended(self, machine: str, seconds: float | None, left: int, *, well: bool) -> None:
        """Counts a trial of a machine. left: the number of its remaining trials.

        seconds: how long it took; None if it was left out.
        """
        with self._lock:
            self.done += well
            self.failed += not well
            self.left[machine] = left
            if seconds is not None:
                self.spent_s.setdefault(machine, []).append(seconds)

    def seconds_left(self) -> float | None:
        """Time until the last machine is done, by the mean of its trials; None before any."""
        with self._lock:
            means = {m: sum(spent) / len(spent) for m, spent in self.spent_s.items()}
            if not means:
                return None
            usual = sum(means.values()) / len(means)
            return max((means.get(m, usual) * n for m, n in self.left.items()), default=0.0)

    def place(self) -> str:
        """The running trial: `3/18`, or `3` if the total is not known."""
        of = "" if self.total is None else f"/{self.total}"
        return f"{self.done + self.failed + 1}{of}"
