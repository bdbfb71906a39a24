"""What one trial says: counts, the share that missed, quantiles, per script and statement."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pgpaces.answers.stats import dispersion, proportion, quantile_rank
from pgpaces.errors import StoreError
from pgpaces.result import (
    Counts,
    Estimate,
    Interval,
    Tally,
    Times,
    Trial,
    counts,
    merge,
    value_at_rank,
)

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
_WINDOW_S = 10
_DISPATCH_FLOOR_NS = 1_000_000
_CPU_LIMIT = 0.9
_LITTLE = 0.02


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution in milliseconds. A quantile or maximum of None lies above every value:

    it falls among what was skipped, failed or unfinished (or nothing was due).
    """

    count: int
    mean: float | None
    stddev: float | None
    p50: float | None
    p95: float | None
    p99: float | None
    p999: float | None
    max: float | None

    def quantile(self, name: str) -> float | None:
        """The value called p50, p95, p99, p99.9, max or mean."""
        found: float | None = getattr(self, name.replace("p99.9", "p999"))
        return found


@dataclass(frozen=True, slots=True)
class ScriptSummary:
    """One script of a trial."""

    name: str
    weight: int
    counts: Counts
    latency: Spread


@dataclass(frozen=True, slots=True)
class StatementSummary:
    """One SQL command of a script: its times, in milliseconds, failures and retries."""

    script: str
    line: int
    text: str
    failed: int
    retries: int
    times: Spread


@dataclass(frozen=True, slots=True)
class Generator:
    """What the generator says of itself.

    cpu: share of the busiest thread over the trial, 0 to 1. dispatch_p99: lag of transactions
    whose client was idle when they were due, ms. little: in flight x time over the sum of service
    times; 1 is exact. limited: the generator was late itself (p99 above max(1 ms, 1 % of the
    limit)), or it had no CPU left (over 0.9).
    """

    cpu: float
    dispatch_p99: float | None
    little: float | None
    limited: bool

    @property
    def adds_up(self) -> bool:
        """Whether Little's law holds within 2 %; true where it cannot be told."""
        return self.little is None or abs(self.little - 1) <= _LITTLE


@dataclass(frozen=True, slots=True)
class Summary:
    """The answer of one trial.

    retried: transactions that were tried more than once. retries: their tries behind the first.
    """

    counts: Counts
    missed: Estimate | None
    phi: float
    retried: int
    retries: int
    failures: dict[str, int]
    messages: dict[str, str]
    seconds: float
    rate: float
    latency: Spread
    lag: Spread
    service: Spread
    scripts: tuple[ScriptSummary, ...]
    statements: tuple[StatementSummary, ...]
    generator: Generator
    connects: int
    disconnects: int


def spread(times: Times, due: int) -> Spread:
    """Quantiles that rank over all `due`, with what did not succeed above every value."""

    def at(q: float) -> float | None:
        rank = quantile_rank(q, due)
        value = value_at_rank(times, rank) if due and rank <= times.count else None
        return None if value is None else value / 1e6

    ranked = {name.replace(".", ""): at(q) for name, q in QUANTILES.items()}
    complete = times.count and times.count >= due
    return Spread(
        count=times.count,
        mean=None if times.mean_ns is None else times.mean_ns / 1e6,
        stddev=None if times.stddev_ns is None else times.stddev_ns / 1e6,
        max=times.max_ns / 1e6 if complete else None,
        **ranked,
    )


def summarize(trial: Trial) -> Summary:
    """The answer of one trial. Raises StoreError where its counts do not add up."""
    trial = _checked(trial)
    tallies = trial.measured
    total = counts(tallies)
    phi = dispersion(_windows(tallies))
    failures: dict[str, int] = {}
    for tally in tallies:
        for state, count in tally.failed.items():
            failures[state] = failures.get(state, 0) + count
    seconds = _seconds(trial, tallies)
    return Summary(
        counts=total,
        missed=proportion(total.missed, total.due, phi),
        phi=phi,
        retried=sum(t.retried for t in tallies),
        retries=sum(t.retries for t in tallies),
        failures=failures,
        messages={s: text for i in reversed(trial.intervals) for s, text in i.messages},
        seconds=seconds,
        rate=_rate(trial, total, seconds),
        latency=spread(merge(t.latency for t in tallies), total.due),
        lag=spread(merge(t.lag for t in tallies), total.due),
        service=spread(merge(t.service for t in tallies), total.due),
        scripts=tuple(_scripts(trial, tallies)),
        statements=tuple(_statements(trial)),
        generator=_generator(trial, seconds),
        connects=sum(i.connects for i in trial.intervals),
        disconnects=sum(i.disconnects for i in trial.intervals),
    )


def _checked(trial: Trial) -> Trial:
    """The trial, once its counts add up for every due second and script.

    What an interrupted trial left pending is unfinished; what a running one has not ended yet is
    left out. Raises StoreError for any other difference.
    """
    cells: dict[tuple[int, int], list[Tally]] = {}
    for interval in trial.intervals:
        for tally in interval.tallies:
            cells.setdefault((tally.due_second, tally.script), []).append(tally)
    missing = []
    for (second, script), tallies in cells.items():
        pending = counts(tallies).pending
        if pending < 0 or (pending and trial.state == "finished"):
            raise StoreError(
                f"run {trial.id} is damaged: {pending} of script {script} due in second {second}"
                " have no outcome",
                "this is a bug in pgpaces or a damaged store: please report it",
            )
        if pending and trial.state == "running":
            missing.append(Tally(second, script, due=-pending))
        elif pending:
            missing.append(Tally(second, script, unfinished=pending))
    if not missing:
        return trial
    last = trial.intervals[-1]
    completed = dataclasses.replace(last, tallies=(*last.tallies, *missing))
    return dataclasses.replace(trial, intervals=(*trial.intervals[:-1], completed))


def _windows(tallies: Iterable[Tally]) -> list[tuple[int, int]]:
    """Missed and due per 10 s of due time."""
    ordered = sorted(tallies, key=lambda t: t.due_second)
    grouped = itertools.groupby(ordered, key=lambda t: t.due_second // _WINDOW_S)
    sums = (counts(group) for _, group in grouped)
    return [(c.missed, c.due) for c in sums]


def _seconds(trial: Trial, tallies: tuple[Tally, ...]) -> float:
    """How long the measured part lasted; whole seconds where the process died in it."""
    if trial.measured_ns is not None:
        return trial.measured_ns / 1e9
    busy = [t.due_second for t in tallies if t.due]
    return float(max(busy, default=-1) + 1)


def _rate(trial: Trial, total: Counts, seconds: float) -> float:
    """Transactions that succeeded a second, of those that ended before the end of the trial.

    What is served in the grace period behind the end is counted, but is no throughput. A trial
    of less than a second, or one that ends by count, has no such period.
    """
    whole = int(seconds)
    if whole == 0 or trial.plan.get("transactions") is not None:
        return (total.on_time + total.late) / seconds if seconds else 0.0
    within = (i for i in trial.intervals if 0 <= i.second < whole)
    return sum(t.on_time + t.late for i in within for t in i.tallies) / whole


def _scripts(trial: Trial, tallies: tuple[Tally, ...]) -> Iterable[ScriptSummary]:
    for number, script in enumerate(trial.workload["scripts"]):
        own = [t for t in tallies if t.script == number]
        total = counts(own)
        latency = spread(merge(t.latency for t in own), total.due)
        yield ScriptSummary(script["name"], script["weight"], total, latency)


def _statements(trial: Trial) -> Iterable[StatementSummary]:
    """Statements that ended in the measured part."""
    found: dict[tuple[int, int], list[Any]] = {}
    for interval in trial.intervals:
        if interval.second >= 0:
            for statement in interval.statements:
                found.setdefault((statement.script, statement.command), []).append(statement)
    for (script, command), parts in sorted(found.items()):
        times = merge(part.times for part in parts)
        about = trial.workload["scripts"][script]
        line, text, _ = about["commands"][command]
        yield StatementSummary(
            about["name"],
            line,
            text,
            failed=sum(part.failed for part in parts),
            retries=sum(part.retries for part in parts),
            times=spread(times, times.count),
        )


def _cpu(intervals: list[Interval], seconds: float) -> float:
    """The busiest thread's share of a CPU in the measured part; grace is mostly waiting."""
    within = [i for i in intervals if i.second < seconds]
    covered_ns = sum(i.ended_ns - i.second * 1_000_000_000 for i in within)
    threads = max((len(i.cpu_ns) for i in within), default=0)
    spent = [sum(i.cpu_ns[t] for i in within if t < len(i.cpu_ns)) for t in range(threads)]
    return max(spent, default=0) / covered_ns if covered_ns > 0 else 0.0


def _generator(trial: Trial, seconds: float) -> Generator:
    full = [i for i in trial.intervals if i.second >= 0]
    cpu = _cpu(full, seconds)
    dispatch = merge(i.dispatch for i in full)
    p99 = spread(dispatch, dispatch.count).p99
    every = [tally for interval in trial.intervals for tally in interval.tallies]
    service = sum(t.service.sum_ns for t in every)
    in_flight = sum(i.in_flight_ns for i in trial.intervals)
    # Only where every transaction that began is in the sum of service times.
    sums = counts(every)
    little = in_flight / service if service and not (sums.failed or sums.unfinished) else None
    limit_ns: int = trial.plan.get("limit_ns") or 0
    floor_ms = max(_DISPATCH_FLOOR_NS, limit_ns // 100) / 1e6
    late = p99 is not None and trial.plan.get("model") != "closed" and p99 > floor_ms
    return Generator(cpu=cpu, dispatch_p99=p99, little=little, limited=late or cpu > _CPU_LIMIT)


def as_json(summary: Summary) -> dict[str, Any]:
    """The summary as plain values for machines: times in ms, shares from 0 to 1."""
    values = dataclasses.asdict(summary)
    values["counts"]["missed"] = summary.counts.missed
    return values
