"""The answer of one trial: counts, missed share, times; by script and by statement.

Every number has its interval. The warm-up is cut here, by due time; the store keeps it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.analysis import level_shift, stats, stopping, validity
from pgpaces.analysis.accumulator import (
    Accumulator,
    Outages,
    SecondSums,
    background_scripts,
    own_scripts,
    together,
)
from pgpaces.analysis.arrays import Numbers, np
from pgpaces.analysis.branches import alike
from pgpaces.analysis.generator import Generator, examine
from pgpaces.analysis.goal import limits_ns
from pgpaces.analysis.level_shift import Flatness
from pgpaces.analysis.stats import Clusters
from pgpaces.analysis.stopping import Missed
from pgpaces.analysis.time_distribution import Blocks, Distribution, Tails, distribution_of
from pgpaces.analysis.validity import Validity, judge_trial
from pgpaces.core import findings
from pgpaces.core.times import merge
from pgpaces.spec.result import Counts, Estimate, Trial, plain

# A queue whose p99 is so far below the limit misses it once in a hundred thousand: its tail falls
# by the same factor with each p99. In no simulated trial with 5% beyond its limit was it so far,
# nor was the fastest percent so far above the limit.
_FAR = 2.5
# A server that succeeds with less than this share of what is due falls behind.
_KEEPS_UP = 0.95
# How many points of a shape are averaged for the planned rate of each second.
_POINTS_PER_SECOND = 16


class ScriptSummary(Struct, frozen=True):
    """One script of a trial."""

    name: str
    weight: int
    counts: Counts
    missed: Estimate | None
    latency: Distribution


class StatementSummary(Struct, frozen=True):
    """One SQL command of a script: its times in ms, failures and retries.

    Commands in branches of one `\\if` that differ only in constants are one, at the first's line.
    """

    script: str
    line: int
    text: str
    failed: int
    retries: int
    times: Distribution


class BackgroundSummary(Struct, frozen=True):
    """A background workload. phi: dispersion of the missed share."""

    name: str
    counts: Counts
    missed: Estimate | None
    phi: float
    throughput: Estimate
    latency: Distribution


class Summary(Struct, frozen=True):
    """The answer of one trial about its own workload; background workloads have their own answers.

    scripts, statements, generator, validity and connections cover all workloads.
    seconds: length of the part that is evaluated. cut_s: seconds left out before that part and
    after the minimum warm-up. clusters: of missed transactions. retried: transactions that were
    tried more than once. retries: their tries after the first.
    """

    counts: Counts
    missed: Estimate | None
    validity: Validity
    clusters: Clusters
    retried: int
    retries: int
    failures: dict[str, int]
    messages: dict[str, str]
    seconds: float
    cut_s: int
    left_out: Counts
    throughput: Estimate
    latency: Distribution
    lag: Distribution
    service: Distribution
    scripts: tuple[ScriptSummary, ...]
    statements: tuple[StatementSummary, ...]
    generator: Generator
    flatness: Flatness | None
    connects: int
    disconnects: int
    outages: Outages
    background: tuple[BackgroundSummary, ...] = ()


class _Group(Struct, frozen=True, dict=True):
    """Some scripts in the part of a trial that is evaluated: `start` to `end`, s of due time.

    until: later times are left out; None: there are none, or they count.
    """

    trial: Trial
    accumulator: Accumulator
    ledgers: Mapping[int, SecondSums]
    scripts: Sequence[int]
    start: int
    end: float
    until: int | None = None

    def of(self, *scripts: int) -> _Group:
        return replace(self, scripts=scripts)

    @cached_property
    def seconds(self) -> SecondSums:
        whole = together(self.ledgers, self.scripts)
        end = max(whole.end, math.ceil(self.end)) if self.until is None else self.until
        return whole.between(self.start, end)

    @cached_property
    def counts(self) -> Counts:
        return self.seconds.counts

    def planned(self, count: int) -> Numbers | None:
        """The planned rate of each second; None for a constant rate."""
        return planned_rates(self.trial, self.scripts, self.start, count=count)

    def spread(self, kind: str) -> tuple[Distribution, Tails]:
        seconds, due = self.seconds, self.seconds.column("due")
        size, planned = self.accumulator.block_s, self.planned(len(due))
        begins, by_block = np.arange(0, len(due), size), None
        if planned is not None:
            by_block = np.add.reduceat(planned, begins) / np.diff([*begins, len(due)])
        sums = np.add.reduceat(due, begins).tolist() if len(due) else []
        blocks = range(self.start // size, self.start // size + len(sums))
        parts = [self.accumulator.parts(kind, block, self.scripts) for block in blocks]
        return distribution_of(
            merge(chain.from_iterable(parts)),
            self.counts.due,
            seconds.column("count"),
            sums_ns=seconds.column(kind),
            planned=planned,
            blocks=Blocks(sums, parts, by_block),
        )

    def answer(self) -> tuple[Distribution, Estimate | None, Clusters]:
        """The latencies and the missed share, and the clusters of that share.

        If nearly all are far below the limit, those near the limit are of another kind, and the
        typical latencies say nothing of how these cluster. The same holds if nearly all are far
        above it and the server still falls behind: a backlog that grows makes all latencies alike.
        """
        latency, tails = self.spread("latency")
        total, due = self.counts, self.seconds.column("due")
        if not total.due:
            return latency, None, stats.INDEPENDENT
        limits = limits_ns(self.trial)
        limits_ms = [limits[n] / 1e6 for n in self.scripts if limits[n]] or [math.inf]
        is_far = latency.p99 is not None and latency.p99.value * _FAR < min(limits_ms)
        if not is_far and tails.fastest_ms > _FAR * max(limits_ms):
            # In the last third fewer succeeded than were due, so the backlog still grew.
            end = int(self.end)
            start = end - max(1, (end - self.start) // 3)
            succeeded = float(self.accumulator.succeeded(start, end, self.scripts).sum())
            is_far = succeeded < _KEEPS_UP * self.seconds.between(start, end).counts.due
        prior = stats.INDEPENDENT if is_far else tails.prior(total.missed / total.due)
        planned = self.planned(len(due))
        missed = due - self.seconds.column("on_time")
        clusters = stats.clusters_of(missed, due, prior, planned=planned)
        auto = self.trial.plan.auto
        errors = stopping.LOOKS_OF_RUN.last(self.end)[1] if auto else (stats.ERROR, stats.ERROR)
        return latency, stats.share(total.missed, total.due, clusters, errors=errors), clusters

    def throughput(self) -> Estimate:
        """Successful transactions per second, by the time at which they ended.

        Transactions that end in the grace period are counted, but are no throughput; those that
        were due before the cut and end after it are. For a trial of less than a second or one that
        ends by count, which has no grace period: all successes over the time that it took; in a
        closed load until the last of them ended.
        """
        plan, seconds = self.trial.plan, self.end - self.start
        succeeded = self.counts.on_time + self.counts.late
        ended = self.accumulator.succeeded(self.start, int(self.end), self.scripts)
        rate = stats.rate(ended, self.planned(len(ended)))
        if rate is not None and plan.transactions is None:
            return rate
        if rate is None and plan.duration_ns and plan.load.model == "closed":
            seconds = max(seconds, self.accumulator.ended_ns / 1e9 - self.start)
        value = succeeded / seconds if seconds > 0 else 0.0
        if rate is None or not rate.estimable:
            return Estimate.alone(value, succeeded)
        half = rate.high - rate.value
        return Estimate(value, max(0.0, value - half), value + half, succeeded)


def summarize(trial: Trial, accumulator: Accumulator | None = None) -> Summary:
    """The answer of one trial. Raises StoreError where its counts do not add up.

    accumulator: the trial's intervals, if the trial does not contain them.
    """
    accumulator = Accumulator.of(trial.intervals) if accumulator is None else accumulator
    if trial.plan.auto and trial.measured_ns is not None:
        accumulator.drop(math.ceil(trial.measured_ns / 1e9))
    ledgers, numbers = accumulator.ledgers(trial), own_scripts(trial)
    every, own = together(ledgers), together(ledgers, numbers)
    cut_s, too_short = _cut(trial, accumulator, own)
    group = _Group(trial, accumulator, ledgers, numbers, cut_s, _end(trial, every))
    measured, total, flatness = group.seconds, group.counts, None
    if not validity.rate_changes(trial):
        flatness = level_shift.flatness(*_latency_ms(measured))
    latency, missed, clusters = group.answer()
    generator = examine(
        trial, accumulator, every, own=own, counted=total, span_s=group.end, clusters=clusters
    )
    summary = Summary(
        counts=total,
        missed=missed,
        validity=Validity("valid"),
        clusters=clusters,
        retried=int(measured.column("retried").sum()),
        retries=int(measured.column("retries").sum()),
        failures=accumulator.failures(group.start, numbers),
        messages=dict(accumulator.messages),
        seconds=max(0.0, group.end - group.start),
        cut_s=cut_s,
        left_out=own.between(0, cut_s).counts,
        throughput=group.throughput(),
        latency=latency,
        lag=group.spread("lag")[0],
        service=group.spread("service")[0],
        scripts=tuple(_scripts(group, latency, missed)),
        statements=tuple(_statements(group)),
        generator=generator,
        flatness=flatness,
        connects=accumulator.connects,
        disconnects=accumulator.disconnects,
        outages=accumulator.outages,
        background=tuple(_background(group)),
    )
    judged = judge_trial(trial, summary, accumulator, own=own, too_short=too_short)
    return replace(summary, validity=judged)


def so_far(trial: Trial, accumulator: Accumulator, end_s: int) -> Missed | None:
    """What a running trial missed of what was due before second `end_s`; None if nothing was due.

    What is pending has missed the latency limit if the limit has passed since `end_s`.
    """
    ledgers = accumulator.ledgers(replace(trial, state="interrupted"))
    numbers = own_scripts(trial)
    own = together(ledgers, numbers)
    start, _ = _cut(trial, accumulator, own.between(own.first, end_s))
    group = _Group(trial, accumulator, ledgers, numbers, start, end_s, end_s)
    total = group.counts
    if not total.due:
        return None
    _, _, clusters = group.answer()
    return Missed(total.missed, total.due, clusters, end_s - start)


def _background(group: _Group) -> Iterable[BackgroundSummary]:
    for name, numbers in background_scripts(group.trial).items():
        own = group.of(*numbers)
        latency, missed, clusters = own.answer()
        yield BackgroundSummary(name, own.counts, missed, clusters.phi, own.throughput(), latency)


def _end(trial: Trial, every: SecondSums) -> float:
    """Length of the measured part; in whole seconds where the process died in it."""
    if trial.measured_ns is not None:
        return trial.measured_ns / 1e9
    busy = every.column("due").nonzero()[0]
    return float(max(0, every.first + int(busy[-1]) + 1)) if len(busy) else 0.0


def _latency_ms(ledger: SecondSums) -> tuple[Numbers, Numbers]:
    """The due seconds with successful transactions, and the mean latency of each in ms."""
    count = ledger.column("count")
    busy = count.nonzero()[0]
    return ledger.first + busy, ledger.column("latency")[busy] / count[busy] / 1e6


def _cut(trial: Trial, accumulator: Accumulator, every: SecondSums) -> tuple[int, bool]:
    """The seconds of the warm-up after its minimum, and whether they are half of the trial or more.

    The minimum ran before second 0.

    The search for its end covers the whole series, also that minimum. Not cut are trials that end
    by count, which report exactly that number of transactions; loads whose rate changes, which
    have no latency to settle at; and commands, which are timed from their start.
    """
    counted = trial.plan.transactions is not None
    if counted or validity.rate_changes(trial) or trial.workload.about_command:
        return 0, False
    at, latency_ms = _latency_ms(every)
    warm_up = level_shift.warm_up(latency_ms)
    if warm_up is None or warm_up.too_short:
        return 0, warm_up is not None
    return accumulator.whole(max(0, int(at[warm_up.points]))), False


def planned_rates(
    trial: Trial, scripts: Sequence[int], start: int, *, count: int
) -> Numbers | None:
    """The planned multiplier of these scripts' rate in each of `count` seconds from `start` on.

    None if the rate was planned to stay the same, as it is for every background workload.
    """
    length_ns = trial.plan.duration_ns or trial.measured_ns
    if not validity.rate_changes(trial) or not length_ns or not count:
        return None
    if not scripts or scripts[0] not in own_scripts(trial):
        return None
    begins, firsts, lasts = np.array(trial.plan.load.shape.segments(length_ns)).T
    lengths = np.diff([*begins, length_ns])
    at_ns = (start + (np.arange(count * _POINTS_PER_SECOND) + 0.5) / _POINTS_PER_SECOND) * 1e9
    segment = np.maximum(0, np.searchsorted(begins, at_ns, side="right") - 1)
    passed = np.minimum(1, (at_ns - begins[segment]) / lengths[segment])
    rates = firsts[segment] + (lasts - firsts)[segment] * passed
    by_second: Numbers = rates.reshape(count, _POINTS_PER_SECOND).mean(axis=1)
    return by_second


def _scripts(
    group: _Group, latency: Distribution, missed: Estimate | None
) -> Iterable[ScriptSummary]:
    """Each script. latency, missed: of all scripts, used as they are where there is only one."""
    scripts = group.trial.workload.scripts
    for number, script in enumerate(scripts):
        own = group.of(number)
        if len(scripts) > 1:
            latency, missed, _ = own.answer()
        yield ScriptSummary(script.name, script.weight, own.counts, missed, latency)


def _statements(group: _Group) -> Iterable[StatementSummary]:
    """Statements by executions that ended in the evaluated part; like branches are merged."""
    scripts = group.trial.workload.scripts
    merged = [(n, each) for n, s in enumerate(scripts) for each in alike(s.commands, s.text)]
    same = {(n, place): each.places[0] for n, each in merged for place in each.places}
    texts = {(n, each.places[0]): each.text for n, each in merged}
    until = math.ceil(group.end) if group.trial.plan.auto else None
    for number, place, seconds, times in group.accumulator.statements(group.start, same, until):
        script = scripts[number]
        command = script.commands[place]
        counts, sums_ns = seconds.column("count"), seconds.column("sum_ns")
        yield StatementSummary(
            script.name,
            command.line,
            texts.get((number, place), command.text),
            failed=int(seconds.column("failed").sum()),
            retries=int(seconds.column("retries").sum()),
            times=distribution_of(times, times.count, counts, sums_ns=sums_ns)[0],
        )


def as_json(summary: Summary) -> dict[str, Any]:
    """The summary as values for JSON: times in ms, shares from 0 to 1.

    An estimate has the key `estimable`, for its interval. Otherwise null is above every value.
    """
    values: dict[str, Any] = plain(summary)
    values["counts"]["missed"] = summary.counts.missed
    values["validity"]["findings"] = [*map(findings.as_json, summary.validity.findings)]
    return values


class Volume(Struct, frozen=True):
    """Queries of the successful transactions that the trial's rate counts.

    seconds: the time in which they are counted. queries: their number. per_s: per second, with the
    interval of that rate; also per minute and per day.
    """

    seconds: float
    queries: int
    per_s: Estimate
    per_minute: Estimate
    per_day: Estimate


def volume_of(trial: Trial, summary: Summary) -> Volume | None:
    """The queries of a trial; None if a script does not declare its number of queries.

    None, too, if nothing was on time: such a number is useless for planning.

    per_s = rate x queries / transactions due in the measured part; the mean number of queries has
    no interval. So `queries` are those of transactions that succeeded in that time, whenever they
    were due, as in the rate.
    """
    own = own_scripts(trial)
    sends = [trial.workload.scripts[number].queries for number in own]
    counts = [summary.scripts[number].counts for number in own]
    done = [each.on_time + each.late for each in counts]
    queries = sum(count * each for count, each in zip(done, sends, strict=True) if each is not None)
    if None in sends or not queries or not summary.counts.on_time:
        return None
    # Transactions that end after the last whole second are in the counts, but not in the rate.
    each, counted, per_s = queries / sum(done), summary.throughput.n, summary.throughput.value
    seconds = round(counted / per_s, 9) if per_s else summary.seconds
    rate = summary.throughput.times(each)
    return Volume(seconds, round(counted * each), rate, rate.times(60), rate.times(86_400))
