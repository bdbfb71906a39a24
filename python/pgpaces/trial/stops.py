"""How loads are ended from outside: by signals, or by code that has a Stops.

Code that waits learns of it from the same Stops. Knows loads only by their `stop` and `abort`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator

from pgpaces.core.errors import RunError
from pgpaces.load.composite import Together
from pgpaces.trial.listener import Listener


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
