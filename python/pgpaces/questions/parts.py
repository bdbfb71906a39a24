"""The kinds of work other than transactions, each from modules that can be taken out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pgpaces.questions.bulk import work as bulk

if TYPE_CHECKING:
    from pgpaces.answers.cells import Numbers, Row
    from pgpaces.answers.summary import Summary
    from pgpaces.questions.work import CellsWork, TrialWork
    from pgpaces.result import Trial

# Numbers of trials by their key in the row of a cell.
NUMBERS: Numbers = {number.key: number.of_trial for number in bulk.NUMBERS}


def work_of(trial: Trial, summary: Summary) -> TrialWork | None:
    """What a trial did in addition to transactions; None if nothing."""
    return bulk.of_trial(trial, summary)


def work_of_cells(rows: Sequence[Row]) -> CellsWork | None:
    """What all trials are about; None where it is transactions."""
    return bulk.of_cells(rows)
