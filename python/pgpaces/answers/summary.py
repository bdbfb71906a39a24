"""What one trial says: counts, the share that missed, times, per script and statement.

Every number has its interval. The warm-up is cut here, by due time; the store keeps what was cut.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pgpaces.answers import outcome, stats, steady, validity
from pgpaces.answers.accumulator import (
    KINDS,
    Accumulator,
    Outages,
    ScriptSeconds,
    own_scripts,
    together,
)
from pgpaces.answers.branches import alike
from pgpaces.answers.bulk import about_command
from pgpaces.answers.generator import Generator, GeneratorWork, examine
from pgpaces.answers.planned_rate import planned_rates
from pgpaces.answers.spread import Blocks, Seconds, Spread, Tails, spread_and_tails, spread_of
from pgpaces.answers.steady import Flatness
from pgpaces.answers.validity import Cut, Evidence, Validity
from pgpaces.result import Counts, Estimate, Trial, plain
from pgpaces.times import Times, merge

if TYPE_CHECKING:
    from numpy.typing import NDArray


class ScriptSummary(Struct, frozen=True):
    """One script of a trial."""

    name: str
    weight: int
    counts: Counts
    missed: Estimate | None
    latency: Spread


class StatementSummary(Struct, frozen=True):
    """One SQL command of a script: its times, in milliseconds, failures and retries.

    Those in branches of one `\\if` that differ in constants alone are one, at the first's line.
    """

    script: str
    line: int
    text: str
    failed: int
    retries: int
    times: Spread


class BesideSummary(Struct, frozen=True):
    """A workload that ran beside the trial's own. phi: dispersion of what missed."""

    name: str
    counts: Counts
    missed: Estimate | None
    phi: float
    rate: Estimate
    latency: Spread


class Summary(Struct, frozen=True):
    """The answer of one trial: of its own workload; each one beside it has an answer of its own.

    scripts, statements, generator, validity and connections are of all of them.
    seconds: how long the part lasted that it is about. cut_s: so much before it, behind the minimum
    of the warm-up, is left out. phi: dispersion of what missed. retried: transactions that were
    tried more than once. retries: their tries behind the first.
    """

    counts: Counts
    missed: Estimate | None
    validity: Validity
    phi: float
    retried: int
    retries: int
    failures: dict[str, int]
    messages: dict[str, str]
    seconds: float
    cut_s: int
    left_out: Counts
    rate: Estimate
    latency: Spread
    lag: Spread
    service: Spread
    scripts: tuple[ScriptSummary, ...]
    statements: tuple[StatementSummary, ...]
    generator: Generator
    flatness: Flatness | None
    connects: int
    disconnects: int
    outages: Outages
    beside: tuple[BesideSummary, ...] = ()


class _Part(Struct, frozen=True):
    """The part of a trial that its answer is about: `start` to `end`, in seconds of due time."""

    trial: Trial
    accumulator: Accumulator
    scripts: Mapping[int, ScriptSeconds]
    start: int
    end: float

    def seconds(self, ledger: ScriptSeconds) -> ScriptSeconds:
        """Those of this part."""
        return ledger.between(self.start, max(ledger.end, math.ceil(self.end)))

    def times(self, kind: str, script: int) -> Times:
        return self.accumulator.times(kind, script, self.start)

    def planned(self, count: int, scripts: Sequence[int]) -> NDArray[Any] | None:
        """The rate that was planned for each second; None of a constant one."""
        return planned_rates(self.trial, scripts, self.start, count)

    def blocks(self, seconds: ScriptSeconds, kind: str, scripts: Sequence[int]) -> Blocks:
        """What was due in each block of seconds of these scripts, and its times."""
        import numpy as np

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

    accumulator: its intervals, where they were not kept; else it is made from those of the trial.
    cut_off: a warm-up that outlasted the minimum is left out, as in every answer that is shown.
    """
    accumulator = Accumulator.of(trial.intervals) if accumulator is None else accumulator
    scripts = accumulator.ledgers(trial)
    every = together(scripts.values())
    end = _end(trial, every)
    numbers = own_scripts(trial)
    own = every if len(numbers) == len(trial.workload.scripts) else _of(scripts, numbers)
    cut = _cut(trial, accumulator, own) if cut_off else Cut()
    part = _Part(trial, accumulator, scripts, cut.seconds, end)
    kept = part.seconds(own)
    total = kept.counts
    flatness = None if validity.changes(trial) else steady.flatness(*_latency_ms(kept))
    found = {kind: _spread(part, kept, kind, numbers) for kind in KINDS}
    spreads = {kind: spread for kind, (spread, _) in found.items()}
    missed, phi = _missed(part, kept, numbers, found["latency"][1])
    generator = examine(trial, accumulator, GeneratorWork(every, own, end, phi))
    return Summary(
        counts=total,
        missed=missed,
        validity=validity.judge(trial, _evidence(part, total, generator, cut, flatness)),
        phi=phi,
        retried=int(kept.column("retried").sum()),
        retries=int(kept.column("retries").sum()),
        failures=accumulator.failures(part.start, numbers),
        messages=dict(accumulator.messages),
        seconds=max(0.0, end - part.start),
        cut_s=cut.seconds,
        left_out=cut.left_out,
        rate=_rate(part, total, numbers),
        scripts=tuple(_scripts(part, spreads["latency"], missed)),
        statements=tuple(_statements(part)),
        generator=generator,
        flatness=flatness,
        connects=accumulator.connects,
        disconnects=accumulator.disconnects,
        outages=accumulator.outages,
        beside=tuple(_beside(part)),
        **spreads,
    )


def _evidence(
    part: _Part, total: Counts, generator: Generator, cut: Cut, flatness: Flatness | None
) -> Evidence:
    accumulator, numbers = part.accumulator, own_scripts(part.trial)
    scripts = part.trial.workload.scripts

    def error(those: Sequence[int]) -> str:
        return outcome.first_error(accumulator.failures(part.start, those), accumulator.messages)

    def made(name: str, those: Sequence[int]) -> outcome.LoadPart:
        return outcome.LoadPart(name, part.seconds(_of(part.scripts, those)).counts, error(those))

    return Evidence(
        total,
        generator,
        cut,
        flatness,
        accumulator.outages.all_down_s,
        error=error(numbers),
        scripts=tuple(made(scripts[n].name, (n,)) for n in numbers),
        background=tuple(made(name, those) for name, those in _background(part.trial).items()),
        silences=outcome.silences(part.trial, accumulator, _of(part.scripts, numbers)),
    )


def _of(scripts: Mapping[int, ScriptSeconds], numbers: Iterable[int]) -> ScriptSeconds:
    return together(scripts[number] for number in numbers if number in scripts)


def _beside(part: _Part) -> Iterable[BesideSummary]:
    """Each workload beside the trial's own, in the same part of it."""
    for name, found in _background(part.trial).items():
        own = part.seconds(_of(part.scripts, found))
        total, (latency, tails) = own.counts, _spread(part, own, "latency", found)
        missed, phi = _missed(part, own, found, tails)
        yield BesideSummary(name, total, missed, phi, _rate(part, total, found), latency)


def _background(trial: Trial) -> dict[str, list[int]]:
    """The numbers of the scripts of each workload beside the trial's own, by its name."""
    numbers: dict[str, list[int]] = {}
    first = 0
    for component in trial.plan.components:
        if component.of:
            numbers.setdefault(component.of, []).extend(
                range(first, first + len(component.scripts))
            )
        first += len(component.scripts)
    return numbers


def _end(trial: Trial, every: ScriptSeconds) -> float:
    """How long the measured part lasted; whole seconds where the process died in it."""
    if trial.measured_ns is not None:
        return trial.measured_ns / 1e9
    busy = every.column("due").nonzero()[0]
    return float(max(0, every.first + int(busy[-1]) + 1)) if len(busy) else 0.0


def _latency_ms(ledger: ScriptSeconds) -> tuple[NDArray[Any], NDArray[Any]]:
    """The due seconds in which something succeeded, and the mean latency of each in ms."""
    count = ledger.column("count")
    busy = count.nonzero()[0]
    return ledger.first + busy, ledger.column("latency")[busy] / count[busy] / 1e6


def _cut(trial: Trial, accumulator: Accumulator, every: ScriptSeconds) -> Cut:
    """The warm-up behind its minimum, which ran before second 0.

    The whole series counts, from the start of the minimum on. It is cut only where that is a
    trial of a given length: one that ends by count has so many transactions to tell of. A load
    whose rate changes has no latency to settle at, and a command is timed from its start.
    """
    counted = trial.plan.transactions is not None
    if counted or validity.changes(trial) or about_command(trial):
        return Cut()
    at, latency_ms = _latency_ms(every)
    found = steady.warm_up(latency_ms)
    if found is None or found.too_short:
        return Cut(points=len(at), too_short=found is not None)
    seconds = accumulator.whole(max(0, int(at[found.points])))
    return Cut(seconds, len(at), left_out=every.between(0, seconds).counts)


def _missed(
    part: _Part, seconds: ScriptSeconds, scripts: Sequence[int], tails: Tails
) -> tuple[Estimate | None, float]:
    """The share of these seconds that missed, and the dispersion that its interval stands for."""
    total, due = seconds.counts, seconds.column("due")
    if not total.due:
        return None, 1.0
    prior = tails.prior(total.missed / total.due)
    planned = part.planned(len(due), scripts)
    found = stats.clusters_of(due - seconds.column("on_time"), due, prior, planned)
    return stats.share(total.missed, total.due, found), found.phi


def _spread(
    part: _Part, seconds: ScriptSeconds, kind: str, scripts: Sequence[int]
) -> tuple[Spread, Tails]:
    times = merge(part.times(kind, script) for script in scripts)
    counts = seconds.column("count")
    by_second = Seconds(counts, seconds.column(kind), part.planned(len(counts), scripts))
    blocks = part.blocks(seconds, kind, scripts)
    return spread_and_tails(times, seconds.counts.due, by_second, blocks)


def _rate(part: _Part, total: Counts, scripts: Sequence[int]) -> Estimate:
    """Transactions of these scripts that succeeded a second, of those that ended before the end.

    What is served in the grace period behind the end is counted, but is no throughput; what was due
    before the cut and is served behind it is. A trial of less than a second, or one that ends by
    count, has no such period: there it is all that succeeded over the time that it took.
    """
    succeeded, seconds = total.on_time + total.late, part.end - part.start
    by_second = part.trial.plan.by_second  # not so where a report was imported
    ended = part.accumulator.succeeded(part.start, int(part.end), scripts)
    planned = part.planned(len(ended), scripts)
    found = stats.rate(ended, planned) if by_second else None
    if found is not None and part.trial.plan.transactions is None:
        return found
    value = succeeded / seconds if seconds > 0 else 0.0
    if found is None or not found.estimable:
        return Estimate.alone(value, succeeded)
    half = found.high - found.value
    return Estimate(value, max(0.0, value - half), value + half, succeeded)


def _scripts(part: _Part, latency: Spread, missed: Estimate | None) -> Iterable[ScriptSummary]:
    """Each script; latency, missed: of all of them, which is that of a single one."""
    nothing, scripts = together(()), part.trial.workload.scripts
    for number, script in enumerate(scripts):
        own = part.seconds(part.scripts.get(number, nothing))
        if len(scripts) > 1:
            latency, tails = _spread(part, own, "latency", (number,))
            missed, _ = _missed(part, own, (number,), tails)
        yield ScriptSummary(script.name, script.weight, own.counts, missed, latency)


def _statements(part: _Part) -> Iterable[StatementSummary]:
    """Statements that ended in the part that counts; branches of one are one."""
    scripts = part.trial.workload.scripts
    found = [
        (n, each) for n, about in enumerate(scripts) for each in alike(about.commands, about.text)
    ]
    same = {(n, place): each.places[0] for n, each in found for place in each.places}
    texts = {(n, each.places[0]): each.text for n, each in found}
    for script, command, seconds, times in part.accumulator.statements(part.start, same):
        about = scripts[script]
        told = about.commands[command]
        text = texts.get((script, command), told.text)
        failed, retries, counts, sums_ns = seconds.T
        yield StatementSummary(
            about.name,
            told.line,
            text,
            failed=int(failed.sum()),
            retries=int(retries.sum()),
            times=spread_of(times, times.count, counts, sums_ns),
        )


def as_json(summary: Summary) -> dict[str, Any]:
    """The summary as plain values for machines: times in ms, shares from 0 to 1.

    An estimate says whether its interval is estimable; apart from that, null is above every value.
    """
    values: dict[str, Any] = plain(summary)
    values["counts"]["missed"] = summary.counts.missed
    return values
