"""Charts as Vega-Lite specifications: the only module that knows how a chart is drawn.

Untrusted texts enter a specification as data only, never as an expression.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from pgpaces.show.chart import Axis, Chart, Layer, Place, Point
from pgpaces.show.style import NUMBER, WIDTH, Look, configuration

_DASHES = ([1, 0], [6, 3], [2, 2])
_FONT = 11
# The default sizes of marks.
_SIZES = {"point": 62.0, "line": 1.8, "rule": 1.6}
# The width of axes and margins of stacked charts, in pixels.
_MARGIN = 70
_SPEC = dict[str, Any]
# The places of texts and rules at an edge of the plot.
_EDGES: dict[str, _SPEC] = {
    "left": {"x": {"value": 0}},
    "right": {"x": {"value": "width"}},
    "top": {"y": {"value": 8}},
}


def specification(charts: Sequence[Chart], look: Look, *, described: bool = False) -> _SPEC:
    """A whole specification: one chart, or several stacked ones with the same x axis.

    described: points carry a description, as their name for assistive technology.
    """
    parts = [_Part(chart, look, len(charts) > 1, n < len(charts), described)
             for n, chart in enumerate(charts, 1)]  # fmt: skip
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "background": look.background,
        "padding": 4,
        **(_alone(parts[0]) if len(parts) == 1 else _stacked(parts)),
        "config": configuration(look),
    }


class _Part(Struct, frozen=True):
    """A chart in its place. bare: without texts at the x axis, because another chart is below."""

    chart: Chart
    look: Look
    stacked: bool
    bare: bool
    described: bool

    def layers(self) -> list[_SPEC]:
        return [_layer(self, layer) for layer in self.chart.layers]


def _alone(part: _Part) -> _SPEC:
    chart = part.chart
    # The height of legends is added so that plots have equal heights.
    names = [each.name for each in chart.series]
    legends = 34 + 16 * math.ceil(len(names) / _columns(names)) if len(names) > 1 else 0
    legends += 24 if chart.dashes else 0
    return {
        "width": (chart.width or WIDTH) - 8,
        "height": chart.height + legends,
        "autosize": {"type": "fit", "contains": "padding"},
        **({"title": list(chart.title)} if chart.title else {}),
        "layer": part.layers(),
        "resolve": {"scale": {"color": "independent"}} if _shaded(chart) else {},
    }


def _stacked(parts: Sequence[_Part]) -> _SPEC:
    specs = [
        {
            "title": list(part.chart.title),
            "width": plot_width(part.chart),
            "height": part.chart.height,
            "layer": part.layers(),
        }
        for part in parts
    ]
    return {"vconcat": specs, "spacing": 12, "resolve": {"scale": {"color": "independent"}}}


def plot_width(chart: Chart) -> int:
    return (chart.width or WIDTH) - _MARGIN


def _shaded(chart: Chart) -> bool:
    return any(point.shade is not None for layer in chart.layers for point in layer.points)


def _layer(part: _Part, layer: Layer) -> _SPEC:
    chart, look = part.chart, part.look
    x, y = _scaled(chart.x), _scaled(chart.y)
    if chart.y.names:
        y["axis"] |= {"labelLimit": 190, "labelPadding": 6, "ticks": False}
    if part.bare:
        x["axis"] |= {"title": None, "labels": False, "ticks": False}
    encoding = {**_places(layer, x, y), **_colors(chart, layer, look, stacked=part.stacked)}
    if layer.kind == "text" and _has(layer, "text"):
        encoding["text"] = {"field": "text"}
    if layer.kind in ("point", "bar") and not all(point.filled for point in layer.points):
        solid = 1 if layer.kind == "point" else 0.8
        filled = {"condition": {"test": "datum.filled", "value": solid}, "value": 0}
        encoding["fillOpacity"] = filled
    mark = _mark(layer, look)
    data = [
        {name: value for name, value in asdict(point).items() if value not in (None, "")}
        for point in layer.points
    ]
    if part.described and (
        layer.kind in ("point", "bar") or (layer.kind == "rect" and _shaded(chart))
    ):
        for datum, point in zip(data, layer.points, strict=True):
            datum["description"] = description(chart, layer, point)
        encoding["description"] = {"field": "description"}
        mark["aria"] = True
    return {"data": {"values": data}, "mark": mark, "encoding": encoding}


def description(chart: Chart, layer: Layer, point: Point) -> str:
    """A point in words: its series, its place, its value with its interval."""
    of = point.series if len(chart.series) > 1 else ""
    where = (chart.x.title, point.at or point.x)
    value = (chart.y.title, point.y)
    if _shaded(chart):
        places = [("", point.y), where, ("", point.text)]
    elif chart.y.names:
        places = [("", point.y), (chart.x.title, point.x)]
    else:
        places = [where, value]
    parts = [": ".join(each for each in (title, _short(place)) if each) for title, place in places]
    ends = f" ({_short(point.low)}–{_short(point.high)})" if point.high is not None else ""
    hollow = "" if point.filled else "invalid"
    return " · ".join(each for each in (layer.name, of, *parts, hollow) if each) + ends


def _short(place: Place) -> str:
    if not isinstance(place, float):
        return str(place or "")
    return f"{place:,.0f}" if abs(place) >= 1000 else f"{place:.3g}"


def _has(layer: Layer, name: str) -> bool:
    return any(getattr(point, name) not in (None, "") for point in layer.points)


def _scaled(axis: Axis) -> _SPEC:
    shown: _SPEC = {"title": axis.title or None}
    if axis.grid is not None:
        shown["grid"] = axis.grid
    if axis.names:
        shown |= {"labelAngle": -40 if axis.aslant else 0, "labelOverlap": False}
        return {"type": "nominal", "sort": list(axis.names), "axis": shown}
    shown |= {"values": list(axis.ticks)} if isinstance(axis.ticks, tuple) else {
        "tickCount": axis.ticks
    }  # fmt: skip
    shown["format"] = axis.format or NUMBER
    if axis.scale == "time":
        return {"type": "temporal", "axis": shown}
    if axis.labels and isinstance(axis.ticks, tuple):
        shown |= {"labelExpr": _labels(axis.ticks, axis.labels), "labelOverlap": False}
    return {"type": "quantitative", "scale": _scale(axis), "axis": shown}


def _scale(axis: Axis) -> _SPEC:
    low, high = axis.ends
    spec: _SPEC = {"type": axis.scale, "nice": axis.nice}
    if low is not None and high is not None:
        spec["domain"] = [low, high]
    elif low is not None:
        spec["domainMin"] = low
    if axis.room:
        spec["padding"] = axis.room
    if axis.scale == "linear":
        spec["zero"] = axis.zero
    if axis.scale == "symlog":
        spec |= {"constant": axis.constant, "clamp": True}
    return spec


def _labels(ticks: Sequence[float], labels: Sequence[str]) -> str:
    """An expression that names each tick; the labels are constants of pgpaces."""
    middles = [(a + b) / 2 for a, b in pairwise(ticks)]
    *first, last = labels
    parts = [f"datum.value < {at:.4g} ? '{name}'" for at, name in zip(middles, first, strict=True)]
    return " : ".join([*parts, f"'{last}'"])


def _places(layer: Layer, x: _SPEC, y: _SPEC) -> _SPEC:
    spec: _SPEC = {}
    across = {"x": x, "y": y}
    for name, axis in across.items():
        if _has(layer, name):
            spec[name] = {**axis, "field": name}
    if layer.offset is not None:
        spec["y"]["bandPosition"] = layer.offset
    if layer.kind == "text" or layer.edge:
        spec |= _EDGES.get(layer.edge, {})
    if layer.kind in ("point", "line", "bar", "text"):
        return spec
    if _has(layer, "low"):
        spec[layer.along] = {**across[layer.along], "field": "low"}
        spec[f"{layer.along}2"] = {"field": "high"}
    if _has(layer, "end"):
        spec["x2"] = {"field": "end"}
    return spec


def _mark(layer: Layer, look: Look) -> _SPEC:
    spec: _SPEC = {"type": layer.kind, "opacity": layer.opacity}
    size = layer.size or _SIZES.get(layer.kind)
    color = look.colors()[layer.color] if layer.color else None
    if color:
        spec["color"] = color
    match layer.kind:
        case "point":
            spec |= {"size": size, "strokeWidth": 1.8 if (size or 0) > 50 else 1}
            spec |= {"fill": color} if color else {}
            spec |= {"shape": layer.shape, "filled": False} if layer.shape else {}
            if layer.shape:
                spec["fill"] = "transparent"
        case "line" | "rule":
            spec |= {"strokeWidth": size, "strokeDash": list(layer.dash) or [1, 0]}
        case "text":
            spec |= {"fontSize": layer.size or _FONT, "dx": layer.dx, "dy": layer.dy}
            spec |= {"align": layer.align} if layer.align else {}
            spec |= {"fontWeight": 600} if _has(layer, "shade") else {}
        case "rect":
            spec |= {"strokeWidth": 0, "cornerRadius": 3 if _has(layer, "shade") else 0}
        case "bar":
            spec |= {"height": {"band": 0.6}, "stroke": color}
    return spec


def _colors(chart: Chart, layer: Layer, look: Look, *, stacked: bool) -> _SPEC:
    if _has(layer, "shade"):
        return _heat(layer, look)
    spec: _SPEC = {}
    dashed = layer.kind == "line" and chart.dashes
    if dashed:
        scale = {"domain": list(chart.dashes), "range": _DASHES[: len(chart.dashes)]}
        legend = {"title": None, "orient": "top", "columns": 3, "offset": 2, "symbolSize": 420}
        spec["strokeDash"] = {"field": "dash", "scale": scale, "legend": legend}
    names = [each.name for each in chart.series]
    if chart.x.names and len(names) > 1 and _has(layer, "series"):
        spec["xOffset"] = {"field": "series", "sort": names}
    if layer.color or not names or layer.kind == "text":
        return spec
    field: _SPEC = {"field": "series", "type": "nominal"}
    colors = [look.colors()[each.color] for each in chart.series]
    color = {
        **field,
        "scale": {"domain": names, "range": colors},
        "legend": _legend(chart, layer, names, stacked=stacked),
    }
    spec["color"] = color
    if layer.kind == "point" and not layer.shape:
        shapes = [each.shape for each in chart.series]
        spec["shape"] = {**color, "scale": {"domain": names, "range": shapes}}
        spec["fill"] = {**color, "legend": None}
    return spec


def _heat(layer: Layer, look: Look) -> _SPEC:
    colors = look.on_heat if layer.kind == "text" else look.heat
    scale = {"domain": list(range(len(colors))), "range": list(colors)}
    spec: _SPEC = {"color": {"field": "shade", "type": "nominal", "scale": scale, "legend": None}}
    if layer.kind == "rect" and not all(point.filled for point in layer.points):
        stroke = {"test": "datum.filled", "value": "transparent"}
        spec["stroke"] = {"condition": stroke, "value": look.alarm}
        spec["strokeWidth"] = {"value": 2}
    return spec


def _legend(chart: Chart, layer: Layer, names: Sequence[str], *, stacked: bool) -> _SPEC | None:
    if len(names) < 2 and not stacked:
        return None
    if not stacked:
        return {"title": chart.legend or None, "columns": _columns(names)}
    square = {"symbolType": "square"} if layer.kind == "rect" else {}
    return {
        "title": None, "orient": "top", "columns": _columns(names), "offset": 2, **square
    }  # fmt: skip


def _columns(names: Sequence[str]) -> int:
    longest = max((len(name) for name in names), default=0)
    return max(1, min(len(names), 4, (WIDTH - 60) // (40 + 7 * longest)))
