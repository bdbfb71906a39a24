"""A number that processes on one machine share: the next transaction that nobody has taken."""

from __future__ import annotations

import fcntl
import mmap
import os
import tempfile
import threading

_BYTES = 8


class SharedCounter:
    """Counts from 0, for everybody who has the same file. It ends with the last of them."""

    def __init__(self, file: int | None = None) -> None:
        """file: a descriptor that was inherited; None makes a new one."""
        if file is None:
            with tempfile.TemporaryFile() as made:
                made.truncate(_BYTES)
                file = os.dup(made.fileno())
        self.file = file
        self._words = memoryview(mmap.mmap(file, _BYTES)).cast("Q")
        self._lock = threading.Lock()

    def take(self) -> int:
        """The next number, which is nobody else's."""
        # The lock on the file is of a process: it does not keep threads apart.
        with self._lock:
            fcntl.lockf(self.file, fcntl.LOCK_EX)
            try:
                number = self._words[0]
                self._words[0] = number + 1
            finally:
                fcntl.lockf(self.file, fcntl.LOCK_UN)
        return number

    def close(self) -> None:
        """Gives it up here."""
        self._words.release()
        if self.file >= 0:
            os.close(self.file)
        self.file = -1

    @property
    def taken(self) -> int:
        """How many have been taken."""
        return self._words[0]
