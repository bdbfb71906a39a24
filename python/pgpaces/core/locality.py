"""Locality of a server: whether its address is on this machine, by libpq's keywords.

The address of a tunnel is local, too. Callers for which that matters must check the other end.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any


def by_socket(keywords: Mapping[str, Any]) -> bool:
    """Whether its address is a socket in the file system: then it is on this machine."""
    name = str(keywords.get("host") or "")
    return not keywords.get("hostaddr") and name.startswith(("/", "@"))


def is_local(keywords: Mapping[str, Any]) -> bool:
    """Whether the address of a server is on this machine; of several hosts, all."""
    names = str(keywords.get("hostaddr") or keywords.get("host") or "").split(",")
    return all(not name or name.startswith(("/", "@")) or is_loopback(name) for name in names)


def is_loopback(name: str) -> bool:
    """Whether a host name or address is of this machine alone."""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name.lower() in ("localhost", "localhost.")
