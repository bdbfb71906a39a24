"""What a process of users is told to do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote, quote_plus

from msgspec import Struct

from pgpaces.generators.engine import EnginePlan

# So many exception classes of a process have a code of their own: four hexadecimal digits are
# enough for those of 1,024 processes.
CODES = 64
# So begins what a process says that ends because nothing in it has its turn: faulthandler's words.
STUCK = "Timeout (0:"


class ProcessOrder(Struct, frozen=True):
    """What a process is to do.

    path, text, folder: the file of its users, what it says, where the modules beside it are; or
    functions: they themselves, pickled by value. names, weights: of
    the tasks that run. number: of the process. counter: the descriptor of the number that processes
    share; None where each user has a schedule.
    """

    plan: EnginePlan
    number: int
    names: tuple[str, ...]
    weights: tuple[int, ...]
    dsn: str
    variables: Mapping[str, str]
    secrets: tuple[str, ...] = ()
    path: Path | None = None
    text: str = ""
    folder: Path | None = None
    functions: bytes = b""
    modules: tuple[str, ...] = ()
    counter: int | None = None

    def __repr__(self) -> str:
        """Without what nobody may see."""
        return f"ProcessOrder(number={self.number}, names={self.names})"


def hidden(text: str, secrets: tuple[str, ...]) -> str:
    """A text as it may be kept: without secrets, as they are or as URIs or Python write them."""
    return _forms(secrets).sub("***", text) if secrets else text


@lru_cache(maxsize=4)
def _forms(secrets: tuple[str, ...]) -> re.Pattern[str]:
    forms = {form for secret in secrets for form in _written(secret)}
    # A message in one line has other spaces.
    every = [r"\s+".join(map(re.escape, re.split(r"\s", form))) for form in forms]
    return re.compile("|".join(sorted(every, key=len, reverse=True)))


def _written(secret: str) -> set[str]:
    escaped = secret.replace("\\", "\\\\").replace("'", "\\'")
    own = {secret, escaped, repr(secret)[1:-1], ascii(secret)[1:-1]}
    return own | {quote(secret, safe=""), quote_plus(secret), quote(secret)}
