"""A trial from the files of one run of pgbench: its logs, its report, or both.

Reads texts, not files: names are for messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Literal

from msgspec import Struct

from pgpaces.errors import PlanError
from pgpaces.facts import (
    HostFacts,
    ImportedFacts,
    PlanFacts,
    ScriptFacts,
    ServerFacts,
    WorkloadFacts,
)
from pgpaces.imported import aggregated, printed, transactions
from pgpaces.imported.printed import Printed
from pgpaces.imported.transactions import Columns, Seventh
from pgpaces.record import Interval, Tally
from pgpaces.result import Finding, Trial
from pgpaces.times import Times

Kind = Literal["transactions", "aggregated", "printed"]
_EPOCH_S = 1_000_000_000
_LINE = re.compile(r"-?\d+(\s+(-?[\d.]+(e[+-]?\d+)?|skipped|failed|serialization|deadlock|other))+")
_REPORT_ONLY = (
    "imported from a printed report: sums of the whole run, without quantiles and time series"
)
_SUMS = (
    "imported from an aggregated log: sums of intervals, without quantiles and late transactions"
)


class PgbenchFile(Struct, frozen=True):
    """A file that pgbench wrote: its name, the time of its last change, and its text."""

    name: str
    ended_at: datetime
    text: str


class ImportOptions(Struct, frozen=True):
    """Options of an import, for facts that the files may lack. command: pgbench's command line."""

    limit_ns: int | None = None
    seventh: Seventh | None = None
    command: str | None = None


class _Measured(Struct, frozen=True):
    """The measurements in the files. limit_ns: None if they do not count late transactions."""

    intervals: tuple[Interval, ...]
    started_at: datetime
    seconds: float
    clients: int
    lag: bool
    findings: tuple[Finding, ...] = ()
    limit_ns: int | None = None
    by_second: bool = True


def kind(file: PgbenchFile) -> Kind:
    """The format of a file of pgbench. Raises PlanError for any other."""
    if printed.REPORT.search(file.text):
        return "printed"
    first = file.text.partition("\n")[0].strip()
    if _LINE.fullmatch(first):
        return "aggregated" if float(first.split()[0]) >= _EPOCH_S else "transactions"
    raise PlanError(
        f"{file.name} is neither a log nor a report of pgbench",
        "name the files of -l, and the output of pgbench",
    )


def trial(files: Sequence[PgbenchFile], options: ImportOptions, id_: str, version: str) -> Trial:
    """The trial of the files of one run. version: of pgpaces. Raises PlanError."""
    by_kind: dict[Kind, list[PgbenchFile]] = {}
    for file in files:
        if file.text.strip():
            by_kind.setdefault(kind(file), []).append(file)
    reports = by_kind.get("printed", [])
    if len(reports) > 1:
        raise PlanError(f"there are {len(reports)} reports", "import one run at a time")
    report = printed.read(reports[0].text) if reports else None
    limit_ms = None if report is None else report.numbers.get("limit_ms")
    limit_ns = options.limit_ns if limit_ms is None else round(limit_ms * 1e6)
    if "transactions" in by_kind and "aggregated" in by_kind:
        raise PlanError("there are logs of transactions and of sums", "import one run at a time")
    if "transactions" in by_kind:
        measured = _transactions(by_kind["transactions"], report, limit_ns, options.seventh)
    elif "aggregated" in by_kind:
        measured = _aggregated(by_kind["aggregated"], report, limit_ns)
    elif report is not None and report.seconds and "processed" in report.numbers:
        measured = _printed(report, reports[0], limit_ns)
    else:
        raise PlanError("these files contain no measurements", "was pgbench run with -l?")
    names = [file.name for file in files]
    return _trial(measured, report, options.command, names, (id_, version))


def _transactions(
    files: Iterable[PgbenchFile],
    report: Printed | None,
    limit_ns: int | None,
    seventh: Seventh | None,
) -> _Measured:
    lines = {file.name: file.text.splitlines() for file in files}
    width = {len(line.split()) for each in lines.values() for line in each[:1]}
    if len(width) != 1 or not width <= {6, 7, 8}:
        raise PlanError(
            "these are not the logs of one run: their lines have"
            f" {' and '.join(map(str, sorted(width)))} columns, expected 6, 7 or 8",
            "name the files of one run, pgbench_log.PID and pgbench_log.PID.N",
        )
    if seventh is None and report is not None:
        seventh = "lag" if "lag_ms" in report.numbers else "retries"
    columns = Columns.of(width.pop(), seventh)
    limit_us = float("inf") if limit_ns is None else limit_ns / 1000
    entries = [
        entry
        for name, each in lines.items()
        for entry in transactions.entries(name, each, columns, limit_us)
    ]
    start = transactions.start_us(entries)
    last = max(entry.end_us for entry in entries)
    highest: dict[int, int] = {}
    for entry in entries:
        highest[entry.client] = max(highest.get(entry.client, 0), entry.number)
    findings = list(_incomplete(len(entries), sum(highest.values())))
    if report is not None and not findings:
        done = sum(entry.outcome in ("on_time", "late") for entry in entries)
        findings = list(_incomplete(done, report.count("processed")))
    logged_s = (last - start) / 1e6
    return _Measured(
        transactions.intervals(entries, start),
        datetime.fromtimestamp(start / 1e6, UTC),
        max(logged_s, report.seconds or 0.0) if report else logged_s,
        len(highest),
        columns.lag is not None,
        tuple(findings),
        limit_ns,
    )


def _incomplete(count: int, expected: int) -> Iterable[Finding]:
    """A finding for a log that is sampled, or without its last interval."""
    if count < expected:
        share = count / expected
        text = f"the log holds {count} of {expected} transactions ({share:.1%})"
        yield Finding("import", "invalid" if share < 0.99 else "warning", text, share)


def _without_failures(count: int, expected: int) -> Iterable[Finding]:
    """A finding for a log that lacks failures, as it does without --failures-detailed."""
    if count < expected:
        text = f"the log holds {count} of the {expected} failed transactions that the report counts"
        yield Finding("import", "invalid", text, expected - count)


def _aggregated(
    files: Iterable[PgbenchFile], report: Printed | None, limit_ns: int | None
) -> _Measured:
    threads = [aggregated.lines(file.name, file.text.splitlines()) for file in files]
    lines = [line for thread in threads for line in thread]
    start = min(line.start_s for line in lines)
    last = max(line.start_s for line in lines)
    # The length of an interval is the time to the next one of the same thread: others may have
    # begun in another second.
    starts = [sorted({line.start_s for line in thread}) for thread in threads]
    length = min((b - a for each in starts for a, b in pairwise(each)), default=None)
    seconds = report.seconds if report else None
    if length is not None:
        seconds = float(last - start + length)
    if seconds is None:
        raise PlanError(
            "the log does not say how long its interval is: each thread has one",
            "name the report of the run as well",
        )
    findings = [Finding("import", "info", _SUMS)]
    if limit_ns is not None:
        late = f": {report.count('late')} by the report" if report else ""
        text = f"the log does not count late transactions, so missed lacks them{late}"
        findings.append(Finding("import", "invalid", text))
    if report is not None:
        done = sum(line.tally.on_time for line in lines)
        findings += _incomplete(done, report.count("processed"))
        failed = sum(sum(line.tally.failed.values()) for line in lines)
        findings += _without_failures(failed, report.count("failed"))
    return _Measured(
        aggregated.intervals(lines, start),
        datetime.fromtimestamp(start, UTC),
        seconds,
        report.count("clients") if report else 0,
        any(line.tally.lag.sum_ns for line in lines),
        tuple(findings),
        by_second=length == 1,
    )


def _printed(report: Printed, file: PgbenchFile, limit_ns: int | None) -> _Measured:
    done, late = report.count("processed"), report.count("late")
    states = {"40001": "serialization", "40P01": "deadlock", "other": "other"}
    failed = {state: n for state, name in states.items() if (n := report.count(name))}
    if not failed and report.count("failed"):
        failed = {"failed": report.count("failed")}
    latency = _sums(done, report.numbers.get("mean_ms"), report.numbers.get("stddev_ms"))
    if late > done:
        raise PlanError(
            f"{file.name} counts {late} late of {done} transactions",
            "check that the report is complete",
        )
    lag = _sums(done, report.numbers.get("lag_ms", 0.0), None, report.numbers.get("lag_max_ms", 0))
    service = Times(latency.count, max(0, latency.sum_ns - lag.sum_ns))
    skipped = report.count("skipped")
    tally = Tally(
        0, 0, due=done + skipped + sum(failed.values()), on_time=done - late, late=late,
        skipped=skipped, failed=failed, latency=latency, lag=lag, service=service,
        retried=report.count("retried"), retries=report.count("retries"),
    )  # fmt: skip
    seconds = report.seconds or 0.0
    return _Measured(
        (Interval(0, (tally,), ended_ns=round(seconds * 1e9)),),
        datetime.fromtimestamp(file.ended_at.timestamp() - seconds, UTC),
        seconds,
        report.count("clients"),
        "lag_ms" in report.numbers,
        (Finding("import", "info", _REPORT_ONLY),),
        limit_ns,
        by_second=False,
    )


def _sums(count: int, mean: float | None, stddev: float | None, highest: float = 0.0) -> Times:
    """Sums by a mean and, if given, a standard deviation and a maximum; in ms."""
    if not count or mean is None:
        return Times()
    squares = 0.0 if stddev is None else (stddev**2 + mean**2) * count * 1e12
    return Times(count, round(mean * count * 1e6), squares, round(highest * 1e6))


def _trial(
    measured: _Measured,
    report: Printed | None,
    command: str | None,
    names: Sequence[str],
    identity: tuple[str, str],
) -> Trial:
    numbers = {} if report is None else report.numbers
    clients = int(numbers.get("clients", 0)) or measured.clients
    pgbench = f"pgbench {report.version}" if report and report.version else "pgbench"
    tallies = [tally for interval in measured.intervals for tally in interval.tallies]
    skips = measured.limit_ns or any(tally.skipped for tally in tallies)
    scripts = [] if report is None else list(report.scripts)
    used = 1 + max((tally.script for tally in tallies), default=0)
    scripts = scripts[:used] if len(scripts) >= used else [(f"script {n}", 1) for n in range(used)]
    if not measured.by_second and report is not None and len(report.scripts) > 1:
        scripts = [(", ".join(name for name, _ in report.scripts), 1)]
    version = report.version if report else None
    model: Literal["open", "closed"] = "open" if measured.lag else "closed"
    plan = PlanFacts(
        load_text=f"{pgbench}, {model}, imported",
        model=model,
        policy="skip" if measured.lag and skips else "run",
        protocol=report.protocol if report else "simple",
        clients=clients,
        seed=0,
        warmup_ns=0,
        limit_ns=measured.limit_ns,
        transactions=int(numbers["per_client"]) if "per_client" in numbers else None,
        max_tries=int(numbers.get("max_tries", 1)),
        by_second=measured.by_second,
        imported=ImportedFacts(
            program="pgbench", version=version, command=command, files=tuple(names)
        ),
    )
    ended = datetime.fromtimestamp(measured.started_at.timestamp() + measured.seconds, UTC)
    return Trial(
        id=identity[0],
        state="finished",
        started_at=measured.started_at,
        ended_at=ended,
        plan=plan,
        workload=WorkloadFacts(
            name=report.kind if report else "pgbench",
            scale=int(numbers.get("scale", 1)),
            scripts=tuple(ScriptFacts(name=name, weight=w, commands=()) for name, w in scripts),
        ),
        server=ServerFacts(version=(report.server if report else None) or "?"),
        host=HostFacts(),
        version=identity[1],
        intervals=measured.intervals,
        measured_ns=round(measured.seconds * 1e9),
        notes=(
            f"imported from {pgbench}{f': {command}' if command else ''}",
            f"files: {', '.join(names)}",
        ),
        findings=measured.findings,
    )
