"""Forecasts of the lines of an experiment: rows of cells over their load in, a forecast each out.

Pure. The caller chooses the factor that is the load, and the lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct, field

from pgpaces.answers.cells import sound
from pgpaces.answers.crossing import Line, level_of, quantity
from pgpaces.answers.digest import Digest
from pgpaces.answers.forecast import Forecast, Point, forecast

SOURCE = "host"


class LineForecast(Struct, frozen=True):
    """The forecast of one line. levels: those in which it differs. unit: clients or users.

    left_out: trials that did not end or are invalid.
    """

    levels: tuple[tuple[str, str], ...]
    unit: str
    points: tuple[Point, ...]
    fit: Forecast = field(name="found")
    left_out: int = 0

    @property
    def largest(self) -> float:
        """The largest measured load."""
        return max((point.load for point in self.points), default=0.0)


def forecast_lines(
    lines: Iterable[Line], factor: str, at: Sequence[float] = ()
) -> tuple[LineForecast, ...]:
    """A forecast for each line over the factor. at: loads to include."""
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
    """The share of each resource of the server's machine in use after the warm-up."""
    cut_s, shares = digest.summary.cut_s, {}
    for track in digest.tracks:
        if track.source != SOURCE or (name := _resource(track.name)) is None:
            continue
        pairs = zip(digest.series, track.values, strict=True)
        values = [value for bucket, value in pairs if value is not None and bucket.start_s >= cut_s]
        if values:
            shares[name] = min(1.0, sum(values) / len(values) / 100)
    return shares


def _resource(name: str) -> str | None:
    """A resource by the name of its sensor; None for a sensor of something else."""
    if name == "cpu_busy":
        return "the CPU"
    if name.startswith("disk_") and name.endswith("_busy"):
        return f"disk {name.removeprefix('disk_').removesuffix('_busy')}"
    return None
