"""A trial of a search in a few words, for the progress of the search."""

from __future__ import annotations

from pgpaces.analysis.capacity.trials import PREFLIGHT, label, objections
from pgpaces.analysis.sequential import role
from pgpaces.analysis.summary import Summary
from pgpaces.show.numbers import rate, share_in_words
from pgpaces.spec.design import Cell
from pgpaces.spec.result import Trial


def trial_name(cell: Cell) -> str | None:
    """The name of a trial; None if it belongs to no search."""
    return label(cell)


def trial_result(trial: Trial, summary: Summary) -> str:
    """Duration and missed share of a trial, to stand after its load."""
    missed = summary.missed
    took = f" for {(trial.measured_ns or 0) / 1e9:.0f} s"
    if missed is None:
        return f"{took}: nothing was due"
    of = role(Cell(tuple(trial.place.levels.items()))) if trial.place else ""
    if of == PREFLIGHT:
        return f"{took}: {rate(summary.rate.value)}/s"
    share = f"missed {share_in_words(missed)}"
    if trial.state != "finished":
        return f"{took}: {share}, {trial.state}"
    reasons = "; ".join(text.partition(":")[0] for text in objections(trial, summary))
    if reasons:
        return f"{took}: {share}, not valid: {reasons}"
    late = ", the generator was late" if summary.generator.late else ""
    return f"{took}: {share}{late}"
