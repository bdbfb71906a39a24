"""A chart as values: axes, and layers of points, lines, bars and texts; nothing of how it is drawn.

`report/charts.py` draws every chart, in the colors of any place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

# A number, a name on an axis of names, or a moment as an ISO 8601 text on one of time.
Place = float | str | None
Kind = Literal["point", "line", "rule", "area", "rect", "bar", "text"]
# The names of colors: ink, muted, alarm, line0 to line6.
Color = str
# What a chart of usual width has room for, in pixels, and the shapes that series are told apart by.
WIDTH = 372
SHAPES = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "triangle-right")
SERIES_MAX = len(SHAPES)
LABELED_WIDTH = WIDTH - 80


class Point(Struct, frozen=True):
    """A datum. end: where it ends along the x axis. low, high: its ends along its layer's axis.

    at: its place in words, where it stands a little aside. series: whose color and shape it has.
    dash: which kind of line it belongs to. filled: a hollow one stands on no valid trial. shade:
    its index in the scale of heat, from good to bad.
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
    """An axis. names: it has these in their order instead of numbers.

    scale: time has moments. ends: the least and the largest place; None: by the data. constant: up
    to where a symlog scale is linear. ticks: how many, or where. labels: texts of these ticks.
    format: of numbers (d3-format) or of moments (d3-time-format). room: pixels that stay free.
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
    """Points of one kind. color: of all of them; empty: of the series of each.

    name: what its points are, where values are told one by one. along: which axis low and high
    belong to. size: an area of points, a width of lines. dash: of
    lines. edge: texts, and rules without a place along it, stand at this edge of the plot. dx, dy:
    how far texts stand off. offset: where in its band a point of an axis of names stands.
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
    """A name in the legend with its color and shape."""

    name: str
    color: Color
    shape: str


class Chart(Struct, frozen=True):
    """Layers upon one pair of axes.

    series: those that points belong to. legend: what they are; None: there is no legend. dashes:
    the kinds of lines. width: 0 is the usual one, legend and labels included. title: above it.
    """

    x: Axis
    y: Axis
    layers: tuple[Layer, ...]
    series: tuple[Series, ...] = ()
    legend: str | None = ""
    dashes: tuple[str, ...] = ()
    height: int = 210
    width: int = 0
    title: tuple[str, ...] = ()


def number_at(place: Place) -> float:
    """A place on an axis of numbers; 0 of one that has none."""
    return place if isinstance(place, float) else 0.0


def series(names: Sequence[str]) -> tuple[Series, ...]:
    """Series in their order, as many as can be told apart."""
    return tuple(
        Series(name, f"line{number}", shape)
        for number, (name, shape) in enumerate(zip(names, SHAPES, strict=False))
    )


def bound(value: float, text: str, side: Literal["left", "right"] = "left") -> tuple[Layer, Layer]:
    """A line across the plot that values are held against, with its name at a side."""
    at = (Point(y=value, text=text),)
    return (
        Layer("rule", at, "alarm", size=1.2, dash=(5, 4)),
        Layer("text", at, "alarm", edge=side, align=side, dx=4 if side == "left" else -4, dy=-6),
    )
