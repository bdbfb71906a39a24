"""Listens, and answers until it is stopped: the only module that opens a port."""

from __future__ import annotations

import socket
from typing import Any

import uvicorn
from msgspec import Struct

from pgpaces.errors import RunError
from pgpaces.web.app import Site, app
from pgpaces.web.guard import Guard, is_loopback

PORT = 8432
_BACKLOG = 128
# Streams have no end of their own.
_FAREWELL_S = 1


class Listening(Struct, frozen=True):
    """An open port. host: as asked for. token: None where reading needs none."""

    socket: socket.socket
    host: str
    token: str | None
    required: bool

    @property
    def url(self) -> str:
        """The address for a browser, with the token if there is one."""
        port = self.socket.getsockname()[1]
        host = f"[{self.host}]" if ":" in self.host else self.host
        host = socket.gethostname() if self.host in ("0.0.0.0", "::", "") else host
        return f"http://{host}:{port}/"


def listen(host: str, port: int, token: str | None) -> Listening:
    """Opens a port; 0: any. Beyond loopback, reading requires the token. Raises RunError."""
    try:
        info = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM,
                                  flags=socket.AI_PASSIVE)[0]  # fmt: skip
        opened = socket.socket(info[0], socket.SOCK_STREAM)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(info[4])
        opened.listen(_BACKLOG)
    except OSError as error:
        raise RunError(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            "name another with --listen; --listen 0 takes any free port",
        ) from None
    return Listening(opened, host, token, required=not is_loopback(host))


def serve(site: Site, listening: Listening) -> None:
    """Answers until SIGINT or SIGTERM."""
    server(site, listening).run(sockets=[listening.socket])


def server(site: Site, listening: Listening) -> uvicorn.Server:
    """The server, not yet started."""
    names: set[str] = set()
    if listening.required:
        names = {listening.host, socket.gethostname(), socket.getfqdn()}
    guarded: Any = Guard(app(site), frozenset(names), listening.token, required=listening.required)
    config = uvicorn.Config(
        guarded,
        log_level="warning",
        access_log=False,
        lifespan="off",
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=_FAREWELL_S,
        ws="none",
    )
    return uvicorn.Server(config)
