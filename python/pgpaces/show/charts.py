"""Charts as Vega-Lite specifications: a template (templates/charts) filled with rows.

Colors for light and dark are in templates/charts/looks.toml. In the page a color is a CSS variable,
so that charts follow its light and dark mode; in image files it is a constant.

Untrusted texts enter a specification as data, names, and titles only, never as an expression.
"""

from __future__ import annotations

import functools
import json
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from pgpaces.core.metrics import metric, scale
from pgpaces.show.section import Figure
from pgpaces.spec.result import Estimate

# The default width of a chart in pixels.
WIDTH = 372
# Six digits, no more than needed, and no exponent before they end.
NUMBER = ".6~g"

Look = Mapping[str, str]
_FILE = resources.files("pgpaces.show").joinpath("templates", "charts", "looks.toml")
LIGHT, DARK = tomllib.loads(_FILE.read_text("utf-8")).values()
PAGE = {n: f"var(--{n})" for n in LIGHT} | {"background": "transparent", "font": "inherit"}
Encoding = dict[str, Any]
Datum = dict[str, Any]
SHAPES = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "triangle-right")
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 4], [10, 4], [1, 3])
_LIMIT = [5, 4]
# The width of the axes and margins of charts over time, in pixels.
MARGIN = 70
# The numbers of a logarithmic axis that have a line and a label: 1, 2, and 5 times powers of ten.
_ROUND = "indexof('125', slice(format(datum.value, 'e'), 0, 1)) >= 0"
_LOGARITHMIC = {
    "gridOpacity": {"condition": {"test": _ROUND, "value": 1}, "value": 0},
    "labelExpr": f"{_ROUND} ? format(datum.value, '{NUMBER}') : ''",
}
_OF_AXIS = ("values", "format", "tickCount", "tickMinStep", "grid")
_SHORT = f"format(datum.value, datum.value >= 10000 ? '~s' : '{NUMBER}')"
SERIES_MAX = len(SHAPES)
_ABSENT = object()
# The number of characters that fit below a chart before names are rotated.
_CHARACTERS_MAX = (WIDTH - 80) // 8


def specification(figure: Figure, look: Look, width: int = WIDTH) -> dict[str, Any]:
    """A whole specification. width: in pixels, with axes and margins.

    In a template, "$name" is the encoding or the color of that name, and an absent one is left
    out; {"$": "name", ...} is that encoding with more properties; {"$if": "name", ...} is left out
    without it.
    """
    encodings = {name: _colored(value, look) for name, value in figure.encodings.items()}
    data = []
    for row in figure.data:
        texts = zip(figure.columns, row.get("texts", ()), strict=False)
        data.append({**row, "description": " · ".join(f"{n}: {text}" for n, text in texts if text)})
    values = {"width": width - 8, "plot": width - MARGIN, **look, **encodings}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "background": look["background"],
        "padding": 4,
        "data": {"values": data},
        **_filled(_template(f"{figure.template}.vl"), values),
        "config": _filled(_template("configuration"), look),
    }


@functools.cache
def _template(name: str) -> Any:
    file = resources.files("pgpaces.show").joinpath("templates", "charts", f"{name}.json")
    return json.loads(file.read_text("utf-8"))


def _colored(encoding: Any, colors: Mapping[str, str]) -> Any:
    if not isinstance(encoding, dict) or "range" not in encoding.get("scale", {}):
        return encoding
    scale = encoding["scale"]
    return {
        **encoding,
        "scale": {**scale, "range": [colors.get(str(e), e) for e in scale["range"]]},
    }


def _filled(part: Any, values: Mapping[str, Any]) -> Any:
    """The part with its values; _ABSENT if it needs one that is absent, None, or false."""
    if isinstance(part, list):
        return [each for one in part if (each := _filled(one, values)) is not _ABSENT]
    if isinstance(part, dict):
        needed: list[Any] = [values.get(part[name]) for name in ("$", "$if") if name in part]
        if not all(needed):
            return _ABSENT
        filled = {n: _filled(each, values) for n, each in part.items() if not n.startswith("$")}
        own = {name: each for name, each in filled.items() if each is not _ABSENT}
        return {**needed[0], **own} if "$" in part else own
    if isinstance(part, str) and part.startswith("$"):
        return values.get(part[1:]) or _ABSENT
    return part


def amounts(title: str, *, log: bool = False, short: bool = False, **how: Any) -> Encoding:
    """A numeric axis. how: properties of the axis (of its ticks and grid) and of its scale.

    short: large numbers are short: 20k, 10G.
    """
    axis: Encoding = {"title": title or None, "format": NUMBER, "tickCount": 5}
    axis |= {"labelExpr": _SHORT} if short else {}
    axis |= {name: how.pop(name) for name in _OF_AXIS if name in how}
    scale = {"zero": True, "nice": True} | how
    if log:
        axis |= _LOGARITHMIC
        how.pop("zero", None)
        scale = {"type": "log", "nice": False, "padding": 8} | how
    return {"type": "quantitative", "axis": axis, "scale": scale}


def seconds(end: float) -> Encoding:
    title = "seconds from the start"
    return amounts(title, domain=[0, end], zero=False, nice=False, tickCount=6)


def names(title: str, labels: Sequence[str], *, down: bool = False) -> Encoding:
    """An axis of names; labels that would touch are rotated. down: it is vertical."""
    aslant = sum(len(each) + 2 for each in labels) > _CHARACTERS_MAX
    how = {"labelLimit": 190, "ticks": False} if down else {"labelAngle": -40 if aslant else 0}
    axis = {"title": title or None, "labelOverlap": False, **how}
    return {"type": "nominal", "scale": {"domain": list(labels)}, "axis": axis}


def series(
    labels: Sequence[str], legend: str = "", *, limit: str = "", colors: Sequence[str] = ()
) -> dict[str, Any]:
    """The encodings of series by color, shape, and dash. limit: the name of a line of its own."""
    domain = [*labels, *([limit] if limit else [])]
    shown = labels if len(labels) > 1 else []
    longest = max(map(len, domain), default=0)
    look = {
        "title": legend if shown and legend else None,
        "values": [*shown, *domain[len(labels) :]],
        "symbolDash": [1, 0],
        "columns": max(1, min(len(domain), 4, (WIDTH - 60) // (40 + 7 * longest))),
    }
    field: Encoding = {"type": "nominal", "legend": look if look["values"] else None}
    inks = [*(colors or [f"line{n % SERIES_MAX}" for n in range(len(labels))]), "alarm"]
    shapes, dashes = (
        [*each[: len(labels)], last] for each, last in ((SHAPES, "stroke"), (DASHES, _LIMIT))
    )
    color, shape, dash = ({**field, "scale": {"domain": domain, "range": list(each[: len(domain)])}}
                          for each in (inks, shapes, dashes))  # fmt: skip
    return {"color": color, "shape": shape, "dash": {**dash, "legend": None}}


def scaled(name: str, estimate: Estimate | None) -> dict[str, float]:
    """value, low, and high, as far as they are known, in the unit of the axis of this metric."""
    if estimate is None:
        return {}
    every = {"value": estimate.value}
    if estimate.estimable:
        # The bar of a time without a lower bound begins at the value: from 0 it would dominate.
        open_below = estimate.low == 0 and metric(name).format == "ms"
        every |= {"low": estimate.value if open_below else estimate.low, "high": estimate.high}
    return {end: each * scale(name) for end, each in every.items()}
