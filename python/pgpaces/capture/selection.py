"""The statements to take, their weights, and the share that they cover. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pgpaces.capture.catalog import Captured, CapturedScript, Entry, ExcludedStatement, Name
from pgpaces.capture.guess import SourceKind
from pgpaces.core.messages import message

# The largest sum of weights; calls beyond it are scaled down, each statement to at least 1.
WEIGHTS = 1_000_000
# A bulk load or a dump is called at most this often, and moves at least this many rows per call.
_ONCE, _BULK_ROWS = 2, 1000
_MOVES = re.compile(r"\s*(insert|copy|create|update|delete|merge)\b", re.IGNORECASE)
# Values that the application sends, or that are as frequent as those.
_REAL = frozenset((SourceKind.LOG, SourceKind.STATISTICS, SourceKind.NEW))


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
        sums[entry.text] = Entry(entry.text, calls, total_ms, one.rows + entry.rows)
    return list(sums.values())


def is_bulk(entry: Entry) -> bool:
    """Whether it loaded or dumped data at one time, which no application does all day."""
    rows = entry.rows / entry.calls if entry.calls else 0
    return bool(_MOVES.match(entry.text)) and entry.calls <= _ONCE and rows >= _BULK_ROWS


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
    """The shares of calls and of time of scripts whose values are all real, in percent."""
    entries = [each.entry for each in workload.scripts if _REAL.issuperset(each.sources)]
    calls, total_ms = sum(e.calls for e in entries), sum(e.total_ms for e in entries)
    return share(calls, workload.calls), share(total_ms, workload.total_ms)


def _worst(script: CapturedScript) -> str:
    kinds = [kind for kind in SourceKind if kind in script.sources]
    return kinds[-1] if kinds else "without parameters"


def sources(workload: Captured) -> dict[str, float]:
    """The share of time by the source of values, in percent; of a script, its worst source."""
    times: dict[str, float] = {kind: 0.0 for kind in SourceKind}
    for script in workload.scripts:
        kind = _worst(script)
        times[kind] = times.get(kind, 0.0) + script.entry.total_ms
    times["left out"] = workload.total_ms - sum(times.values())
    return {kind: share(time, workload.total_ms) for kind, time in times.items() if time > 0}


def summary(workload: Captured) -> list[str]:
    """What is covered, the sources of its values, and the rate; a sentence each."""
    calls, time = coverage(workload)
    shares = [f"{kind} {part:.1f}%" for kind, part in sources(workload).items()]
    rate = workload.rate
    return [
        message("scripts-cover", calls_percent=calls, time_percent=time),
        message("values-by-time", shares=shares),
        message("no-rate-counted") if rate is None else message("rate-counted", rate=rate),
    ]


def by_reason(excluded: Iterable[ExcludedStatement]) -> list[tuple[str, int, int, float]]:
    """Each reason with its statements, calls and ms, by calls."""
    reasons: dict[str, tuple[int, int, float]] = {}
    for each in excluded:
        reason = each.reason.message
        count, calls, total_ms = reasons.get(reason, (0, 0, 0.0))
        reasons[reason] = (count + 1, calls + each.calls, total_ms + each.total_ms)
    rows = [(reason, *sums) for reason, sums in reasons.items()]
    return sorted(rows, key=lambda row: (-row[2], row[0]))


def script_name(order: int, kind: str, names: Sequence[Name]) -> str:
    """The name of a script: its place, its kind, and its first relation or function."""
    about = re.sub(r"[^a-z0-9]+", "_", names[0][1].lower()).strip("_") if names else ""
    return "_".join(part for part in (f"{order:02}", kind, about[:40]) if part)
