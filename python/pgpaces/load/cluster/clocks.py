"""The clock of another machine, from exchanges of the time with it. Pure.

The estimate and its bound are Cristian's (Probabilistic clock synchronization, 1989): the reading
of the exchange with the least round trip, half of which is the most that it can be wrong.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

# Exchanges for one estimate, at least.
EXCHANGES = 20
# A clock was set, and not only slewed, if its two readings moved apart by more.
_STEP_NS = 5_000_000


class ClockReading(Struct, frozen=True):
    """Readings of the clocks of a machine at one moment, ns: monotonic, and of the day."""

    monotonic_ns: int
    wall_ns: int


class ClockOffset(Struct, frozen=True):
    """The monotonic clock of another machine minus ours, ns, and the most it can be wrong."""

    offset_ns: int
    uncertainty_ns: int
    wall_ns: int

    def __str__(self) -> str:
        """As in `+0.102 ms ± 0.031 ms`."""
        return f"{self.offset_ns / 1e6:+.3f} ms ± {self.uncertainty_ns / 1e6:.3f} ms"

    def there(self, moment_ns: int) -> int:
        return moment_ns + self.offset_ns


def offset_of(exchanges: Iterable[tuple[int, ClockReading, int]]) -> ClockOffset:
    """The offset by exchanges: when each was sent and answered by our clock, and the answer."""
    sent_ns, reading, answered_ns = min(exchanges, key=lambda each: each[2] - each[0])
    return ClockOffset(
        offset_ns=reading.monotonic_ns - (sent_ns + answered_ns) // 2,
        uncertainty_ns=(answered_ns - sent_ns + 1) // 2,
        wall_ns=reading.wall_ns - reading.monotonic_ns,
    )


def drift_ns(before: ClockOffset, after: ClockOffset) -> int:
    """By how much two clocks certainly moved apart between two estimates, ns; 0 if they may not."""
    moved = abs(after.offset_ns - before.offset_ns)
    return max(0, moved - before.uncertainty_ns - after.uncertainty_ns)


def step_ns(before: ClockOffset, after: ClockOffset) -> int:
    """By how much the clock of the day was set between two estimates, ns; 0 if it was not."""
    step = after.wall_ns - before.wall_ns
    return step if abs(step) > _STEP_NS else 0
