"""The charts of a search: capacity and its price by level, and what missed at each load.

Vega-Lite specifications as data, as in charts.py. Values in, figures out; names of others go in as
data only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pgpaces.answers import crossing
from pgpaces.answers.capacity import value, words
from pgpaces.answers.capacity.centre import bracket, curve
from pgpaces.answers.capacity.goal import TrialPoint
from pgpaces.answers.capacity.rule import Drawn
from pgpaces.answers.capacity.trials import ROLES, Found
from pgpaces.answers.capacity.value import Capacities, Holds
from pgpaces.design import Factor
from pgpaces.questions.sweep.axes import (
    LINES_MAX,
    Panel,
    legend_columns,
    legend_height,
    line_encoding,
)
from pgpaces.questions.sweep.words import factor_name
from pgpaces.report.escape import line as shown
from pgpaces.report.look import NUMBER, ONCE, WIDTH, Look
from pgpaces.report.numbers import interval, percent, rate
from pgpaces.section import Figure

_KEY = "capacity"
_HEIGHT = 230
_CELLS_MAX = 6
# So many values are named beside their dots.
_NAMED_MAX = 8
# Letters that fit side by side below a chart.
_NAMES_MAX = (WIDTH - 80) // 8
# Short trials farther from the others than this are not drawn: there is nothing to see between.
_FAR = 1.35
_TICKS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)


def figures(
    found: Sequence[Found], answer: Capacities, factors: Sequence[Factor]
) -> Iterator[Figure]:
    """First what answers the question of several cells at a glance, then each by its trials."""
    if len(found) > 1:
        yield from _by_level(answer, factors)
        yield from _prices(answer, factors)
    for number, each in enumerate(found[:_CELLS_MAX], 1):
        if any(point.possible for _, point in each.trials):
            yield _trials(each, number if len(found) > 1 else 0, factors)


def along(factors: Sequence[Factor]) -> Factor | None:
    """The factor along the axis: one with numbers, else that of most levels."""
    main = crossing.main_factor(factors)
    return main or max(factors, key=lambda factor: len(factor.levels), default=None)


# --- by level -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Level:
    """What a chart by level shows of a cell. at: the dot; low, high: None where it is open."""

    x: str
    line: str
    at: float | None
    low: float | None
    high: float | None
    text: str


@dataclass(frozen=True, slots=True)
class _Chart:
    """A chart by level. legend: the factor whose levels are its colours; empty: there is one."""

    main: Factor
    axis: str
    lines: tuple[str, ...]
    legend: str
    levels: tuple[_Level, ...]


def _by_level(answer: Capacities, factors: Sequence[Factor]) -> Iterator[Figure]:
    quick, unit = answer.cells[0].goal.mode == "quick", answer.cells[0].unit
    if not any(end is not None for each in answer.cells for end in each.ends):
        return
    ends = (
        "bars go from what most likely meets the goal to what most likely misses it"
        if quick
        else "bars go from what is proved to what is refuted, dots are estimates"
    )
    about = f"how much each holds, {unit}: {ends}; a triangle is an end that is not known"
    columns = (
        ("most likely meets", "most likely misses")
        if quick
        else ("proved", "refuted", "estimate", "95 % interval")
    )
    rows = tuple((_cell(each), *_row(each, quick=quick)) for each in answer.cells)
    made = [(each, _level_of(each)) for each in answer.cells]
    for part, chart in enumerate(_charts(made, factors, f"holds, {unit}"), 1):
        yield Figure(
            f"{_KEY}-by-level" + (f"-{part}" if part > 1 else ""),
            f"Capacity by {factor_name(chart.main.name)}",
            about,
            ("cell", *columns),
            rows,
            partial(_level_marks, chart),
        )


def _prices(answer: Capacities, factors: Sequence[Factor]) -> Iterator[Figure]:
    """What a million transactions cost, where that is known of two cells, in one currency."""
    known = [(each, each.worth) for each in answer.cells if each.worth and each.worth.per_million]
    currencies = {worth.currency for _, worth in known if worth}
    if len(known) < 2 or len(currencies) > 1:
        return
    currency = currencies.pop()
    made = [
        (each, _Level("", "", worth.per_million, None, None, rate(worth.per_million)))
        for each, worth in known
        if worth and worth.per_million
    ]
    rows = tuple((_cell(each), level.text) for each, level in made)
    for part, chart in enumerate(_charts(made, factors, f"{currency} per million"), 1):
        yield Figure(
            f"{_KEY}-price" + (f"-{part}" if part > 1 else ""),
            "What a million transactions cost",
            f"{currency} for a million transactions at the load that is proved, of a month's cost",
            ("cell", f"{currency} per million"),
            rows,
            partial(_level_marks, chart),
        )


def _cell(holds: Holds) -> str:
    pairs = holds.levels.items()
    return ", ".join(f"{factor_name(name)} = {level}" for name, level in pairs) or "the one cell"


def _row(holds: Holds, *, quick: bool) -> Iterator[str]:
    yield from ("-" if end is None else rate(end) for end in holds.ends)
    if not quick:
        found = holds.estimate
        yield "-" if found is None else rate(found.value)
        yield "-" if found is None else interval(found, rate) or "-"


def _level_of(holds: Holds) -> _Level:
    low, high = holds.ends
    at = holds.estimate.value if holds.estimate else None
    if holds.goal.mode == "quick":
        at = low
    elif at is not None and ((low or 0.0) > at or (high is not None and high < at)):
        at = None
    if low is not None and high is not None:
        text = f"{rate(low)}-{rate(high)}"
    else:
        text = f"over {rate(low)}" if low is not None else f"under {rate(high)}" if high else ""
    return _Level("", "", at, low, high, text)


def _charts(
    made: Sequence[tuple[Holds, _Level]], factors: Sequence[Factor], axis: str
) -> Iterator[_Chart]:
    """The cells as charts of a few lines each."""
    main = along(factors)
    if main is None:
        return
    others = [factor for factor in factors if factor != main]
    lines: dict[str, list[_Level]] = {}
    for holds, level in made:
        name = ", ".join(shown(holds.levels.get(factor.name, "-")) for factor in others) or "all"
        x = shown(holds.levels.get(main.name, "-"))
        placed = _Level(x, name, level.at, level.low, level.high, level.text)
        lines.setdefault(name, []).append(placed)
    legend = others[0].name if len(others) == 1 else ""
    names = list(lines)
    for start in range(0, len(names), LINES_MAX):
        part = tuple(names[start : start + LINES_MAX])
        yield _Chart(main, axis, part, legend, tuple(one for each in part for one in lines[each]))


def _level_marks(chart: _Chart, look: Look) -> dict[str, Any]:
    points = [_placed(level) for level in chart.levels]
    order = [shown(level) for level in chart.main.levels]
    flat = sum(map(len, order)) <= _NAMES_MAX and len(order) < 9
    axis = {"title": shown(factor_name(chart.main.name)), "labelAngle": 0 if flat else -40,
            "labelOverlap": False}  # fmt: skip
    x = {"field": "x", "type": "nominal", "sort": order, "axis": axis}
    y = {"field": "y", "type": "quantitative", "scale": _zero(chart.levels),
         "axis": {"title": shown(chart.axis), "format": NUMBER}}  # fmt: skip
    panel = Panel("", (), chart.legend)
    base: dict[str, Any] = {"x": x, **line_encoding(chart.lines, panel, look)}
    if len(chart.lines) > 1:
        base["xOffset"] = {"field": "line", "sort": list(chart.lines)}
    plain = {key: what for key, what in base.items() if key != "shape"}
    whole = [point for point in points if point["low"] is not None and point["high"] is not None]
    dots = [point for point in points if point["y"] is not None]
    layers: list[dict[str, Any]] = [
        _layer(whole, {"type": "rule", "strokeWidth": 7, "opacity": 0.4},
               {**plain, "y": {**y, "field": "low"}, "y2": {"field": "high"}}),
        _layer(dots, {"type": "point", "filled": True, "size": 62, "opacity": 1},
               {**base, "y": y}),
    ]  # fmt: skip
    for end, shape in (("low", "triangle-up"), ("high", "triangle-down")):
        other = "high" if end == "low" else "low"
        open_ = [p for p in points if p[end] is not None and p[other] is None and p["open"]]
        mark = {"type": "point", "shape": shape, "size": 90, "strokeWidth": 1.8, "filled": False}
        layers.append(_layer(open_, mark, {**plain, "y": {**y, "field": end}}))
    if len(points) <= _NAMED_MAX:
        mark = {"type": "text", "dy": -11, "fontSize": 11, "color": look.ink}
        placed = {"x": x, "y": {**y, "field": "top"}, "text": {"field": "text"}}
        if "xOffset" in base:
            placed["xOffset"] = base["xOffset"]
        layers.append(_layer([p for p in points if p["top"] is not None], mark, placed))
    return {
        "width": WIDTH - 8,
        "height": _HEIGHT + legend_height(chart.lines),
        "autosize": {"type": "fit", "contains": "padding"},
        "layer": layers,
    }


def _placed(level: _Level) -> dict[str, Any]:
    values = [end for end in (level.high, level.at, level.low) if end is not None]
    return {
        "x": level.x,
        "line": level.line,
        "y": level.at,
        "low": level.low,
        "high": level.high,
        "open": (level.low is None) is not (level.high is None),
        "top": max(values, default=None),
        "text": level.text,
    }


def _zero(levels: Sequence[_Level]) -> dict[str, Any]:
    """From 0 on, unless all are near each other and their differences would not be seen."""
    ends = [end for one in levels for end in (one.low, one.at, one.high) if end is not None]
    low, high = min(ends, default=0.0), max(ends, default=1.0)
    if low < 0.7 * high:
        return {"domain": [0, 1.1 * high], "nice": False}
    room = max(0.25 * (high - low), 0.02 * high)
    return {"domain": [low - room, high + 1.6 * room], "zero": False, "nice": False}


def _layer(values: Any, mark: Mapping[str, Any], encoding: Mapping[str, Any]) -> dict[str, Any]:
    data = ONCE if values is None else {"values": values}
    return {"data": data, "mark": mark, "encoding": encoding}


# --- trials ---------------------------------------------------------------------------------------


def _trials(found: Found, number: int, factors: Sequence[Factor]) -> Figure:
    """What missed at each load. number: of the cell, 0 of the only one."""
    names = {factor.name for factor in factors}
    pairs = ", ".join(
        f"{factor_name(name)} = {level}" for name, level in found.cell.levels if name in names
    )
    every = [(digest, point) for digest, point in found.trials if point.possible]
    rows = tuple(
        (
            digest.trial.id[-8:],
            ROLES[point.role],
            f"{point.load:.6g}",
            percent(point.share) if point.due else "-",
            "yes" if point.valid else "no",
        )
        for digest, point in every
    )
    points = [point for _, point in every if point.due]
    near = _near(points, found)
    left = len(points) - len(near)
    more = f"; {left} more at loads far away are in the table" if left else ""
    drawn = "" if not curve(points, found.goal) else (
        "; the curve is the mean share that long trials tell: where its band's upper edge crosses"
        " the threshold is proved, where the lower one does is refuted, or further out where a"
        " load's own trials say otherwise"
    )  # fmt: skip
    return Figure(
        f"{_KEY}-trials" + (f"-{number}" if number else ""),
        f"Missed at each load{f', {pairs}' if pairs else ''}",
        f"each dot is a trial, a hollow one is not valid{drawn}{more}",
        ("run", "for", "load", "missed %", "valid"),
        rows,
        partial(_trial_marks, found, tuple(near)),
    )


def _near(points: Sequence[TrialPoint], found: Found) -> list[TrialPoint]:
    """Those that are drawn: all long ones, and of the short ones what is about as large."""
    long = [point.load for point in points if point.role != "coarse"]
    if not long:
        held, broke = bracket(points, found.goal)
        long = [end for end in (held, broke) if end is not None]
    if not long:
        return list(points)
    low, high = min(long) / _FAR, max(long) * _FAR
    return [point for point in points if low <= point.load <= high]


def _trial_marks(found: Found, points: Sequence[TrialPoint], look: Look) -> dict[str, Any]:
    goal, known = found.goal, found.capacity
    theta = 100 * goal.missed_max
    band = curve([point for _, point in found.trials], goal)
    bounds = [
        (name, words.safe(end, goal, turn))
        for name, end, turn in (("proved", known.proved, -1), ("refuted", known.refuted, 1))
        if end is not None
    ]
    loads = [*(point.load for point in points), *(end for _, end in bounds)] or [goal.start]
    room = 0.06 * (max(loads) - min(loads)) or 0.1 * loads[0]
    unit = value.unit(goal.load)
    x = {"field": "x", "type": "quantitative",
         "scale": {"domain": [min(loads) - room, max(loads) + room], "nice": False, "zero": False},
         "axis": {"title": f"load, {unit}", "format": NUMBER, "tickCount": 6}}  # fmt: skip
    top = _top(points, theta)
    # Linear up to a tenth of the threshold, so that nothing missed has a place.
    scale = {"type": "symlog", "constant": theta / 10, "domain": [0, top], "nice": False,
             "clamp": True}  # fmt: skip
    ticks = [0.0, *(tick for tick in _ticks(theta) if tick <= top)]
    y = {"field": "y", "type": "quantitative", "scale": scale,
         "axis": {"title": "missed, % of due", "values": ticks, "format": NUMBER}}  # fmt: skip
    layers = [
        *_curve(band, x, y, look),
        *_dots(points, x, y, look),
        *_marks(theta, x, y, look),
        *_bounds(bounds, x, look),
    ]
    names = _roles(points)
    return {
        "width": WIDTH - 8,
        "height": _HEIGHT + 20 + legend_height(names),
        "autosize": {"type": "fit", "contains": "padding"},
        "layer": layers,
    }


def _top(points: Sequence[TrialPoint], theta: float) -> float:
    most = max((100 * point.share for point in points), default=0.0)
    return min(100.0, max(4 * theta, 1.4 * most))


def _ticks(theta: float) -> list[float]:
    """About the threshold, at most two powers of ten below it."""
    scale = 10.0 ** math.floor(math.log10(theta))
    every = {tick * factor for tick in _TICKS for factor in (scale, 10 * scale)}
    return sorted(float(f"{tick:.3g}") for tick in every if theta / 10 <= tick <= 100)


def _curve(
    band: Sequence[Drawn], x: Mapping[str, Any], y: Mapping[str, Any], look: Look
) -> Iterator[dict[str, Any]]:
    values = [
        {"x": at.load, "y": 100 * at.share, "low": 100 * at.low, "high": 100 * at.high}
        for at in band
    ]
    area = {"type": "area", "color": look.lines[0], "opacity": 0.16, "clip": True}
    ends = {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}}
    line = {"type": "line", "color": look.lines[0], "strokeWidth": 1.6, "clip": True}
    yield _layer(values, area, ends)
    yield _layer(values, line, {"x": x, "y": y})


def _roles(points: Sequence[TrialPoint]) -> list[str]:
    present = {point.role for point in points}
    return [name for kind, name in ROLES.items() if kind in present]


def _dots(
    points: Sequence[TrialPoint], x: Mapping[str, Any], y: Mapping[str, Any], look: Look
) -> Iterator[dict[str, Any]]:
    names = _roles(points)
    values = [
        {"x": p.load, "y": 100 * p.share, "for": ROLES[p.role], "sound": p.valid} for p in points
    ]
    colours = {"short": look.muted, "long": look.lines[0], "soak": look.lines[1]}
    shapes = {"short": "circle", "long": "square", "soak": "diamond"}
    legend = {"title": "trial", "columns": legend_columns(names)} if len(names) > 1 else None

    def of(chosen: Mapping[str, str]) -> dict[str, Any]:
        scale = {"domain": names, "range": [chosen[name] for name in names]}
        return {"field": "for", "type": "nominal", "scale": scale, "legend": legend}

    fill = {"condition": {"test": "datum.sound", "value": 0.85}, "value": 0}
    mark = {"type": "point", "size": 46, "strokeWidth": 1.4, "opacity": 1}
    within = {"fill": {**of(colours), "legend": None}, "fillOpacity": fill}
    yield _layer(
        values, mark, {"x": x, "y": y, "color": of(colours), "shape": of(shapes), **within}
    )


def _marks(
    theta: float, x: Mapping[str, Any], y: Mapping[str, Any], look: Look
) -> Iterator[dict[str, Any]]:
    """The threshold."""
    at = {**{key: what for key, what in y.items() if key != "field"}, "datum": theta}
    rule = {"type": "rule", "strokeDash": [5, 4], "color": look.alarm, "strokeWidth": 1.2}
    yield _layer(None, rule, {"y": at})
    text = {"type": "text", "text": f"may miss: {theta:.4g} %", "align": "left", "dx": 4,
            "dy": -6, "color": look.alarm, "fontSize": 11}  # fmt: skip
    yield _layer(None, text, {"x": {"value": 0}, "y": at})


def _bounds(
    ends: Sequence[tuple[str, float]], x: Mapping[str, Any], look: Look
) -> Iterator[dict[str, Any]]:
    """Proved and refuted as lines, their names at the top, away from each other."""
    for name, load in ends:
        at = {**{key: what for key, what in x.items() if key != "field"}, "datum": load}
        yield _layer(None, {"type": "rule", "color": look.ink, "strokeWidth": 1.2}, {"x": at})
        left = name == "proved"
        text = {"type": "text", "text": f"{name} {rate(load)}", "fontSize": 11, "color": look.ink,
                "align": "right" if left else "left", "dx": -4 if left else 4, "dy": 8}  # fmt: skip
        yield _layer(None, text, {"x": at, "y": {"value": 0}})
