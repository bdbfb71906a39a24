"""Texts from files, the command line and servers, in any encoding.

As `str` they are decoded from UTF-8; invalid bytes become surrogates (PEP 383), which turn back
into the same bytes on output.
"""

from __future__ import annotations

import re
from collections.abc import Callable

# The rest of a statement from here on may hold a password; so may a URL.
_SECRET = re.compile(r"\w*(password|://).*", re.IGNORECASE)

Say = Callable[[str], None]  # takes a message for people


class Warned(str):
    """A message that stays on the screen, with `warning: ` in front of it."""

    def __new__(cls, text: str) -> Warned:
        return super().__new__(cls, f"warning: {text}")


def redacted(statement: str) -> str:
    """A statement in one line, without a password in it."""
    return _SECRET.sub("...", " ".join(statement.split()))


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def decoded(data: bytes | bytearray | memoryview) -> str:
    return str(data, "utf-8", "surrogateescape")
