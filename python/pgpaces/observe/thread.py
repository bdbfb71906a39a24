"""A thread that looks at a server again and again, until it is ended. Knows not what it looks at.

A server that dies is silent: that is kept in words, and the next look tries again. One that hangs
keeps nobody else waiting.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

# One that hangs is waited for so long at its end; one that has begun its last looks, longer.
_PATIENCE_S = 1.0
_LAST_LOOKS_S = 6.0
# So often it is tried again whether a silent server is back.
_AGAIN_S = 1.0

Look = Callable[[], None]


def nothing() -> None:
    """A look that is none."""


class Thread:
    """Looks every `period_s()` seconds. look: may raise psycopg.Error, or hang.

    cpu_s: what the thread took of this machine so far. silent: what was wrong first, if anything.
    """

    def __init__(self, name: str, look: Look, period_s: Callable[[], float]) -> None:
        self._name, self._look, self._period_s = name, look, period_s
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._gone = self._finishing = False
        self._since_s: float | None = None
        self.cpu_s = 0.0
        self.silent: str | None = None

    def begin(self, start_s: float, first: Look, last: Look) -> None:
        """Looks at every full period from now on; the thread ends with the program.

        first: what is looked at once, behind the first look. last: the same when it is closed.
        """
        self._thread = threading.Thread(
            target=self._go_on, args=(start_s, first, last), name=self._name, daemon=True
        )
        self._thread.start()

    def _go_on(self, start_s: float, first: Look, last: Look) -> None:
        self._try(self._look)
        if not self._gone:
            self._try(first)
        while not self._ended.wait(self._ahead_s(start_s)):
            self._try(self._look)
        self._finishing = not self._gone
        if self._finishing:
            self._try(self._look)
            self._try(last)

    def _ahead_s(self, start_s: float) -> float:
        period_s = max(_AGAIN_S, self._period_s()) if self._gone else self._period_s()
        return period_s - (time.monotonic() - start_s) % period_s

    def _try(self, look: Look) -> None:
        import psycopg

        self._gone, self._since_s = True, time.monotonic()
        try:
            look()
            self._gone = False
        except psycopg.Error as error:
            said = str(error).strip().splitlines() or [type(error).__name__]
            self.silent = self.silent or said[0]
        finally:
            self._since_s = None
        self.cpu_s = time.thread_time()

    def hangs_s(self) -> float:
        """For how long the look that goes on has had no answer; 0 where none goes on."""
        since_s = self._since_s
        return 0.0 if since_s is None else time.monotonic() - since_s

    def stop(self) -> None:
        """Begins no further look; does not wait for one that goes on."""
        self._ended.set()

    def close(self) -> bool:
        """Looks no more; false if a look hangs."""
        self.stop()
        if self._thread is None:
            return True
        self._thread.join(max(0.0, _PATIENCE_S - self.hangs_s()))
        if self._thread.is_alive() and self._finishing:
            self._thread.join(_LAST_LOOKS_S)
        return not self._thread.is_alive()
