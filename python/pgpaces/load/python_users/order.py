"""What processes of users share: the order, the counter of transactions, and masked texts."""

from __future__ import annotations

import fcntl
import mmap
import os
import re
import tempfile
import threading
from collections.abc import Mapping
from functools import lru_cache
from typing import ClassVar
from urllib.parse import quote, quote_plus

from pgpaces.core.hidden_fields import Redacted
from pgpaces.load.engine import EnginePlan
from pgpaces.spec.users import Users

# Exception classes of a process with their own code: four hexadecimal digits are enough for 1,024
# processes.
CODES = 64
# The beginning of faulthandler's output, when a process ends because its threads get no turn.
STUCK = "Timeout (0:"
_COUNTER_BYTES = 8


class UserConnection(Redacted, frozen=True):
    """The database of the users. dsn: as a URI; secrets: texts to mask in their messages."""

    REDACTED: ClassVar = ("dsn", "secrets")
    dsn: str
    variables: Mapping[str, str] = {}
    secrets: tuple[str, ...] = ()


class ProcessOrder(Redacted, frozen=True):
    """The order to a process.

    scripts: names and weights of the tasks that run, in the order of their numbers in the record.
    users: of a file, which the process reads itself, so without their functions; others have
    functions: pickled by value. modules: where Python finds these. number: of the process.
    counter: the descriptor of the shared counter; None if each user has its own schedule.
    """

    REDACTED: ClassVar = ("users", "functions", "modules")
    plan: EnginePlan
    number: int
    scripts: tuple[tuple[str, int], ...]
    way: UserConnection
    users: Users | None
    functions: bytes
    modules: tuple[str, ...]
    counter: int | None


def hidden(text: str, secrets: tuple[str, ...]) -> str:
    """The text without secrets, whether plain or as URIs or Python write them."""
    return _forms(secrets).sub("***", text) if secrets else text


@lru_cache(maxsize=4)
def _forms(secrets: tuple[str, ...]) -> re.Pattern[str]:
    forms = {form for secret in secrets for form in _written(secret)}
    # A message may be wrapped: any white space matches.
    every = [r"\s+".join(map(re.escape, re.split(r"\s", form))) for form in forms]
    return re.compile("|".join(sorted(every, key=len, reverse=True)))


def _written(secret: str) -> set[str]:
    escaped = secret.replace("\\", "\\\\").replace("'", "\\'")
    own = {secret, escaped, repr(secret)[1:-1], ascii(secret)[1:-1]}
    return own | {quote(secret, safe=""), quote_plus(secret), quote(secret)}


class SharedCounter:
    """Counts from 0, for all processes with the same file. It ends with the last of them."""

    def __init__(self, file: int | None = None) -> None:
        """file: an inherited descriptor; None creates a new one."""
        if file is None:
            with tempfile.TemporaryFile() as new:
                new.truncate(_COUNTER_BYTES)
                file = os.dup(new.fileno())
        self.file = file
        self._words = memoryview(mmap.mmap(file, _COUNTER_BYTES)).cast("Q")
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
