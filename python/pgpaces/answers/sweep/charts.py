"""The charts of a whole experiment over its main factor."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.analysis import crossing
from pgpaces.analysis.cells import Row, sound, trial_estimate
from pgpaces.answers.bulk import bars
from pgpaces.answers.measure import Measure
from pgpaces.answers.sweep.axes import (
    LOG_FROM,
    MainAxis,
    Panel,
    axis_of,
    line_label,
    log_ticks,
    panels,
)
from pgpaces.answers.sweep.page import Page
from pgpaces.answers.trials import factor_name, levels_alone
from pgpaces.core import metrics
from pgpaces.show.chart import Axis, Chart, Layer, Point, bound, number_at, series
from pgpaces.show.escape import line as shown
from pgpaces.show.numbers import NOT_KNOWN, capital, estimate_texts
from pgpaces.show.section import Figure, figure
from pgpaces.show.style import WIDTH
from pgpaces.show.template import names, names_down
from pgpaces.spec.design import Factor
from pgpaces.spec.result import Estimate

# The dashes of lines, which differ between series in addition to colors and shapes.
DASHES = ((), (6, 3), (2, 2), (8, 3, 2, 3), (4, 4), (10, 4), (1, 3))
# The measures shown in addition to those of other work, if there are queries or a limit.
_ADDITIONAL = ("missed", "p95")
_HEAT_ROWS_MAX = 40
_WIDE_FROM = 7


def measures(page: Page) -> tuple[Measure, ...]:
    return (*(page.work.numbers if page.work else ()), *_of_scripts(page))


def _of_scripts(page: Page) -> tuple[Measure, ...]:
    """The measures of transactions; a few where other work has its own."""
    if page.work is not None:
        every = () if page.work.only else _of_transactions(page)
        return tuple(each for each in every if each.key in _ADDITIONAL)
    return _of_transactions(page)


def _of_transactions(page: Page) -> tuple[Measure, ...]:
    limits = {digest.trial.plan.limit_ns for digest in page.digests}
    limit_ns = limits.pop() if len(limits) == 1 else None
    limit = (limit_ns / 1e6, "latency limit") if limit_ns else None
    # Parts of missed have a chart of their own if several occurred.
    occurred = [
        name
        for name in ("late", "skipped", "failed", "unfinished")
        if any(getattr(row.counts, name) for row in page.rows)
    ]
    apart = {"late", "skipped"} & {*occurred} if len(occurred) > 1 and page.limits else ()
    allowed = (100 * page.missed_max, f"allowed: {100 * page.missed_max:g}%")
    bounds = {"missed": allowed, "throughput": None, **dict.fromkeys(apart)}
    first, last = ("missed", "throughput") if page.limits else ("throughput", "mean")
    names = dict.fromkeys((first, "missed", *sorted(apart), "p95", "p99", last))
    return tuple(
        Measure(name, partial(trial_estimate, name=name), bounds.get(name, limit)) for name in names
    )


def overview(page: Page) -> Iterator[Figure]:
    if len(page.rows) < 2:
        return
    if page.work is not None:
        yield from bars.figures(page.rows, page.work.numbers)
    axis, every = axis_of(page), panels(page)[0]
    for measure in _of_scripts(page):
        estimates = (row.estimate(measure.key) for row in page.rows)
        # A chart of nothing but zeros is left out.
        if any(each and each.value for each in estimates):
            yield from _over(page, axis, every, measure=measure)
    if page.work is not None:
        return
    zeros = page.limits and not any(row.missed and row.missed.value for row in page.rows)
    if len(page.factors) > 1 and len(page.lines) > 1 and page.main is not None and not zeros:
        yield _heat_map(page, page.main)


def _over(
    page: Page, axis: MainAxis, every: Sequence[Panel], *, measure: Measure
) -> Iterator[Figure]:
    key = measure.key.replace(".", "")
    contents = [_content(axis, panel, measure) for panel in every]
    vertical, main = _vertical(contents, measure), shown(axis.title.partition(",")[0])
    for number, (panel, content) in enumerate(zip(every, contents, strict=True)):
        where = f", {shown(panel.name)}" if panel.name else ""
        columns = (
            shown(axis.title),
            shown(factor_name(panel.legend)) if panel.legend else "cell",
            metrics.header(measure.key),
            "95% interval",
            "trials",
            "valid",
        )
        yield Figure(
            f"{key}-{number + 1}" if number else key,
            f"{capital(metrics.title(measure.key))} by {main}{where}",
            f"{metrics.metric(measure.key).about} {capital(_legend(panel, measure))}.",
            columns,
            tuple(_table(axis, panel, measure)),
            (_chart(panel, axis.axis(page.rows), vertical, content=content, measure=measure),),
            key if len(every) > 1 else "",
        )


def _legend(panel: Panel, measure: Measure) -> str:
    estimates = [row.estimate(measure.key) for line in panel.lines for row in line.rows]
    estimable = [estimate.estimable for estimate in estimates if estimate is not None]
    if not any(estimable):
        return "small dots are single trials; there is no 95% interval"
    bare = "" if all(estimable) else " (cells without one have too few data)"
    return f"bars are 95% intervals{bare}, small dots single trials"


def _table(axis: MainAxis, panel: Panel, measure: Measure) -> Iterator[tuple[str, ...]]:
    for line in panel.lines:
        for row in line.rows:
            yield (
                _label(axis, row),
                line_label(line, panel),
                *estimate_texts(row.estimate(measure.key), measure.form),
                str(len(row.trials)),
                "yes" if row.sound else "no" if row.trials else NOT_KNOWN,
            )


def _label(axis: MainAxis, row: Row) -> str:
    return shown(crossing.shown_level(row, axis.factor.name)) if axis.factor else "all"


class _Content(Struct, frozen=True):
    """The points of a chart, in units of the axis: estimates with their ends, and single trials.

    y, high of an estimate: infinite if above every measured time.
    """

    cells: tuple[Point, ...]
    trials: tuple[Point, ...]


class _Vertical(Struct, frozen=True):
    """The vertical axis of charts side by side. top: the place of infinite values."""

    axis: Axis
    top: float | None


def _content(axis: MainAxis, panel: Panel, measure: Measure) -> _Content:
    cells, trials = [], []
    count = len(panel.lines)
    for number, line in enumerate(panel.lines):
        part = ((number + 0.5) / count - 0.5) * 0.36 if count > 1 else 0.0
        name = line_label(line, panel)
        for row in line.rows:
            place = Point(axis.aside(row, part), at=_label(axis, row), series=name)
            if (estimate := row.estimate(measure.key)) is not None:
                cells.append(_estimated(replace(place, filled=row.sound), estimate, measure))
            for digest in row.every:
                own = measure.of_trial(digest)
                if own is not None and math.isfinite(own.value):
                    filled = digest in row.trials and sound(digest)
                    trials.append(replace(place, y=own.value * measure.scale, filled=filled))
    return _Content(tuple(cells), tuple(trials))


def _estimated(place: Point, estimate: Estimate, measure: Measure) -> Point:
    value, scale = estimate.value, measure.scale
    # The bar of a time without a lower bound begins at the value: from 0 it would dominate.
    below = value if estimate.low == 0 and _is_time(measure) else estimate.low
    low, high = (below, estimate.high) if estimate.estimable else (value, value)
    return replace(place, y=value * scale, low=low * scale, high=high * scale)


def _is_time(measure: Measure) -> bool:
    return metrics.metric(measure.key).format == "ms"


def _is_above(cell: Point) -> bool:
    return math.isinf(number_at(cell.y))


def _vertical(every: Sequence[_Content], measure: Measure) -> _Vertical:
    cells = [cell for each in every for cell in each.cells]
    ends = [number_at(end) for cell in cells for end in (cell.y, cell.low, cell.high)]
    finite = [end for end in ends if math.isfinite(end)]
    finite += [number_at(point.y) for each in every for point in each.trials]
    finite += [measure.bound[0]] if measure.bound else []
    beyond = any(_is_above(cell) or cell.high == math.inf for cell in cells)
    top = 1.1 * max([*finite, 1e-9]) if beyond else None
    values = [*finite, *([top] if top else [])]
    above_zero = [value for value in values if value > 0]
    if _is_time(measure) and above_zero and max(above_zero) / min(above_zero) > LOG_FROM:
        low, high = min(above_zero) * 0.9, max(above_zero) * 1.15
        ticks = log_ticks(low, high)
        return _Vertical(
            Axis(metrics.axis(measure.key), scale="log", ends=(low, high), ticks=ticks), top
        )
    end = max(values, default=1.0) * (1.12 if top is not None else 1.04) or 1.0
    if metrics.is_share(measure.key):
        end = min(100.0, max(end, 1.0))
    return _Vertical(
        Axis(metrics.axis(measure.key), ends=(0.0, end), nice=end < 90, zero=True), top
    )


def _chart(
    panel: Panel, x: Axis, vertical: _Vertical, *, content: _Content, measure: Measure
) -> Chart:
    names = [line_label(line, panel) for line in panel.lines]
    points = tuple(_within(cell, vertical) for cell in content.cells)
    layers = [Layer("rule", tuple(p for p in points if p.low is not None), opacity=0.75)]
    if not x.names:
        layers += [
            Layer("line", tuple(p for p in points if p.series == name), dash=dash)
            for name, dash in zip(names, DASHES, strict=False)
        ]
    layers += [
        Layer("point", content.trials, size=13, opacity=0.55, name="a trial"),
        Layer("point", points),
    ]
    # Not the first layer, which decides whether there is a grid: a single value has none.
    if measure.bound is not None:
        side = _free_side(content, points, vertical.axis, value=measure.bound[0])
        layers += bound(*measure.bound, side)
    # One label for all lines at a level, which stand side by side there.
    if above := {
        cell.at: Point(cell.x, vertical.top, text="above")
        for cell in content.cells
        if _is_above(cell)
    }:
        layers.append(Layer("text", tuple(above.values()), "muted", dy=-9))
    legend = shown(factor_name(panel.legend)) if panel.legend else ""
    return Chart(x, vertical.axis, tuple(layers), series(names), legend)


def _within(cell: Point, vertical: _Vertical) -> Point:
    """The cell within the axis; an infinite value stands at the top, without an interval."""
    if _is_above(cell):
        return replace(cell, y=vertical.top, low=None, high=None)
    low = max(number_at(cell.low), vertical.axis.ends[0] or 0.0)
    return replace(cell, low=low, high=vertical.top if cell.high == math.inf else cell.high)


def _free_side(
    content: _Content, points: Sequence[Point], axis: Axis, *, value: float
) -> Literal["left", "right"]:
    every = [(p.x, p.y if p.low is None else p.low, p.y if p.high is None else p.high)
             for p in (*points, *content.trials)]  # fmt: skip
    placed = [(x, a, b) for x, a, b in every if isinstance(x, float)]
    if not placed:
        return "left"
    places, end = [x for x, _, _ in placed], axis.ends[1] or 0.0
    above = 1.3 * value if axis.scale == "log" else value + 0.1 * end
    third = (max(places) - min(places)) / 3

    def hidden(low: float, high: float) -> int:
        ends = [(a, b) for x, a, b in placed if low <= x <= high]
        return sum(number_at(a) <= above and number_at(b) >= value for a, b in ends)

    left = hidden(min(places), min(places) + third)
    return "left" if left <= hidden(max(places) - third, max(places)) else "right"


def _heat_map(page: Page, main: Factor) -> Figure:
    """The missed share of every cell (p95 without a limit) as a map of two factors."""
    by_limit = bool(page.limits)
    name = "missed" if by_limit else "p95"
    lines = page.lines[:_HEAT_ROWS_MAX]
    cells = [(shown(levels_alone(line.levels)), row) for line in lines for row in line.rows]
    estimates = [row.estimate(name) for _, row in cells]
    numbers = [None if each is None else each.value for each in estimates]
    texts = [metrics.number(name, value, ">") for value in numbers]
    middle = page.missed_max if by_limit else None
    steps = _heat_steps(numbers, middle)
    data: list[dict[str, Any]] = []
    for (line, row), value, text in zip(cells, numbers, texts, strict=True):
        verdict = crossing.verdict(row, page.missed_max) if by_limit else NOT_KNOWN
        shade = _shade(row, value, steps, missed_max=middle)
        level = shown(crossing.level_of(row, main.name))
        data.append({"x": level, "y": line, "text": text, "verdict": verdict, "shade": shade,
                     "valid": row.sound})  # fmt: skip
    title = shown(factor_name(main.name))
    aside = shown(", ".join(factor_name(each.name) for each in page.factors if each != main))
    levels = [shown(level) for level in main.levels]
    more = len(page.lines) - len(lines)
    left = f"; {more} more combinations are in the table" if more else ""
    rule = f", blue up to {100 * page.missed_max:g}%, red above, pale where the verdict is unknown"
    rule = rule if by_limit else ""
    return figure(
        "heat-map",
        f"{capital(metrics.title(name))} in all cells",
        f"{metrics.axis(name)}, of every cell{rule}; outlined cells have no valid trial{left}",
        columns=(
            (title, "x"),
            (aside, "y"),
            (metrics.header(name), "text"),
            ("verdict", "verdict"),
        ),
        data=data,
        template="heat-map",
        above=aside,
        x=names(title, levels),
        y=names_down("", list(dict.fromkeys(line for line, _ in cells))),
        width=2 * WIDTH if len(levels) > _WIDE_FROM else WIDTH,
    )


def _shade(
    row: Row, value: float | None, steps: Sequence[float], *, missed_max: float | None
) -> int | None:
    """The class of a value; of a share the two in the middle, which are pale, are unknown."""
    if value is None:
        return None
    shade = sum(value > step for step in steps)
    if missed_max is None:
        return shade
    match crossing.verdict(row, missed_max):
        case "pass":
            return min(shade, 1)
        case "fail":
            return max(shade, 4)
        case "unknown":
            return min(max(shade, 2), 3)


def _heat_steps(values: Sequence[float | None], middle: float | None) -> list[float]:
    """The five bounds of six classes: around the allowed share, else by the range of the values."""
    if middle is not None:
        return [middle * factor for factor in (0.1, 0.5, 1.0, 2.0, 4.0)]
    finite = [value for value in values if value is not None and 0 < value < math.inf]
    if not finite:
        return [1.0] * 5
    low, high = math.log(min(finite)), math.log(max(finite))
    return [math.exp(low + (high - low) * part / 6) for part in range(1, 6)]
