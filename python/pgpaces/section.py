"""What any question ends in: sections of sentences, facts, tables and charts, as values.

Every form of output (terminal, page, Markdown, JSON, notebook) is a function of sections and knows
nothing else. Texts are as others wrote them: who renders them escapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct

from pgpaces.chart import Chart

Weight = Literal["main", "plain", "warning", "note"]
Rank = Literal["answer", "numbers", "details", "page", "text"]
Mark = Literal["", "meets", "misses", "unknown", "not valid"]
Cells = tuple[tuple[str, ...], ...]
Facts = tuple[tuple[str, str], ...]


class Sentence(Struct, frozen=True):
    """A sentence of the answer; main: what one tells the boss. note: a footnote to the numbers."""

    text: str
    weight: Weight = "plain"


class Headline(Struct, frozen=True):
    """What is seen first: a word such as PASS, how it is marked, and the number behind it."""

    word: str
    mark: Mark
    text: str


class TableCell(Struct, frozen=True):
    """A text, its interval where it has one, and how it is marked."""

    text: str
    ends: str = ""
    mark: Mark = ""


class Table(Struct, frozen=True):
    """A table. labels: the number of columns at its left that say what a row is about.

    folded: few look at it, so a page folds it and a terminal leaves it out. spare: the columns that
    a narrow terminal leaves out, in that order. absent: the indexes of rows of which nothing was
    measured. brief: it is part of the answer in one screen, with intervals behind their values.
    """

    key: str
    title: str
    columns: tuple[str, ...]
    labels: int
    rows: tuple[tuple[TableCell, ...], ...]
    note: str = ""
    folded: bool = False
    spare: tuple[str, ...] = ()
    absent: tuple[int, ...] = ()
    brief: bool = False


class Figure(Struct, frozen=True):
    """A chart: what it is called, what it shows in a sentence, and its numbers as a table.

    key: for file names and anchors. charts: one, or several above each other with the same x axis.
    beside: the same for charts that stand side by side, because their axes are the same.
    """

    key: str
    title: str
    about: str
    columns: tuple[str, ...]
    rows: Cells
    charts: tuple[Chart, ...]
    beside: str = ""


class Bar(Struct, frozen=True):
    """A bar of a chart of text. share: its length, 0 to 1. text: its number with its interval."""

    name: str
    share: float
    text: str
    mark: Mark = ""


class Bars(Struct, frozen=True):
    """A chart for where nothing can be drawn: groups of bars of one number, each with a name."""

    title: str
    groups: tuple[tuple[str, tuple[Bar, ...]], ...]


class Block(Struct, frozen=True):
    """A text in fixed type, line by line: a command, an SQL statement, a plan.

    title: what opens it where it is folded; empty: it is not.
    """

    text: str
    title: str = ""


class Section(Struct, frozen=True):
    """An answer, or a part of one.

    key: for anchors and in JSON, no two of a report the same; the keys of its figures begin with
    it. said: the answer first. note: how to read it, or what ran. next: commands that go on from
    here. facts: names and values. value: what Python gets, a value of `answers/`, which JSON shows
    as it is. trials: the ids of those that it stands on. parts: what it consists of. aside, mark:
    what stands after the title. folded: only its title is seen at first, unless open. rank: a
    terminal shows answers and numbers; Markdown all but what is for the page; the page all but what
    is for text.
    """

    key: str
    title: str
    said: tuple[Sentence, ...] = ()
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    value: Any = None
    trials: tuple[str, ...] = ()
    note: str = ""
    headline: Headline | None = None
    next: tuple[str, ...] = ()
    facts: Facts = ()
    bars: tuple[Bars, ...] = ()
    blocks: tuple[Block, ...] = ()
    parts: tuple[Section, ...] = ()
    aside: str = ""
    mark: TableCell | None = None
    folded: bool = False
    open: bool = False
    rank: Rank = "answer"

    def every_figure(self) -> Iterator[Figure]:
        """Its charts, and those of its parts."""
        yield from self.figures
        for part in self.parts:
            yield from part.every_figure()


class Records(Struct, frozen=True):
    """Rows for programs: the same keys in each. texts, whole: the columns of texts and integers."""

    rows: tuple[dict[str, Any], ...]
    texts: frozenset[str] = frozenset()
    whole: frozenset[str] = frozenset()


class Report(Struct, frozen=True):
    """A whole report: its question, the answer in sentences, and sections in their order.

    headline: facts under the title. top: the answer in one screen. lead: the chart that shows it,
    one of those of the sections. document: all of it as plain
    values, but for its answers'. records: a row for each cell and each trial. Both take longer
    than the rest, so they are asked for.
    """

    title: str
    question: str
    made_at: datetime
    version: str
    id: str
    said: tuple[Sentence, ...]
    headline: Facts
    sections: tuple[Section, ...]
    top: Section
    lead: Figure | None = None
    rerun: str = ""
    document: Callable[[], dict[str, Any]] = dict
    records: Callable[[], Records] = lambda: Records(())

    def figures(self) -> Iterator[Figure]:
        """Every chart."""
        for section in self.sections:
            yield from section.every_figure()

    def answers(self) -> tuple[Section, ...]:
        """The sections that are answers of their own."""
        return tuple(each for each in self.sections if each.rank == "answer")
