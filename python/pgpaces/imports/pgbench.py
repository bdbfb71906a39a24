"""A trial from pgbench's logs of all transactions (-l) of one run.

A line for each transaction, in the order in which they ended:
client transaction time script epoch_s epoch_us [lag] [retries]: times in us. A transaction's time
counts from its schedule, so it was due at its end - its time. Skipped and failed transactions have
a word in place of their time. Reads texts, not files: names are for messages.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from msgspec import Struct

from pgpaces.core.errors import PlanError
from pgpaces.core.findings import Finding, finding
from pgpaces.core.record import Interval, Tally
from pgpaces.core.times import times_of
from pgpaces.core.units import duration_text
from pgpaces.spec.result import Trial
from pgpaces.spec.setup import (
    HostFacts,
    ImportedFacts,
    ScriptFacts,
    ServerFacts,
    Setup,
    WorkloadFacts,
)

# An aggregated log begins with a time since 1970, which has more digits than a client's number.
_LINE = re.compile(r"\d{1,9}(\s+\S+){5,7}")
Seventh = Literal["lag", "retries"]
# pgbench's words for failures, and the states of pgpaces.
_FAILED = {"failed": "failed", "serialization": "40001", "deadlock": "40P01", "other": "other"}


def trial(
    files: Mapping[str, str],
    id_: str,
    *,
    version: str,
    limit_ns: int | None = None,
    seventh: Seventh | None = None,
    command: str | None = None,
) -> Trial:
    """The trial of the logs of one run: their texts by name. Raises PlanError.

    version: of pgpaces. The others are facts that logs lack; command: pgbench's command line.
    """
    lines = {name: text.splitlines() for name, text in files.items() if text.strip()}
    lag, retries = _columns(lines, seventh)
    limit_us = math.inf if limit_ns is None else limit_ns / 1000
    entries = []
    for name, each in lines.items():
        for number, line in enumerate(each, 1):
            try:
                entries.append(_entry(line.split(), lag, retries, limit_us=limit_us))
            except (ValueError, LookupError):
                where = {"file": name, "line": number}
                raise PlanError("not-a-transaction", text=line[:80], **where) from None
    start = min(entry.end_us - entry.latency_us for entry in entries)  # when second 0 begins
    measured_us = max(entry.end_us for entry in entries) - start
    started_at = datetime.fromtimestamp(start / 1e6, UTC)
    clients = len({entry.client for entry in entries})
    numbers = range(1 + max(entry.script for entry in entries))
    scripts = tuple(ScriptFacts(name=f"script {n}", weight=1, commands=()) for n in numbers)
    spec: dict[str, Any] = {"clients": clients, "seed": 0, "warmup": "0s"}
    if lag is not None:
        spec["rate"] = None  # pgbench had one, which the log does not tell
    if limit_ns is not None:
        spec["latency_limit"] = duration_text(limit_ns)
        spec["policy"] = "run" if lag is None else "skip"
    return Trial(
        id=id_,
        state="finished",
        started_at=started_at,
        ended_at=started_at + timedelta(microseconds=measured_us),
        spec=spec,
        setup=Setup(
            clients=clients,
            imported=ImportedFacts(program="pgbench", command=command, files=tuple(files)),
            workload=WorkloadFacts(name="pgbench", scripts=scripts),
            server=ServerFacts(version="?"),
            host=HostFacts(),
        ),
        version=version,
        intervals=_intervals(entries, start),
        measured_ns=measured_us * 1000,
        notes=(
            finding("imported", files=list(files)),
            *((finding("imported-command", command=command),) if command else ()),
        ),
        findings=tuple(_incomplete(entries)),
    )


def _columns(
    lines: Mapping[str, list[str]], seventh: Seventh | None
) -> tuple[int | None, int | None]:
    """The places of the lag and the retries in a line; None for a column that is missing."""
    if not lines:
        raise PlanError("log-empty")
    for name, each in lines.items():
        if not _LINE.fullmatch(each[0].strip()):
            raise PlanError("not-a-pgbench-log", file=name)
    widths = {len(each[0].split()) for each in lines.values()}
    if len(widths) != 1:
        raise PlanError("logs-of-several-runs", columns=sorted(widths))
    width = widths.pop()
    if width == 7 and seventh is None:
        raise PlanError("ambiguous-column")
    if width == 7:
        return (6, None) if seventh == "lag" else (None, 6)
    return (6, 7) if width == 8 else (None, None)


def _incomplete(entries: Sequence[LoggedTransaction]) -> Iterator[Finding]:
    highest: dict[int, int] = {}
    for entry in entries:
        highest[entry.client] = max(highest.get(entry.client, 0), entry.number)
    count, expected = len(entries), sum(highest.values())
    if count < expected:
        name = "log-truncated" if count < 0.99 * expected else "log-incomplete"
        yield finding(name, count=count, expected=expected)


class LoggedTransaction(Struct, frozen=True):
    """A transaction, times in us. outcome: on_time, late, skipped, or the state of a failure."""

    client: int
    number: int
    script: int
    outcome: str
    end_us: int
    latency_us: int = 0
    lag_us: int = 0
    retries: int = 0


def _entry(
    words: list[str], lag_at: int | None, retries_at: int | None, *, limit_us: float
) -> LoggedTransaction:
    """A transaction of a line. Raises ValueError, LookupError for any other line."""
    client, number, script = int(words[0]), int(words[1]), int(words[3])
    end_us = int(words[4]) * 1_000_000 + int(words[5])
    retries = 0 if retries_at is None else int(words[retries_at])
    if min(client, number, script, end_us, retries) < 0:
        raise ValueError
    if words[2] == "skipped":
        # It was due before end - limit: pgbench skips transactions that are later than that.
        at = end_us - (0 if math.isinf(limit_us) else int(limit_us))
        return LoggedTransaction(client, number, script, "skipped", at)
    if words[2] in _FAILED:
        return LoggedTransaction(client, number, script, _FAILED[words[2]], end_us, retries=retries)
    latency = int(words[2])
    lag = 0 if lag_at is None else int(words[lag_at])
    if not 0 <= latency <= end_us:
        raise ValueError
    outcome = "late" if latency > limit_us else "on_time"
    # pgbench rounds both separately, so the lag may exceed the latency.
    return LoggedTransaction(
        client, number, script, outcome, end_us, latency, min(max(lag, 0), latency), retries
    )


def _tally(due_second: int, script: int, entries: Sequence[LoggedTransaction]) -> Tally:
    outcomes = Counter(entry.outcome for entry in entries)
    on_time, late, skipped = (outcomes.pop(name, 0) for name in ("on_time", "late", "skipped"))
    done = [entry for entry in entries if entry.outcome in ("on_time", "late")]
    return Tally(
        due_second=due_second,
        script=script,
        due=len(entries),
        on_time=on_time,
        late=late,
        skipped=skipped,
        failed=dict(outcomes),
        latency=times_of(entry.latency_us * 1000 for entry in done),
        lag=times_of(entry.lag_us * 1000 for entry in done),
        service=times_of((entry.latency_us - entry.lag_us) * 1000 for entry in done),
        retried=sum(entry.retries > 0 for entry in entries),
        retries=sum(entry.retries for entry in entries),
    )


def _intervals(entries: Iterable[LoggedTransaction], start: int) -> tuple[Interval, ...]:
    """The seconds of a run, each with the transactions that ended in it."""
    groups: dict[tuple[int, int, int], list[LoggedTransaction]] = {}
    for entry in entries:
        ended = (entry.end_us - start) // 1_000_000
        due = (entry.end_us - entry.latency_us - start) // 1_000_000
        groups.setdefault((max(0, ended), max(0, due), entry.script), []).append(entry)
    tallies: dict[int, list[Tally]] = {}
    for (ended, due, script), group in sorted(groups.items(), key=lambda item: item[0]):
        tallies.setdefault(ended, []).append(_tally(due, script, group))
    return tuple(
        Interval(second, tuple(parts), ended_ns=(second + 1) * 1_000_000_000)
        for second, parts in tallies.items()
    )
