"""A trial from the logs of all transactions of one run of pgbench.

Reads texts, not files: names are for messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from pgpaces.core.errors import PlanError
from pgpaces.imports import transactions
from pgpaces.imports.transactions import Columns, LoggedTransaction, Seventh
from pgpaces.spec.facts import (
    HostFacts,
    ImportedFacts,
    PlanFacts,
    ScriptFacts,
    ServerFacts,
    WorkloadFacts,
)
from pgpaces.spec.result import Finding, Trial

# An aggregated log begins with a time since 1970, which has more digits than a client's number.
_LINE = re.compile(r"\d{1,9}(\s+\S+){5,7}")


class PgbenchFile(Struct, frozen=True):
    """A file that pgbench wrote: its name, and its text."""

    name: str
    text: str


class ImportOptions(Struct, frozen=True):
    """Options of an import, for facts that logs lack. command: pgbench's command line."""

    limit_ns: int | None = None
    seventh: Seventh | None = None
    command: str | None = None


def trial(files: Sequence[PgbenchFile], options: ImportOptions, id_: str, *, version: str) -> Trial:
    """The trial of the logs of one run. version: of pgpaces. Raises PlanError."""
    lines = {file.name: file.text.splitlines() for file in files if file.text.strip()}
    columns = _columns(lines, options.seventh)
    limit_us = float("inf") if options.limit_ns is None else options.limit_ns / 1000
    entries = [
        entry
        for name, each in lines.items()
        for entry in transactions.entries(name, each, columns, limit_us=limit_us)
    ]
    start = transactions.start_us(entries)
    measured_us = max(entry.end_us for entry in entries) - start
    started_at = datetime.fromtimestamp(start / 1e6, UTC)
    is_open = columns.lag is not None
    skips = options.limit_ns or any(entry.outcome == "skipped" for entry in entries)
    scripts = range(1 + max(entry.script for entry in entries))
    command = options.command
    return Trial(
        id=id_,
        state="finished",
        started_at=started_at,
        ended_at=started_at + timedelta(microseconds=measured_us),
        plan=PlanFacts(
            load_text=f"pgbench, {'open' if is_open else 'closed'}, imported",
            model="open" if is_open else "closed",
            policy="skip" if is_open and skips else "run",
            protocol="simple",
            clients=len({entry.client for entry in entries}),
            seed=0,
            warmup_ns=0,
            limit_ns=options.limit_ns,
            imported=ImportedFacts(
                program="pgbench", command=command, files=tuple(file.name for file in files)
            ),
        ),
        workload=WorkloadFacts(
            name="pgbench",
            scale=1,
            scripts=tuple(ScriptFacts(name=f"script {n}", weight=1, commands=()) for n in scripts),
        ),
        server=ServerFacts(version="?"),
        host=HostFacts(),
        version=version,
        intervals=transactions.intervals(entries, start),
        measured_ns=measured_us * 1000,
        notes=(
            f"imported from pgbench{f': {command}' if command else ''}",
            f"files: {', '.join(file.name for file in files)}",
        ),
        findings=tuple(_incomplete(entries)),
    )


def _columns(lines: dict[str, list[str]], seventh: Seventh | None) -> Columns:
    if not lines:
        raise PlanError("these files contain no transactions", "was pgbench run with -l?")
    for name, each in lines.items():
        if not _LINE.fullmatch(each[0].strip()):
            raise PlanError(
                f"{name} is not pgbench's log of all transactions",
                "name the files of -l, of a run without --aggregate-interval",
            )
    width = {len(each[0].split()) for each in lines.values()}
    if len(width) != 1:
        raise PlanError(
            "these are not the logs of one run: their lines have"
            f" {' and '.join(map(str, sorted(width)))} columns",
            "name the files of one run, pgbench_log.PID and pgbench_log.PID.N",
        )
    return Columns.of(width.pop(), seventh)


def _incomplete(entries: Sequence[LoggedTransaction]) -> Iterator[Finding]:
    """A finding for a log that is sampled, or without its last interval."""
    highest: dict[int, int] = {}
    for entry in entries:
        highest[entry.client] = max(highest.get(entry.client, 0), entry.number)
    count, expected = len(entries), sum(highest.values())
    if count < expected:
        share = count / expected
        text = f"the log holds {count} of {expected} transactions ({share:.1%})"
        yield Finding("import", "invalid" if share < 0.99 else "warning", text, share)
