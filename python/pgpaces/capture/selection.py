"""Which statements are taken, how often each runs, and what they cover. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pgpaces.capture.catalog import Entry, Left, Name

# Calls beyond this are brought down to it, each statement at least once.
WEIGHTS = 1_000_000


def weights(calls: Sequence[int]) -> list[int]:
    """Whole numbers in proportion to the calls; these themselves, where they are few."""
    total = sum(calls)
    if total <= WEIGHTS:
        return [max(1, count) for count in calls]
    return [max(1, round(count * WEIGHTS / total)) for count in calls]


def merged(entries: Iterable[Entry]) -> list[Entry]:
    """One entry for each text: every role's, and whatever else tells entries apart."""
    found: dict[str, Entry] = {}
    for entry in entries:
        one = found.get(entry.text, Entry(entry.text, 0, 0.0))
        found[entry.text] = Entry(
            entry.text, one.calls + entry.calls, one.total_ms + entry.total_ms
        )
    return list(found.values())


def ordered(entries: Sequence[Entry]) -> list[Entry]:
    """Those first that count most, by their share of the calls or of the time."""
    calls = sum(entry.calls for entry in entries) or 1
    total_ms = sum(entry.total_ms for entry in entries) or 1.0

    def counts(entry: Entry) -> tuple[float, str]:
        return (-max(entry.calls / calls, entry.total_ms / total_ms), entry.text)

    return sorted((entry for entry in entries if entry.calls > 0), key=counts)


def share(part: float, of: float) -> float:
    """In percent; of nothing it is nothing."""
    return 100 * part / of if of else 0.0


def pace(rate: float | None, seconds: float | None) -> str:
    """How many calls a second were counted, in words."""
    if rate is None or seconds is None:
        return "Since when statements are counted is not known, so no rate is written."
    return f"{rate:,.6g} calls a second on average, in the {seconds:,.0f} seconds since a reset."


def by_reason(left: Iterable[Left]) -> list[tuple[str, int, int, float]]:
    """Reasons with statements, calls and ms of each, those with most calls first."""
    found: dict[str, tuple[int, int, float]] = {}
    for each in left:
        count, calls, total_ms = found.get(each.reason, (0, 0, 0.0))
        found[each.reason] = (count + 1, calls + each.calls, total_ms + each.total_ms)
    rows = [(reason, *sums) for reason, sums in found.items()]
    return sorted(rows, key=lambda row: (-row[2], row[0]))


def script_name(order: int, kind: str, names: Sequence[Name]) -> str:
    """What the script is called: its place, what it does, and with what."""
    about = re.sub(r"[^a-z0-9]+", "_", names[0][1].lower()).strip("_") if names else ""
    return "_".join(part for part in (f"{order:02}", kind, about[:40]) if part)
