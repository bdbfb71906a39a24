"""A thread that reads from a server periodically, until it is ended. Knows nothing of the reads.

An error of the server is recorded as text, and the next read tries again. A server that hangs
delays no other thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import psycopg

from pgpaces.monitor.session import first_line

# The wait for a hanging thread at its end; longer if it has begun its last reads.
_PATIENCE_S = 1.0
_LAST_READS_S = 6.0
# The minimum interval of retries with a silent server.
_AGAIN_S = 1.0

Read = Callable[[], None]


def _nothing() -> None:
    """A read without effect."""


class Thread:
    """Reads every `period_s()` seconds. read: may raise psycopg.Error, or hang.

    cpu_s: CPU time of the thread so far. silent: the first error, if any.
    """

    def __init__(self, name: str, read: Read, period_s: Callable[[], float]) -> None:
        self._name, self._read, self._period_s = name, read, period_s
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._failed = self._finishing = False
        self._since_s: float | None = None
        self.cpu_s = 0.0
        self.silent: str | None = None

    def begin(self, start_s: float, first: Read = _nothing, last: Read = _nothing) -> None:
        """Reads at every full period from now on; the thread ends with the program.

        first: runs once after the first read. last: runs once at the end.
        """
        self._thread = threading.Thread(
            target=self._run, args=(start_s, first, last), name=self._name, daemon=True
        )
        self._thread.start()

    def _run(self, start_s: float, first: Read, last: Read) -> None:
        self._try(self._read)
        if not self._failed:
            self._try(first)
        while not self._ended.wait(self._ahead_s(start_s)):
            self._try(self._read)
        self._finishing = not self._failed
        if self._finishing:
            self._try(self._read)
            self._try(last)

    def _ahead_s(self, start_s: float) -> float:
        period_s = max(_AGAIN_S, self._period_s()) if self._failed else self._period_s()
        return period_s - (time.monotonic() - start_s) % period_s

    def _try(self, read: Read) -> None:
        self._failed, self._since_s = True, time.monotonic()
        try:
            read()
            self._failed = False
        except psycopg.Error as error:
            self.silent = self.silent or first_line(error)
        finally:
            self._since_s = None
        self.cpu_s = time.thread_time()

    def hangs_s(self) -> float:
        """The duration of the present read; 0 between reads."""
        since_s = self._since_s
        return 0.0 if since_s is None else time.monotonic() - since_s

    def stop(self) -> None:
        """Begins no further read; does not wait for the present one."""
        self._ended.set()

    def close(self) -> bool:
        """Ends the thread; false if a read hangs."""
        self.stop()
        if self._thread is None:
            return True
        self._thread.join(max(0.0, _PATIENCE_S - self.hangs_s()))
        if self._thread.is_alive() and self._finishing:
            self._thread.join(_LAST_READS_S)
        return not self._thread.is_alive()
