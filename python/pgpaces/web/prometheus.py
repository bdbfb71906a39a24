"""Metrics for Prometheus: a collector of prometheus-client, and the port that it is scraped at.

When the load has ended the port closes, so that the next load can have it. A connection that is
open, as Prometheus keeps it, gets the final numbers at its next scrape.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from pgpaces.core.locality import is_loopback
from pgpaces.web.guard import host_of
from pgpaces.web.listening import Listening
from pgpaces.web.metrics import Distribution, Family

PATH = "/metrics"
_CONNECTIONS_MAX = 32
# Prometheus scrapes once a minute by default.
_IDLE_S = 120
LAST_SCRAPE_S = 65.0
_CHECK_S = 0.1


def metric(family: Family) -> Metric:
    """A family as prometheus-client has it."""
    converted = Metric(family.name, family.help, family.kind)
    suffix = "_total" if family.kind == "counter" else ""
    for point in family.points:
        labels = dict(point.labels)
        if isinstance(point.value, Distribution):
            _add(converted, family.name, labels, value=point.value)
        else:
            converted.add_sample(f"{family.name}{suffix}", labels, point.value)
    return converted


def _add(converted: Metric, name: str, labels: dict[str, str], *, value: Distribution) -> None:
    for bound_ns, count in zip(value.bounds_ns, value.counts, strict=True):
        bound = str(bound_ns / 1e9)
        converted.add_sample(f"{name}_bucket", {**labels, "le": bound}, count)
    converted.add_sample(f"{name}_bucket", {**labels, "le": "+Inf"}, value.count)
    converted.add_sample(f"{name}_count", labels, value.count)
    converted.add_sample(f"{name}_sum", labels, value.sum_ns / 1e9)


class _Handler(BaseHTTPRequestHandler):
    """Answers GET /metrics, over connections that stay open."""

    server: Port
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_S

    def do_GET(self) -> None:
        """The metrics, or a hint to them."""
        host = host_of(self.headers.get("Host", ""))
        if self.server.local and not is_loopback(host):
            # A page of another site could reach loopback by a name of its own.
            self._answer(421, b"this server does not answer to that name; use its address\n")
        elif self.path.partition("?")[0] != PATH:
            self._answer(404, f"metrics are at {PATH}\n".encode())
        else:
            last = self.server.final
            encode, kind = choose_encoder(self.headers.get("Accept", ""))
            self._answer(200, encode(self.server.registry), kind, last=last)

    def _answer(
        self, status: int, body: bytes, kind: str = "text/plain; charset=utf-8", *,
        last: bool = False,
    ) -> None:  # fmt: skip
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        if last:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        """The name of the server."""
        return "pgpaces"

    def log_message(self, format: str, *args: object) -> None:
        """Prints nothing."""


class Port(ThreadingHTTPServer, Collector):
    """The open port, and the collector of what is read there.

    local: bound to loopback. final: the load has ended, and all is read.
    """

    daemon_threads = True

    def __init__(self, listening: Listening) -> None:
        address = listening.socket.getsockname()
        super().__init__(address[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening.socket
        self.url = f"{listening.url}{PATH[1:]}"
        self.local = is_loopback(listening.host)
        self._families: tuple[Family, ...] = ()
        self.registry = CollectorRegistry()
        self.registry.register(self)
        self.final = False
        self._open: set[socket.socket] = set()

    def start(self) -> None:
        """Answers, in threads."""
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def put(self, families: tuple[Family, ...]) -> None:
        """Shows these numbers from now on."""
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """The metrics as they are now."""
        return [metric(family) for family in self._families]

    def close(self) -> None:
        """Closes the port, and waits for the last scrape of each open connection."""
        self.shutdown()
        self.server_close()
        self.final = True
        until = time.monotonic() + LAST_SCRAPE_S
        while self._open and time.monotonic() < until:
            time.sleep(_CHECK_S)

    def verify_request(self, request: object, client_address: object) -> bool:
        """Whether there are not too many connections."""
        return len(self._open) < _CONNECTIONS_MAX

    def process_request_thread(self, request: object, client_address: object) -> None:
        """As the base class does it, with the number of connections."""
        assert isinstance(request, socket.socket)
        self._open.add(request)
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._open.discard(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Prints nothing: a reader that leaves is no error."""
