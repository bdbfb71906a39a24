"""A trial of the files that one run of pgbench left: its logs, its report, or both.

Knows texts, not files: what they are called is for messages.
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
    "imported from a printed report: sums of the whole run; it knows no quantiles and no course"
)
_SUMS = (
    "imported from an aggregated log: sums of intervals; it knows no quantiles, nor what was late"
)


class PgbenchFile(Struct, frozen=True):
    """A file that pgbench wrote: what it is called, when it ended, and its text."""

    name: str
    ended_at: datetime
    text: str


class Told(Struct, frozen=True):
    """What the user knows and the files may not say. command: pgbench's command line."""

    limit_ns: int | None = None
    seventh: Seventh | None = None
    command: str | None = None


class _Measured(Struct, frozen=True):
    """What the files say: the seconds of the trial, from its start; sentences about them."""

    intervals: tuple[Interval, ...]
    started_at: datetime
    seconds: float
    clients: int
    lag: bool
    findings: tuple[Finding, ...] = ()
    by_second: bool = True


def kind(file: PgbenchFile) -> Kind:
    """Which of pgbench's formats a file is. Raises PlanError for any other."""
    if printed.REPORT.search(file.text):
        return "printed"
    first = file.text.partition("\n")[0].strip()
    if _LINE.fullmatch(first):
        return "aggregated" if float(first.split()[0]) >= _EPOCH_S else "transactions"
    raise PlanError(
        f"{file.name} is neither a log of pgbench nor what it printed",
        "give the files of -l, and what pgbench wrote to stdout",
    )


def trial(files: Sequence[PgbenchFile], told: Told, id_: str, version: str) -> Trial:
    """The trial that the files of one run tell of. version: of pgpaces. Raises PlanError."""
    found: dict[Kind, list[PgbenchFile]] = {}
    for file in files:
        if file.text.strip():
            found.setdefault(kind(file), []).append(file)
    reports = found.get("printed", [])
    if len(reports) > 1:
        raise PlanError(f"there are {len(reports)} reports", "import one run at a time")
    report = printed.read(reports[0].text) if reports else None
    limit_ms = None if report is None else report.numbers.get("limit_ms")
    limit_ns = told.limit_ns if limit_ms is None else round(limit_ms * 1e6)
    if "transactions" in found and "aggregated" in found:
        raise PlanError("there are logs of transactions and of sums", "import one run at a time")
    if "transactions" in found:
        measured = _transactions(found["transactions"], report, limit_ns, told.seventh)
    elif "aggregated" in found:
        measured = _aggregated(found["aggregated"], report, limit_ns)
        limit_ns = None
    elif report is not None and report.seconds and "processed" in report.numbers:
        measured = _printed(report, reports[0])
    else:
        raise PlanError("there is nothing in these files", "was pgbench run with -l?")
    return _trial(measured, report, told, (id_, version, limit_ns, files))


def _transactions(
    files: Iterable[PgbenchFile],
    report: Printed | None,
    limit_ns: int | None,
    seventh: Seventh | None,
) -> _Measured:
    lines = {file.name: file.text.splitlines() for file in files}
    width = {len(line.split()) for found in lines.values() for line in found[:1]}
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
        for name, found in lines.items()
        for entry in transactions.entries(name, found, columns, limit_us)
    ]
    start = transactions.start_us(entries)
    last = max(entry.end_us for entry in entries)
    highest: dict[int, int] = {}
    for entry in entries:
        highest[entry.client] = max(highest.get(entry.client, 0), entry.number)
    findings = list(_complete(len(entries), sum(highest.values()), "transactions"))
    if report is not None and not findings:
        done = sum(entry.outcome in ("on_time", "late") for entry in entries)
        findings = list(_complete(done, report.count("processed"), "transactions"))
    return _Measured(
        transactions.intervals(entries, start),
        datetime.fromtimestamp(start / 1e6, UTC),
        (report.seconds if report and report.seconds else None) or (last - start) / 1e6,
        len(highest),
        columns.lag is not None,
        tuple(findings),
    )


def _complete(found: int, expected: int, what: str) -> Iterable[Finding]:
    """What is said where a log does not hold everything: sampled, or the last interval lost."""
    if found < expected:
        share = found / expected
        text = f"the log holds {found} of {expected} {what} ({share:.1%})"
        yield Finding("import", "invalid" if share < 0.99 else "warning", text, share)


def _aggregated(
    files: Iterable[PgbenchFile], report: Printed | None, limit_ns: int | None
) -> _Measured:
    found = [line for file in files for line in aggregated.lines(file.name, file.text.splitlines())]
    start = min(line.start_s for line in found)
    starts = sorted({line.start_s - start for line in found})
    # A line is of as many seconds as lie between it and the next one.
    length = min((b - a for a, b in pairwise(starts)), default=1)
    findings = [Finding("import", "info", _SUMS)]
    if limit_ns is not None:
        late = f": {report.count('late')} by the report" if report else ""
        text = f"what was late is not in the log, and not in what missed{late}"
        findings.append(Finding("import", "invalid", text))
    if report is not None:
        done = sum(line.tally.on_time for line in found)
        findings += _complete(done, report.count("processed"), "transactions")
    return _Measured(
        aggregated.intervals(found, start),
        datetime.fromtimestamp(start, UTC),
        float(starts[-1] + length),
        report.count("clients") if report else 0,
        any(line.tally.lag.sum_ns for line in found),
        tuple(findings),
        by_second=length == 1,
    )


def _printed(report: Printed, file: PgbenchFile) -> _Measured:
    done, late = report.count("processed"), report.count("late")
    failed = {
        "40001": report.count("serialization"),
        "40P01": report.count("deadlock"),
        "other": report.count("other"),
    }
    failed = {mark: n for mark, n in failed.items() if n}
    if not failed and report.count("failed"):
        failed = {"failed": report.count("failed")}
    latency = _sums(done, report.numbers.get("mean_ms"), report.numbers.get("stddev_ms"))
    if late > done:
        raise PlanError(
            f"{file.name} counts {late} late of {done} transactions", "is the report whole?"
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
        by_second=False,
    )


def _sums(count: int, mean: float | None, stddev: float | None, highest: float = 0.0) -> Times:
    """Of a mean and a standard deviation in ms, if that is known."""
    if not count or mean is None:
        return Times()
    squares = 0.0 if stddev is None else (stddev**2 + mean**2) * count * 1e12
    return Times(count, round(mean * count * 1e6), squares, round(highest * 1e6))


def _trial(
    measured: _Measured,
    report: Printed | None,
    told: Told,
    more: tuple[str, str, int | None, Sequence[PgbenchFile]],
) -> Trial:
    id_, version, limit_ns, files = more
    numbers = {} if report is None else report.numbers
    clients = int(numbers.get("clients", 0)) or measured.clients
    made = f"pgbench {report.version}" if report and report.version else "pgbench"
    said = f": {told.command}" if told.command else ""
    names = [file.name for file in files]
    skipped = any(tally.skipped for i in measured.intervals for tally in i.tallies)
    scripts = [] if report is None else list(report.scripts)
    used = 1 + max((t.script for i in measured.intervals for t in i.tallies), default=0)
    scripts = scripts[:used] if len(scripts) >= used else [(f"script {n}", 1) for n in range(used)]
    if not measured.by_second and report is not None and len(report.scripts) > 1:
        scripts = [(", ".join(name for name, _ in report.scripts), 1)]
    program = ImportedFacts(
        program="pgbench",
        version=report.version if report else None,
        command=told.command,
        files=tuple(names),
    )
    plan = PlanFacts(
        load_text=f"{made}, {'open' if measured.lag else 'closed'}, imported",
        model="open" if measured.lag else "closed",
        policy="skip" if measured.lag and (limit_ns or skipped) else "run",
        protocol=report.protocol if report else "simple",
        clients=clients,
        seed=0,
        warmup_ns=0,
        limit_ns=limit_ns,
        transactions=int(numbers["per_client"]) if "per_client" in numbers else None,
        max_tries=int(numbers.get("max_tries", 1)),
        by_second=measured.by_second,
        imported=program,
    )
    ended = datetime.fromtimestamp(measured.started_at.timestamp() + measured.seconds, UTC)
    return Trial(
        id=id_,
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
        version=version,
        intervals=measured.intervals,
        measured_ns=round(measured.seconds * 1e9),
        notes=(f"imported from {made}{said}", f"files: {', '.join(names)}"),
        findings=measured.findings,
    )
