"""The heat map of a grid: one number of every cell, by the main factor and the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from pgpaces.analysis import crossing
from pgpaces.analysis.cells import Row
from pgpaces.analysis.crossing import Line
from pgpaces.answers.sweep.page import Page
from pgpaces.answers.trials import factor_name, levels_alone
from pgpaces.show.chart import WIDTH, Axis, Chart, Layer, Point
from pgpaces.show.escape import line as shown
from pgpaces.show.numbers import NOT_KNOWN, estimate_texts, milliseconds, percent
from pgpaces.show.section import Figure
from pgpaces.spec.design import Factor

_HEAT_ROWS_MAX = 40


def heat_map(page: Page, main: Factor) -> Figure:
    """The missed share of every cell (p95 without a limit) as a map of two factors."""
    by_limit = bool(page.limits)
    others = [factor for factor in page.factors if factor != main]
    lines = page.lines[:_HEAT_ROWS_MAX]
    cells = [(line, row) for line in lines for row in line.rows]
    estimates = [row.missed if by_limit else row.p95 for _, row in cells]
    numbers = [None if each is None else each.value for each in estimates]
    form = percent if by_limit else partial(milliseconds, above=">")
    texts = [estimate_texts(each, form)[0] for each in estimates]
    middle = page.missed_max if by_limit else None
    steps = _steps_of(numbers, middle)
    name = "Missed %" if by_limit else "p95 in ms"
    aside = shown(", ".join(factor_name(factor.name) for factor in others))
    columns = (shown(factor_name(main.name)), aside, name, "verdict")
    table = tuple(
        (
            shown(crossing.level_of(row, main.name)),
            _label(line),
            text,
            crossing.verdict(row, page.missed_max) if by_limit else NOT_KNOWN,
        )
        for (line, row), text in zip(cells, texts, strict=True)
    )
    points = tuple(
        Point(
            shown(crossing.level_of(row, main.name)),
            _label(line),
            shade=_shade(row, value, steps, missed_max=middle),
            text=text,
            filled=row.sound,
        )
        for (line, row), value, text in zip(cells, numbers, texts, strict=True)
    )
    more = len(page.lines) - len(lines)
    left = f"; {more} more combinations are in the table" if more else ""
    rule = f", blue up to {100 * page.missed_max:g}%, red above, pale where the verdict is unknown"
    rule = rule if by_limit else ""
    about = f"{name} of every cell{rule}; outlined cells have no valid trial{left}"
    return Figure(
        "heat-map",
        f"{name} in all cells",
        about,
        columns,
        table,
        (_chart(points, main, aside),),
    )


def _label(line: Line) -> str:
    """The levels of a line; the title of the chart names their factors."""
    return shown(levels_alone(line.levels))


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
        case "meets":
            return min(shade, 1)
        case "misses":
            return max(shade, 4)
        case "unknown":
            return min(max(shade, 2), 3)


def _steps_of(values: Sequence[float | None], middle: float | None) -> list[float]:
    """The five bounds of six classes: around the allowed share, else by the range of the values."""
    if middle is not None:
        return [middle * factor for factor in (0.1, 0.5, 1.0, 2.0, 4.0)]
    finite = [value for value in values if value is not None and 0 < value < math.inf]
    if not finite:
        return [1.0] * 5
    low, high = math.log(min(finite)), math.log(max(finite))
    return [math.exp(low + (high - low) * part / 6) for part in range(1, 6)]


def _chart(points: tuple[Point, ...], main: Factor, aside: str) -> Chart:
    names = tuple(dict.fromkeys(str(point.y) for point in points))
    levels = tuple(shown(level) for level in main.levels)
    return Chart(
        Axis(shown(factor_name(main.name)), levels),
        Axis(names=names),
        (Layer("rect", points), Layer("text", points, size=12)),
        height=max(90, 34 * len(names) + 44),
        width=2 * WIDTH if len(levels) > 7 else WIDTH,
        title=(aside,),
    )
