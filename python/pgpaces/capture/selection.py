"""The statements to take, their weights, and the share that they cover. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pgpaces.capture.catalog import Captured, Entry, ExcludedStatement, Name

# The largest sum of weights; calls beyond it are scaled down, each statement to at least 1.
WEIGHTS = 1_000_000


def weights(calls: Sequence[int]) -> list[int]:
    """Integers in proportion to the calls; the calls themselves, where they are few."""
    total = sum(calls)
    if total <= WEIGHTS:
        return [max(1, count) for count in calls]
    return [max(1, round(count * WEIGHTS / total)) for count in calls]


def merged(entries: Iterable[Entry]) -> list[Entry]:
    """One entry for each text, the sum over roles and whatever else distinguishes entries."""
    sums: dict[str, Entry] = {}
    for entry in entries:
        one = sums.get(entry.text, Entry(entry.text, 0, 0.0))
        calls, total_ms = one.calls + entry.calls, one.total_ms + entry.total_ms
        sums[entry.text] = Entry(entry.text, calls, total_ms)
    return list(sums.values())


def ordered(entries: Sequence[Entry]) -> list[Entry]:
    """The entries with calls, by the larger of their shares of calls and time, largest first."""
    calls = sum(entry.calls for entry in entries) or 1
    total_ms = sum(entry.total_ms for entry in entries) or 1.0

    def rank(entry: Entry) -> tuple[float, str]:
        return (-max(entry.calls / calls, entry.total_ms / total_ms), entry.text)

    return sorted((entry for entry in entries if entry.calls > 0), key=rank)


def share(part: float, of: float) -> float:
    """A share in percent; 0 of 0."""
    return 100 * part / of if of else 0.0


def coverage(workload: Captured) -> tuple[float, float]:
    """The shares of calls and of time that the scripts cover, in percent."""
    entries = [each.entry for each in workload.scripts]
    calls, total_ms = sum(e.calls for e in entries), sum(e.total_ms for e in entries)
    return share(calls, workload.calls), share(total_ms, workload.total_ms)


def pace(rate: float | None, seconds: float | None) -> str:
    if rate is None or seconds is None:
        return "The time of the last reset is unknown, so no rate is written."
    return f"{rate:,.6g} calls a second on average, in the {seconds:,.0f} seconds since a reset."


def by_reason(excluded: Iterable[ExcludedStatement]) -> list[tuple[str, int, int, float]]:
    """Each reason with its statements, calls and ms, by calls."""
    reasons: dict[str, tuple[int, int, float]] = {}
    for each in excluded:
        count, calls, total_ms = reasons.get(each.reason, (0, 0, 0.0))
        reasons[each.reason] = (count + 1, calls + each.calls, total_ms + each.total_ms)
    rows = [(reason, *sums) for reason, sums in reasons.items()]
    return sorted(rows, key=lambda row: (-row[2], row[0]))


def script_name(order: int, kind: str, names: Sequence[Name]) -> str:
    """The name of a script: its place, its kind, and its first relation or function."""
    about = re.sub(r"[^a-z0-9]+", "_", names[0][1].lower()).strip("_") if names else ""
    return "_".join(part for part in (f"{order:02}", kind, about[:40]) if part)
