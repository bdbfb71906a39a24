"""Bar charts of the results of commands: a bar for each machine, setting or version."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from textwrap import wrap

from pgpaces.analysis.cells import Row, sound
from pgpaces.answers.measure import Measure
from pgpaces.answers.trials import cell_name, factor_name, levels_alone
from pgpaces.core import metrics
from pgpaces.show.charts import Datum, names_down, of_metric
from pgpaces.show.escape import line as shown
from pgpaces.show.numbers import capital, estimate_texts
from pgpaces.show.section import Figure, figure
from pgpaces.show.style import NUMBER, WIDTH

_KEYS = ("rows_s", "seconds", "wal_row", "us_row")
_BARS_MAX = 30
# Beyond the longest bar there is room for its number.
_ROOM = 1.35


def figures(every: Sequence[Row], numbers: Sequence[Measure]) -> Iterator[Figure]:
    """The charts of an experiment with a command, of the numbers that are not all 0."""
    rows = [row for row in every if row.more]
    columns = {number.key: number for number in numbers}
    for key in _KEYS:
        if key in columns and any(e and e.value for e in (row.estimate(key) for row in rows)):
            yield _figure(rows, columns[key])


def _figure(rows: Sequence[Row], measure: Measure) -> Figure:
    left = len(rows) - _BARS_MAX
    more = f"; {left} more cells are in the table" if left > 0 else ""
    # The names of the factors stand above the bars, as a chart of few bars is too low for them.
    factors = ", ".join(factor_name(name) for name, _ in rows[0].cell.levels)
    data = tuple(_rows(rows, measure))
    top = max(row.get("farthest", 0.0) for row in data) or 1.0
    return figure(
        measure.key.replace("_", "-"),
        capital(metrics.title(measure.key)),
        f"{metrics.metric(measure.key).about} Lines are 95% intervals where there are several"
        f" trials, dots are single trials, and a hollow bar has no valid one{more}.",
        columns=(
            ("cell", "cell"),
            (metrics.header(measure.key), "text"),
            ("95% interval", "interval"),
            ("trials", "trials"),
            ("valid", "sound"),
        ),
        data=data,
        template="bars",
        above=wrap(shown(factors), WIDTH // 7),
        x=of_metric(
            measure.key,
            format="~s" if top >= 1e4 else NUMBER,
            grid=True,
            domainMax=_ROOM * top,
            nice=False,
            tickCount=5,
        ),
        y=names_down("", [_name(row) for row in rows[:_BARS_MAX]]),
    )


def _rows(rows: Sequence[Row], measure: Measure) -> Iterator[Datum]:
    """A row for each cell and each trial; those beyond the chart have no place in it."""
    for number, row in enumerate(rows):
        estimate = row.estimate(measure.key)
        trials = [(each, of) for each in row.trials if (of := measure.of_trial(each))]
        numbers = {k: v for k, v in measure.numbers(estimate).items() if math.isfinite(v)}
        text, ends = estimate_texts(estimate, measure.form)
        places = [value for value in (numbers.get("value"), numbers.get("high")) if value]
        yield {
            "cell": _name(row),
            "text": text,
            "interval": ends,
            "trials": str(len(row.trials)),
            "sound": "yes" if row.sound else "no",
            "valid": row.sound,
            "farthest": max([*places, *(of.value * measure.scale for _, of in trials)], default=0),
            **({"y": _name(row), **numbers} if number < _BARS_MAX else {}),
        }
        for digest, of in trials if number < _BARS_MAX else ():
            yield {
                "cell": _name(row),
                "text": measure.form(of.value),
                "trials": "1",
                "trial": of.value * measure.scale,
                "valid": sound(digest),
                "y": _name(row),
            }


def _name(row: Row) -> str:
    return shown(levels_alone(row.cell.levels) or cell_name(row.cell))
