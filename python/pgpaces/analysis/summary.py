"""The answer of one trial: counts, missed share, times; by script and by statement.

Every number has its interval. The warm-up is cut here, by due time; the store keeps it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.analysis import level_shift, stats, stopping, validity
from pgpaces.analysis.accumulator import (
    Accumulator,
    Outages,
    SecondSums,
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
from pgpaces.analysis.time_distribution import (
    Blocks,
    Distribution,
    Tails,
    distribution_and_tails,
    distribution_of,
)
from pgpaces.analysis.validity import Cut, Evidence, Validity
from pgpaces.core import findings
from pgpaces.core.times import Times, merge
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


class _Part(Struct, frozen=True):
    """The part of a trial that is evaluated: `start` to `end`, in seconds of due time.

    until: later times are left out; None: there are none, or they count.
    """

    trial: Trial
    accumulator: Accumulator
    ledgers: Mapping[int, SecondSums]
    start: int
    end: float
    until: int | None = None

    def seconds(self, scripts: Iterable[int]) -> SecondSums:
        whole = _of(self.ledgers, scripts)
        return whole.between(self.start, max(whole.end, math.ceil(self.end)))

    def times(self, kind: str, scripts: Iterable[int]) -> Times:
        times, since, until = self.accumulator.times, self.start, self.until
        return merge(times(kind, script, since, until=until) for script in scripts)

    def planned(self, count: int, scripts: Sequence[int]) -> Numbers | None:
        """The planned rate of each second; None for a constant rate."""
        return planned_rates(self.trial, scripts, self.start, count=count)

    def blocks(self, kind: str, seconds: SecondSums, scripts: Sequence[int]) -> Blocks:
        size, due = self.accumulator.block_s, seconds.column("due")
        begins = np.arange(0, len(due), size)
        sums = np.add.reduceat(due, begins).tolist() if len(due) else []
        planned = self.planned(len(due), scripts)
        if planned is not None:
            planned = np.add.reduceat(planned, begins) / np.diff([*begins, len(due)])
        first = self.start // size
        parts = [self.accumulator.parts(kind, first + n, scripts) for n in range(len(sums))]
        return Blocks(sums, parts, planned)


def summarize(
    trial: Trial, accumulator: Accumulator | None = None, *, cut_off: bool = True
) -> Summary:
    """The answer of one trial. Raises StoreError where its counts do not add up.

    accumulator: the trial's intervals, if the trial does not contain them. cut_off: leave out a
    warm-up that outlasted the minimum, as every answer does that is shown.
    """
    accumulator = Accumulator.of(trial.intervals) if accumulator is None else accumulator
    if trial.plan.auto and trial.measured_ns is not None:
        accumulator.drop(math.ceil(trial.measured_ns / 1e9))
    ledgers, numbers = accumulator.ledgers(trial), own_scripts(trial)
    every, own = together(ledgers.values()), _of(ledgers, numbers)
    cut = _cut(trial, accumulator, own) if cut_off else Cut()
    part = _Part(trial, accumulator, ledgers, cut.seconds, _end(trial, every))
    measured = part.seconds(numbers)
    total = measured.counts
    flatness = None
    if not validity.rate_changes(trial):
        flatness = level_shift.flatness(*_latency_ms(measured))
    latency, missed, clusters = _answer(part, measured, numbers)
    generator = examine(
        trial, accumulator, every, own=own, counted=total, span_s=part.end, clusters=clusters
    )
    return Summary(
        counts=total,
        missed=missed,
        validity=validity.judge_trial(
            trial, _evidence(part, total, generator, cut=cut, flatness=flatness)
        ),
        clusters=clusters,
        retried=int(measured.column("retried").sum()),
        retries=int(measured.column("retries").sum()),
        failures=accumulator.failures(part.start, numbers),
        messages=dict(accumulator.messages),
        seconds=max(0.0, part.end - part.start),
        cut_s=cut.seconds,
        left_out=cut.left_out,
        throughput=_throughput(part, total, numbers),
        latency=latency,
        lag=_spread(part, "lag", measured, scripts=numbers)[0],
        service=_spread(part, "service", measured, scripts=numbers)[0],
        scripts=tuple(_scripts(part, latency, missed)),
        statements=tuple(_statements(part)),
        generator=generator,
        flatness=flatness,
        connects=accumulator.connects,
        disconnects=accumulator.disconnects,
        outages=accumulator.outages,
        background=tuple(_background(part)),
    )


def so_far(trial: Trial, accumulator: Accumulator, end_s: int) -> Missed | None:
    """What a running trial missed of what was due before second `end_s`; None if nothing was due.

    What is pending has missed the latency limit if the limit has passed since `end_s`.
    """
    ledgers = accumulator.ledgers(replace(trial, state="interrupted"))
    numbers = own_scripts(trial)
    own = _of(ledgers, numbers)
    own = own.between(own.first, end_s)
    start = _cut(trial, accumulator, own).seconds
    measured = own.between(start, end_s)
    total = measured.counts
    if not total.due:
        return None
    part = _Part(trial, accumulator, ledgers, start, end_s, end_s)
    _, _, clusters = _answer(part, measured, numbers)
    return Missed(total.missed, total.due, clusters, end_s - start)


def _evidence(
    part: _Part, total: Counts, generator: Generator, *, cut: Cut, flatness: Flatness | None
) -> Evidence:
    accumulator, own = part.accumulator, own_scripts(part.trial)
    scripts = part.trial.workload.scripts

    def error(numbers: Sequence[int]) -> str:
        return validity.first_error(accumulator.failures(part.start, numbers), accumulator.messages)

    def load_part(name: str, numbers: Sequence[int]) -> validity.LoadPart:
        return validity.LoadPart(name, part.seconds(numbers).counts, error(numbers))

    return Evidence(
        total,
        generator,
        cut,
        flatness,
        accumulator.outages.all_down_s,
        error=error(own),
        scripts=tuple(load_part(scripts[n].name, (n,)) for n in own),
        background=tuple(load_part(*each) for each in _background_scripts(part.trial).items()),
        silences=tuple(
            validity.silences(
                part.trial, accumulator, _of(part.ledgers, own), unfinished=total.unfinished
            )
        ),
    )


def _of(ledgers: Mapping[int, SecondSums], scripts: Iterable[int]) -> SecondSums:
    return together(ledgers[number] for number in scripts if number in ledgers)


def _background(part: _Part) -> Iterable[BackgroundSummary]:
    for name, numbers in _background_scripts(part.trial).items():
        own = part.seconds(numbers)
        latency, missed, clusters = _answer(part, own, numbers)
        throughput = _throughput(part, own.counts, numbers)
        yield BackgroundSummary(name, own.counts, missed, clusters.phi, throughput, latency)


def _background_scripts(trial: Trial) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = {}
    first = 0
    for component in trial.setup.components:
        if component.of:
            numbers.setdefault(component.of, []).extend(
                range(first, first + len(component.scripts))
            )
        first += len(component.scripts)
    return numbers


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


def _cut(trial: Trial, accumulator: Accumulator, every: SecondSums) -> Cut:
    """The part of the warm-up after its minimum, which ran before second 0.

    The search for its end covers the whole series, also that minimum. Not cut are trials that end
    by count, which report exactly that number of transactions; loads whose rate changes, which
    have no latency to settle at; and commands, which are timed from their start.
    """
    counted = trial.plan.transactions is not None
    if counted or validity.rate_changes(trial) or trial.workload.about_command:
        return Cut()
    at, latency_ms = _latency_ms(every)
    warm_up = level_shift.warm_up(latency_ms)
    if warm_up is None or warm_up.too_short:
        return Cut(too_short=warm_up is not None)
    seconds = accumulator.whole(max(0, int(at[warm_up.points])))
    return Cut(seconds, left_out=every.between(0, seconds).counts)


def _answer(
    part: _Part, seconds: SecondSums, scripts: Sequence[int]
) -> tuple[Distribution, Estimate | None, Clusters]:
    """The latencies and the missed share of these seconds, and the clusters of that share.

    If nearly all are far below the limit, those near the limit are of another kind, and the typical
    latencies say nothing of how these cluster. The same holds if nearly all are far above it and
    the server still falls behind: a backlog that grows makes all latencies alike.
    """
    latency, tails = _spread(part, "latency", seconds, scripts=scripts)
    total, due = seconds.counts, seconds.column("due")
    if not total.due:
        return latency, None, stats.INDEPENDENT
    limits = limits_ns(part.trial)
    limits_ms = [limits[n] / 1e6 for n in scripts if limits[n]] or [math.inf]
    is_far = latency.p99 is not None and latency.p99.value * _FAR < min(limits_ms)
    if not is_far and tails.fastest_ms > _FAR * max(limits_ms):
        is_far = _falls_behind(part, seconds, scripts)
    prior = stats.INDEPENDENT if is_far else tails.prior(total.missed / total.due)
    planned = part.planned(len(due), scripts)
    clusters = stats.clusters_of(due - seconds.column("on_time"), due, prior, planned=planned)
    auto = part.trial.plan.auto
    errors = stopping.errors(part.end) if auto else (stats.ERROR, stats.ERROR)
    return latency, stats.share(total.missed, total.due, clusters, errors=errors), clusters


def _falls_behind(part: _Part, seconds: SecondSums, scripts: Sequence[int]) -> bool:
    """Whether in the last third fewer succeeded than were due, so that the backlog still grew."""
    end = int(part.end)
    start = end - max(1, (end - part.start) // 3)
    due = seconds.between(start, end).counts.due
    return float(part.accumulator.succeeded(start, end, scripts).sum()) < _KEEPS_UP * due


def _spread(
    part: _Part, kind: str, seconds: SecondSums, *, scripts: Sequence[int]
) -> tuple[Distribution, Tails]:
    counts = seconds.column("count")
    return distribution_and_tails(
        part.times(kind, scripts),
        seconds.counts.due,
        counts,
        sums_ns=seconds.column(kind),
        planned=part.planned(len(counts), scripts),
        blocks=part.blocks(kind, seconds, scripts),
    )


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


def _throughput(part: _Part, total: Counts, scripts: Sequence[int]) -> Estimate:
    """Successful transactions of these scripts per second, by the time at which they ended.

    Transactions that end in the grace period are counted, but are no throughput; those that were
    due before the cut and end after it are. For a trial of less than a second or one that ends by
    count, which has no grace period: all successes over the time that it took; in a closed load
    until the last of them ended.
    """
    succeeded, seconds = total.on_time + total.late, part.end - part.start
    ended = part.accumulator.succeeded(part.start, int(part.end), scripts)
    planned = part.planned(len(ended), scripts)
    rate = stats.rate(ended, planned)
    if rate is not None and part.trial.plan.transactions is None:
        return rate
    if rate is None and part.trial.plan.duration_ns and part.trial.plan.load.model == "closed":
        seconds = max(seconds, part.accumulator.ended_ns / 1e9 - part.start)
    value = succeeded / seconds if seconds > 0 else 0.0
    if rate is None or not rate.estimable:
        return Estimate.alone(value, succeeded)
    half = rate.high - rate.value
    return Estimate(value, max(0.0, value - half), value + half, succeeded)


def _scripts(
    part: _Part, latency: Distribution, missed: Estimate | None
) -> Iterable[ScriptSummary]:
    """Each script. latency, missed: of all scripts, used as they are where there is only one."""
    scripts = part.trial.workload.scripts
    for number, script in enumerate(scripts):
        own = part.seconds((number,))
        if len(scripts) > 1:
            latency, missed, _ = _answer(part, own, (number,))
        yield ScriptSummary(script.name, script.weight, own.counts, missed, latency)


def _statements(part: _Part) -> Iterable[StatementSummary]:
    """Statements by executions that ended in the evaluated part; like branches are merged."""
    scripts = part.trial.workload.scripts
    merged = [(n, each) for n, s in enumerate(scripts) for each in alike(s.commands, s.text)]
    same = {(n, place): each.places[0] for n, each in merged for place in each.places}
    texts = {(n, each.places[0]): each.text for n, each in merged}
    until = math.ceil(part.end) if part.trial.plan.auto else None
    for number, place, seconds, times in part.accumulator.statements(part.start, same, until):
        script = scripts[number]
        command = script.commands[place]
        counts, sums_ns = seconds.column("count"), seconds.column("sum_ns")
        yield StatementSummary(
            script.name,
            command.line,
            texts.get((number, place), command.text),
            failed=int(seconds.column("failed").sum()),
            retries=int(seconds.column("retries").sum()),
            times=distribution_of(times, times.count, counts, sums_ns=sums_ns),
        )


def as_json(summary: Summary) -> dict[str, Any]:
    """The summary as values for JSON: times in ms, shares from 0 to 1.

    An estimate has the key `estimable`, for its interval. Otherwise null is above every value.
    """
    values: dict[str, Any] = plain(summary)
    values["counts"]["missed"] = summary.counts.missed
    values["validity"]["findings"] = [*map(findings.as_json, summary.validity.findings)]
    return values
