"""How loads are ended from outside: by signals, or by whoever has a Stops.

And how whoever waits beside them hears of it. Knows loads only by their `stop` and `abort`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Protocol

from pgpaces.errors import RunError, StoreError
from pgpaces.experiment.listener import Listener

_TURN_S = 0.1
_AGAIN_S = 1.0


class Stoppable(Protocol):
    """What can be ended."""

    def stop(self) -> None:
        """Lets nothing new fall due."""

    def abort(self) -> None:
        """Ends at once."""


class Stops:
    """Who asks for the end of the loads that go on. asked: how often that was done."""

    def __init__(self) -> None:
        self.asked = 0
        self._loads: list[Stoppable] = []
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def over(self, load: Stoppable) -> Iterator[None]:
        """Ends this load too, from now on, as often as was asked and will be."""
        with self._lock:
            self._loads = [*self._loads, load]
        try:
            if self.asked:
                load.stop()
            if self.asked > 1:
                load.abort()
            yield
        finally:
            with self._lock:
                self._loads = [other for other in self._loads if other is not load]

    def ask(self) -> None:
        """First: nothing new falls due. Again: ends at once."""
        self.asked += 1
        for load in self._loads:  # whoever begins one meanwhile looks at `asked`
            if self.asked == 1:
                load.stop()
            else:
                load.abort()

    def check(self) -> None:
        """Raises StoppedError once somebody asked."""
        if self.asked:
            raise StoppedError("stopped before the load began")

    def rest(self, seconds: float) -> None:
        """Waits so long, or until somebody asks."""
        deadline = time.monotonic() + seconds
        while not self.asked and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(_TURN_S, left))


class StoppedError(RunError):
    """Somebody asked for the end before anything was measured."""


def kept(
    write: Callable[[], None], stops: Stops, say: Callable[[str], None], wait_s: float
) -> None:
    """Writes to a store, again and again for so long while it takes nothing.

    Raises StoreError where it never did, or somebody asked for the end meanwhile.
    """
    deadline, told = time.monotonic() + wait_s, False
    while True:
        try:
            return write()
        except StoreError as error:
            if stops.asked or time.monotonic() >= deadline:
                raise
            if not told:
                say(f"warning: {error.message}; trying again for {wait_s:.0f} s")
            told = True
        stops.rest(_AGAIN_S)


@contextlib.contextmanager
def signals(stops: Stops, listener: Listener) -> Iterator[None]:
    """Ctrl-C, SIGTERM and SIGHUP ask for the end, as long as this lasts, in the main thread.

    Each counts, and at once: a handler in Python would run only when the main thread is back from
    waiting for the next second, and once for all signals until then.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [signal.SIGINT, signal.SIGTERM]
    # A terminal that is gone ends it like Ctrl-C, but for what nohup keeps from hearing of it.
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    reads, writes = os.pipe()
    os.set_blocking(writes, False)

    def hear() -> None:
        while heard := os.read(reads, 1):
            if heard[0] in numbers:
                stops.ask()
                listener.stopping(stops.asked)

    thread = threading.Thread(target=hear, name="pgpaces-signals", daemon=True)
    thread.start()
    wakes = signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    before = {number: signal.signal(number, _heard_elsewhere) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
        signal.set_wakeup_fd(wakes)
        os.close(writes)
        thread.join()
        os.close(reads)


def _heard_elsewhere(_number: int, _frame: FrameType | None) -> None:
    """The signal does nothing else than to be written to the pipe."""
