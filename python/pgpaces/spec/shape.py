"""How the rate of a load changes over a trial: shapes as typed, and their segments.

A shape is a multiplier of the rate over time. Knows no rate, no engine and no clock.
"""

from __future__ import annotations

import math
import re

from msgspec import Struct

from pgpaces.core.errors import PlanError
from pgpaces.core.units import NUMBER, duration_ns

# Begin in ns from the beginning of the measured part, multiplier at its begin and at its end;
# linear in between. A segment ends where the next one begins, the last with the trial.
Segment = tuple[int, float, float]

_MULTIPLIER_MAX = 1000.0
_STEPS_MAX = 1000
_BURSTS_MAX = 10_000
# A day's curve is drawn in quarters of an hour: within 0.0005 of the cosine.
_DAY_SEGMENTS = 96
_DAY_SWING = 0.8


class Shape(Struct, frozen=True):
    """A multiplier of the rate over a trial.

    text: as typed. multipliers: those of steps, the two ends of a ramp, that of a burst.
    burst_ns, every_ns: the length of a burst, and the time from the end of a burst to the next end.
    """

    text: str
    multipliers: tuple[float, ...] = (1.0,)
    burst_ns: int = 0
    every_ns: int = 0

    def __str__(self) -> str:
        return self.text

    @property
    def kind(self) -> str:
        return self.text.partition(":")[0]

    @property
    def peak(self) -> float:
        if self.kind == "day":
            return 1 + _DAY_SWING
        return max(self.multipliers) if self.kind != "burst" else max(1.0, *self.multipliers)

    def segments(self, duration_ns: int) -> tuple[Segment, ...]:
        """The shape over a measured part of this length; empty for a constant rate.

        Raises PlanError if it does not fit into it.
        """
        if self.kind == "steps":
            count = len(self.multipliers)
            return tuple((duration_ns * n // count, m, m) for n, m in enumerate(self.multipliers))
        if self.kind == "ramp":
            low, high = self.multipliers
            return ((0, low, high),)
        if self.kind != "burst":
            return _day(duration_ns) if self.kind == "day" else ()
        # Each burst is at the end of its period: warm-up and trial begin at the rate itself.
        count = math.ceil(duration_ns / self.every_ns)
        calm_ns = self.every_ns - self.burst_ns
        if duration_ns <= calm_ns:
            raise PlanError("burst-after-end", shape=self.text)
        if count > _BURSTS_MAX:
            raise PlanError("too-many-bursts", shape=self.text, count=count, maximum=_BURSTS_MAX)
        (high,) = self.multipliers
        segments: list[Segment] = []
        for begin in range(0, duration_ns, self.every_ns):
            segments += [(begin, 1.0, 1.0), (begin + calm_ns, high, high)]
        return tuple(segment for segment in segments if segment[0] < duration_ns)


def _day(duration_ns: int) -> tuple[Segment, ...]:
    """A day compressed into the trial: m(t) = 1 - 0.8 cos(2 pi t / T), from night to night.

    t: time from the beginning of the measured part; T: its length, in the same unit. 0.2 at t = 0
    and T, 1.8 at T/2; its mean is 1, also of the chords that are drawn between its knots.
    """

    def multiplier(n: int) -> float:
        return 1 - _DAY_SWING * math.cos(2 * math.pi * n / _DAY_SEGMENTS)

    return tuple(
        (duration_ns * n // _DAY_SEGMENTS, multiplier(n), multiplier(n + 1))
        for n in range(_DAY_SEGMENTS)
    )


CONSTANT = Shape("constant")
_DAY = Shape("day")


def parse(text: str) -> Shape:
    """The shape of a text: `constant`, `steps:0.5:1:2` (equal parts of the trial),
    `ramp:0.5:2`, `burst:4:10s:1min` (10 s at 4x at the end of every minute, else 1x), `day`.

    Raises PlanError.
    """
    text = text.strip()
    kind, *words = text.split(":")
    if text in ("constant", "day"):
        return CONSTANT if text == "constant" else _DAY
    if (kind == "steps" and 2 <= len(words) <= _STEPS_MAX) or (kind == "ramp" and len(words) == 2):
        multipliers = tuple(_multiplier(text, word) for word in words)
        if not any(multipliers):
            raise PlanError("shape-zero", shape=text)
        return Shape(text, multipliers)
    if kind == "burst" and len(words) == 3:
        burst_ns = duration_ns(words[1], f"shape {text}: burst")
        every_ns = duration_ns(words[2], f"shape {text}: period")
        if burst_ns >= every_ns:
            raise PlanError("burst-fills-period", shape=text, burst=words[1], period=words[2])
        return Shape(text, (_multiplier(text, words[0]),), burst_ns, every_ns)
    raise PlanError("not-a-shape", shape=text)


def _multiplier(text: str, word: str) -> float:
    if not re.fullmatch(NUMBER, word.strip()) or not float(word) <= _MULTIPLIER_MAX:
        raise PlanError("not-a-multiplier", shape=text, value=word, maximum=_MULTIPLIER_MAX)
    return float(word)
