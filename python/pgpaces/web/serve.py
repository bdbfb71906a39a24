"""Answers with pages until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from typing import Any

import uvicorn

from pgpaces.web import live
from pgpaces.web.app import Site, app
from pgpaces.web.guard import Guard
from pgpaces.web.listening import Listening

# Streams have no end of their own.
_FAREWELL_S = 1
# More are refused, with the status 503.
_CONNECTIONS_MAX = 500


def serve(site: Site, listening: Listening) -> None:
    threading.Thread(target=live.prepare, daemon=True).start()
    server(site, listening).run(sockets=[listening.socket])


def server(site: Site, listening: Listening) -> uvicorn.Server:
    names: set[str] = set()
    if listening.required:
        own = socket.gethostname()
        names = {listening.host, own, socket.getfqdn(), f"{own.partition('.')[0]}.local"}
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
        limit_concurrency=_CONNECTIONS_MAX,
    )
    logging.getLogger("uvicorn.error").addFilter(_is_news)
    return uvicorn.Server(config)


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a message says more than that the server, at its end, ended streams of readers."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, asyncio.CancelledError) and "graceful" not in str(record.msg)
