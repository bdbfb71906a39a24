"""How loads are ended from outside: by signals, or by whoever has a Stops.

Knows loads only by their `stop` and `abort`.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Protocol

from pgpaces.experiment.listener import Listener


class Load(Protocol):
    """What can be ended."""

    def stop(self) -> None:
        """Lets nothing new fall due."""

    def abort(self) -> None:
        """Ends at once."""


class Stops:
    """Who asks for the end of the loads that go on. asked: how often that was done."""

    def __init__(self) -> None:
        self.asked = 0
        self._loads: list[Load] = []
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def over(self, load: Load) -> Iterator[None]:
        """Ends this load too, from now on, as often as was asked and will be."""
        with self._lock:
            self._loads = [*self._loads, load]
        try:
            if self.asked:
                load.stop()
            yield
        finally:
            with self._lock:
                self._loads = [other for other in self._loads if other is not load]

    def ask(self) -> None:
        """First: nothing new falls due. Again: ends at once."""
        self.asked += 1
        for load in self._loads:  # a handler may not wait for a lock of its own thread
            if self.asked == 1:
                load.stop()
            else:
                load.abort()


@contextlib.contextmanager
def signals(stops: Stops, listener: Listener) -> Iterator[None]:
    """Ctrl-C and SIGTERM ask for the end, as long as this lasts, in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(_number: int, _frame: FrameType | None) -> None:
        stops.ask()
        listener.stopping(stops.asked)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
