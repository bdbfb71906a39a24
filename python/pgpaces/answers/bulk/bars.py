"""Bar charts of the results of commands: a bar for each machine, setting or version."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from textwrap import wrap

from msgspec.structs import replace

from pgpaces.analysis.cells import Row, sound
from pgpaces.answers.measure import Measure
from pgpaces.answers.trials import cell_name, factor_name, levels_alone
from pgpaces.core import metrics
from pgpaces.show.chart import WIDTH, Axis, Chart, Layer, Place, Point
from pgpaces.show.escape import line as shown
from pgpaces.show.numbers import capital, estimate_texts
from pgpaces.show.section import Figure

_KEYS = ("rows_s", "seconds", "wal_row", "us_row")
_BARS_MAX = 30
_BAR_HEIGHT = 26


def figures(every: Sequence[Row], numbers: Sequence[Measure]) -> Iterator[Figure]:
    """The charts of an experiment with a command, of the numbers that are not all 0."""
    rows = [row for row in every if row.more]
    columns = {number.key: number for number in numbers}
    for key in _KEYS:
        if key in columns and any(e and e.value for e in (row.estimate(key) for row in rows)):
            yield _figure(rows, columns[key])


def _figure(rows: Sequence[Row], column: Measure) -> Figure:
    left = len(rows) - _BARS_MAX
    more = f"; {left} more cells are in the table" if left > 0 else ""
    table = tuple(
        (
            _name(row),
            *estimate_texts(row.estimate(column.key), column.form),
            str(len(row.trials)),
            "yes" if row.sound else "no",
        )
        for row in rows
    )
    return Figure(
        column.key.replace("_", "-"),
        capital(metrics.title(column.key)),
        f"{metrics.metric(column.key).about} Lines are 95% intervals where there are several"
        f" trials, dots are single trials, and a hollow bar has no valid one{more}.",
        ("cell", metrics.header(column.key), "95% interval", "trials", "valid"),
        table,
        (_chart(rows[:_BARS_MAX], column),),
    )


def _name(row: Row) -> str:
    return shown(levels_alone(row.cell.levels) or cell_name(row.cell))


def _chart(rows: Sequence[Row], column: Measure) -> Chart:
    cells: list[Point] = []
    ends: list[Point] = []
    dots: list[Point] = []
    for row in rows:
        estimate, name = row.estimate(column.key), _name(row)
        if estimate is None:
            continue
        text = column.form(estimate.value)
        cells.append(Point(estimate.value * column.scale, name, text=text, filled=row.sound))
        if estimate.estimable and math.isfinite(estimate.high):
            low, high = max(0.0, estimate.low) * column.scale, estimate.high * column.scale
            ends.append(Point(y=name, low=low, high=high))
        for digest in row.trials:
            if of_trial := column.of_trial(digest):
                dots.append(Point(of_trial.value * column.scale, name, filled=sound(digest)))
    farthest: dict[Place, float] = {}
    for point in (*cells, *ends, *dots):
        place = point.high if isinstance(point.high, float) else point.x
        if isinstance(place, float):
            farthest[point.y] = max(place, farthest.get(point.y, 0.0))
    top = max(farthest.values(), default=0.0) or 1.0
    # The names of the factors stand above the bars, as a chart of few bars is too low for them.
    factors = ", ".join(factor_name(name) for name, _ in rows[0].cell.levels)
    title = tuple(wrap(shown(factors), WIDTH // 7))
    form = "~s" if top >= 1e4 else ""
    return Chart(
        Axis(metrics.axis(column.key), ends=(0.0, top * 1.35), zero=True, format=form, grid=True),
        Axis(names=tuple(_name(row) for row in rows)),
        (
            Layer("bar", tuple(cells), "line0"),
            Layer("rule", tuple(ends), "ink", along="x"),
            Layer("point", tuple(dots), "ink", size=14, opacity=0.7),
            Layer("text", tuple(replace(each, x=farthest[each.y]) for each in cells), "ink",
                  align="left", dx=6, size=12),
        ),
        height=60 + 15 * len(title) + _BAR_HEIGHT * max(1, len(cells)),
        title=title,
    )  # fmt: skip
