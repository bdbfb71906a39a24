"""Whether the server's cache was warm while it was measured. Pure: reads nothing itself."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from pgpaces.core.findings import Finding, finding

# The acceptable rise of the ratio from the first tenth to the last, in percentage points.
RISE_MAX = 2.0


class Blocks(Struct, frozen=True):
    """Blocks of one second of a trial: hits in the server's cache, and reads."""

    second: int
    hit: int
    read: int


def ratio(seconds: Sequence[Blocks]) -> float | None:
    """The share of blocks found in the cache, percent; None without any access."""
    hit, read = sum(s.hit for s in seconds), sum(s.read for s in seconds)
    return 100 * hit / (hit + read) if hit + read else None


def warmed(seconds: Sequence[Blocks]) -> Finding | None:
    """The ratio at the end of the warm-up, in its last tenth; None without blocks."""
    before = [s for s in seconds if s.second < 0]
    tenth = max(1, -min((s.second for s in before), default=0) // 10)
    share = ratio([s for s in before if s.second >= -tenth])
    return None if share is None else finding("warm-up-cache-hits", percent=share)


def hits(seconds: Sequence[Blocks]) -> Finding | None:
    """The ratio of the measured part, with a warning where it still rose; None without blocks.

    The first and the last tenth of the time are compared, where both have blocks.
    """
    measured = [s for s in seconds if s.second >= 0]
    share, end = ratio(measured), max((s.second for s in measured), default=0)
    if share is None:
        return None
    tenth = max(1, (end + 1) // 10)
    first = ratio([s for s in measured if s.second < tenth])
    last = ratio([s for s in measured if s.second > end - tenth])
    warming = end >= 1 and first is not None and last is not None and last - first > RISE_MAX
    name = "cache-warming" if warming else "cache-hits"
    return finding(name, percent=share, first_percent=first, last_percent=last)
