"""Samples as series and back, and sensors whose samples are taken several times."""

from collections.abc import Iterable
from typing import Protocol

from pgpaces.core.series import Collection, Sample, Series


def collect(samples: Iterable[Sample]) -> tuple[Series, ...]:
    """The series of samples."""
    return Collection(samples).series()


def samples_of(every: Iterable[Series]) -> list[Sample]:
    """The samples of series, by second."""
    samples = [Sample(at, s.source, s.name, value, s.unit) for s in every for at, value in s.pairs]
    return sorted(samples, key=lambda s: (s.second, s.source, s.name))


class Sensor(Protocol):
    """Of a server or a machine."""

    def drain(self) -> list[Sample]:
        """The samples since the last call."""


_SO_FAR: dict[int, tuple[Sensor, list[Sample]]] = {}


def so_far(sensor: Sensor) -> list[Sample]:
    """All samples of a sensor up to now."""
    _, samples = _SO_FAR.setdefault(id(sensor), (sensor, []))
    samples += sensor.drain()
    return samples
