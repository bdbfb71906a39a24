"""The charts of a whole experiment over its main factor, as Vega-Lite specifications."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pgpaces.answers import crossing
from pgpaces.answers.bulk import NAMES
from pgpaces.answers.bulk import number as of_bulk
from pgpaces.answers.cells import Row, sound, trial_share
from pgpaces.answers.digest import Digest
from pgpaces.questions.bulk import bars
from pgpaces.questions.bulk import words as bulk
from pgpaces.questions.sweep import words
from pgpaces.questions.sweep.axes import (
    LOG_FROM,
    Axis,
    Panel,
    axis_of,
    legend_height,
    line_encoding,
    line_label,
    panels,
)
from pgpaces.questions.sweep.heatmap import heat_map
from pgpaces.questions.sweep.page import Page
from pgpaces.report.escape import line as shown
from pgpaces.report.look import DASHES, NUMBER, ONCE, WIDTH, Look
from pgpaces.report.numbers import interval, milliseconds, percent, rate
from pgpaces.result import Estimate
from pgpaces.section import Figure

_HEIGHT = 210
_TICKS_MAX = 7
# What is shown beside a command's own numbers, where there are queries or a limit.
_BESIDE = ("missed", "p95")


@dataclass(frozen=True, slots=True)
class Measure:
    """A number of cells that charts show over the main factor.

    scale: from the number to what the axis shows. bound: a line that it is held against.
    """

    key: str
    name: str
    axis: str
    about: str
    scale: float
    form: Callable[[float], str]
    of_trial: Callable[[Digest], Estimate | None]
    bound: tuple[float, str] | None = None
    log: bool = False


def _share(name: str, about: str, bound: tuple[float, str] | None = None) -> Measure:
    return Measure(
        name,
        f"{name.capitalize()} %",
        f"{name}, % of due",
        about,
        100,
        percent,
        lambda digest: trial_share(digest, name),
        bound,
    )


def measures(page: Page) -> tuple[Measure, ...]:
    """What is shown over the main factor, the most important first."""
    if bulk.about_commands(page.rows):
        found = tuple(_of_command(column) for column in bulk.columns(page.rows))
        more = () if bulk.nothing_else(page.rows) else _of_scripts(page)
        return (*found, *(each for each in more if each.key in _BESIDE))
    return _of_scripts(page)


def _of_scripts(page: Page) -> tuple[Measure, ...]:
    """What is shown of transactions."""
    limit_ms = _limit_ms(page)
    limit = None if limit_ms is None else (limit_ms, "latency limit")
    missed = (100 * page.missed_max, f"allowed: {100 * page.missed_max:g} %")

    def times(key: str, name: str, about: str) -> Measure:
        def of_trial(digest: Digest) -> Estimate | None:
            return digest.summary.latency.estimate(key)

        return Measure(
            key,
            name,
            f"{name}, ms",
            about,
            1,
            lambda ms: milliseconds(ms, ">"),
            of_trial,
            limit,
            True,
        )

    shares = (
        _share("missed", "late, skipped, failed or unfinished, of all that was due", missed),
        _share("late", "answered, but later than the limit"),
        _share("skipped", "never sent, because it was too late already"),
    )
    return (
        *(each for each in shares if each.key in ("missed", *_parts(page))),
        times("p95", "95th percentile of latency", "within this time 95 % of what was due"),
        times("p99", "99th percentile of latency", "within this time 99 % of what was due"),
        *(() if page.limits else (times("mean", "Mean latency", "of what succeeded"),)),
        Measure(
            "rate",
            "Achieved rate",
            "succeeded, 1/s",
            "transactions that succeeded, a second",
            1,
            rate,
            lambda digest: digest.summary.rate,
        ),
    )


def _of_command(column: bulk.BulkColumn) -> Measure:
    def of_trial(digest: Digest) -> Estimate | None:
        found = bulk.of_digest(digest)
        return None if found is None else of_bulk(found, column.key)

    name = column.name
    return Measure(column.key, name, name, column.about, column.scale, column.text, of_trial)


def _parts(page: Page) -> tuple[str, ...]:
    """The parts of what missed that are worth a chart: where there are several."""
    names = ("late", "skipped", "failed", "unfinished")
    had = [name for name in names if any(getattr(row.counts, name) for row in page.rows)]
    return tuple(had) if len(had) > 1 and page.limits else ()


def _limit_ms(page: Page) -> float | None:
    found = {digest.trial.plan.get("limit_ns") for digest in page.digests}
    only = found.pop() if len(found) == 1 else None
    return only / 1e6 if only else None


def overview(page: Page) -> Iterator[Figure]:
    """The charts of all cells together: measures over the main factor, heat map, statements."""
    if len(page.rows) < 2:
        return
    if bulk.about_commands(page.rows):
        yield from bars.figures(page)
    axis, found = axis_of(page), panels(page)[0]
    for measure in measures(page):
        if measure.key not in NAMES:
            yield from _over(page, axis, found, measure)
    if bulk.about_commands(page.rows):
        return
    if len(page.factors) > 1 and len(page.lines) > 1 and page.main is not None:
        yield heat_map(page, page.main)


def _over(page: Page, axis: Axis, every: Sequence[Panel], measure: Measure) -> Iterator[Figure]:
    """A measure over the main factor: a chart for each panel, with the same axes."""
    key = measure.key.replace(".", "")
    for number, panel in enumerate(every):
        where = f", {shown(panel.name)}" if panel.name else ""
        columns = (
            shown(axis.title),
            shown(words.factor_name(panel.legend)) if panel.legend else "cell",
            measure.axis,
            "95 % interval",
            "trials",
            "valid",
        )
        yield Figure(
            f"{key}-{number + 1}" if number else key,
            f"{measure.name} by {shown(axis.title.partition(',')[0])}{where}",
            f"{measure.about}; {_legend(panel, measure)}",
            columns,
            tuple(_table(axis, panel, measure)),
            partial(_marks, _Chart(page, axis, tuple(every), measure), panel),
            key if len(every) > 1 else "",
        )


def _legend(panel: Panel, measure: Measure) -> str:
    """What bars and dots are."""
    found = [row.estimate(measure.key) for line in panel.lines for row in line.rows]
    known = [estimate.estimable for estimate in found if estimate is not None]
    if not any(known):
        return "small dots are single trials; no 95 % interval is estimable"
    bare = "" if all(known) else " (not estimable where there is none)"
    return f"bars are 95 % intervals{bare}, small dots single trials"


def _table(axis: Axis, panel: Panel, measure: Measure) -> Iterator[tuple[str, ...]]:
    for line in panel.lines:
        for row in line.rows:
            yield (
                _label(axis, row),
                line_label(line, panel),
                *_said(row.estimate(measure.key), measure),
                str(len(row.trials)),
                "yes" if row.sound else "no" if row.trials else "-",
            )


def _label(axis: Axis, row: Row) -> str:
    return shown(crossing.level_of(row, axis.factor.name)) if axis.factor else "all"


def _said(estimate: Estimate | None, measure: Measure) -> tuple[str, str]:
    if estimate is None:
        return "-", "-"
    return measure.form(estimate.value), interval(estimate, measure.form) or "-"


@dataclass(frozen=True, slots=True)
class _Chart:
    """What charts side by side share."""

    page: Page
    axis: Axis
    panels: tuple[Panel, ...]
    measure: Measure


@dataclass(frozen=True, slots=True)
class _Points:
    """What a chart draws: estimates with their ends, and single trials."""

    cells: list[dict[str, Any]]
    trials: list[dict[str, Any]]


def _points(axis: Axis, panel: Panel, measure: Measure) -> _Points:
    found, trials = [], []
    count = len(panel.lines)
    for number, line in enumerate(panel.lines):
        part = ((number + 0.5) / count - 0.5) * 0.36 if count > 1 else 0.0
        for row in line.rows:
            base = {"x": axis.aside(row, part), "line": line_label(line, panel)}
            estimate = row.estimate(measure.key)
            if estimate is not None:
                ends = _ends(estimate, measure)
                found.append({**base, **ends, "sound": row.sound})
            for digest in row.every:
                own = measure.of_trial(digest)
                if own is not None and math.isfinite(own.value):
                    y = own.value * measure.scale
                    counts = digest in row.trials and sound(digest)
                    trials.append({**base, "y": y, "sound": counts})
    return _Points(found, trials)


def _top(every: Sequence[_Points], measure: Measure) -> float | None:
    """Where that stands which is above every value; None where nothing is."""
    points = [point for each in every for point in each.cells]
    if not any(point["above"] or point["open"] for point in points):
        return None
    finite: list[float] = [p[k] for p in points for k in ("y", "high") if p[k] is not None]
    trials = [point["y"] for each in every for point in each.trials]
    top: float = 1.1 * max([*finite, *trials, *([measure.bound[0]] if measure.bound else []), 1e-9])
    for point in points:
        point["y"] = top if point["above"] else point["y"]
        if point["open"]:
            point["high"] = top
    return top


def _ends(estimate: Estimate, measure: Measure) -> dict[str, Any]:
    def finite(value: float) -> float | None:
        return value * measure.scale if math.isfinite(value) else None

    value = finite(estimate.value)
    known = estimate.estimable
    # Of a time that has no lower bound the bar begins at the value: a bar from nothing would shout.
    below = estimate.value if estimate.low == 0 and measure.log else estimate.low
    return {
        "y": value,
        "low": (finite(below) if known else value) if value is not None else None,
        "high": finite(estimate.high) if known else value,
        "above": value is None,
        "open": known and math.isinf(estimate.high),
    }


def _scale(every: Sequence[_Points], top: float | None, measure: Measure) -> dict[str, Any]:
    """The vertical axis, the same for all charts side by side."""
    cells = [point for each in every for point in each.cells]
    values = [p[k] for p in cells for k in ("y", "low", "high") if p[k] is not None]
    values += [point["y"] for each in every for point in each.trials]
    values += [measure.bound[0]] if measure.bound else []
    above_zero = [value for value in values if value > 0]
    if measure.log and above_zero and max(above_zero) / min(above_zero) > LOG_FROM:
        return {
            "type": "log",
            "nice": False,
            "domainMin": min(above_zero) * 0.9,
            "domainMax": max(above_zero) * 1.15,
        }
    room = 1.12 if top is not None else 1.04
    end = max(values, default=1.0) * room or 1.0
    if measure.scale == 100:
        end = min(100.0, max(end, 1.0))
    return {"type": "linear", "domain": [0, end], "nice": end < 90, "zero": True}


def _ticks(scale: dict[str, Any]) -> dict[str, Any]:
    """Where a logarithmic axis has numbers: at 1, 2 and 5 times powers of ten, or fewer."""
    if scale["type"] != "log":
        return {}
    low, high = scale["domainMin"], scale["domainMax"]
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    values: list[float] = []
    for steps in ((1, 2, 5), (1, 3), (1,)):
        found = [step * 10.0**power for power in powers for step in steps]
        values = [value for value in found if low <= value <= high]
        if len(values) <= _TICKS_MAX:
            break
    return {"values": values}


def _marks(chart: _Chart, panel: Panel, look: Look) -> dict[str, Any]:
    axis, measure = chart.axis, chart.measure
    every = [_points(axis, each, measure) for each in chart.panels]
    points = every[chart.panels.index(panel)]
    top = _top(every, measure)
    names = [line_label(line, panel) for line in panel.lines]
    scale = _scale(every, top, measure)
    low = scale.get("domainMin", 0.0)
    for point in points.cells:
        point["low"] = None if point["low"] is None else max(point["low"], low)
    x = axis.encoding(chart.page.rows)
    y = {
        "field": "y",
        "type": "quantitative",
        "scale": scale,
        "axis": {"title": measure.axis, "format": NUMBER, **_ticks(scale)},
    }
    base = {"x": x, "y": y, **line_encoding(names, panel, look)}
    if not axis.step and len(names) > 1:
        base["xOffset"] = {"field": "line", "sort": names}
    layers: list[dict[str, Any]] = []
    plain = {key: value for key, value in base.items() if key != "shape"}
    bars = [p for p in points.cells if p["low"] is not None and p["high"] is not None]
    if bars:
        ends = {"y": {**y, "field": "low"}, "y2": {"field": "high"}}
        bar = {"type": "rule", "strokeWidth": 1.6, "opacity": 0.75}
        layers.append({"data": {"values": bars}, "mark": bar, "encoding": {**plain, **ends}})
    told = [point for point in points.cells if point["y"] is not None]
    for name, dash in zip(names if axis.step else (), DASHES, strict=False):
        own = [point for point in told if point["line"] == name]
        mark = {"type": "line", "strokeWidth": 1.8, "strokeDash": dash}
        layers.append({"data": {"values": own}, "mark": mark, "encoding": plain})
    layers += [
        _dots(points.trials, base, {"size": 13, "opacity": 0.55, "strokeWidth": 1}),
        _dots(told, base, {"size": 62, "opacity": 1, "strokeWidth": 1.8}),
    ]
    # Not the first layer: that decides whether there is a grid, and one value has none.
    layers += _bound(measure, y, _free_side(points, scale, measure), look)
    if top is not None:
        above = [point for point in points.cells if point["above"]]
        above = list({_label_place(point["x"]): point for point in above}.values())
        text = {"type": "text", "dy": -9, "text": "above", "color": look.muted, "fontSize": 11}
        layers.append({"data": {"values": above}, "mark": text, "encoding": {"x": x, "y": y}})
    return {
        "width": WIDTH - 8,
        "height": _HEIGHT + legend_height(names),
        "autosize": {"type": "fit", "contains": "padding"},
        "layer": layers,
    }


def _label_place(x: float | str) -> float | str:
    """Where a label stands: one for all lines at a level."""
    return x if isinstance(x, str) else round(x)


def _dots(points: Sequence[dict[str, Any]], base: dict[str, Any], style: dict[str, Any]) -> Any:
    """Points: filled where sound, hollow where not."""
    fill = {"condition": {"test": "datum.sound", "value": 1}, "value": 0}
    encoding = {**base, "fillOpacity": fill, "fill": {**base["color"], "legend": None}}
    return {
        "data": {"values": list(points)},
        "mark": {"type": "point", **style},
        "encoding": encoding,
    }


def _bound(measure: Measure, axis: dict[str, Any], side: str, look: Look) -> list[dict[str, Any]]:
    if measure.bound is None:
        return []
    value, text = measure.bound
    y = {**{key: what for key, what in axis.items() if key != "field"}, "datum": value}
    rule = {"type": "rule", "strokeDash": [5, 4], "color": look.alarm, "strokeWidth": 1.2}
    place = {"value": "width" if side == "right" else 0}
    label = {"type": "text", "text": text, "align": side, "dy": -6, "color": look.alarm}
    label |= {"dx": -4 if side == "right" else 4, "fontSize": 11}
    return [
        {"data": ONCE, "mark": rule, "encoding": {"y": y}},
        {"data": ONCE, "mark": label, "encoding": {"y": y, "x": place}},
    ]


def _free_side(points: _Points, scale: dict[str, Any], measure: Measure) -> str:
    """Where the name of the bound hides least: left or right."""
    places = [point["x"] for point in points.cells]
    if measure.bound is None or not places or isinstance(places[0], str):
        return "left"
    bound = measure.bound[0]
    above = 1.3 * bound if scale["type"] == "log" else bound + 0.1 * scale["domain"][1]
    third = (max(places) - min(places)) / 3

    def hidden(low: float, high: float) -> int:
        near = [p for p in (*points.cells, *points.trials) if low <= p["x"] <= high]
        ends = [(p.get("low", p["y"]), p.get("high", p["y"])) for p in near]
        return sum(None not in pair and pair[0] <= above and pair[1] >= bound for pair in ends)

    left = hidden(min(places), min(places) + third)
    return "left" if left <= hidden(max(places) - third, max(places)) else "right"
