"""What trials do that is not counted in transactions: how it is called, told and drawn.

Values alone; texts are unescaped. `parts.py` has what there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pgpaces.show.section import Column, Figure, Headline, Sentence

if TYPE_CHECKING:
    from pgpaces.analysis.cells import Row
    from pgpaces.analysis.digest import Digest
    from pgpaces.spec.result import Estimate


class TrialWork(Struct, frozen=True):
    """What one trial did, by its key in the document and among the sources of findings.

    value: of `analysis/`; plain: the same as plain values. main: it is the trial's own workload,
    not a background one; label: its name. sentence: its result. headline: the answer of a trial
    without a latency limit, if it is one. load: how much was requested. details: other
    measurements.
    """

    key: str
    value: Any
    plain: dict[str, Any]
    main: bool
    label: str
    sentence: str
    headline: Headline | None
    load: str
    details: tuple[str, ...]


class Measure(Struct, frozen=True):
    """A number of cells, in tables and in charts over the main factor.

    scale: factor from the number to the unit of the axis. bound: a threshold and its label.
    """

    key: str
    name: str
    axis: str
    about: str
    scale: float
    form: Callable[[float], str]
    of_trial: Callable[[Digest], Estimate | None]
    bound: tuple[float, str] | None = None
    log: bool = False


class CellsWork(Struct, frozen=True):
    """What all trials of a page are about. numbers: those of which any cell has one.

    answer: its sentences; method: how the numbers are made. due: the name of what was due. only:
    the trials have neither transactions nor a latency limit. of_cell, of_trial: other columns of
    cells, and all of trials. spare: columns that a narrow terminal omits first. bars: keys of
    numbers that have a text chart. figures: charts, with a note on how to read them.
    """

    numbers: tuple[Measure, ...]
    answer: tuple[Sentence, ...]
    method: tuple[Sentence, ...]
    due: str
    only: bool
    of_cell: tuple[Column[Row], ...]
    of_trial: tuple[Column[Digest], ...]
    spare: tuple[str, ...]
    bars: tuple[str, ...]
    figures: Callable[[Sequence[Row], Sequence[Measure]], Iterator[Figure]]
    note: str
