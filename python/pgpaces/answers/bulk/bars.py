"""Bar charts of the results of commands: a bar for each machine, setting or version."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from textwrap import wrap

from pgpaces.analysis.cells import Row, sound
from pgpaces.answers.measure import Measure
from pgpaces.answers.trials import cell_name, factor_name, levels_alone
from pgpaces.core import metrics
from pgpaces.core.messages import message
from pgpaces.show.charts import Datum, names, of_metric
from pgpaces.show.escape import line as shown
from pgpaces.show.numbers import capital, estimate_texts
from pgpaces.show.section import Figure, figure
from pgpaces.show.style import WIDTH

_KEYS = ("rows_s", "seconds", "wal_row", "us_row")
# Beyond the longest bar there is room for its number.
_ROOM = 1.35


def figures(every: Sequence[Row], numbers: Sequence[Measure]) -> Iterator[Figure]:
    """The charts of an experiment with a command, of the numbers that are not all 0."""
    rows = [row for row in every if row.more]
    columns = {number.key: number for number in numbers}
    # The names of the factors stand above the bars, as a chart of few bars is too low for them.
    factors = ", ".join(factor_name(name) for row in rows[:1] for name, _ in row.cell.levels)
    for key in _KEYS:
        if key in columns and any(e and e.value for e in (row.estimate(key) for row in rows)):
            measure = columns[key]
            data = tuple(_rows(rows, measure))
            top = max(row.get("farthest", 0.0) for row in data) or 1.0
            yield figure(
                key.replace("_", "-"),
                capital(metrics.title(key)),
                message("chart-bars", about=metrics.metric(key).about),
                columns=("cell", metrics.header(key), "95% interval", "trials", "valid"),
                data=data,
                template="bars",
                above=wrap(shown(factors), WIDTH // 7),
                x=of_metric(key, short=True, grid=True, domainMax=_ROOM * top, nice=False),
                y=names("", list(dict.fromkeys(row["y"] for row in data)), down=True),
            )


def _rows(rows: Sequence[Row], measure: Measure) -> Iterator[Datum]:
    """A row for each cell and each trial. farthest: the end of the longest of its marks."""
    for row in rows:
        estimate = row.estimate(measure.key)
        name = shown(levels_alone(row.cell.levels) or cell_name(row.cell))
        trials = [(each, of.value) for each in row.trials if (of := measure.of_trial(each))]
        numbers = {k: v for k, v in measure.numbers(estimate).items() if math.isfinite(v)}
        ends = [*numbers.values(), *(value * measure.scale for _, value in trials)]
        text, interval = estimate_texts(estimate, measure.form)
        yield {
            "y": name,
            **numbers,
            "text": text,
            "farthest": max(ends, default=0.0),
            "valid": row.sound,
            "texts": (name, text, interval, str(len(row.trials)), "yes" if row.sound else "no"),
        }
        for digest, value in trials:
            yield {
                "y": name,
                "trial": value * measure.scale,
                "valid": sound(digest),
                "texts": (name, measure.form(value), None, "1"),
            }
