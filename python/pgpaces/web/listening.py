"""Open ports and their tokens: the only module that opens one."""

from __future__ import annotations

import secrets
import socket

from msgspec import Struct

from pgpaces.core.errors import RunError
from pgpaces.core.locality import is_loopback

_BACKLOG = 128
# Linux drops a reader that takes nothing for this time. A browser comes back, and says what it has.
_BLOCKED_MS = 30_000


class Listening(Struct, frozen=True):
    """An open port. host: as asked for. token: None where reading needs none."""

    socket: socket.socket
    host: str
    token: str | None
    required: bool

    @property
    def url(self) -> str:
        port = self.socket.getsockname()[1]
        host = f"[{self.host}]" if ":" in self.host else self.host
        host = socket.gethostname() if self.host in ("0.0.0.0", "::", "") else host
        return f"http://{host}:{port}/"


def listen(
    host: str, port: int, token: str | None = None, *, option: str = "--listen "
) -> Listening:
    """Opens a port; 0: any. Beyond loopback, pages require the token. Raises RunError."""
    try:
        info = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM,
                                  flags=socket.AI_PASSIVE)[0]  # fmt: skip
        opened = socket.socket(info[0], socket.SOCK_STREAM)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if (timeout := getattr(socket, "TCP_USER_TIMEOUT", None)) is not None:
            opened.setsockopt(socket.IPPROTO_TCP, timeout, _BLOCKED_MS)
        opened.bind(info[4])
        opened.listen(_BACKLOG)
    except (OSError, UnicodeError) as error:  # UnicodeError: the host is no name
        why = getattr(error, "strerror", None) or str(error)
        raise RunError("cannot-listen", host=host, port=port, why=why, option=option) from None
    return Listening(opened, host, token, required=not is_loopback(host))


def new_token() -> str:
    """A token that cannot be guessed: 256 bits."""
    return secrets.token_urlsafe(32)


def host_of(header: str) -> str:
    """The host of a Host header without its port: `localhost`, `::1`."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.rpartition(":")[0] if header.count(":") == 1 else header
