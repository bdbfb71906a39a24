"""The charts of a whole experiment, as Vega-Lite specifications: data and marks, drawn elsewhere.

Each figure has a table of the numbers that it shows, for who cannot or does not want to see it.
Texts of others get into a specification as data only, never as an expression.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pgpaces.answers import breaks
from pgpaces.answers.breaks import Line
from pgpaces.answers.cells import Row, sound, trial_share
from pgpaces.answers.digest import Digest
from pgpaces.design import Factor
from pgpaces.report import words
from pgpaces.report.escape import line as shown
from pgpaces.report.look import DASHES, SHAPES, WIDTH, Look, specification
from pgpaces.report.page import Page
from pgpaces.report.text import interval, milliseconds, percent, rate
from pgpaces.result import Estimate

LINES_MAX = len(SHAPES)
PANELS_MAX = 6
_HEIGHT = 210
_HEAT_ROWS_MAX = 40
_LOG_FROM = 20
# Six digits, no more than needed, and no exponent before they end.
NUMBER = ".6~g"
# Marks that stand for one value and no data.
ONCE: dict[str, Any] = {"values": [{}]}

Marks = Callable[[Look], dict[str, Any]]
Cells = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart: what it is called, what it shows in a sentence, and its numbers as a table.

    key: for file names and anchors. marks: its specification in a look, without configuration.
    """

    key: str
    title: str
    about: str
    columns: tuple[str, ...]
    rows: Cells
    marks: Marks

    def specification(self, look: Look) -> dict[str, Any]:
        """The whole specification."""
        return specification(look, self.marks(look))


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
    limit_ms = _limit_ms(page)
    limit = None if limit_ms is None else (limit_ms, "latency limit")
    missed = (100 * page.missed_max, f"holds up to {percent(page.missed_max)} %")

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
        *(shares if page.limits else shares[:1]),
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


def _limit_ms(page: Page) -> float | None:
    found = {digest.trial.plan.get("limit_ns") for digest in page.digests}
    only = found.pop() if len(found) == 1 else None
    return only / 1e6 if only else None


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines that share a chart. name: what they have in common and others have not."""

    name: str
    lines: tuple[Line, ...]
    legend: str


def panels(page: Page) -> tuple[tuple[Panel, ...], int]:
    """The lines in groups of as many as can be told apart, and how many groups were left out."""
    others = [factor for factor in page.factors if factor != page.main]
    if len(page.lines) <= LINES_MAX or not others:
        parts = [Panel("", page.lines[at : at + LINES_MAX], "") for at in _steps(page.lines)]
    else:
        able = [factor for factor in others if len(factor.levels) <= LINES_MAX] or others
        inner = max(able, key=lambda factor: len(factor.levels))
        groups: dict[tuple[tuple[str, str], ...], list[Line]] = {}
        for line in page.lines:
            rest = tuple(pair for pair in line.levels if pair[0] != inner.name)
            groups.setdefault(rest, []).append(line)
        parts = [
            Panel(words.line_name(Line(rest, ())), tuple(group[at : at + LINES_MAX]), inner.name)
            for rest, group in groups.items()
            for at in _steps(group)
        ]
    if len(others) == 1:
        parts = [Panel(part.name, part.lines, others[0].name) for part in parts]
    return tuple(parts[:PANELS_MAX]), max(0, len(parts) - PANELS_MAX)


def _steps(lines: Sequence[Line]) -> range:
    return range(0, len(lines), LINES_MAX)


def line_label(line: Line, panel: Panel) -> str:
    """What the legend calls a line."""
    if panel.legend:
        return shown(dict(line.levels).get(panel.legend, ""))
    return shown(words.line_name(line)) or "all"


@dataclass(frozen=True, slots=True)
class Axis:
    """The horizontal axis: the main factor. step: between numbers; 0 where levels are names."""

    factor: Factor | None
    title: str
    unit: float
    step: float
    log: bool

    def place(self, row: Row) -> float | str:
        """Where a row stands."""
        level = breaks.level_of(row, self.factor.name) if self.factor else ""
        if not self.step:
            return shown(level) or "all"
        return (breaks.quantity(level) or 0.0) / self.unit

    def aside(self, row: Row, part: float) -> float | str:
        """The same, a little aside so that lines do not hide each other; part: -0.5 to 0.5."""
        place = self.place(row)
        if isinstance(place, str):
            return place
        return place * (1 + self.step * part) if self.log else place + self.step * part

    def encoding(self, rows: Iterable[Row]) -> dict[str, Any]:
        """As Vega-Lite wants it."""
        if not self.step:
            levels = list(dict.fromkeys(str(self.place(row)) for row in rows))
            axis = {"title": self.title, "labelAngle": 0 if len(levels) < 6 else -40}
            return {"field": "x", "type": "nominal", "sort": levels, "axis": axis}
        places = sorted({float(self.place(row)) for row in rows})
        low, high = places[0], places[-1]
        room = self.step / 2 if not self.log else 0.0
        domain = [low * 0.93, high * 1.07] if self.log else [low - room, high + room]
        scale: dict[str, Any] = {
            "type": "log" if self.log else "linear",
            "domain": domain,
            "nice": False,
        }
        if not self.log:
            scale["zero"] = False
        axis: dict[str, Any] = {"title": self.title, "values": places, "format": NUMBER}
        return {"field": "x", "type": "quantitative", "scale": scale, "axis": axis}


def axis_of(page: Page) -> Axis:
    """The axis of all charts over the main factor; without one over that with most levels."""
    if page.main is None:
        factor = max(page.factors, key=lambda each: len(each.levels), default=None)
        return Axis(factor, words.factor_name(factor.name) if factor else "", 1.0, 0.0, False)
    name, levels = page.main.name, page.main.levels
    unit, suffix = _unit(levels)
    places = sorted((breaks.quantity(level) or 0.0) / unit for level in levels)
    log = places[0] > 0 and places[-1] / places[0] >= _LOG_FROM
    pairs = list(itertools.pairwise(places))
    step = min(b / a for a, b in pairs) - 1 if log else min(b - a for a, b in pairs)
    title = f"{words.factor_name(name)}{suffix}"
    return Axis(page.main, title, unit, min(step, 1.0) if log else step, log)


def _unit(levels: Sequence[str]) -> tuple[float, str]:
    """What the axis counts in: the unit of the first level that has one."""
    for level in levels:
        unit = level.lstrip("+-0123456789.eE ").replace(" ", "") or level.lstrip("+-0123456789. ")
        if unit.startswith("/"):
            return 1.0, ", 1/s"
        if unit and (size := breaks.quantity(f"1{unit}")):
            return size, f", {unit}"
    return 1.0, ""


def overview(page: Page) -> Iterator[Figure]:
    """The charts of all cells together: measures over the main factor, heat map, statements."""
    if len(page.rows) < 2:
        return
    axis = axis_of(page)
    for number, panel in enumerate(panels(page)[0]):
        for measure in measures(page):
            yield _over(page, axis, (number, panel), measure)
    if len(page.factors) > 1 and len(page.lines) > 1 and page.main is not None:
        yield _heat(page, page.main)


def _over(page: Page, axis: Axis, at: tuple[int, Panel], measure: Measure) -> Figure:
    number, panel = at
    suffix = f"-{number + 1}" if number else ""
    where = f" ({shown(panel.name)})" if panel.name else ""
    title = f"{measure.name} by {shown(axis.title.partition(',')[0])}{where}"
    columns = (
        shown(axis.title),
        *((shown(words.factor_name(panel.legend)),) if panel.legend else ("cell",)),
        measure.axis,
        "95 % interval",
        "trials",
        "valid",
    )
    rows = [(row, line) for line in panel.lines for row in line.rows]
    table = tuple(
        (
            _label(axis, row),
            line_label(line, panel),
            *_said(row.estimate(measure.key), measure),
            str(len(row.trials)),
            "yes" if row.sound else "no" if row.trials else "-",
        )
        for row, line in rows
    )
    return Figure(
        f"{measure.key.replace('.', '')}{suffix}",
        title,
        f"{measure.about}; bars are 95 % intervals, small dots single trials",
        columns,
        table,
        lambda look: _marks(page, axis, panel, measure, look),
    )


def _label(axis: Axis, row: Row) -> str:
    return shown(breaks.level_of(row, axis.factor.name)) if axis.factor else "all"


def _said(estimate: Estimate | None, measure: Measure) -> tuple[str, str]:
    if estimate is None:
        return "-", "-"
    return measure.form(estimate.value), interval(estimate, measure.form) or "-"


@dataclass(frozen=True, slots=True)
class _Points:
    """What a chart draws: estimates with their ends, and single trials.

    top: where that stands which is above every value.
    """

    cells: list[dict[str, Any]]
    trials: list[dict[str, Any]]
    top: float | None


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
    finite = [p[k] for p in found for k in ("y", "high") if p[k] is not None]
    top = None
    if any(point["above"] for point in found):
        top = 1.1 * max([*finite, *([measure.bound[0]] if measure.bound else []), 1e-9])
        for point in found:
            point["y"] = top if point["above"] else point["y"]
            if point["open"]:
                point["high"] = top
    return _Points(found, trials, top)


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


def _scale(points: _Points, measure: Measure) -> dict[str, Any]:
    values = [p[k] for p in points.cells for k in ("y", "low", "high") if p[k] is not None]
    values += [point["y"] for point in points.trials]
    values += [measure.bound[0]] if measure.bound else []
    above_zero = [value for value in values if value > 0]
    if measure.log and above_zero and max(above_zero) / min(above_zero) > _LOG_FROM:
        return {
            "type": "log",
            "nice": False,
            "domainMin": min(above_zero) * 0.9,
            "domainMax": max(above_zero) * 1.15,
        }
    room = 1.12 if points.top is not None else 1.04
    top = max(values, default=1.0) * room or 1.0
    if measure.scale == 100:
        top = min(100.0, max(top, 1.0))
    return {"type": "linear", "domain": [0, top], "nice": top < 90, "zero": True}


def _marks(page: Page, axis: Axis, panel: Panel, measure: Measure, look: Look) -> dict[str, Any]:
    points = _points(axis, panel, measure)
    names = [line_label(line, panel) for line in panel.lines]
    scale = _scale(points, measure)
    low = scale.get("domainMin", 0.0)
    for point in points.cells:
        point["low"] = None if point["low"] is None else max(point["low"], low)
    x = axis.encoding(row for line in panel.lines for row in line.rows)
    y = {
        "field": "y",
        "type": "quantitative",
        "scale": scale,
        "axis": {"title": measure.axis, "format": NUMBER},
    }
    base = {"x": x, "y": y, **line_encoding(names, panel, look)}
    if not axis.step and len(names) > 1:
        base["xOffset"] = {"field": "line", "sort": names}
    layers = [*_bound(measure, look)]
    plain = {key: value for key, value in base.items() if key != "shape"}
    bars = [p for p in points.cells if p["low"] is not None and p["high"] is not None]
    if bars:
        ends = {"y": {**y, "field": "low"}, "y2": {"field": "high"}}
        bar = {"type": "rule", "strokeWidth": 1.6, "opacity": 0.75}
        layers.append({"data": {"values": bars}, "mark": bar, "encoding": {**plain, **ends}})
    told = [point for point in points.cells if point["y"] is not None]
    if axis.step:
        dashes = {
            "field": "line",
            "scale": {"domain": names, "range": _dashes(names)},
            "legend": None,
        }
        line = {"type": "line", "strokeWidth": 1.8}
        layers.append(
            {"data": {"values": told}, "mark": line, "encoding": {**plain, "strokeDash": dashes}}
        )
    layers += [
        _dots(points.trials, base, {"size": 13, "opacity": 0.55, "strokeWidth": 1}),
        _dots(told, base, {"size": 62, "opacity": 1, "strokeWidth": 1.8}),
    ]
    if points.top is not None:
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


def legend_height(names: Sequence[str]) -> int:
    """What a legend at the bottom takes, so that plots stay equally high."""
    return 0 if len(names) < 2 else 34 + 16 * math.ceil(len(names) / legend_columns(names))


def legend_columns(names: Sequence[str]) -> int:
    """As many columns as fit."""
    longest = max((len(name) for name in names), default=0)
    return max(1, min(len(names), 4, WIDTH // (34 + 7 * longest)))


def _dashes(names: Sequence[str]) -> list[Sequence[int]]:
    return list(DASHES[: len(names)])


def line_encoding(names: Sequence[str], panel: Panel, look: Look) -> dict[str, Any]:
    """Colour and shape of lines, with one legend for both."""
    title = shown(words.factor_name(panel.legend)) if panel.legend else None
    legend = {"title": title, "columns": legend_columns(names)} if len(names) > 1 else None
    found = {}
    for channel, values in (("color", look.lines), ("shape", SHAPES)):
        scale = {"domain": list(names), "range": list(values[: len(names)])}
        found[channel] = {"field": "line", "type": "nominal", "scale": scale, "legend": legend}
    return found


def _dots(points: Sequence[dict[str, Any]], base: dict[str, Any], style: dict[str, Any]) -> Any:
    """Points: filled where sound, hollow where not."""
    fill = {"condition": {"test": "datum.sound", "value": 1}, "value": 0}
    encoding = {**base, "fillOpacity": fill, "fill": {**base["color"], "legend": None}}
    return {
        "data": {"values": list(points)},
        "mark": {"type": "point", **style},
        "encoding": encoding,
    }


def _bound(measure: Measure, look: Look) -> list[dict[str, Any]]:
    if measure.bound is None:
        return []
    value, text = measure.bound
    y = {"datum": value, "type": "quantitative"}
    rule = {"type": "rule", "strokeDash": [5, 4], "color": look.alarm, "strokeWidth": 1.2}
    label = {"type": "text", "text": text, "align": "left", "dx": 4, "dy": -6, "color": look.alarm}
    return [
        {"data": ONCE, "mark": rule, "encoding": {"y": y}},
        {"data": ONCE, "mark": {**label, "fontSize": 11}, "encoding": {"y": y, "x": {"value": 0}}},
    ]


def _heat(page: Page, main: Factor) -> Figure:
    """Missed (or p95, where nothing can be late) of every cell as a map of two factors."""
    by_limit = bool(page.limits)
    others = [factor for factor in page.factors if factor != main]
    panel = Panel("", page.lines, others[0].name if len(others) == 1 else "")
    lines = page.lines[:_HEAT_ROWS_MAX]
    cells = [(line, row) for line in lines for row in line.rows]
    numbers = [_heat_value(row, by_limit) for _, row in cells]
    steps = _steps_of(numbers, page.missed_max if by_limit else None)
    texts = [_heat_text(row, by_limit) for _, row in cells]
    name = "Missed %" if by_limit else "p95 in ms"
    aside = shown(words.factor_name(panel.legend)) or "others"
    columns = (shown(words.factor_name(main.name)), aside, name, "verdict")
    table = tuple(
        (
            shown(breaks.level_of(row, main.name)),
            line_label(line, panel),
            text,
            _verdict(page, row),
        )
        for (line, row), text in zip(cells, texts, strict=True)
    )
    values = [
        {
            "x": shown(breaks.level_of(row, main.name)),
            "y": line_label(line, panel),
            "class": None if value is None else sum(value > step for step in steps),
            "text": text,
            "sound": row.sound,
        }
        for (line, row), value, text in zip(cells, numbers, texts, strict=True)
    ]
    more = len(page.lines) - len(lines)
    left = f"; {more} more combinations are in the table above" if more else ""
    rule = f", blue up to {percent(page.missed_max)} %, red above" if by_limit else ""
    about = f"{name} of every cell{rule}; outlined cells have no valid trial{left}"
    return Figure(
        "heat-map",
        f"{name} in all cells",
        about,
        columns,
        table,
        lambda look: _heat_marks(values, main, aside if panel.legend else None, look),
    )


def _verdict(page: Page, row: Row) -> str:
    return breaks.verdict(row, page.missed_max) if page.limits else "-"


def _heat_value(row: Row, by_limit: bool) -> float | None:
    estimate = row.missed if by_limit else row.p95
    return None if estimate is None else estimate.value


def _heat_text(row: Row, by_limit: bool) -> str:
    value = _heat_value(row, by_limit)
    if value is None:
        return "-"
    return percent(value) if by_limit else milliseconds(value, ">")


def _steps_of(values: Sequence[float | None], middle: float | None) -> list[float]:
    """The five borders between six classes: about what may miss, else by the values' own range."""
    if middle is not None:
        return [middle * factor for factor in (0.1, 0.5, 1.0, 2.0, 4.0)]
    known = [value for value in values if value is not None and 0 < value < math.inf]
    if not known:
        return [1.0] * 5
    low, high = math.log(min(known)), math.log(max(known))
    return [math.exp(low + (high - low) * part / 6) for part in range(1, 6)]


def _heat_marks(
    values: list[dict[str, Any]], main: Factor, aside: str | None, look: Look
) -> dict[str, Any]:
    labels = list(dict.fromkeys(value["y"] for value in values))
    classes = list(range(6))
    x = {
        "field": "x",
        "type": "nominal",
        "sort": [shown(level) for level in main.levels],
        "axis": {"title": shown(words.factor_name(main.name)), "labelAngle": 0, "ticks": False},
    }
    y = {
        "field": "y",
        "type": "nominal",
        "sort": labels,
        "axis": {"title": None, "labelLimit": 170, "labelPadding": 8},
    }

    def coloured(colours: Sequence[str]) -> dict[str, Any]:
        scale = {"domain": classes, "range": list(colours)}
        return {"field": "class", "type": "nominal", "scale": scale, "legend": None}

    stroke = {"condition": {"test": "datum.sound", "value": "transparent"}, "value": look.alarm}
    return {
        "width": 2 * WIDTH - 8 if len(main.levels) > 7 else WIDTH - 8,
        "height": max(90, 34 * len(labels) + 44),
        "autosize": {"type": "fit", "contains": "padding"},
        "data": {"values": values},
        **({"title": aside} if aside else {}),
        "layer": [
            {
                "mark": {"type": "rect", "cornerRadius": 3, "strokeWidth": 2},
                "encoding": {"x": x, "y": y, "color": coloured(look.heat), "stroke": stroke},
            },
            {
                "mark": {"type": "text", "fontWeight": 600},
                "encoding": {
                    "x": x,
                    "y": y,
                    "text": {"field": "text"},
                    "color": coloured(look.on_heat),
                },
            },
        ],
        "resolve": {"scale": {"color": "independent"}},
    }
