"""Exporters of metrics: a port that Prometheus scrapes, and a sender to a receiver of OTLP.

Each imports its libraries when it is made. The port closes when the load ends, because the next
load may need it. Prometheus keeps its connection open; an open connection gets the final numbers at
its next scrape. OTLP's exporters read headers and certificates from their environment variables,
for example OTEL_EXPORTER_OTLP_HEADERS.
"""

from __future__ import annotations

import logging
import re
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.sdk.metrics.export import MetricsData, PeriodicExportingMetricReader

from pgpaces.core.locality import is_loopback
from pgpaces.core.messages import message
from pgpaces.web.listening import Listening, host_of
from pgpaces.web.metrics import attach

PATH = "/metrics"
_CONNECTIONS_MAX = 32
# Prometheus scrapes once a minute by default.
_IDLE_S, _LAST_SCRAPE_S = 120, 65.0
_EVERY_MS, _TIMEOUT_S, _FAREWELL_MS = 1000, 5.0, 8000
_CODE = re.compile(r"code: (\d{3})")


class _Handler(BaseHTTPRequestHandler):
    server: Port
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "pgpaces", ""
    timeout = _IDLE_S

    def do_GET(self) -> None:
        status, kind = 200, "text/plain; charset=utf-8"
        if self.server.local and not is_loopback(host_of(self.headers.get("Host", ""))):
            # A page of another site could reach loopback by a name of its own.
            status, body = 421, message("http-host-unknown").encode()
        elif self.path.partition("?")[0] != PATH:
            status, body = 404, message("http-metrics-elsewhere", path=PATH).encode()
        else:
            encode, kind = self.server.encoder(self.headers.get("Accept", ""))
            with self.server.encoding:
                body = encode(self.server.registry)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        if self.server.final:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Port(ThreadingHTTPServer):
    """The open port. data: the newest metrics.

    local: bound to loopback. final: the load has ended, and all is read.
    """

    daemon_threads = True

    def __init__(self, listening: Listening) -> None:
        from opentelemetry.exporter.prometheus import PrometheusMetricReader
        from prometheus_client import CollectorRegistry
        from prometheus_client.exposition import choose_encoder

        address = listening.socket.getsockname()
        super().__init__(address[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening.socket
        self.url = f"{listening.url}{PATH[1:]}"
        self.local = is_loopback(listening.host)
        self.final = False
        self.data: MetricsData | None = None
        self.encoder, self.registry = choose_encoder, CollectorRegistry()
        # The reader has one queue: of two scrapes at the same time, one could get both answers.
        self.encoding = threading.Lock()
        reader = PrometheusMetricReader(True, scope_info_enabled=False, registry=self.registry)
        attach(reader, lambda: self.data)
        self._open: set[socket.socket] = set()

    def start(self) -> None:
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def put(self, data: MetricsData) -> None:
        self.data = data

    def close(self) -> None:
        """Closes the port, and waits for the last scrape of each open connection."""
        self.shutdown()
        self.server_close()
        self.final = True
        until = time.monotonic() + _LAST_SCRAPE_S
        while self._open and time.monotonic() < until:
            time.sleep(0.1)

    def verify_request(self, request: object, client_address: object) -> bool:
        return len(self._open) < _CONNECTIONS_MAX

    def process_request_thread(self, request: object, client_address: object) -> None:
        assert isinstance(request, socket.socket)
        self._open.add(request)
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._open.discard(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Prints nothing: a reader that leaves is no error."""


class _Refusal(logging.Handler):
    """Warns once if an exporter logs an error. Exporters report the HTTP status in the log only."""

    def __init__(self, warn: Callable[[str], None], base: str) -> None:
        super().__init__(logging.ERROR)
        self._warn, self._base, self._warned = warn, base, False

    def emit(self, record: logging.LogRecord) -> None:
        if not self._warned:
            self._warned = True
            code = _CODE.search(record.getMessage())
            status = code and code[1]
            self._warn(message("receiver-refuses", receiver=self._base, status=status))


class Sender:
    """Sends to a receiver, in threads. warn: is called once if the receiver refuses something."""

    url = ""

    def __init__(self, url: str, warn: Callable[[str], None]) -> None:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        base = re.sub(r"/*(/v1/metrics)?/*$", "", url)
        self._newest: deque[MetricsData] = deque(maxlen=1)
        self._metrics = OTLPMetricExporter(f"{base}/v1/metrics", timeout=_TIMEOUT_S)
        logging.getLogger("opentelemetry").addHandler(_Refusal(warn, base))

    def start(self) -> None:
        self._reader = PeriodicExportingMetricReader(self._metrics, _EVERY_MS)
        attach(self._reader, lambda: self._newest.pop() if self._newest else None)

    def put(self, data: MetricsData) -> None:
        """Sends these soon. Newer metrics replace metrics that were not sent yet."""
        self._newest.append(data)

    def close(self) -> None:
        self._reader.shutdown(_FAREWELL_MS)
