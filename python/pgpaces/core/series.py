"""Readings of sensors: samples as they are read, and series of all samples of one name.

A series takes 12 bytes a reading. Knows no source of readings.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator

from msgspec import Struct, field


class Sample(Struct, frozen=True):
    """A reading of a sensor in one second of a trial; a difference belongs to its last second.

    source: database, checkpoints, wal, host, ...; name: within the source. second 0 begins the
    measured part.
    """

    second: int
    source: str
    name: str
    value: float
    unit: str = ""


class Series(Struct, frozen=True):
    """The readings of a sensor, in the order in which they were added: seconds and their values."""

    source: str
    name: str
    unit: str = ""
    seconds: array[int] = field(default_factory=lambda: array("i"))
    values: array[float] = field(default_factory=lambda: array("d"))

    @property
    def pairs(self) -> Iterator[tuple[int, float]]:
        return zip(self.seconds, self.values, strict=True)

    def track(self, end: float = math.inf) -> dict[int, float]:
        """The value of each second of the measured part, before second `end`."""
        return {second: value for second, value in self.pairs if 0 <= second < end}

    def between(self, start: float, end: float) -> list[float]:
        """The values from second `start` up to, but not including, `end`."""
        return [value for second, value in self.pairs if start <= second < end]

    def add(self, second: int, value: float) -> None:
        self.seconds.append(second)
        self.values.append(value)


class Collection:
    """Series of samples that are added one by one, by the first sample of each."""

    def __init__(self, samples: Iterable[Sample] = ()) -> None:
        self._series: dict[tuple[str, str, str], Series] = {}
        self.add(samples)

    def add(self, samples: Iterable[Sample]) -> None:
        for sample in samples:
            self.of(sample.source, sample.name, sample.unit).add(sample.second, sample.value)

    def of(self, source: str, name: str, unit: str) -> Series:
        """The series of this name, which may be new."""
        return self._series.setdefault((source, name, unit), Series(source, name, unit))

    def series(self) -> tuple[Series, ...]:
        return tuple(self._series.values())


class Seconds:
    """A growing set of seconds, as ranges: few bytes for many seconds without gaps."""

    def __init__(self) -> None:
        self._ranges: list[list[int]] = []

    def add(self, second: int) -> None:
        """Adds a second, later than all others."""
        if self._ranges and self._ranges[-1][1] == second:
            self._ranges[-1][1] = second + 1
        else:
            self._ranges.append([second, second + 1])

    def __iter__(self) -> Iterator[int]:
        return (second for start, end in self._ranges for second in range(start, end))
