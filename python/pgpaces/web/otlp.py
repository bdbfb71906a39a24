"""Metrics and spans for a receiver of OTLP over HTTP, by the exporters of opentelemetry-sdk.

Headers, certificates and more are in its usual environment variables (OTEL_EXPORTER_OTLP_HEADERS).
"""

from __future__ import annotations

import logging
import queue
import re
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import pairwise
from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import export as sdk
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Status, StatusCode

from pgpaces.show import escape
from pgpaces.web.metrics import PREFIX, Distribution, Family, Point, Totals, trial_labels

_TIMEOUT_S = 5.0
_FAREWELL_S = 8.0
_CUMULATIVE = sdk.AggregationTemporality.CUMULATIVE
# The smallest time is not known; OTLP allows to leave it out.
_UNKNOWN: Any = None
_CODE = re.compile(r"code: (\d{3})")
_SIGNALS = ("/v1/metrics", "/v1/traces")


def metrics_data(families: Sequence[Family], now_ns: int, resource: Resource) -> sdk.MetricsData:
    """Families as OpenTelemetry has them."""
    scope = InstrumentationScope("pgpaces", version("pgpaces"))
    metrics = [_metric(family, now_ns) for family in families]
    scoped = sdk.ScopeMetrics(scope, metrics, "")
    return sdk.MetricsData([sdk.ResourceMetrics(resource, [scoped], "")])


def _metric(family: Family, now_ns: int) -> sdk.Metric:
    """A family; its name becomes that of Prometheus again where a receiver converts it."""
    short = family.name.removeprefix(PREFIX)
    name = f"pgpaces.{short.removesuffix('_seconds') if family.unit else short}"
    data: sdk.Sum | sdk.Gauge | sdk.Histogram
    if family.kind == "histogram":
        data = sdk.Histogram([_buckets(p, now_ns) for p in family.points], _CUMULATIVE)
    else:
        numbers = [_number(point, now_ns) for point in family.points]
        gauge = family.kind == "gauge"
        data = sdk.Gauge(numbers) if gauge else sdk.Sum(numbers, _CUMULATIVE, True)
    return sdk.Metric(name, family.help, family.unit or None, data)


def _number(point: Point, now_ns: int) -> sdk.NumberDataPoint:
    assert not isinstance(point.value, Distribution)
    return sdk.NumberDataPoint(dict(point.labels), point.started_ns, now_ns, point.value)


def _buckets(point: Point, now_ns: int) -> sdk.HistogramDataPoint:
    value = point.value
    assert isinstance(value, Distribution)
    cumulative = (0, *value.counts, value.count)
    return sdk.HistogramDataPoint(
        attributes=dict(point.labels),
        start_time_unix_nano=point.started_ns,
        time_unix_nano=now_ns,
        count=value.count,
        sum=value.sum_ns / 1e9,
        bucket_counts=[b - a for a, b in pairwise(cumulative)],
        explicit_bounds=[ns / 1e9 for ns in value.bounds_ns],
        min=_UNKNOWN,
        max=_UNKNOWN,
    )


def span(totals: Totals, provider: TracerProvider) -> ReadableSpan:
    """A trial from its start to its end. One that still runs was lost."""
    trial = totals.head
    labels = {f"pgpaces.{name}": text for name, text in trial_labels(totals).items()}
    labels["pgpaces.state"] = "lost" if trial.state == "running" else trial.state
    started = provider.get_tracer("pgpaces", version("pgpaces")).start_span(
        f"{escape.line(trial.workload.name)}, {escape.line(trial.plan.load_text)}",
        start_time=_ns(trial.started_at),
        attributes=labels,
    )
    if trial.state in ("failed", "running"):
        text = trial.error or ("pgpaces ended before it" if trial.state == "running" else "")
        started.set_status(Status(StatusCode.ERROR, escape.line(text)))
    started.end(_ns(trial.ended_at or datetime.now(UTC)))
    assert isinstance(started, ReadableSpan)
    return started


def _ns(moment: datetime) -> int:
    return round(moment.timestamp() * 1e9)


# What is to be sent: the newest metrics, and trials that ended.
_Batch = tuple[Sequence[Family], Sequence[Totals]]


class _Status(logging.Handler):
    """Keeps the status code of the last refusal, which exporters only log."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps the code, if there is one."""
        if match := _CODE.search(record.getMessage()):
            self.text = f" (status {match[1]})"


class Sender:
    """Sends to a receiver, in a thread. warn: is called once, when it does not take something."""

    def __init__(self, url: str, warn: Callable[[str], None]) -> None:
        base = url.rstrip("/")
        for signal in _SIGNALS:
            base = base.removesuffix(signal)
        self._base, self._warn = base, warn
        self._warned = False
        self._resource = Resource.create(
            {"service.name": "pgpaces", "service.version": version("pgpaces")}
        )
        self._provider = TracerProvider(sampler=ALWAYS_ON, resource=self._resource)
        self._metrics = OTLPMetricExporter(f"{base}{_SIGNALS[0]}", timeout=_TIMEOUT_S)
        self._spans = OTLPSpanExporter(f"{base}{_SIGNALS[1]}", timeout=_TIMEOUT_S)
        self._status = _Status()
        logger = logging.getLogger("opentelemetry")
        logger.addHandler(self._status)
        logger.propagate = False
        self._queue: queue.SimpleQueue[_Batch | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._send_all, daemon=True)
        self._thread.start()

    def put(self, families: tuple[Family, ...], ended: Sequence[Totals]) -> None:
        """Sends these soon; metrics that newer ones overtake are left out."""
        self._queue.put((families, tuple(ended)))

    def close(self) -> None:
        """Sends what is left, for a short time."""
        self._queue.put(None)
        self._thread.join(_FAREWELL_S)

    def _send_all(self) -> None:
        while (batch := self._queue.get()) is not None:
            families, ended = batch[0], [*batch[1]]
            while not self._queue.empty():
                newer = self._queue.get()
                if newer is None:
                    self._queue.put(None)
                    break
                families, more = newer
                ended += more
            self._send(families, ended)

    def _send(self, families: Sequence[Family], ended: Sequence[Totals]) -> None:
        accepted = True
        if families:
            data = metrics_data(families, time.time_ns(), self._resource)
            accepted = self._metrics.export(data) is sdk.MetricExportResult.SUCCESS
        if ended:
            spans = [span(each, self._provider) for each in ended]
            accepted &= self._spans.export(spans) is SpanExportResult.SUCCESS
        if not accepted and not self._warned:
            self._warned = True
            self._warn(f"{self._base} does not take metrics{self._status.text}; the load goes on")
