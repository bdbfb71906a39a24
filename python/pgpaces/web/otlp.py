"""Sends metrics and spans to a receiver of OTLP over HTTP.

The exporters read headers and certificates from their environment variables, for example
OTEL_EXPORTER_OTLP_HEADERS.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricsData, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Status, StatusCode

from pgpaces.core.messages import message
from pgpaces.show import escape
from pgpaces.web.metrics import RESOURCE, VERSION, Totals, attach

_EVERY_MS, _TIMEOUT_S, _FAREWELL_MS = 1000, 5.0, 8000
_CODE = re.compile(r"code: (\d{3})")


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

    def __init__(self, url: str, warn: Callable[[str], None]) -> None:
        self._base = re.sub(r"/*(/v1/(metrics|traces))?/*$", "", url)
        self._newest: deque[MetricsData] = deque(maxlen=1)
        self._provider = TracerProvider(sampler=ALWAYS_ON, resource=RESOURCE)
        logging.getLogger("opentelemetry").addHandler(_Refusal(warn, self._base))

    def start(self) -> None:
        exporter = OTLPMetricExporter(f"{self._base}/v1/metrics", timeout=_TIMEOUT_S)
        self._reader = PeriodicExportingMetricReader(exporter, _EVERY_MS)
        attach(self._reader, lambda: self._newest.pop() if self._newest else None)
        spans = OTLPSpanExporter(f"{self._base}/v1/traces", timeout=_TIMEOUT_S)
        self._provider.add_span_processor(BatchSpanProcessor(spans))

    def put(self, data: MetricsData, ended: Sequence[Totals]) -> None:
        """Sends these soon. Newer metrics replace metrics that were not sent yet."""
        self._newest.append(data)
        for totals in ended:
            trial = totals.head
            # pgpaces died if the trial still runs.
            state = "lost" if trial.state == "running" else trial.state
            labels = {f"pgpaces.{name}": text for name, text in totals.plan_labels().items()}
            span = self._provider.get_tracer("pgpaces", VERSION).start_span(
                f"{escape.line(trial.workload.name)}, {escape.line(trial.load_text)}",
                start_time=totals.started_ns,
                attributes={**labels, "pgpaces.state": state},
            )
            if state in ("failed", "lost"):
                text = trial.error or (message("pgpaces-ended") if state == "lost" else "")
                span.set_status(Status(StatusCode.ERROR, escape.line(text)))
            span.end(round((trial.ended_at or datetime.now(UTC)).timestamp() * 1e9))

    def close(self) -> None:
        self._reader.shutdown(_FAREWELL_MS)
        self._provider.shutdown()
