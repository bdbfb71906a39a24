"""What goes out of a running trial, its events, and what comes in, requests to stop.

A Listener receives the events, because the pipeline knows no terminal. Stops ends loads on request
of a signal or of code that has it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct, field

from pgpaces.core.errors import RunError
from pgpaces.core.record import Interval
from pgpaces.load.composite import Together
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


class Stops:
    """Ends the running loads on request. requests: how often that was requested."""

    def __init__(self) -> None:
        self.requests = 0
        self._requested = threading.Event()
        self._loads: list[Together] = []
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def over(self, load: Together) -> Iterator[None]:
        """Applies earlier and later requests to this load too."""
        with self._lock:
            self._loads = [*self._loads, load]
        try:
            if self.requests:
                load.stop()
            if self.requests > 1:
                load.abort()
            yield
        finally:
            with self._lock:
                self._loads = [other for other in self._loads if other is not load]

    def ask(self) -> None:
        """First: nothing new falls due. Again: ends at once."""
        self.requests += 1
        self._requested.set()
        for load in self._loads:  # code that begins one meanwhile checks `requests`
            if self.requests == 1:
                load.stop()
            else:
                load.abort()

    def check(self) -> None:
        """Raises StoppedError after a request."""
        if self.requests:
            raise StoppedError("stopped-before-load")

    def rest(self, seconds: float) -> None:
        self._requested.wait(seconds)


class StoppedError(RunError):
    """The end was requested before anything was measured."""


@contextlib.contextmanager
def signals(stops: Stops, listener: Listener) -> Iterator[None]:
    """While active, Ctrl-C, SIGTERM and SIGHUP in the main thread request the end.

    Each counts, and at once: a handler in Python would run only after the main thread has waited
    for the next second, and once for all signals until then.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [signal.SIGINT, signal.SIGTERM]
    # A closed terminal ends it like Ctrl-C, unless nohup ignores SIGHUP.
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    reads, writes = os.pipe()
    os.set_blocking(writes, False)

    def receive() -> None:
        while byte := os.read(reads, 1):
            if byte[0] in numbers:
                stops.ask()
                listener.stopping(stops.requests)

    thread = threading.Thread(target=receive, name="pgpaces-signals", daemon=True)
    thread.start()
    wakes = signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    # A handler that does nothing, because only a handled signal is written to the pipe.
    before = {number: signal.signal(number, lambda *_: None) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
        signal.set_wakeup_fd(wakes)
        os.close(writes)
        thread.join()
        os.close(reads)
