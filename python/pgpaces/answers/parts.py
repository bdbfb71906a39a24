"""The kinds of work other than transactions, each from modules that can be taken out."""

from __future__ import annotations

from pgpaces.answers.bulk import work as bulk

# Numbers of trials by their key in the row of a cell.
NUMBERS = {number.key: number.of_trial for number in bulk.NUMBERS}
# What a trial did in addition to transactions, and what all trials of cells are about instead.
work_of, work_of_cells = bulk.of_trial, bulk.of_cells
