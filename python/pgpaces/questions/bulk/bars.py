"""Bars of what commands did: one for each cell, across machines, settings and versions.

Vega-Lite specifications as data, as in sweep/charts.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from textwrap import wrap
from typing import Any

from pgpaces.answers.bulk import number
from pgpaces.answers.cells import Row, sound
from pgpaces.questions.bulk import words as bulk
from pgpaces.questions.bulk.words import BulkColumn
from pgpaces.questions.sweep import words
from pgpaces.questions.sweep.page import Page
from pgpaces.report.escape import line as shown
from pgpaces.report.look import NUMBER, WIDTH, Look
from pgpaces.report.numbers import interval
from pgpaces.section import Figure

_KEYS = ("rows_s", "seconds", "wal_row", "us_row")
_BARS_MAX = 30
_BAR_HEIGHT = 26


def figures(page: Page) -> Iterator[Figure]:
    """The charts of an experiment with a command. Of many cells the table has the rest."""
    rows = [row for row in page.rows if row.bulk]
    known = {column.key: column for column in bulk.columns(rows)}
    for key in _KEYS:
        if (column := known.get(key)) is not None and _tells(rows, column):
            yield _figure(page, rows, column)


def _tells(rows: Sequence[Row], column: BulkColumn) -> bool:
    """Whether there is anything to see: another number than 0."""
    return any(each and each.value for each in (row.estimate(column.key) for row in rows))


def _figure(page: Page, rows: Sequence[Row], column: BulkColumn) -> Figure:
    left = len(rows) - _BARS_MAX
    more = f"; {left} more cells are in the table" if left > 0 else ""
    table = tuple(
        (_name(row), *_said(row, column), str(len(row.trials)), "yes" if row.sound else "no")
        for row in rows
    )
    title = f"{column.name[:1].upper()}{column.name[1:]}"
    return Figure(
        column.key.replace("_", "-"),
        title,
        f"{column.about}; lines are 95 % intervals where there are several trials, dots are single"
        f" trials, and a hollow bar has no valid one{more}",
        ("cell", column.name, "95 % interval", "trials", "valid"),
        table,
        partial(_marks, tuple(rows[:_BARS_MAX]), column),
    )


def _name(row: Row) -> str:
    """A cell at the axis, by its levels alone; the axis says of what they are."""
    return shown(", ".join(level for _, level in row.cell.levels) or words.cell_name(row))


def _said(row: Row, column: BulkColumn) -> tuple[str, str]:
    estimate = row.estimate(column.key)
    if estimate is None:
        return "-", "-"
    return column.text(estimate.value), interval(estimate, column.text) or "-"


def _marks(rows: Sequence[Row], column: BulkColumn, look: Look) -> dict[str, Any]:
    cells: list[dict[str, Any]] = []
    ends: list[dict[str, Any]] = []
    dots: list[dict[str, Any]] = []
    for row in rows:
        estimate, name = row.estimate(column.key), _name(row)
        if estimate is None:
            continue
        value = estimate.value * column.scale
        cells.append({"y": name, "x": value, "text": column.text(estimate.value), "ok": row.sound})
        if estimate.estimable and math.isfinite(estimate.high):
            low, high = max(0.0, estimate.low) * column.scale, estimate.high * column.scale
            ends.append({"y": name, "low": low, "high": high})
        for digest in row.trials:
            did = bulk.of_digest(digest)
            of_trial = did and number(did, column.key)
            if of_trial:
                dots.append({"y": name, "x": of_trial.value * column.scale, "ok": sound(digest)})
    reach = [cell["x"] for cell in cells] + [end["high"] for end in ends]
    top = max(reach, default=0.0) or 1.0
    scale = {"domain": [0, top * 1.35], "nice": False}
    names = [_name(row) for row in rows]
    factors = ", ".join(words.factor_name(name) for name, _ in rows[0].cell.levels)
    # Above the bars: beside few of them there is no room for the name of a factor.
    title = wrap(shown(factors), WIDTH // 7)
    labels_of = {"title": None, "ticks": False, "labelLimit": 190}
    y = {"field": "y", "type": "nominal", "sort": names, "axis": labels_of}
    axis = {
        "title": shown(column.name),
        "format": "~s" if top >= 1e4 else NUMBER,
        "tickCount": 5,
        "grid": True,
    }
    x = {"field": "x", "type": "quantitative", "scale": scale, "axis": axis}
    filled = {"condition": {"test": "datum.ok", "value": 0.8}, "value": 0}
    bar = {"type": "bar", "color": look.lines[0], "stroke": look.lines[0], "height": {"band": 0.6}}
    rule = {"type": "rule", "color": look.ink, "strokeWidth": 1.6}
    dot = {"type": "point", "color": look.ink, "size": 14, "opacity": 0.7, "filled": True}
    text = {"type": "text", "align": "left", "dx": 6, "color": look.ink}
    beyond = {cell["y"]: cell["x"] for cell in cells}
    for end in ends:
        beyond[end["y"]] = max(beyond[end["y"]], end["high"])
    for point in dots:
        beyond[point["y"]] = max(beyond[point["y"]], point["x"])
    labels = [{**cell, "x": beyond[cell["y"]]} for cell in cells]
    span = {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y}
    layers = [
        {
            "data": {"values": cells},
            "mark": bar,
            "encoding": {"x": x, "y": y, "fillOpacity": filled},
        },
        {"data": {"values": ends}, "mark": rule, "encoding": span},
        {"data": {"values": dots}, "mark": dot, "encoding": {"x": x, "y": y}},
        {
            "data": {"values": labels},
            "mark": text,
            "encoding": {"x": x, "y": y, "text": {"field": "text"}},
        },
    ]
    return {
        "width": WIDTH - 8,
        "height": 60 + 15 * len(title) + _BAR_HEIGHT * max(1, len(cells)),
        **({"title": title} if title else {}),
        "autosize": {"type": "fit", "contains": "padding"},
        "layer": layers,
    }
