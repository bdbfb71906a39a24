"""What every request and response must satisfy: the Host header, methods, headers, the token.

A page of another site in the same browser could reach a server on loopback by a name that resolves
to it (DNS rebinding): only known names are answered. Responses allow no inline script and nothing
from elsewhere.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pgpaces.core.locality import is_loopback
from pgpaces.core.messages import message
from pgpaces.web.listening import host_of

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


class Guard:
    """Answers only allowed requests, and adds the headers to responses.

    hosts: names that are answered besides addresses and those of loopback; empty: only loopback.
    token: permits to stop the load; required: also to read. scope["trusted"]: a request has it.
    """

    def __init__(
        self, app: ASGIApp, hosts: frozenset[str], token: str | None, *, required: bool
    ) -> None:
        self._app, self._token, self._required = app, token, required
        self._hosts = frozenset(map(str.lower, hosts))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, query = Headers(scope=scope), QueryParams(scope["query_string"])
        # Browsers send cookies to every port of a host. Other servers of the host have cookies of
        # any form, at which http.cookies gives up.
        port = headers.get("host", "").rpartition(":")[2]
        cookie = f"pgpaces-{port if port.isdigit() else 80}"
        kept = cookie_parser(headers.get("cookie", "")).get(cookie, "")
        linked = self._has_token(query.get("token", ""))
        scope["trusted"] = linked or self._has_token(kept)

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message.setdefault("headers", [])
                own = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    own.setdefault(name, value)
            await send(message)

        if (refused := self._refused(scope, headers)) is not None:
            status, text = refused
            await PlainTextResponse(text, status)(scope, receive, sending)
        elif linked and scope["method"] == "GET":
            # The address in the browser's history has no token. Lax: browsers send a strict cookie
            # to no address that a link of another site led to, such as one in a chat.
            value = f"{cookie}={self._token}; HttpOnly; SameSite=Lax; Path=/"
            more = {"location": quote(scope["path"]), "set-cookie": value}
            await PlainTextResponse("", 303, more)(scope, receive, sending)
        else:
            await self._app(scope, receive, sending)

    def _has_token(self, text: str) -> bool:
        # The time that this takes does not depend on where the texts differ.
        token = self._token
        return token is not None and hmac.compare_digest(text.encode(), token.encode())

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
