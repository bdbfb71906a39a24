"""Commands as the work of cells, in place of transactions: their columns, charts and notes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from pgpaces.analysis.bulk import Bulk
from pgpaces.answers.bulk import words
from pgpaces.answers.measure import Measure
from pgpaces.core.metrics import header
from pgpaces.core.units import size_text
from pgpaces.show.numbers import NOT_KNOWN, metric_cell, or_dash
from pgpaces.show.section import Column, Sentence, TableCell

if TYPE_CHECKING:
    from pgpaces.analysis.cells import Row
    from pgpaces.analysis.digest import Digest

METHOD = ("method-seconds", "method-wal")
NOTE = "bars-are-means"
# Numbers that have a text chart, and columns that a narrow terminal omits first.
BARS = ("rows_s", "seconds")
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
