"""Charts as Vega-Lite specifications: a template (templates/charts) filled with rows.

Untrusted texts enter a specification as data, names, and titles only, never as an expression.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from pgpaces.core import metrics
from pgpaces.show.section import Figure
from pgpaces.show.style import NUMBER, WIDTH, Look, configuration

Encoding = dict[str, Any]
SHAPES = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "triangle-right")
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 4], [10, 4], [1, 3])
_LIMIT = [5, 4]
SERIES_MAX = len(SHAPES)
# The number of characters that fit below a chart, and of names, before they are rotated.
_CHARACTERS_MAX, _NAMES_MAX = (WIDTH - 80) // 8, 6


def specification(figure: Figure, look: Look, width: int = WIDTH) -> dict[str, Any]:
    """A whole specification. width: in pixels, with axes and margins.

    In a template, "$name" is the encoding or the color of that name, and an absent one is left
    out; {"$": "name", ...} is that encoding with more properties; {"$if": "name", ...} is left out
    without it.
    """
    colors = look.colors()
    encodings = {name: _colored(value, colors) for name, value in figure.encodings.items()}
    values = {"width": width - 8, "plot": width - 70, **colors, **encodings}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "background": look.background,
        "padding": 4,
        "data": {"values": list(figure.data)},
        **_filled(_template(figure.template), values),
        "config": configuration(look),
    }


@functools.cache
def _template(name: str) -> Any:
    file = resources.files("pgpaces.show").joinpath("templates", "charts", f"{name}.vl.json")
    return json.loads(file.read_text("utf-8"))


def _colored(encoding: Any, colors: Mapping[str, str]) -> Any:
    """The encoding with its colors in place of their names."""
    if not isinstance(encoding, dict) or "range" not in encoding.get("scale", {}):
        return encoding
    scale = encoding["scale"]
    return {**encoding, "scale": {**scale, "range": [colors.get(e, e) for e in scale["range"]]}}


def _filled(part: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(part, list):
        return [_filled(each, values) for each in part if not _is_absent(each, values)]
    if isinstance(part, dict):
        own = {name: _filled(each, values) for name, each in part.items()
               if not name.startswith("$") and not _is_absent(each, values)}  # fmt: skip
        return {**values[part["$"]], **own} if "$" in part else own
    return values[part[1:]] if isinstance(part, str) and part.startswith("$") else part


def _is_absent(part: Any, values: Mapping[str, Any]) -> bool:
    """Whether a part needs a value that is absent, None, or false."""
    names = [part.get("$if"), part.get("$")] if isinstance(part, dict) else [
        part[1:] if isinstance(part, str) and part.startswith("$") else None
    ]  # fmt: skip
    return any(name is not None and not values.get(name) for name in names)


def amounts(title: str, *, log: bool = False, **how: Any) -> Encoding:
    """A numeric axis. how: `values` and `format` of its ticks, and properties of its scale."""
    axis = {
        name: how.pop(name) for name in ("values", "format", "tickCount", "grid") if name in how
    }
    scale = {"type": "log"} if log else {"zero": True, "nice": True}
    return {
        "type": "quantitative",
        "axis": {"title": title or None, "format": NUMBER, **axis},
        "scale": {**scale, **how},
    }


def of_metric(name: str, *, log: bool = False, **how: Any) -> Encoding:
    """The numeric axis of a metric, in the unit in which it is shown."""
    return amounts(metrics.axis(name), log=log, **how)


def names(title: str, labels: Sequence[str]) -> Encoding:
    """An axis of names; labels that would touch are rotated."""
    aslant = sum(map(len, labels)) > _CHARACTERS_MAX or len(labels) >= _NAMES_MAX
    axis = {"title": title or None, "labelAngle": -40 if aslant else 0, "labelOverlap": False}
    return {"type": "nominal", "sort": list(labels), "axis": axis}


def names_down(title: str, labels: Sequence[str]) -> Encoding:
    """A vertical axis of names."""
    axis = {"title": title or None, "labelLimit": 190, "labelPadding": 6, "ticks": False}
    return {"type": "nominal", "sort": list(labels), "axis": {**axis, "labelOverlap": False}}


def series(
    labels: Sequence[str], legend: str = "", *, limit: str = "", colors: Sequence[str] = ()
) -> dict[str, Encoding]:
    """The encodings of series by color, shape, and dash. limit: the name of a line of its own."""
    domain = [*labels, *([limit] if limit else [])]
    shown = labels if len(labels) > 1 else []
    longest = max(map(len, domain), default=0)
    look = {
        "title": legend if shown and legend else None,
        "values": [*shown, *domain[len(labels) :]],
        "columns": max(1, min(len(domain), 4, (WIDTH - 60) // (40 + 7 * longest))),
    }
    field: Encoding = {"type": "nominal", "legend": look if look["values"] else None}
    inks = [*(colors or [f"line{n}" for n in range(len(labels))]), "alarm"]
    shapes, dashes = (
        [*each[: len(labels)], last] for each, last in ((SHAPES, "stroke"), (DASHES, _LIMIT))
    )
    color, shape, dash = ({**field, "scale": {"domain": domain, "range": list(each[: len(domain)])}}
                          for each in (inks, shapes, dashes))  # fmt: skip
    return {"color": color, "shape": shape, "dash": {**dash, "legend": None}}
