"""A chart as values: axes, and layers of points, lines, bars and texts; renderer-independent.

`show/charts.py` turns every chart into a specification, in the colors of any medium.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from pgpaces.show.style import WIDTH

# A number, a name on an axis of names, or a moment as an ISO 8601 text on one of time.
Place = float | str | None
Kind = Literal["point", "line", "rule", "area", "rect", "bar", "text"]
# The name of a color: ink, muted, alarm, line0 to line6.
Color = str
# The shapes of the series.
SHAPES = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "triangle-right")
SERIES_MAX = len(SHAPES)
LABELED_WIDTH = WIDTH - 80


class Point(Struct, frozen=True):
    """A datum. end: its end along the x axis. low, high: its ends along the axis of its layer.

    at: the label of its place, if it is drawn with an offset. series: determines color and shape.
    dash: the kind of line that it belongs to. filled: a hollow point has no valid trial. shade: its
    index in the heat scale, from good to bad.
    """

    x: Place = None
    y: Place = None
    end: Place = None
    low: float | None = None
    high: float | None = None
    at: str = ""
    series: str = ""
    dash: str = ""
    text: str = ""
    filled: bool = True
    shade: int | None = None


class Axis(Struct, frozen=True):
    """An axis. names: the names on a nominal axis, in order.

    scale: `time` has timestamps. ends: minimum and maximum; None: from the data. constant: the
    bound of the linear part of a symlog scale. ticks: their number or their places. labels: the
    texts of these ticks. format: of numbers (d3-format) or timestamps (d3-time-format). aslant:
    labels are rotated. room: padding in pixels.
    """

    title: str = ""
    names: tuple[str, ...] = ()
    scale: Literal["linear", "log", "symlog", "time"] = "linear"
    ends: tuple[float | None, float | None] = (None, None)
    zero: bool = False
    nice: bool = False
    constant: float = 1.0
    ticks: int | tuple[float, ...] = 5
    labels: tuple[str, ...] = ()
    format: str = ""
    grid: bool | None = None
    aslant: bool = False
    room: int = 0


class Layer(Struct, frozen=True):
    """Points of one kind. color: of all points; empty: by the series of each point.

    name: what a point is, for its description. along: the axis of low and high. size: the area of
    points, the width of lines. dash: of lines. edge: the edge of the plot at which texts stand, and
    rules without a place. dx, dy: the offset of texts. offset: the position of a point within its
    band of a nominal axis.
    """

    kind: Kind
    points: tuple[Point, ...]
    color: Color = ""
    along: Literal["x", "y"] = "y"
    size: float = 0.0
    opacity: float = 1.0
    dash: tuple[int, ...] = ()
    shape: str = ""
    name: str = ""
    edge: Literal["", "left", "right", "top"] = ""
    align: Literal["", "left", "right"] = ""
    dx: int = 0
    dy: int = 0
    offset: float | None = None


class Series(Struct, frozen=True):
    name: str
    color: Color
    shape: str


class Chart(Struct, frozen=True):
    """Layers on one pair of axes.

    series: the series of the points. legend: its title. dashes: the kinds
    of lines. width: in pixels, with legend and labels; 0: the default. title: the lines above it.
    """

    x: Axis
    y: Axis
    layers: tuple[Layer, ...]
    series: tuple[Series, ...] = ()
    legend: str = ""
    dashes: tuple[str, ...] = ()
    height: int = 210
    width: int = 0
    title: tuple[str, ...] = ()


def number_at(place: Place) -> float:
    """A place on a numeric axis; 0 if the place is no number."""
    return place if isinstance(place, int | float) else 0.0


def series(names: Sequence[str]) -> tuple[Series, ...]:
    """Series in the order of the names; names beyond SERIES_MAX are dropped."""
    return tuple(
        Series(name, f"line{number}", shape)
        for number, (name, shape) in enumerate(zip(names, SHAPES, strict=False))
    )


def bound(value: float, text: str, side: Literal["left", "right"] = "left") -> tuple[Layer, Layer]:
    at = (Point(y=value, text=text),)
    return (
        Layer("rule", at, "alarm", size=1.2, dash=(5, 4)),
        Layer("text", at, "alarm", edge=side, align=side, dx=4 if side == "left" else -4, dy=-6),
    )
