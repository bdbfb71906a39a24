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

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.cli.pgbench.options import Options
from pgpaces.core.messages import message
from pgpaces.core.record import Interval, StatementTally, Tally, summed, total

_SERIALIZATION, _DEADLOCK = "40001", "40P01"


class Facts(Struct, frozen=True):
    """Facts of pgbench's tables. commands: of each script, as they are shown."""

    scale: int = 1
    partition_method: str = "none"
    partitions: int = 0
    commands: Sequence[Sequence[str]] = ()


def _ms(ns: float | None) -> float:
    return (ns or 0.0) / 1e6


def _processed(sums: Tally) -> int:
    return sums.on_time + sums.late


def _failed(sums: Tally) -> int:
    return sum(sums.failed.values())


def _ended(sums: Tally) -> int:
    return _processed(sums) + sums.skipped + _failed(sums)


class Totals(Struct):
    """The totals of a run, to which every interval is added. Times in ns.

    scripts, commands: a sum of each. recent: the sum since the last progress line, which was made
    at progress_ns. aborted_thread: the thread of the first client that gave up, if one did.
    """

    scripts: tuple[Tally, ...] = ()
    commands: tuple[StatementTally, ...] = ()
    recent: Tally = Tally(0, 0)
    connect_ns: int = 0
    aborted_thread: int | None = None
    ended_ns: int = 0
    progress_ns: int = 0

    def add(self, interval: Interval) -> None:
        own = (replace(tally, due_second=0) for tally in interval.tallies)
        self.scripts = summed((*self.scripts, *own))
        self.commands = summed((*self.commands, *interval.statements))
        self.recent = total((self.recent, *interval.tallies))
        self.connect_ns += interval.connect_ns
        if interval.aborted and self.aborted_thread is None:
            self.aborted_thread = interval.aborted[0]
        self.ended_ns = max(self.ended_ns, interval.ended_ns)

    def progress(self, options: Options, epoch_s: float | None = None) -> str:
        """The progress line since the last one. epoch_s: the Unix time to print, if any."""
        sums, self.recent = self.recent, Tally(0, 0)
        passed_ns, self.progress_ns = self.ended_ns - self.progress_ns, self.ended_ns
        clock = f"{self.ended_ns / 1e9:.1f} s" if epoch_s is None else f"{epoch_s:.3f} s"
        text = (
            f"progress: {clock}, {_ratio(_processed(sums) * 1e9, passed_ns):.1f} tps,"
            f" lat {_ms(sums.latency.mean_ns):.3f} ms stddev {_ms(sums.latency.stddev_ns):.3f},"
            f" {_failed(sums)} failed"
        )
        if options.rate is not None:
            text += f", lag {_ms(sums.lag.mean_ns):.3f} ms"
            if options.limit_us:
                text += f", {sums.skipped} skipped"
        if options.max_tries != 1:
            text += f", {sums.retried} retried, {sums.retries} retries"
        return text


def banner(pgbench: str, pgpaces: str, server: str) -> str:
    """The first line: the version of pgbench that is imitated, of pgpaces and of the server."""
    return f"pgbench ({pgbench}, pgpaces {pgpaces}, server {server})"


def report(options: Options, facts: Facts, totals: Totals, *, connect_ns: int) -> str:
    """The final report. connect_ns: the time to connect all clients before the run."""
    sums = total(totals.scripts)
    lines = list(_head(options, facts, sums))
    if _ended(sums):
        lines += _failures(options, sums)
        if options.limit_us:
            processed = _processed(sums)
            share = 100.0 * sums.late / processed if processed else 0.0
            lines.append(
                f"number of transactions above the {options.limit_us / 1000:.1f} ms latency limit:"
                f" {sums.late}/{processed} ({share:.3f}%)"
            )
        lines += _times(options, totals, sums, connect_ns=connect_ns)
        if len(options.scripts) > 1 or options.per_command:
            for number in range(len(options.scripts)):
                lines += _script(options, facts, totals, number=number)
    return "\n".join(lines) + "\n"


def unfinished(totals: Totals) -> str | None:
    sums = total(totals.scripts)
    if not (count := sums.unfinished):
        return None
    due = _ended(sums) + count
    share = 100 * (due - sums.on_time) / due
    return message("pgbench-unfinished", unfinished=count, due=due, missed_percent=share)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def _share(count: int, whole: int) -> str:
    return f"{count} ({_ratio(100.0 * count, whole):.3f}%)"


def _head(options: Options, facts: Facts, sums: Tally) -> Iterator[str]:
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
    yield f"number of transactions actually processed: {_processed(sums)}{of}"


def _failures(options: Options, sums: Tally) -> Iterator[str]:
    ended, failed = _ended(sums), _failed(sums)
    yield f"number of failed transactions: {_share(failed, ended)}"
    if options.failures_detailed:
        serialization, deadlock = (sums.failed.get(each, 0) for each in (_SERIALIZATION, _DEADLOCK))
        yield f"number of serialization failures: {_share(serialization, ended)}"
        yield f"number of deadlock failures: {_share(deadlock, ended)}"
        yield f"number of other failures: {_share(failed - serialization - deadlock, ended)}"
    if options.max_tries != 1:
        yield f"number of transactions retried: {_share(sums.retried, ended)}"
        yield f"total number of retries: {sums.retries}"
    if options.rate is not None and options.limit_us:
        yield f"number of transactions skipped: {_share(sums.skipped, ended)}"


def _times(options: Options, totals: Totals, sums: Tally, *, connect_ns: int) -> Iterator[str]:
    processed = _processed(sums)
    if options.rate is not None or options.limit_us or options.progress_s:
        yield from _latency(sums)
    else:
        # Latency was not measured: the time of a client for each transaction.
        mean_ms = totals.ended_ns / 1e6 * options.clients / _ended(sums)
        failures = " (including failures)" if _failed(sums) else ""
        yield f"latency average = {mean_ms:.3f} ms{failures}"
    if options.rate is not None:
        mean_ms = _ratio(sums.lag.sum_ns / 1e6, processed)
        yield f"rate limit schedule lag: avg {mean_ms:.3f} (max {sums.lag.max_ns / 1e6:.3f}) ms"
    tps = _ratio(processed * 1e9, totals.ended_ns)
    if options.connect_each:
        mean_ms = _ratio(totals.connect_ns / 1e6, processed + _failed(sums))
        yield f"average connection time = {mean_ms:.3f} ms"
        yield f"tps = {tps:.6f} (including reconnection times)"
    else:
        yield f"initial connection time = {connect_ns / 1e6:.3f} ms"
        yield f"tps = {tps:.6f} (without initial connection time)"


def _latency(sums: Tally) -> Iterator[str]:
    if sums.latency.count:
        yield f"latency average = {_ms(sums.latency.mean_ns):.3f} ms"
        yield f"latency stddev = {_ms(sums.latency.stddev_ns):.3f} ms"


def _script(options: Options, facts: Facts, totals: Totals, *, number: int) -> Iterator[str]:
    script = options.scripts[number]
    sums = total(each for each in totals.scripts if each.script == number)
    several = len(options.scripts) > 1
    if several:
        weights = sum(each.weight for each in options.scripts)
        tps = _ratio(_processed(sums) * 1e9, totals.ended_ns)
        yield f"SQL script {number + 1}: {script.description}"
        share = 100.0 * script.weight / weights
        yield f" - weight: {script.weight} (targets {share:.1f}% of total)"
        share = _ratio(100.0 * _ended(sums), sum(map(_ended, totals.scripts)))
        yield f" - {_ended(sums)} transactions ({share:.1f}% of total)"
        if _ended(sums):
            processed = f"number of transactions actually processed: {_processed(sums)}"
            yield f" - {processed} (tps = {tps:.6f})"
            yield from (f" - {line}" for line in (*_failures(options, sums), *_latency(sums)))
    if options.per_command:
        more = " and failures" if options.max_tries == 1 else ", failures and retries"
        yield f"{' - ' if several else ''}statement latencies in milliseconds{more}:"
        commands = {each.command: each for each in totals.commands if each.script == number}
        for at, text in enumerate(facts.commands[number]):
            command = commands.get(at, StatementTally(number, at))
            retries = "" if options.max_tries == 1 else f" {command.retries:10}"
            yield f"   {_ms(command.times.mean_ns):11.3f}  {command.failed:10}{retries} {text}"
