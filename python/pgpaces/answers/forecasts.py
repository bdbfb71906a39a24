"""Forecasts of the lines of an experiment: rows of cells over their load in, a forecast each out.

Pure. What a load is and which lines are asked for is decided by who asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from pgpaces.answers.cells import sound
from pgpaces.answers.crossing import Line, level_of, quantity
from pgpaces.answers.digest import Digest
from pgpaces.answers.forecast import Forecast, Point, forecast

SOURCE = "host"


class LineForecast(Struct, frozen=True):
    """The forecast of one line. levels: what tells it from the others. unit: clients or users.

    left_out: trials that did not end or are not valid.
    """

    levels: tuple[tuple[str, str], ...]
    unit: str
    points: tuple[Point, ...]
    found: Forecast
    left_out: int = 0

    @property
    def tried(self) -> float:
        """The largest load that was tried."""
        return max((point.load for point in self.points), default=0.0)


def forecast_lines(
    lines: Iterable[Line], factor: str, at: Sequence[float] = ()
) -> tuple[LineForecast, ...]:
    """A forecast for each line over the factor. at: loads to be read off."""
    return tuple(_line(line, factor, at) for line in lines)


def _line(line: Line, factor: str, at: Sequence[float]) -> LineForecast:
    every = [(row, digest) for row in line.rows for digest in (*row.trials, *row.left_out)]
    points = tuple(
        Point(quantity(level_of(row, factor)) or 0.0, digest.summary.rate.value, busy(digest))
        for row, digest in every
        if sound(digest)
    )
    return LineForecast(
        line.levels, factor, points, forecast(points, at=at), len(every) - len(points)
    )


def busy(digest: Digest) -> dict[str, float]:
    """What share of each resource of the server's machine was in use behind the warm-up."""
    return {name: min(1.0, percent / 100) for name, percent in _used(digest)}


def _used(digest: Digest) -> Iterator[tuple[str, float]]:
    cut_s = digest.summary.cut_s
    for track in digest.tracks:
        if track.source != SOURCE or (name := _resource(track.name)) is None:
            continue
        pairs = zip(digest.series, track.values, strict=True)
        kept = [value for bucket, value in pairs if value is not None and bucket.start_s >= cut_s]
        if kept:
            yield name, sum(kept) / len(kept)


def _resource(name: str) -> str | None:
    """A resource by the name of its sensor; None of what says no share in use."""
    if name == "cpu_busy":
        return "the CPU"
    if name.startswith("disk_") and name.endswith("_busy"):
        return f"disk {name.removeprefix('disk_').removesuffix('_busy')}"
    return None
