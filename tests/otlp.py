"""A receiver of OpenTelemetry's metrics."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest


class Receiver:
    """A receiver of OTLP over HTTP. status: what it answers."""

    def __init__(self, status: int = 200) -> None:
        self.metrics: list[Any] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.path == "/v1/metrics"
                outer.metrics.append(ExportMetricsServiceRequest.FromString(body))
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def points(self, name: str) -> list[tuple[dict[str, str], Any]]:
        """The points of a metric in the last request that has it, with their attributes."""
        for request in reversed(self.metrics):
            for metric in request.resource_metrics[0].scope_metrics[0].metrics:
                if metric.name == name:
                    data = getattr(metric, metric.WhichOneof("data"))
                    return [
                        ({a.key: a.value.string_value for a in p.attributes}, p)
                        for p in data.data_points
                    ]
        return []
