"""What every form of a report is made of: tables, charts, and sections of both with sentences.

Values alone. Texts are as others wrote them: whoever renders them escapes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pgpaces.report.look import Look, specification
from pgpaces.report.words import Sentence

Mark = Literal["", "held", "did not hold", "not known", "not valid"]
Marks = Callable[[Look], dict[str, Any]]
Cells = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class TableCell:
    """A text, its interval where it has one, and how it is marked."""

    text: str
    ends: str = ""
    mark: Mark = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table. labels: so many columns at its left say what a row is about; numbers follow.

    folded: few look at it, so a page folds it and a terminal leaves it out.
    """

    key: str
    title: str
    columns: tuple[str, ...]
    labels: int
    rows: tuple[tuple[TableCell, ...], ...]
    note: str = ""
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart: what it is called, what it shows in a sentence, and its numbers as a table.

    key: for file names and anchors. marks: its specification in a look, without configuration.
    beside: the same for charts that stand side by side, because their axes are the same.
    """

    key: str
    title: str
    about: str
    columns: tuple[str, ...]
    rows: Cells
    marks: Marks
    beside: str = ""

    def specification(self, look: Look) -> dict[str, Any]:
        """The whole specification."""
        return specification(look, self.marks(look))


@dataclass(frozen=True, slots=True)
class Section:
    """An answer beside the numbers: how much it holds, whether A beats B, why it was late.

    key: for anchors and in JSON, no two of a page the same; the keys of its figures begin with it.
    said: the answer first. value: what Python gets, a value of `answers/`, which JSON shows as it
    is. trials: the ids of those that it stands on.
    """

    key: str
    title: str
    said: tuple[Sentence, ...]
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    value: Any = None
    trials: tuple[str, ...] = ()
