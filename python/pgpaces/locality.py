"""Locality of a server: whether it is reached as one on this machine, by libpq's keywords.

A tunnel looks like that too. What is on the other side is to be looked at by whoever needs to know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def by_socket(keywords: Mapping[str, Any]) -> bool:
    """Whether it is reached by a socket in the file system: then it is on this machine."""
    name = str(keywords.get("host") or "")
    return not keywords.get("hostaddr") and name.startswith(("/", "@"))


def is_local(keywords: Mapping[str, Any]) -> bool:
    """Whether a server is reached as one on this machine; of several hosts all must be."""
    names = str(keywords.get("hostaddr") or keywords.get("host") or "").split(",")
    return all(not name or name.startswith(("/", "@")) or _loops_back(name) for name in names)


def _loops_back(name: str) -> bool:
    return name in ("localhost", "::1") or name.startswith("127.")
