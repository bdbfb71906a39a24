"""Open ports, and what requests and responses must satisfy: Host header, method, headers, token.

A page of another site in the same browser could reach a server on loopback by a name that resolves
to it (DNS rebinding): only known names are answered. Responses allow no inline script and nothing
from elsewhere.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import parse_qs

from msgspec import Struct

from pgpaces.core.errors import RunError
from pgpaces.core.locality import is_loopback
from pgpaces.core.messages import message

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_BACKLOG = 128
# Linux drops a reader that takes nothing for this time. A browser comes back, and says what it has.
_BLOCKED_MS = 30_000
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self'"
        " data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


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


class Guard:
    """Answers only allowed requests, and adds the headers to responses.

    hosts: names that are answered besides addresses and those of loopback; empty: only loopback.
    token: permits to stop the load; required: also to read. scope["trusted"]: a request has it.
    """

    def __init__(
        self, app: App, hosts: frozenset[str], token: str | None, *, required: bool
    ) -> None:
        self._app, self._token, self._required = app, token, required
        self._hosts = frozenset(map(str.lower, hosts))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1")
                   for name, value in scope["headers"]}  # fmt: skip
        cookie = cookie_name(headers.get("host", ""))
        values = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])
        linked = self._token is not None and same(values[0], self._token)
        scope["trusted"] = linked or (
            self._token is not None
            and same(token_of(headers.get("cookie", ""), cookie), self._token)
        )
        sending = _with_headers(send)
        if (refused := self._refused(scope, headers)) is not None:
            await _plain(sending, *refused)
        elif linked and scope["method"] == "GET":
            # The address in the browser's history has no token. Lax: browsers send a strict cookie
            # to no address that a link of another site led to, such as one in a chat.
            value = f"{cookie}={self._token}; HttpOnly; SameSite=Lax; Path=/"
            await _plain(sending, 303, "", more={"location": scope["path"], "set-cookie": value})
        else:
            await self._app(scope, receive, sending)

    def _refused(self, scope: Scope, headers: Mapping[str, str]) -> tuple[int, str] | None:
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return 405, message("http-method-unknown")
        host = headers.get("host", "")
        if not self._knows(host_of(host)):
            return 421, message("http-host-unknown")
        origin = headers.get("origin")
        if scope["method"] == "POST" and origin is not None and origin.partition("://")[2] != host:
            return 403, message("http-other-site")
        if self._required and not scope["trusted"]:
            return 401, message("http-token-missing")
        return None

    def _knows(self, host: str) -> bool:
        if is_loopback(host) or host.lower() in self._hosts:
            return True
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return False
        return bool(self._hosts)


def same(one: str, other: str) -> bool:
    """Whether tokens are equal, in a time that does not depend on where they differ."""
    return hmac.compare_digest(one.encode(), other.encode())


def cookie_name(host: str) -> str:
    """The name of the cookie with the token. Browsers send cookies to every port of a host."""
    port = host.rpartition(":")[2]
    return f"pgpaces-{port if port.isdigit() else 80}"


def token_of(cookie: str, name: str) -> str:
    """The token in a Cookie header; empty without one.

    Other servers of the host have cookies of any form in it, at which http.cookies gives up.
    """
    pairs = (pair.strip().partition("=") for pair in cookie.split(";"))
    return next((value for of, _, value in pairs if of == name), "")


def _with_headers(send: Send) -> Send:
    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            own = {name for name, _ in message.get("headers", ())}
            added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            message["headers"] = [
                *message.get("headers", ()),
                *((name, value) for name, value in added if name not in own),
            ]
        await send(message)

    return sending


async def _plain(
    send: Send, status: int, text: str, *, more: Mapping[str, str] | None = None
) -> None:
    headers = {"content-type": "text/plain; charset=utf-8", **(more or {})}
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": text.encode()})
