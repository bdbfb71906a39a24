"""pgbench's report and progress lines: intervals and options in, text out. Pure.

Its formulas and denominators differ from those of pgpaces: processed transactions have succeeded,
on time or late; failed, retried and skipped are shares of processed + skipped + failed, late is a
share of processed. One number differs from pgbench's: the transaction with which a client gives up
counts as failed here, and not at all there. Only sums are stored, so memory does not grow with the
length of a run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from msgspec import Struct, field

from pgpaces.cli.pgbench.options import Options
from pgpaces.core.messages import message
from pgpaces.core.record import Interval, Tally
from pgpaces.core.times import Times

_SERIALIZATION, _DEADLOCK = "40001", "40P01"


class Facts(Struct, frozen=True):
    """Facts of pgbench's tables. commands: of each script, as they are shown."""

    scale: int = 1
    partition_method: str = "none"
    partitions: int = 0
    commands: Sequence[Sequence[str]] = ()


def _sum(first: Times, more: Times) -> Times:
    """The times of both, without their histograms."""
    return Times(
        first.count + more.count,
        first.sum_ns + more.sum_ns,
        first.square_sum + more.square_sum,
        max(first.max_ns, more.max_ns),
    )


def _ms(ns: float | None) -> float:
    return (ns or 0.0) / 1e6


class Sums(Struct):
    processed: int = 0
    late: int = 0
    skipped: int = 0
    serialization: int = 0
    deadlock: int = 0
    other: int = 0
    retried: int = 0
    retries: int = 0
    unfinished: int = 0
    latency: Times = Times()
    lag: Times = Times()

    def add(self, tally: Tally) -> None:
        serialization = tally.failed.get(_SERIALIZATION, 0)
        deadlock = tally.failed.get(_DEADLOCK, 0)
        self.processed += tally.on_time + tally.late
        self.late += tally.late
        self.skipped += tally.skipped
        self.serialization += serialization
        self.deadlock += deadlock
        self.other += sum(tally.failed.values()) - serialization - deadlock
        self.retried += tally.retried
        self.retries += tally.retries
        self.unfinished += tally.unfinished
        self.latency = _sum(self.latency, tally.latency)
        self.lag = _sum(self.lag, tally.lag)

    @property
    def failed(self) -> int:
        return self.serialization + self.deadlock + self.other

    @property
    def total(self) -> int:
        return self.processed + self.skipped + self.failed


class CommandTimes(Struct):
    times: Times = Times()
    failed: int = 0
    retries: int = 0


class Totals(Struct):
    """The totals of a run, to which every interval is added. Times in ns.

    aborted_thread: the thread of the first client that gave up, if one did. progress_ns: when the
    last progress line was made.
    """

    all: Sums = field(default_factory=Sums)
    recent: Sums = field(default_factory=Sums)
    scripts: dict[int, Sums] = field(default_factory=dict)
    commands: dict[tuple[int, int], CommandTimes] = field(default_factory=dict)
    connect_ns: int = 0
    aborted_thread: int | None = None
    ended_ns: int = 0
    progress_ns: int = 0

    def add(self, interval: Interval) -> None:
        for tally in interval.tallies:
            self.all.add(tally)
            self.recent.add(tally)
            self.scripts.setdefault(tally.script, Sums()).add(tally)
        for statement in interval.statements:
            command = self.commands.setdefault(
                (statement.script, statement.command), CommandTimes()
            )
            command.times = _sum(command.times, statement.times)
            command.failed += statement.failed
            command.retries += statement.retries
        self.connect_ns += interval.connect_ns
        if interval.aborted and self.aborted_thread is None:
            self.aborted_thread = interval.aborted[0]
        self.ended_ns = max(self.ended_ns, interval.ended_ns)

    def progress(self, options: Options, epoch_s: float | None = None) -> str:
        """The progress line since the last one. epoch_s: the Unix time to print, if any."""
        sums, self.recent = self.recent, Sums()
        passed_ns, self.progress_ns = self.ended_ns - self.progress_ns, self.ended_ns
        clock = f"{self.ended_ns / 1e9:.1f} s" if epoch_s is None else f"{epoch_s:.3f} s"
        text = (
            f"progress: {clock}, {_ratio(sums.processed * 1e9, passed_ns):.1f} tps,"
            f" lat {_ms(sums.latency.mean_ns):.3f} ms stddev {_ms(sums.latency.stddev_ns):.3f},"
            f" {sums.failed} failed"
        )
        if options.rate is not None:
            text += f", lag {_ms(sums.lag.mean_ns):.3f} ms"
            if options.limit_us:
                text += f", {sums.skipped} skipped"
        if options.max_tries != 1:
            text += f", {sums.retried} retried, {sums.retries} retries"
        return text

    @property
    def due(self) -> int:
        return self.all.total + self.all.unfinished

    @property
    def missed(self) -> int:
        return self.due - self.all.processed + self.all.late


def banner(pgbench: str, pgpaces: str, server: str) -> str:
    """The first line: the version of pgbench that is imitated, of pgpaces and of the server."""
    return f"pgbench ({pgbench}, pgpaces {pgpaces}, server {server})"


def report(options: Options, facts: Facts, totals: Totals, *, connect_ns: int) -> str:
    """The final report. connect_ns: the time to connect all clients before the run."""
    sums = totals.all
    lines = list(_head(options, facts, sums))
    if sums.total:
        lines += _failures(options, sums)
        if options.limit_us:
            share = 100.0 * sums.late / sums.processed if sums.processed else 0.0
            lines.append(
                f"number of transactions above the {options.limit_us / 1000:.1f} ms latency limit:"
                f" {sums.late}/{sums.processed} ({share:.3f}%)"
            )
        lines += _times(options, totals, connect_ns)
        if len(options.scripts) > 1 or options.per_command:
            for number in range(len(options.scripts)):
                lines += _script(options, facts, totals, number=number)
    return "\n".join(lines) + "\n"


def unfinished(totals: Totals) -> str | None:
    if not totals.all.unfinished:
        return None
    share = 100 * totals.missed / totals.due
    count = totals.all.unfinished
    return message("pgbench-unfinished", unfinished=count, due=totals.due, missed_percent=share)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def _share(count: int, whole: int) -> str:
    return f"{count} ({_ratio(100.0 * count, whole):.3f}%)"


def _head(options: Options, facts: Facts, sums: Sums) -> Iterator[str]:
    several = "multiple scripts" if len(options.scripts) > 1 else options.scripts[0].description
    yield f"transaction type: {several}"
    yield f"scaling factor: {facts.scale}"
    if facts.partition_method != "none":
        yield f"partition method: {facts.partition_method}"
        yield f"partitions: {facts.partitions}"
    yield f"query mode: {options.protocol}"
    yield f"number of clients: {options.clients}"
    yield f"number of threads: {options.jobs}"
    if options.max_tries:
        yield f"maximum number of tries: {options.max_tries}"
    of = ""
    if options.duration_s is None:
        yield f"number of transactions per client: {options.transactions}"
        of = f"/{(options.transactions or 0) * options.clients}"
    else:
        yield f"duration: {options.duration_s} s"
    yield f"number of transactions actually processed: {sums.processed}{of}"


def _failures(options: Options, sums: Sums) -> Iterator[str]:
    yield f"number of failed transactions: {_share(sums.failed, sums.total)}"
    if options.failures_detailed:
        yield f"number of serialization failures: {_share(sums.serialization, sums.total)}"
        yield f"number of deadlock failures: {_share(sums.deadlock, sums.total)}"
        yield f"number of other failures: {_share(sums.other, sums.total)}"
    if options.max_tries != 1:
        yield f"number of transactions retried: {_share(sums.retried, sums.total)}"
        yield f"total number of retries: {sums.retries}"
    if options.rate is not None and options.limit_us:
        yield f"number of transactions skipped: {_share(sums.skipped, sums.total)}"


def _times(options: Options, totals: Totals, connect_ns: int) -> Iterator[str]:
    sums = totals.all
    if options.rate is not None or options.limit_us or options.progress_s:
        yield from _latency(sums)
    else:
        # Latency was not measured: the time of a client for each transaction.
        mean_ms = totals.ended_ns / 1e6 * options.clients / sums.total
        failures = " (including failures)" if sums.failed else ""
        yield f"latency average = {mean_ms:.3f} ms{failures}"
    if options.rate is not None:
        mean_ms = _ratio(sums.lag.sum_ns / 1e6, sums.processed)
        yield f"rate limit schedule lag: avg {mean_ms:.3f} (max {sums.lag.max_ns / 1e6:.3f}) ms"
    tps = _ratio(sums.processed * 1e9, totals.ended_ns)
    if options.connect_each:
        mean_ms = _ratio(totals.connect_ns / 1e6, sums.processed + sums.failed)
        yield f"average connection time = {mean_ms:.3f} ms"
        yield f"tps = {tps:.6f} (including reconnection times)"
    else:
        yield f"initial connection time = {connect_ns / 1e6:.3f} ms"
        yield f"tps = {tps:.6f} (without initial connection time)"


def _latency(sums: Sums) -> Iterator[str]:
    if sums.latency.count:
        yield f"latency average = {_ms(sums.latency.mean_ns):.3f} ms"
        yield f"latency stddev = {_ms(sums.latency.stddev_ns):.3f} ms"


def _script(options: Options, facts: Facts, totals: Totals, *, number: int) -> Iterator[str]:
    script, sums = options.scripts[number], totals.scripts.get(number, Sums())
    several = len(options.scripts) > 1
    if several:
        weights = sum(each.weight for each in options.scripts)
        tps = _ratio(sums.processed * 1e9, totals.ended_ns)
        yield f"SQL script {number + 1}: {script.description}"
        share = 100.0 * script.weight / weights
        yield f" - weight: {script.weight} (targets {share:.1f}% of total)"
        share = _ratio(100.0 * sums.total, totals.all.total)
        yield f" - {sums.total} transactions ({share:.1f}% of total)"
        if sums.total:
            processed = f"number of transactions actually processed: {sums.processed}"
            yield f" - {processed} (tps = {tps:.6f})"
            yield from (f" - {line}" for line in (*_failures(options, sums), *_latency(sums)))
    if options.per_command:
        more = " and failures" if options.max_tries == 1 else ", failures and retries"
        yield f"{' - ' if several else ''}statement latencies in milliseconds{more}:"
        for at, text in enumerate(facts.commands[number]):
            command = totals.commands.get((number, at), CommandTimes())
            retries = "" if options.max_tries == 1 else f" {command.retries:10}"
            yield f"   {_ms(command.times.mean_ns):11.3f}  {command.failed:10}{retries} {text}"
