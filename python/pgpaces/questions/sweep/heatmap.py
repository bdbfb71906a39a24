"""The map of a grid: one number of every cell, by the main factor and what the others are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pgpaces.answers import crossing
from pgpaces.answers.cells import Row
from pgpaces.answers.crossing import Line
from pgpaces.design import Factor
from pgpaces.questions.sweep import words
from pgpaces.questions.sweep.page import Page
from pgpaces.report.escape import line as shown
from pgpaces.report.look import WIDTH, Look
from pgpaces.report.numbers import milliseconds, percent
from pgpaces.section import Figure

_HEAT_ROWS_MAX = 40


def heat_map(page: Page, main: Factor) -> Figure:
    """Missed (or p95, where nothing can be late) of every cell as a map of two factors."""
    by_limit = bool(page.limits)
    others = [factor for factor in page.factors if factor != main]
    lines = page.lines[:_HEAT_ROWS_MAX]
    cells = [(line, row) for line in lines for row in line.rows]
    numbers = [_heat_value(row, by_limit) for _, row in cells]
    steps = _steps_of(numbers, page.missed_max if by_limit else None)
    texts = [_heat_text(row, by_limit) for _, row in cells]
    name = "Missed %" if by_limit else "p95 in ms"
    aside = shown(", ".join(words.factor_name(factor.name) for factor in others))
    columns = (shown(words.factor_name(main.name)), aside, name, "verdict")
    table = tuple(
        (
            shown(crossing.level_of(row, main.name)),
            _label(line),
            text,
            _verdict(page, row),
        )
        for (line, row), text in zip(cells, texts, strict=True)
    )
    values = [
        {
            "x": shown(crossing.level_of(row, main.name)),
            "y": _label(line),
            "class": None if value is None else sum(value > step for step in steps),
            "text": text,
            "sound": row.sound,
        }
        for (line, row), value, text in zip(cells, numbers, texts, strict=True)
    ]
    more = len(page.lines) - len(lines)
    left = f"; {more} more combinations are in the table" if more else ""
    rule = f", blue up to {100 * page.missed_max:g} %, red above" if by_limit else ""
    about = f"{name} of every cell{rule}; outlined cells have no valid trial{left}"
    return Figure(
        "heat-map",
        f"{name} in all cells",
        about,
        columns,
        table,
        lambda look: _heat_marks(values, main, aside, look),
    )


def _label(line: Line) -> str:
    """The levels of a line; which factors they are of stands above them all."""
    return shown(", ".join(level for _, level in line.levels))


def _verdict(page: Page, row: Row) -> str:
    return crossing.verdict(row, page.missed_max) if page.limits else "-"


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
    values: list[dict[str, Any]], main: Factor, aside: str, look: Look
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
        "title": aside,
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
