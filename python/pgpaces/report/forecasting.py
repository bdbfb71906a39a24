"""What more load would do as a section: words, a table of lines, each line's curve with its band.

Forecasts in, a section out; knows no store. Charts are Vega-Lite specifications as data, as in
charts.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pgpaces.answers.crossing import Line
from pgpaces.answers.forecast import Reading
from pgpaces.answers.forecasts import LineForecast
from pgpaces.report import verdicts, words
from pgpaces.report.escape import line as shown
from pgpaces.report.figure import NUMBER
from pgpaces.report.look import WIDTH, Look
from pgpaces.report.section import Figure, Section, Table, TableCell
from pgpaces.report.text import interval, percent, rate
from pgpaces.report.words import Sentence
from pgpaces.result import Estimate

KEY = "forecast"
_HEIGHT = 230


def section(
    every: Sequence[LineForecast], trials: tuple[str, ...], to: float | None = None
) -> Section:
    """The section of forecasts; trials: their ids. to: a load that is read off each."""
    unit = every[0].unit if every else ""
    return Section(
        key=KEY,
        title=f"With more {unit}",
        said=tuple(_said(every, to)),
        tables=_tables(every),
        figures=tuple(
            _figure(each, number, to) for number, each in enumerate(every, 1) if each.points
        ),
        value=tuple(every),
        trials=trials,
    )


def name_of(found: LineForecast) -> str:
    """What tells a line from the others; nothing of the only one."""
    return words.line_name(Line(found.levels, ()))


def _said(every: Sequence[LineForecast], to: float | None) -> Iterator[Sentence]:
    """Of one line everything; of several what is most important, the table has the rest."""
    for each in every:
        told = [*verdicts.forecasted(each.found, each.unit), *_left_out(each)]
        if to is not None:
            told = [*verdicts.reading(each.found, to, each.unit), *told]
        name, several = name_of(each), len(every) > 1
        for sentence in told:
            if sentence.weight == "plain":
                yield from () if several else (sentence,)
            else:
                yield replace(sentence, text=f"{name}: {sentence.text}") if name else sentence


def _left_out(each: LineForecast) -> Iterator[Sentence]:
    if each.left_out:
        text = f"Left out: {each.left_out} not brought to an end, or not valid."
        yield Sentence(text, "warning")


# --- the table ------------------------------------------------------------------------------------


def _tables(every: Sequence[LineForecast]) -> tuple[Table, ...]:
    columns = ("line", "peak at", "1/s there", "farthest", "1/s at it", "hold-out %", "at most")
    note = (
        "The farthest is 1.5 times the most that was tried. Hold-out: how wrong a fit without the"
        " last two loads is there. At most: whatever the law, 1/s at the farthest."
    )
    rows = tuple(_row(each) for each in every)
    found = [Table(f"{KEY}-lines", "How far it grows", columns, 1, rows, note)]
    fitted = tuple(_parameters(each) for each in every if each.found.usl)
    if fitted:
        names = ("line", "one does, 1/s", "contention", "coherency")
        found.append(Table(f"{KEY}-law", "The law", names, 1, fitted))
    return tuple(found)


def _row(each: LineForecast) -> tuple[TableCell, ...]:
    found = each.found
    far = found.curve[-1].rate if found.curve else None
    return (
        TableCell(name_of(each) or "all"),
        _estimate(found.peak, lambda load: f"{load:,.3g}"),
        _estimate(found.peak_rate, rate),
        TableCell(f"{found.reach:,.4g}"),
        _estimate(far, rate),
        TableCell("-" if found.holdout is None else percent(found.holdout)),
        TableCell("-" if found.bounds is None else rate(found.bounds.at(found.reach))),
    )


def _parameters(each: LineForecast) -> tuple[TableCell, ...]:
    found = each.found
    return (
        TableCell(name_of(each) or "all"),
        _estimate(found.g, rate),
        _estimate(found.a, lambda share: f"{share:.3g}"),
        _estimate(found.b, lambda share: f"{share:.3g}"),
    )


def _estimate(found: Estimate | None, form: Any) -> TableCell:
    return TableCell("-") if found is None else TableCell(form(found.value), interval(found, form))


# --- the chart ------------------------------------------------------------------------------------


def _figure(each: LineForecast, number: int, to: float | None) -> Figure:
    name = name_of(each)
    found = each.found
    if found.curve:
        about = (
            "dots are trials, the line is the law fitted to them with its 95 % band, broken beyond"
            " what was tried"
        )
    else:
        about = "dots are trials; there is no curve"
    bounds = "; the grey line is the most that is possible" if found.bounds else ""
    return Figure(
        f"{KEY}-{number}",
        f"Throughput by {each.unit}{f', {shown(name)}' if name else ''}",
        f"{about}{bounds}",
        (each.unit, "trials, 1/s", "the law, 1/s", "95 % interval", "at most, 1/s"),
        tuple(_readings(each, to)),
        partial(_marks, each, to),
        KEY,
    )


def _readings(each: LineForecast, to: float | None) -> Iterator[tuple[str, ...]]:
    """The loads that were tried, the one that was asked for, and the farthest."""
    found = each.found
    tried: dict[float, list[float]] = {}
    for point in each.points:
        tried.setdefault(point.load, []).append(point.rate)
    law: dict[float, Reading] = {reading.load: reading for reading in found.curve}
    wanted = {*tried, *([found.curve[-1].load] if found.curve else []), *([to] if to else [])}
    for load in sorted(wanted):
        had, told = tried.get(load), law.get(load)
        yield (
            f"{load:,.4g}",
            "-" if had is None else rate(math.fsum(had) / len(had)),
            "-" if told is None else rate(told.rate.value),
            "-" if told is None else interval(told.rate, rate),
            "-" if found.bounds is None else rate(found.bounds.at(load)),
        )


def _marks(each: LineForecast, to: float | None, look: Look) -> dict[str, Any]:
    end = max(each.tried, to) if to else each.found.reach if each.found.curve else each.tried
    dots = [{"x": point.load, "y": point.rate} for point in each.points]
    curve = [
        {"x": r.load, "y": r.rate.value, "low": r.rate.low, "high": r.rate.high, "tried": r.tried}
        for r in each.found.curve
        if r.load <= end
    ]
    top = 1.15 * max([dot["y"] for dot in dots] + [point["high"] for point in curve] + [1e-9])
    x = {"field": "x", "type": "quantitative", "scale": {"domain": [0, end], "nice": False},
         "axis": {"title": each.unit, "format": NUMBER, "tickMinStep": 1}}  # fmt: skip
    y = {"field": "y", "type": "quantitative", "scale": {"domain": [0, top], "nice": False},
         "axis": {"title": "throughput, 1/s", "format": NUMBER}}  # fmt: skip
    band = {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}}
    # A broken line begins where the whole one ends.
    seen = [point for point in curve if point["tried"]]
    beyond = [*seen[-1:], *(point for point in curve if not point["tried"])]
    line = {"type": "line", "color": look.lines[0], "strokeWidth": 2}
    layers = [
        _layer(dots, {"type": "point", "size": 26, "color": look.ink, "opacity": 0.75},
               {"x": x, "y": y}),
        _layer(curve, {"type": "area", "color": look.lines[0], "opacity": 0.16}, band),
        _layer(seen, line, {"x": x, "y": y}),
        _layer(beyond, {**line, "strokeDash": [6, 4]}, {"x": x, "y": y}),
        _layer(_bound(each, end, top), {"type": "line", "color": look.muted, "strokeWidth": 1.6},
               {"x": x, "y": y}),
        *_peak(each, x, y, look),
    ]  # fmt: skip
    return {
        "width": WIDTH - 8,
        "height": _HEIGHT,
        "autosize": {"type": "fit", "contains": "padding"},
        "layer": layers,
    }


def _bound(each: LineForecast, end: float, top: float) -> list[dict[str, float]]:
    """The bounds as far as they are on the chart: a line from nothing, then level."""
    bounds = each.found.bounds
    if bounds is None:
        return []
    most = math.inf if bounds.most is None else bounds.most
    bend = min(end, min(most, top) / bounds.each)
    places = [0.0, bend, *([end] if most < top else [])]
    return [{"x": load, "y": bounds.at(load)} for load in places]


def _peak(each: LineForecast, x: Any, y: Any, look: Look) -> list[dict[str, Any]]:
    """The peak with its interval along the axis."""
    peak, most = each.found.peak, each.found.peak_rate
    if peak is None or most is None:
        return []
    end = x["scale"]["domain"][1]
    place = {"x": peak.value, "y": most.value, "low": peak.low, "high": min(end, peak.high)}
    if place["x"] > end:
        return []
    span = {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y}
    label = {"type": "text", "text": "peak", "dy": -10, "color": look.alarm, "fontSize": 11}
    point = {"type": "point", "filled": True, "size": 60, "color": look.alarm, "opacity": 1}
    return [
        _layer([place], {"type": "rule", "color": look.alarm, "strokeWidth": 1.6}, span),
        _layer([place], point, {"x": x, "y": y}),
        _layer([place], label, {"x": x, "y": y}),
    ]


def _layer(values: Any, mark: dict[str, Any], encoding: dict[str, Any]) -> dict[str, Any]:
    return {"data": {"values": values}, "mark": mark, "encoding": encoding}
