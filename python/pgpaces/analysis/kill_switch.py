"""Whether a load makes a server too slow for its other sessions: samples in, verdict out. Pure.

Two measures, each a median of samples against its median before the load:

- *age*: how long statements of other sessions have been executing. It grows with locks, I/O and
  everything else that a statement waits for. Samples seldom catch short statements.
- *probe*: the duration of the query that reads these ages. It grows with all that slows short
  statements down: CPU, scheduling, the network.

Medians, because a single slow sample, or one report among many sessions, is normal.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from msgspec import Struct

BASELINE = 5  # samples before the load, one a second
WINDOW = 5  # last samples that a verdict uses; a majority of them decides
SILENCE_S = 5.0
# Shorter times count as this: microseconds may grow by any factor without harm.
FLOOR_MS = 5.0
_SUBJECTS = {
    "age_ms": "other sessions' statements",
    "probe_ms": "a small query of another session",
}


class KillSwitchSample(Struct, frozen=True):
    """One sample of the server: its duration, and the median age of other sessions' statements.

    age_ms: 0 where no other session was executing a statement.
    """

    probe_ms: float
    age_ms: float = 0.0


class Before(Struct, frozen=True):
    probe_ms: float
    age_ms: float

    @classmethod
    def of(cls, samples: Sequence[KillSwitchSample]) -> Before:
        """The medians of at least one sample."""
        return cls(median(s.probe_ms for s in samples), median(s.age_ms for s in samples))

    def __str__(self) -> str:
        return (
            f"other sessions' statements {self.age_ms:.3g} ms old, a probe {self.probe_ms:.3g} ms"
        )


def verdict(
    factor: float, before: Before, samples: Sequence[KillSwitchSample], *, silent_s: float = 0.0
) -> str | None:
    """The reason why the load must stop, as a sentence; None as long as it may continue.

    factor: the slowdown that is too much. samples: samples under load, in order; a majority of
    WINDOW must be too slow, even if there are not WINDOW of them yet. silent_s: time since a query
    that the server has not answered yet.
    """
    if silent_s >= SILENCE_S:
        return f"the server has not answered a small query for {silent_s:.0f} s"
    for measure, subject in _SUBJECTS.items():
        times = [getattr(sample, measure) for sample in samples[-WINDOW:]]
        # Samples that are missing yet count as quick: stopping needs evidence.
        now = median([*times, *[0.0] * (WINDOW - len(times))])
        earlier = getattr(before, measure)
        if now <= factor * max(earlier, FLOOR_MS):
            continue
        if earlier < FLOOR_MS:
            short = f"less than {FLOOR_MS:g} ms before, which count as {FLOOR_MS:g}"
            return f"{subject} took {now:.3g} ms, and {short}"
        return f"{subject} took {now / earlier:.1f} x as long as before"
    return None
