"""Runs over time as a section: words, a table of levels, a chart with the changes marked.

A trend and the runs behind it in, a section out; knows no store. The chart is a Vega-Lite
specification as data, as in charts.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from pgpaces.answers.compare import Metric
from pgpaces.answers.differences import Between
from pgpaces.answers.trend import Change, Level, Run, Trend
from pgpaces.report import verdicts
from pgpaces.report.comparing import named, number, short
from pgpaces.report.escape import line as shown
from pgpaces.report.figure import NUMBER
from pgpaces.report.look import WIDTH, Look
from pgpaces.report.section import Figure, Section, Table, TableCell
from pgpaces.report.text import interval
from pgpaces.report.words import Sentence
from pgpaces.result import Estimate

KEY = "trend"
_HEIGHT = 230
_CHANGED_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Timed:
    """A run of the series: its id, when it began, and its number under its name."""

    id: str
    at: datetime
    run: Run


@dataclass(frozen=True, slots=True)
class Series:
    """Runs in the order of time. beside: what else was not the same before and behind a change,

    by the change's first run. notes: what else is to be said.
    """

    name: str
    runs: tuple[Timed, ...]
    beside: tuple[tuple[str, tuple[Between, ...]], ...] = ()
    notes: tuple[Sentence, ...] = ()


def called(id_: str, at: datetime) -> str:
    """A run in a sentence: the end of its id, and when it began here."""
    return f"{id_[-8:]} of {at.astimezone():%Y-%m-%d %H:%M}"


def section(found: Trend, metric: Metric, series: Series) -> Section:
    """The section of a series of runs."""
    return Section(
        key=KEY,
        title=f"{verdicts.title(metric).capitalize()} over time: {series.name}",
        said=(*verdicts.trended(found, metric), *_changed(series), *series.notes),
        tables=(_table(found, metric, series),) if found.levels else (),
        figures=(_figure(found, metric, series),) if _known(series) else (),
        value=found,
        trials=tuple(each.id for each in series.runs),
    )


def _changed(series: Series) -> Iterator[Sentence]:
    """What else was another one since a change."""
    for first, beside in series.beside:
        told = [
            f"{each.name} ({', '.join(each.a) or '-'}, then {', '.join(each.b) or '-'})"
            for each in beside[:_CHANGED_SHOWN]
        ]
        more = len(beside) - len(told)
        listed = ", ".join([*told, *([f"and {more} more"] if more else [])])
        yield Sentence(f"Since {first} this is another one too: {listed}.")


def _table(found: Trend, metric: Metric, series: Series) -> Table:
    changes: dict[str, Change] = {change.first: change for change in found.changes}
    runs = {each.run.name: each for each in series.runs}

    def when(name: str) -> TableCell:
        return TableCell(f"{runs[name].at.astimezone():%Y-%m-%d %H:%M}", runs[name].id[-8:])

    def row(level: Level) -> tuple[TableCell, ...]:
        change = changes.get(level.first)
        return (
            when(level.first),
            when(level.last),
            TableCell(str(level.runs)),
            TableCell(*_said(metric, level.value)),
            TableCell("-") if change is None else TableCell(*short(metric, change.ratio)),
            TableCell("-" if change is None else f"{change.p:.2g}"),
        )

    columns = ("from", "to", "runs", named(metric), "change", "p")
    rows = tuple(row(level) for level in found.levels)
    note = "Geometric means of the runs of a level, with 95 % intervals."
    return Table(f"{KEY}-levels", "Levels", columns, 2, rows, note)


def _said(metric: Metric, found: Estimate) -> tuple[str, str]:
    form = partial(number, metric)
    return form(found.value), interval(found, form)


def _known(series: Series) -> list[Timed]:
    """The runs with a number."""
    return [each for each in series.runs if 0 < each.run.estimate.value < math.inf]


def _figure(found: Trend, metric: Metric, series: Series) -> Figure:
    rows = tuple(
        (
            f"{each.at.astimezone():%Y-%m-%d %H:%M:%S}",
            each.id[-8:],
            *_said(metric, each.run.estimate),
        )
        for each in series.runs
    )
    lines = "; broken lines are changes, wide ones levels with their intervals"
    return Figure(
        f"{KEY}-runs",
        f"{verdicts.title(metric).capitalize()} of each run",
        f"runs with their own 95 % intervals where there are any{lines if found.levels else ''}",
        ("begun", "run", named(metric), "95 % interval"),
        rows,
        partial(_marks, found, metric, series),
    )


def _marks(found: Trend, metric: Metric, series: Series, look: Look) -> dict[str, Any]:
    points = [_point(each) for each in _known(series)]
    places = {each.run.name: _moment(each.at) for each in series.runs}
    levels = [
        {"x": places[level.first], "end": places[level.last], "y": level.value.value,
         "low": level.value.low, "high": level.value.high}
        for level in found.levels
    ]  # fmt: skip
    changes = [
        {"x": places[change.first], "text": short(metric, change.ratio)[0]}
        for change in found.changes
    ]
    form = "%m-%d %H:%M" if _span(series) < timedelta(days=3) else "%Y-%m-%d"
    axis = {"title": None, "tickCount": 5, "format": form}
    x = {"field": "x", "type": "temporal", "axis": axis}
    y = {"field": "y", "type": "quantitative", "scale": {"zero": False, "padding": 8},
         "axis": {"title": named(metric), "format": NUMBER}}  # fmt: skip
    bars = [point for point in points if "low" in point]
    over = {"x": x, "x2": {"field": "end"}}
    layers = [
        _layer(points, {"type": "point", "filled": True, "size": 36, "color": look.lines[0],
                        "opacity": 0.9}, {"x": x, "y": y}),
        _layer(bars, {"type": "rule", "color": look.lines[0], "opacity": 0.55},
               {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}}),
        _layer(levels, {"type": "rect", "color": look.lines[1], "opacity": 0.18},
               {**over, "y": {**y, "field": "low"}, "y2": {"field": "high"}}),
        _layer(levels, {"type": "rule", "color": look.lines[1], "strokeWidth": 2},
               {**over, "y": y}),
        _layer(changes, {"type": "rule", "color": look.alarm, "strokeDash": [5, 4]}, {"x": x}),
        _layer(changes, {"type": "text", "color": look.alarm, "align": "right", "dx": -4,
                         "fontSize": 11},
               {"x": x, "y": {"value": 8}, "text": {"field": "text"}}),
    ]  # fmt: skip
    return {
        "width": WIDTH - 8,
        "height": _HEIGHT,
        "autosize": {"type": "fit", "contains": "padding"},
        "layer": layers,
    }


def _span(series: Series) -> timedelta:
    return series.runs[-1].at - series.runs[0].at


def _point(each: Timed) -> dict[str, Any]:
    found = each.run.estimate
    ends = {"low": found.low, "high": found.high}
    known = found.estimable and math.isfinite(found.high) and found.low > 0
    place = {"x": _moment(each.at), "y": found.value, "run": shown(each.id)}
    return place | (ends if known else {})


def _moment(at: datetime) -> str:
    """A time as it is here, wherever the chart is drawn."""
    return f"{at.astimezone():%Y-%m-%dT%H:%M:%S}"


def _layer(values: Any, mark: dict[str, Any], encoding: dict[str, Any]) -> dict[str, Any]:
    return {"data": {"values": values}, "mark": mark, "encoding": encoding}
