"""The metrics of trials: what their seconds add up to, as values for monitoring systems. Pure.

Names follow the conventions of Prometheus: base units, and `_total` added to counters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct, field

from pgpaces.analysis.accumulator import own_scripts
from pgpaces.analysis.goal import limits_ns
from pgpaces.core.record import Interval, Tally
from pgpaces.core.times import Times, counts_at_most, merge
from pgpaces.show import escape
from pgpaces.spec.result import CLASSES, Trial, counts

Kind = Literal["counter", "gauge", "histogram"]
Labels = Mapping[str, str]
PREFIX = "pgpaces_"
# Bounds of buckets: 0.1 ms to 100 s in steps of 1, 2, 5; the latency limits are added.
LADDER_NS = (*(digit * 10**power for power in range(5, 11) for digit in (1, 2, 5)), 10**11)
_PHASES = ("warmup", "measured")


class Distribution(Struct, frozen=True):
    """Times by buckets. counts: of the times up to each bound; cumulative."""

    bounds_ns: tuple[int, ...]
    counts: tuple[int, ...]
    count: int
    sum_ns: int


class Point(Struct, frozen=True):
    """A value with its labels. started_ns: since when it counts, in Unix time."""

    labels: Labels
    value: float | Distribution
    started_ns: int


class Family(Struct, frozen=True):
    """All points of one name, which has its unit ("s" or none) and no `_total`."""

    name: str
    kind: Kind
    help: str
    unit: str = ""
    points: tuple[Point, ...] = ()


# Every metric that is exported, in order.
FAMILIES: Mapping[str, Family] = {family.name.removeprefix(PREFIX): family for family in (
    Family("pgpaces_trial_info", "gauge", "1 while a trial runs; its plan as labels."),
    Family("pgpaces_transactions_due", "counter", "Transactions that fell due."),
    Family("pgpaces_transactions", "counter",
           "Transactions by outcome: on_time, late, skipped, failed, unfinished."),
    Family("pgpaces_retries", "counter", "Tries of transactions after their first."),
    Family("pgpaces_errors", "counter", "Failed transactions by SQLSTATE."),
    Family("pgpaces_latency_seconds", "histogram",
           "Time from due to end of transactions that succeeded.", "s"),
    Family("pgpaces_lag_seconds", "histogram",
           "Time from due to start of transactions, with the wait for a client.", "s"),
    Family("pgpaces_dispatch_lag_seconds", "histogram",
           "The same where a client was idle: the lag of the generator alone.", "s"),
    Family("pgpaces_latency_limit_seconds", "gauge",
           "Latency above which a transaction is late.", "s"),
    Family("pgpaces_in_flight", "gauge", "Transactions in progress, mean of the last second."),
    Family("pgpaces_backlog", "gauge",
           "Transactions due and not ended, mean of the last second; 0 in a closed load."),
    Family("pgpaces_generator_cpu_seconds", "counter",
           "CPU time of the load generator by thread.", "s"),
)}  # fmt: skip


class _Histogram(Struct):
    """A distribution that grows."""

    bounds_ns: tuple[int, ...]
    counts: list[int] = field(default_factory=list)
    count: int = 0
    sum_ns: int = 0

    def add(self, parts: Sequence[Times]) -> None:
        """Adds times of a second, merged first: decoding takes longer than merging."""
        times = merge(parts) if len(parts) > 1 else parts[0]
        counts = counts_at_most((times,), self.bounds_ns)
        before = self.counts or [0] * len(counts)
        self.counts = [a + b for a, b in zip(before, counts, strict=True)]
        self.count += times.count
        self.sum_ns += times.sum_ns

    def value(self, exact: tuple[int, int] | None = None) -> Distribution:
        """Its state. exact: the number of times up to one of the bounds, which replaces the one to
        3 significant digits.
        """
        counts = list(self.counts or [0] * len(self.bounds_ns))
        if exact is not None:
            place = self.bounds_ns.index(exact[0])
            counts[place] = exact[1]
            counts[:place] = [min(count, exact[1]) for count in counts[:place]]
            counts[place:] = [max(count, exact[1]) for count in counts[place:]]
        return Distribution(self.bounds_ns, tuple(counts), self.count, self.sum_ns)


class _Script(Struct):
    """What the seconds of one phase of a script add up to. failed: by SQLSTATE."""

    latency: _Histogram
    lag: _Histogram
    due: int = 0
    retries: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)

    def add(self, tallies: Sequence[Tally]) -> None:
        """Adds the tallies of a second."""
        sums = counts(tallies)
        self.due += sums.due
        self.outcomes.update({outcome: getattr(sums, outcome) for outcome in CLASSES})
        for tally in tallies:
            self.retries += tally.retries
            self.failed.update(tally.failed)
        for histogram, name in ((self.latency, "latency"), (self.lag, "lag")):
            if parts := [times for each in tallies if (times := getattr(each, name)).count]:
                histogram.add(parts)


class Totals:
    """A trial so far. experiment: the name of its experiment; "" for a run."""

    def __init__(self, head: Trial, experiment: str = "") -> None:
        self.head = head
        self.started_ns = round(head.started_at.timestamp() * 1e9)
        self._latest: Interval | None = None
        self._by: dict[tuple[int, str], _Script] = {}
        self._cpu_ns: Counter[int] = Counter()
        self._dispatch = _Histogram(LADDER_NS)
        place = head.place
        self.labels = _present({
            "workload": head.workload.name,
            "run": head.id,
            "experiment": experiment,
            "cell": place.cell if place else "",
        })  # fmt: skip
        self._limits = {n: ns for n, ns in enumerate(limits_ns(head)) if ns}
        self._scripts = [self._named(number) for number in range(len(head.workload.scripts))]

    def _named(self, number: int) -> Labels:
        """The labels of a script, with those of its background workload if it has one."""
        script = self.head.workload.scripts[number]
        labels = {"script": script.name}
        place = number - len(own_scripts(self.head))
        background = [c for c in self.head.plan.components if c.of for _ in c.scripts]
        if 0 <= place < len(background):
            labels |= {"background": background[place].of, "workload": background[place].workload}
        return {**self.labels, **_present(labels)}

    def add(self, interval: Interval) -> None:
        """Adds a second."""
        by: dict[tuple[int, str], list[Tally]] = {}
        for tally in interval.tallies:
            key = tally.script, _PHASES[tally.due_second >= 0]
            by.setdefault(key, []).append(tally)
        for key, tallies in by.items():
            if key not in self._by:
                limit = self._limits.get(key[0])
                bounds = {*LADDER_NS, *([limit] if limit else [])}
                self._by[key] = _Script(_Histogram(tuple(sorted(bounds))), _Histogram(LADDER_NS))
            self._by[key].add(tallies)
        self._cpu_ns.update(dict(enumerate(interval.cpu_ns)))
        if interval.dispatch.count:
            self._dispatch.add((interval.dispatch,))
        self._latest = interval

    def points(self) -> Iterator[tuple[str, Labels, float | Distribution]]:
        """Name, labels and value of each number. Gauges only while it runs."""
        for (number, phase), script in sorted(self._by.items()):
            labels = {**self._scripts[number], "phase": phase}
            yield "transactions_due", labels, script.due
            for outcome in CLASSES:
                yield "transactions", {**labels, "outcome": outcome}, script.outcomes[outcome]
            yield "retries", labels, script.retries
            for state, count in sorted(script.failed.items()):
                yield "errors", {**labels, "sqlstate": escape.line(state)}, count
            yield "latency_seconds", labels, script.latency.value(self._exact(number, script))
            yield "lag_seconds", labels, script.lag.value()
        yield "dispatch_lag_seconds", self.labels, self._dispatch.value()
        for thread, ns in sorted(self._cpu_ns.items()):
            yield "generator_cpu_seconds", {**self.labels, "thread": str(thread)}, ns / 1e9
        if self.head.state != "running":
            return
        yield "trial_info", trial_labels(self), 1
        for number, limit_ns in self._limits.items():
            yield "latency_limit_seconds", self._scripts[number], limit_ns / 1e9
        if self._latest is not None:
            yield "in_flight", self.labels, self._latest.in_flight_ns / 1e9
            yield "backlog", self.labels, max(0, self._latest.pending_ns) / 1e9

    def _exact(self, number: int, script: _Script) -> tuple[int, int] | None:
        """The limit of a script and the exact number of its times up to it."""
        limit, on_time = self._limits.get(number), script.outcomes["on_time"]
        complete = on_time + script.outcomes["late"] == script.latency.count
        return (limit, on_time) if limit and complete else None


def families(trials: Iterable[Totals]) -> tuple[Family, ...]:
    """The metrics of trials; those without a point are left out."""
    points: dict[str, list[Point]] = {name: [] for name in FAMILIES}
    for trial in trials:
        for name, labels, value in trial.points():
            points[name].append(Point(labels, value, trial.started_ns))
    return tuple(
        Family(each.name, each.kind, each.help, each.unit, tuple(points[name]))
        for name, each in FAMILIES.items()
        if points[name]
    )


def trial_labels(totals: Totals) -> Labels:
    """The labels of a trial, with its plan."""
    head = totals.head
    plan, place = head.plan, head.place
    return totals.labels | _present({
        "load": plan.load_text,
        "model": plan.model,
        "clients": str(plan.own_clients),
        "policy": plan.policy,
        "server_version": head.server.version,
        "version": head.version,
        "experiment_id": place.experiment if place else "",
        "block": str(place.block) if place else "",
    })  # fmt: skip


def _present(labels: Labels) -> dict[str, str]:
    """Labels that have a value; texts of others are escaped."""
    return {name: escape.line(text) for name, text in labels.items() if text}
