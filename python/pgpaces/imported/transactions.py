"""pgbench's log of every transaction (-l): a line for each, in the order in which they ended.

client transaction time script epoch_s epoch_us [lag] [retries]: times in us; `time` is a word for
those that were skipped or failed. A transaction's time counts from its schedule, so it was due at
its end - its time; of one that was skipped or failed no time is logged.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from pgpaces.errors import PlanError
from pgpaces.record import Interval, Tally
from pgpaces.times import times_of

Seventh = Literal["lag", "retries"]
# pgbench's words for how a transaction failed, and what we call that.
_FAILED = {"failed": "failed", "serialization": "40001", "deadlock": "40P01", "other": "other"}


class Columns(Struct, frozen=True):
    """What stands in the columns behind the sixth; their places, or None."""

    lag: int | None
    retries: int | None

    @classmethod
    def of(cls, width: int, seventh: Seventh | None) -> Columns:
        """Of a log with so many columns. Raises PlanError where it cannot be known."""
        if width == 7 and seventh is None:
            raise PlanError(
                "the 7th column of the log is the schedule lag, or the number of retries",
                "say --seventh lag (pgbench ran with -R) or --seventh retries (with --max-tries),"
                " or name the printed report as well",
            )
        if width == 8:
            return cls(6, 7)
        return cls(
            6 if width == 7 and seventh == "lag" else None,
            6 if width == 7 and seventh == "retries" else None,
        )


class LoggedTransaction(Struct, frozen=True):
    """A transaction, times in us. outcome: a class of ours, or how it failed."""

    client: int
    number: int
    script: int
    outcome: str
    end_us: int
    latency_us: int = 0
    lag_us: int = 0
    retries: int = 0


def entries(
    name: str, lines: Iterable[str], columns: Columns, limit_us: float
) -> list[LoggedTransaction]:
    """The transactions of one file. Raises PlanError, with file and line, for what is none."""
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(_entry(line.split(), columns, limit_us))
        except (ValueError, LookupError):
            raise PlanError(
                f"{name}, line {number}, is no transaction of pgbench's log: '{line[:80]}'",
                "is the file whole, and all of one run?",
            ) from None
    return found


def _entry(words: list[str], columns: Columns, limit_us: float) -> LoggedTransaction:
    client, number, script = int(words[0]), int(words[1]), int(words[3])
    end_us = int(words[4]) * 1_000_000 + int(words[5])
    retries = 0 if columns.retries is None else int(words[columns.retries])
    if min(client, number, script, end_us, retries) < 0:
        raise ValueError
    if words[2] == "skipped":
        # It was due before end - limit: pgbench skips what is later than that.
        at = end_us - (0 if limit_us == float("inf") else int(limit_us))
        return LoggedTransaction(client, number, script, "skipped", at)
    if words[2] in _FAILED:
        return LoggedTransaction(client, number, script, _FAILED[words[2]], end_us, retries=retries)
    latency = int(words[2])
    lag = 0 if columns.lag is None else int(words[columns.lag])
    if not 0 <= latency <= end_us:
        raise ValueError
    outcome = "late" if latency > limit_us else "on_time"
    # Both are rounded by themselves.
    return LoggedTransaction(
        client, number, script, outcome, end_us, latency, min(max(lag, 0), latency), retries
    )


class _Sums(Struct):
    """What became known in one second about a due second and script."""

    entries: list[LoggedTransaction]

    def tally(self, due_second: int, script: int) -> Tally:
        """As the engine would have counted it."""
        done = [e for e in self.entries if e.outcome in ("on_time", "late")]
        failed: dict[str, int] = {}
        for entry in self.entries:
            if entry.outcome not in ("on_time", "late", "skipped"):
                failed[entry.outcome] = failed.get(entry.outcome, 0) + 1
        return Tally(
            due_second=due_second,
            script=script,
            due=len(self.entries),
            on_time=sum(e.outcome == "on_time" for e in done),
            late=sum(e.outcome == "late" for e in done),
            skipped=sum(e.outcome == "skipped" for e in self.entries),
            failed=failed,
            latency=times_of(e.latency_us * 1000 for e in done),
            lag=times_of(e.lag_us * 1000 for e in done),
            service=times_of((e.latency_us - e.lag_us) * 1000 for e in done),
            retried=sum(e.retries > 0 for e in self.entries),
            retries=sum(e.retries for e in self.entries),
        )


def start_us(found: Iterable[LoggedTransaction]) -> int:
    """When the first of them was due: where second 0 begins."""
    return min(entry.end_us - entry.latency_us for entry in found)


def intervals(found: Iterable[LoggedTransaction], start: int) -> tuple[Interval, ...]:
    """The seconds of a run, each with what ended in it."""
    sums: dict[tuple[int, int, int], _Sums] = {}
    for entry in found:
        ended = (entry.end_us - start) // 1_000_000
        due = (entry.end_us - entry.latency_us - start) // 1_000_000
        sums.setdefault((max(0, ended), max(0, due), entry.script), _Sums([])).entries.append(entry)
    tallies: dict[int, list[Tally]] = {}
    for (ended, due, script), part in sorted(sums.items()):
        tallies.setdefault(ended, []).append(part.tally(due, script))
    return tuple(
        Interval(second, tuple(parts), ended_ns=(second + 1) * 1_000_000_000)
        for second, parts in tallies.items()
    )
