"""Commands as the work of trials: of one trial, and of the cells of a report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from pgpaces.analysis import bulk
from pgpaces.analysis.bulk import Bulk
from pgpaces.answers.bulk import words
from pgpaces.answers.work import CellsWork, Measure, TrialWork
from pgpaces.core.units import size_text
from pgpaces.show.numbers import NOT_KNOWN, estimate_cell, or_dash
from pgpaces.show.section import Figure, Headline, Sentence, TableCell

if TYPE_CHECKING:
    from pgpaces.analysis.cells import Row
    from pgpaces.analysis.digest import Digest
    from pgpaces.analysis.summary import Summary
    from pgpaces.spec.result import Trial

NUMBERS = words.NUMBERS
_METHOD = (
    Sentence(
        "Seconds are from the start of the command to its end, as measured by the operating"
        " system, without preparation. Rows, input and WAL per second, per row and per byte are"
        " of trials in which all executions succeeded."
    ),
    Sentence(
        "WAL is that of the whole server. Rows are the count of a query, or without one the"
        " inserted rows in the statistics of the server, without system catalogs."
    ),
)


def of_trial(trial: Trial, summary: Summary) -> TrialWork | None:
    command = bulk.of(trial, summary)
    if command is None:
        return None
    text, headline = words.sentence(command), None
    if command.main and command.counts.due:
        lost = command.counts.failed or command.counts.unfinished
        headline = Headline("FAIL", "misses", text) if lost else Headline("", "", text)
    return TrialWork(
        key=bulk.SOURCE,
        value=command,
        plain=bulk.as_json(command),
        main=command.main,
        label=command.label,
        sentence=text,
        headline=headline,
        load=words.load_text(trial),
        details=tuple(words.lines(trial, command)),
    )


def of_cells(rows: Sequence[Row]) -> CellsWork | None:
    """The commands of cells, if each trial is about one."""
    trials = [digest.trial for row in rows for digest in row.trials]
    if not trials or not all(trial.workload.about_command for trial in trials):
        return None
    limited = any(trial.plan.limit_ns or trial.plan.limits for trial in trials)
    alone = all(trial.workload.command_alone for trial in trials)
    return CellsWork(
        numbers=words.numbers(rows),
        answer=tuple(words.sentences([row for row in rows if row.trials])),
        method=_METHOD,
        due="executions",
        only=alone and not limited,
        of_cell=(("median s", lambda row: or_dash(words.median_s(row), "{:.3g}".format)),),
        of_trial=(
            ("executions", _column(lambda command: f"{command.counts.due}")),
            ("succeeded", _column(lambda command: f"{command.done}")),
            ("seconds", _column(lambda command: estimate_cell(command.seconds, "{:.3g}".format))),
            ("rows", _column(lambda command: or_dash(command.rows, "{:,.0f}".format))),
            ("input", _column(lambda command: or_dash(command.input_total, size_text))),
            ("WAL", _column(lambda command: or_dash(command.wal_bytes, size_text))),
        ),
        spare=("input MB/s", "WAL MB/s", "WAL B a row", "WAL B a byte of input", "median s"),
        bars=("rows_s", "seconds"),
        figures=_figures,
        note="Bars are means of the trials of a cell.",
    )


def _column(show: Callable[[Bulk], TableCell | str]) -> Callable[[Digest], TableCell | str]:
    """A column of trials, with a dash for those without a command."""

    def cell(digest: Digest) -> TableCell | str:
        command = words.of_digest(digest)
        return NOT_KNOWN if command is None else show(command)

    return cell


def _figures(rows: Sequence[Row], numbers: Sequence[Measure]) -> Iterator[Figure]:
    from pgpaces.answers.bulk import bars

    return bars.figures(rows, numbers)
