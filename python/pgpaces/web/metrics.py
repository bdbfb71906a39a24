"""The metrics of trials in OpenTelemetry's data model: the sums over the seconds of each trial.

Both exporters get the same data points. We make the points ourselves because our seconds are sums
already: a histogram of the SDK takes one time per call and has one list of buckets for all scripts.
The SDK also keeps every combination of labels to the end, and at most 2000 of them.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib.metadata import version
from itertools import pairwise
from typing import Any

from msgspec import Struct
from opentelemetry.sdk.metrics import export as sdk
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from pgpaces.analysis.goal import limits_ns
from pgpaces.core.errors import PgpacesError, StoreError
from pgpaces.core.metrics import metric
from pgpaces.core.record import Interval, Tally, total
from pgpaces.core.times import Times, counts_at_most
from pgpaces.show import escape
from pgpaces.spec.result import CLASSES, Trial, counts
from pgpaces.store.store import Store
from pgpaces.web.live import ProcessLoad, news

Labels = dict[str, str]
# Upper bounds of buckets: 0.1 ms to 100 s in steps of 1, 2, 5; the latency limits are added.
LADDER_NS = (*(digit * 10**power for power in range(5, 11) for digit in (1, 2, 5)), 10**11)
VERSION = version("pgpaces")
RESOURCE = Resource.create({"service.name": "pgpaces", "service.version": VERSION})
_SCOPE = InstrumentationScope("pgpaces", VERSION)
_CUMULATIVE = sdk.AggregationTemporality.CUMULATIVE
_COUNTER = partial(sdk.Sum, aggregation_temporality=_CUMULATIVE, is_monotonic=True)
_HISTOGRAM = partial(sdk.Histogram, aggregation_temporality=_CUMULATIVE)
# The metrics of the catalog that are exported, with their kinds. Names begin with "pgpaces.".
# Prometheus adds the unit to the name, and `_total` to that of a counter.
INSTRUMENTS: dict[str, Callable[[list[Any]], Any]] = {
    "trial_info": sdk.Gauge,
    "due": _COUNTER,
    "transactions": _COUNTER,
    "retries": _COUNTER,
    "errors": _COUNTER,
    "latency": _HISTOGRAM,
    "lag": _HISTOGRAM,
    "dispatch_lag": _HISTOGRAM,
    "latency_limit": sdk.Gauge,
    "in_flight": sdk.Gauge,
    "backlog": sdk.Gauge,
    "generator_cpu": _COUNTER,
}
# The counters of an ended trial stay until every monitoring system has the last values.
_KEPT_S = 65.0
# The unit of times is the second, as is usual for both exporters.
_UNITS = {"ms": "s"}


class Distribution:
    """The sum of many times. at_most: how many are at most each bound, to 3 significant digits.

    limit_ns: one more bound, with an exact number if `add` gets it; 0: none.
    """

    def __init__(self, limit_ns: int = 0) -> None:
        self._limit_ns = limit_ns
        self.bounds_ns = sorted({*LADDER_NS, limit_ns} - {0})
        self.at_most = [0] * len(self.bounds_ns)
        self.count = self.sum_ns = 0

    def add(self, times: Times, on_time: int | None = None) -> None:
        """Adds times of a second. on_time: how many are at most the limit."""
        if not times.count:
            return
        more = counts_at_most((times,), self.bounds_ns)
        if self._limit_ns and on_time is not None:
            place = self.bounds_ns.index(self._limit_ns)
            below, above = more[:place], more[place + 1 :]
            more = [*(min(n, on_time) for n in below), on_time, *(max(n, on_time) for n in above)]
        self.at_most = [a + b for a, b in zip(self.at_most, more, strict=True)]
        self.count += times.count
        self.sum_ns += times.sum_ns

    def point(self, labels: Labels, started_ns: int, now_ns: int) -> sdk.HistogramDataPoint:
        """The data point of OpenTelemetry, without the shortest and the longest time."""
        unknown: Any = None
        return sdk.HistogramDataPoint(
            *(labels, started_ns, now_ns, self.count, self.sum_ns / 1e9),
            bucket_counts=[b - a for a, b in pairwise((0, *self.at_most, self.count))],
            explicit_bounds=[ns / 1e9 for ns in self.bounds_ns],
            min=unknown,
            max=unknown,
        )


class Totals:
    """A trial so far. experiment: the name of its experiment; "" for a run."""

    def __init__(self, head: Trial, experiment: str = "") -> None:
        self.head = head
        self.started_ns = round(head.started_at.timestamp() * 1e9)
        self.labels = _present(
            workload=head.workload.name,
            run=head.id,
            experiment=experiment,
            cell=head.place.cell if head.place else "",
        )
        self._scripts = [self.labels | _present(script=each.name) for each in head.workload.scripts]
        # Those of background workloads are last.
        background = [each for each in head.setup.components if each.of for _ in each.scripts]
        for labels, of in zip(reversed(self._scripts), reversed(background), strict=False):
            labels.update(_present(background=of.of, workload=head.setup.background[of.of].name))
        self._limits = limits_ns(head)
        self._latest: Interval | None = None
        self._cpu_ns: Counter[int] = Counter()
        self._dispatch = Distribution()
        # By script and phase: sums by metric, label and its value; times by metric.
        self._sums: dict[tuple[int, str], Counter[tuple[str, str, str]]] = {}
        self._times: dict[tuple[int, str, str], Distribution] = {}

    def add(self, interval: Interval) -> None:
        by: dict[tuple[int, str], list[Tally]] = {}
        for tally in interval.tallies:
            phase = "measured" if tally.due_second >= 0 else "warmup"
            by.setdefault((tally.script, phase), []).append(tally)
        for key, tallies in by.items():
            sums, whole = self._sums.setdefault(key, Counter()), total(tallies)
            second = counts((whole,))
            sums["due", "", ""] += second.due
            for outcome in CLASSES:
                sums["transactions", "outcome", outcome] += getattr(second, outcome)
            sums["retries", "", ""] += whole.retries
            for state, count in whole.failed.items():
                sums["errors", "sqlstate", escape.line(state)] += count
            latency = self._times.setdefault((*key, "latency"), Distribution(self._limits[key[0]]))
            complete = second.on_time + second.late == whole.latency.count
            latency.add(whole.latency, second.on_time if complete else None)
            lag = self._times.setdefault((*key, "lag"), Distribution())
            lag.add(whole.lag)
        self._cpu_ns.update(dict(enumerate(interval.cpu_ns)))
        self._dispatch.add(interval.dispatch)
        self._latest = interval

    def points(self) -> Iterator[tuple[str, Labels, float | Distribution]]:
        """Name, labels and value of each number. Gauges only while it runs."""
        for (number, phase), sums in sorted(self._sums.items()):
            labels = {**self._scripts[number], "phase": phase}
            for (name, label, text), count in sums.items():
                yield name, {**labels, label: text} if label else labels, count
        for (number, phase, name), times in sorted(self._times.items()):
            yield name, {**self._scripts[number], "phase": phase}, times
        yield "dispatch_lag", self.labels, self._dispatch
        for thread, ns in sorted(self._cpu_ns.items()):
            yield "generator_cpu", {**self.labels, "thread": str(thread)}, ns / 1e9
        if self.head.state != "running":
            return
        yield "trial_info", self._plan_labels(), 1
        for labels, limit_ns in zip(self._scripts, self._limits, strict=False):
            if limit_ns:
                yield "latency_limit", labels, limit_ns / 1e9
        if self._latest is not None:
            yield "in_flight", self.labels, self._latest.in_flight_ns / 1e9
            yield "backlog", self.labels, max(0, self._latest.pending_ns) / 1e9

    def _plan_labels(self) -> Labels:
        plan, place = self.head.plan, self.head.place
        return self.labels | _present(
            load=self.head.load_text,
            model=plan.load.model,
            clients=str(self.head.setup.own_clients),
            policy=plan.policy,
            server_version=self.head.server.version,
            version=self.head.version,
            experiment_id=place.experiment if place else "",
            block=str(place.block) if place else "",
        )


def _present(**labels: str) -> Labels:
    """Labels that have a value; texts of others are escaped."""
    return {name: escape.line(text) for name, text in labels.items() if text}


def metrics_data(trials: Iterable[Totals]) -> sdk.MetricsData:
    """The metrics of trials; those without a point are left out."""
    now_ns = time.time_ns()
    points: dict[str, list[Any]] = {name: [] for name in INSTRUMENTS}
    for trial in trials:
        for name, labels, value in trial.points():
            since = (labels, trial.started_ns, now_ns)
            points[name].append(
                value.point(*since)
                if isinstance(value, Distribution)
                else sdk.NumberDataPoint(*since, value)
            )
    metrics = [
        sdk.Metric(f"pgpaces.{name}", of.about, _UNITS.get(of.unit, of.unit), kind(points[name]))
        for name, kind in INSTRUMENTS.items()
        for of in (metric(name),)
        if points[name]
    ]
    scoped = [sdk.ScopeMetrics(_SCOPE, metrics, "")]
    return sdk.MetricsData([sdk.ResourceMetrics(RESOURCE, scoped, "")])


class _Read(Struct):
    totals: Totals
    latest: Interval | None = None
    ended_s: float = 0.0


class Feed:
    """Trials of one load. place: of the store."""

    def __init__(self, place: str | None, load: ProcessLoad) -> None:
        self._place, self._load = place, load
        self._store: Store | None = None
        self._reads: dict[str, _Read] = {}

    def read(self) -> bool:
        """Reads what is new, if the store can be read; whether a second or an end is new."""
        changed = False
        with contextlib.suppress(PgpacesError):
            if self._store is None:
                self._store = Store.existing(self._place)
            store = self._store
            for head in self._load.trials(store, self._reads):
                name = ""
                if head.place is not None:
                    with contextlib.suppress(PgpacesError):
                        name = store.experiment(head.place.experiment).name
                self._reads[head.id] = _Read(Totals(head, name))
            for trial_id, read in self._reads.items():
                if read.ended_s:
                    continue
                head, intervals = news(store, trial_id, read.latest)
                for interval in intervals:
                    read.totals.add(interval)
                    read.latest = interval
                read.totals.head = head
                if head.state != "running":
                    read.ended_s = time.monotonic()
                changed = changed or bool(intervals) or head.state != "running"
        return changed

    def metrics(self) -> sdk.MetricsData:
        """The metrics of the trials that run, and of those that ended a short time ago."""
        oldest = time.monotonic() - _KEPT_S
        return metrics_data(
            r.totals for r in self._reads.values() if not r.ended_s or r.ended_s > oldest
        )

    def close(self) -> None:
        if self._store is not None:
            with contextlib.suppress(StoreError):
                self._store.close()


def attach(reader: sdk.MetricReader, newest: Callable[[], sdk.MetricsData | None]) -> None:
    """Makes a reader collect the newest metrics.

    A MeterProvider calls the same method. The SDK for Python has no MetricProducer, which other
    SDKs have for this purpose (opentelemetry-python, issue 4768).
    """
    callback: Any = lambda *_, **__: newest()  # noqa: E731
    reader._set_collect_callback(callback)
