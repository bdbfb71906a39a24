"""A counter that processes on one machine share: the number of the next free transaction."""

from __future__ import annotations

import fcntl
import mmap
import os
import tempfile
import threading

_BYTES = 8


class SharedCounter:
    """Counts from 0, for all processes with the same file. It ends with the last of them."""

    def __init__(self, file: int | None = None) -> None:
        """file: an inherited descriptor; None creates a new one."""
        if file is None:
            with tempfile.TemporaryFile() as new:
                new.truncate(_BYTES)
                file = os.dup(new.fileno())
        self.file = file
        self._words = memoryview(mmap.mmap(file, _BYTES)).cast("Q")
        self._lock = threading.Lock()

    def take(self) -> int:
        """The next number; every caller gets a different one."""
        # The lock on the file belongs to the process: it does not exclude other threads.
        with self._lock:
            fcntl.lockf(self.file, fcntl.LOCK_EX)
            try:
                number = self._words[0]
                self._words[0] = number + 1
            finally:
                fcntl.lockf(self.file, fcntl.LOCK_UN)
        return number

    def close(self) -> None:
        self._words.release()
        if self.file >= 0:
            os.close(self.file)
        self.file = -1

    @property
    def count(self) -> int:
        return self._words[0]
