"""Whether a load makes a server too slow for its other sessions: samples in, verdict out. Pure.

Two measures, each a median of samples against its median before the load:

- *age*: how long the statements of other sessions that are being executed have been so. It grows
  with locks, with I/O, with all that a statement waits for. Short statements are seldom seen.
- *probe*: how long the query took that found this out. It grows with what every short statement
  feels: CPU, scheduling, the way to the server.

Medians, because one slow sample, or one report among many sessions, is everyday life.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from msgspec import Struct

BASELINE = 5  # samples before the load, one a second
WINDOW = 5  # samples that a verdict looks back on; the larger half of them decides
SILENCE_S = 5.0
# Shorter times count as this: a factor of microseconds is nobody's trouble.
FLOOR_MS = 5.0


class KillSwitchSample(Struct, frozen=True):
    """One look at the server: how long it took, and the median age of others' statements.

    age_ms: 0 where no other session was executing anything.
    """

    probe_ms: float
    age_ms: float = 0.0


class Before(Struct, frozen=True):
    """What was usual before the load."""

    probe_ms: float
    age_ms: float

    @classmethod
    def of(cls, samples: Sequence[KillSwitchSample]) -> Before:
        """The medians of at least one sample."""
        return cls(median(s.probe_ms for s in samples), median(s.age_ms for s in samples))

    def __str__(self) -> str:
        """For a sentence."""
        return (
            f"other sessions' statements {self.age_ms:.3g} ms old, a probe {self.probe_ms:.3g} ms"
        )


def verdict(
    factor: float, before: Before, seen: Sequence[KillSwitchSample], silent_s: float = 0.0
) -> str | None:
    """Why the load must stop, as a sentence; None as long as it may go on.

    factor: how much slower is too slow. seen: samples under load, in order; it takes WINDOW of
    them, or so many that the larger half of WINDOW is too slow already. silent_s: how long the
    server has owed an answer.
    """
    if silent_s >= SILENCE_S:
        return f"the server has not answered a small query for {silent_s:.0f} s"
    window = seen[-WINDOW:]
    ages = ("other sessions' statements took", [s.age_ms for s in window], before.age_ms)
    probes = (
        "a small query of another session took",
        [s.probe_ms for s in window],
        before.probe_ms,
    )
    for what, times, usual in (ages, probes):
        # Samples that are still to come count as quick: stopping needs evidence.
        now = median([*times, *[0.0] * (WINDOW - len(times))])
        times_as_long = now / max(usual, FLOOR_MS)
        if times_as_long > factor:
            return f"{what} {times_as_long:.1f} x as long as before"
    return None
