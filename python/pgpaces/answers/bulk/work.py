"""Commands as the work of cells, in place of transactions: their columns, charts and notes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from textwrap import wrap

from msgspec import Struct

from pgpaces.analysis.bulk import Bulk
from pgpaces.analysis.cells import Row, sound
from pgpaces.analysis.digest import Digest
from pgpaces.answers.bulk import words
from pgpaces.answers.measure import Measure
from pgpaces.answers.trials import cell_name, factor_name, levels_alone
from pgpaces.core import metrics
from pgpaces.core.messages import message
from pgpaces.core.metrics import header
from pgpaces.core.units import size_text
from pgpaces.show.charts import Datum, names, of_metric
from pgpaces.show.escape import line as shown
from pgpaces.show.numbers import NOT_KNOWN, capital, estimate_texts, metric_cell, or_dash
from pgpaces.show.section import Column, Figure, Sentence, TableCell, figure
from pgpaces.show.style import WIDTH

METHOD = ("method-seconds", "method-wal")
NOTE = "bars-are-means"
# Numbers with a chart. Beyond the longest bar there is room for its number.
_CHARTS, _ROOM = ("rows_s", "seconds", "wal_row", "us_row"), 1.35
# Columns that a narrow terminal omits first.
SPARE = (*map(header, ("input_s", "wal_s", "wal_row", "wal_byte")), "median s")


class CellsWork(Struct, frozen=True):
    """Cells whose trials are all about a command. numbers: those of which any cell has one.

    answer: sentences. only: the trials have neither transactions nor a latency limit.
    """

    numbers: tuple[Measure, ...]
    answer: tuple[Sentence, ...]
    only: bool


def of_cells(rows: Sequence[Row]) -> CellsWork | None:
    """The commands of cells, if each trial is about one."""
    trials = [digest.trial for row in rows for digest in row.trials]
    if not trials or not all(trial.workload.about_command for trial in trials):
        return None
    limited = any(trial.plan.limit_ns or trial.plan.limits for trial in trials)
    alone = all(trial.workload.command_alone for trial in trials)
    answer = tuple(words.sentences([row for row in rows if row.trials]))
    known = {name for row in rows for name in row.more}
    numbers = tuple(number for number in words.NUMBERS if number.key in known)
    return CellsWork(numbers, answer, only=alone and not limited)


def _column(show: Callable[[Bulk], TableCell | str]) -> Callable[[Digest], TableCell | str]:
    def cell(digest: Digest) -> TableCell | str:
        command = words.of_digest(digest)
        return NOT_KNOWN if command is None else show(command)

    return cell


# Columns of trials.
OF_TRIAL: tuple[Column[Digest], ...] = (
    ("executions", _column(lambda command: f"{command.counts.due}")),
    ("succeeded", _column(lambda command: f"{command.done}")),
    (header("seconds"), _column(lambda command: metric_cell("seconds", command.seconds))),
    ("rows", _column(lambda command: or_dash(command.rows, "{:,.0f}".format))),
    ("input", _column(lambda command: or_dash(command.input_total, size_text))),
    ("WAL", _column(lambda command: or_dash(command.wal_bytes, size_text))),
)


def figures(every: Sequence[Row], numbers: Sequence[Measure]) -> Iterator[Figure]:
    """The charts of an experiment with a command, of the numbers that are not all 0."""
    rows = [row for row in every if row.more]
    columns = {number.key: number for number in numbers}
    # The names of the factors stand above the bars, as a chart of few bars is too low for them.
    factors = ", ".join(factor_name(name) for row in rows[:1] for name, _ in row.cell.levels)
    for key in _CHARTS:
        if key in columns and any(e and e.value for e in (row.estimate(key) for row in rows)):
            measure = columns[key]
            data = tuple(_rows(rows, measure))
            top = max(row.get("farthest", 0.0) for row in data) or 1.0
            yield figure(
                key.replace("_", "-"),
                capital(metrics.title(key)),
                message("chart-bars", about=metrics.metric(key).about),
                columns=("cell", header(key), "95% interval", "trials", "valid"),
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
