"""pgbench's log of every transaction (-l): a line for each, in the order in which they ended.

client transaction time script epoch_s epoch_us [lag] [retries]: times in us. A transaction's time
counts from its schedule, so it was due at its end - its time. Skipped and failed transactions have
a word in place of their time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from pgpaces.core.errors import PlanError
from pgpaces.core.record import Interval, Tally
from pgpaces.core.times import times_of

Seventh = Literal["lag", "retries"]
# pgbench's words for failures, and the states of pgpaces.
_FAILED = {"failed": "failed", "serialization": "40001", "deadlock": "40P01", "other": "other"}


class Columns(Struct, frozen=True):
    """The places of the columns after the sixth; None for those that are missing."""

    lag: int | None
    retries: int | None

    @classmethod
    def of(cls, width: int, seventh: Seventh | None) -> Columns:
        """The columns of a log, by their number. Raises PlanError where this is ambiguous."""
        if width == 7 and seventh is None:
            raise PlanError(
                "the 7th column of the log is the schedule lag, or the number of retries",
                "use --seventh lag (pgbench ran with -R) or --seventh retries (with --max-tries)",
            )
        if width == 8:
            return cls(6, 7)
        return cls(
            6 if width == 7 and seventh == "lag" else None,
            6 if width == 7 and seventh == "retries" else None,
        )


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


def entries(
    name: str, lines: Iterable[str], columns: Columns, *, limit_us: float
) -> list[LoggedTransaction]:
    """The transactions of one file. Raises PlanError, with file and line, for any other line."""
    parsed = []
    for number, line in enumerate(lines, 1):
        try:
            parsed.append(_entry(line.split(), columns, limit_us))
        except (ValueError, LookupError):
            raise PlanError(
                f"{name}, line {number}, is not a transaction of pgbench's log: '{line[:80]}'",
                "check that the file is complete, and all of one run",
            ) from None
    return parsed


def _entry(words: list[str], columns: Columns, limit_us: float) -> LoggedTransaction:
    client, number, script = int(words[0]), int(words[1]), int(words[3])
    end_us = int(words[4]) * 1_000_000 + int(words[5])
    retries = 0 if columns.retries is None else int(words[columns.retries])
    if min(client, number, script, end_us, retries) < 0:
        raise ValueError
    if words[2] == "skipped":
        # It was due before end - limit: pgbench skips transactions that are later than that.
        at = end_us - (0 if limit_us == float("inf") else int(limit_us))
        return LoggedTransaction(client, number, script, "skipped", at)
    if words[2] in _FAILED:
        return LoggedTransaction(client, number, script, _FAILED[words[2]], end_us, retries=retries)
    latency = int(words[2])
    lag = 0 if columns.lag is None else int(words[columns.lag])
    if not 0 <= latency <= end_us:
        raise ValueError
    outcome = "late" if latency > limit_us else "on_time"
    # pgbench rounds both separately, so the lag may exceed the latency.
    return LoggedTransaction(
        client, number, script, outcome, end_us, latency, min(max(lag, 0), latency), retries
    )


def _tally(due_second: int, script: int, entries: Sequence[LoggedTransaction]) -> Tally:
    """The tally of transactions, as the engine counts them."""
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


def start_us(entries: Iterable[LoggedTransaction]) -> int:
    """The due time of the first transaction, where second 0 begins."""
    return min(entry.end_us - entry.latency_us for entry in entries)


def intervals(entries: Iterable[LoggedTransaction], start: int) -> tuple[Interval, ...]:
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
