"""The answer to any question as values: sections of sentences, facts, tables and charts.

Every form of output (terminal, page, Markdown, JSON, notebook) is a function of sections alone.
Texts are unescaped; the code that renders them escapes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct

from pgpaces.core.findings import Finding
from pgpaces.core.messages import Message, catalog
from pgpaces.spec.result import Estimate

_VEGA_LITE = "application/vnd.vegalite.v5+json"
Rank = Literal["answer", "numbers", "details", "page"]
Mark = Literal["", "pass", "fail", "unknown", "invalid"]
Facts = tuple[tuple[str, str], ...]
# Named values in order; a name may have several.
Values = Iterable[tuple[str, Message | Finding]]


# Words of headlines that are not verdicts.
TOPICS = ("SWEEP", "CAPACITY", "DIFF", "DISKS")


class Headline(Struct, frozen=True):
    """The first line: a verdict or a topic (SWEEP), its mark, and the text with the number."""

    word: str
    mark: Mark
    text: str

    @property
    def outcome(self) -> str:
        """The verdict: PASS, BETTER, ...; empty if there is none."""
        return self.mark.upper() if self.word in TOPICS else self.word


class Number(Struct, frozen=True):
    """A row of an answer's numbers: one metric of one thing, with its interval.

    of: what it is of, by the keys of the question (a factor, cell, run, script, ...); empty for
    the whole. metric: a name of metrics.toml, which says the unit.
    """

    of: Mapping[str, str | None]
    metric: str
    estimate: Estimate


class Next(Struct, frozen=True):
    """A command that continues, and what it answers: a name of messages.toml, or a text."""

    command: str
    question: str = ""

    @property
    def text(self) -> str:
        return catalog().get(self.question, self.question)


class TableCell(Struct, frozen=True):
    """A text, its interval (empty if none), and its mark."""

    text: str
    ends: str = ""
    mark: Mark = ""


class Table(Struct, frozen=True):
    """A table. labels: the number of columns at the left that identify a row.

    folded: rarely needed, so a page folds it and a terminal omits it. spare: the columns that a
    narrow terminal omits, in that order. absent: the indexes of rows without a measurement. brief:
    it is part of the answer in one screen, with each interval after its value.
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
    """A chart: shown by a notebook, or as `svg`, `png`, or the Vega-Lite specification `spec`.

    It is a template that is filled with rows, and has its numbers as a table.

    name: for `Answer.plot`, file names, and anchors. about: a sentence about what it shows.
    columns, rows: the table. data: the rows of the template, whose fields it names. encodings: of
    its axes and series, and other values by their names in the template.
    """

    name: str
    title: str
    about: str
    columns: tuple[str, ...]
    data: tuple[dict[str, Any], ...]
    template: str
    encodings: Mapping[str, Any]

    @property
    def rows(self) -> tuple[tuple[str, ...], ...]:
        """The texts of the rows of its table, which have one for each column."""
        every = (tuple(row.get("texts", ())) for row in self.data)
        return tuple(texts for texts in every if texts and None not in texts)

    @property
    def over_time(self) -> bool:
        """Whether its table has a row for each place of its horizontal axis."""
        return self.template in ("latency", "strips")

    @property
    def spec(self) -> dict[str, Any]:
        """The Vega-Lite specification."""
        from pgpaces.show.charts import LIGHT, specification

        return specification(self, LIGHT)

    @property
    def svg(self) -> str:
        """As SVG. Raises RunError if the drawing library is not installed."""
        from pgpaces.show.draw import picture

        return picture(self, "svg").decode()

    @property
    def png(self) -> bytes:
        """As PNG. Raises RunError if the drawing library is not installed."""
        from pgpaces.show.draw import picture

        return picture(self, "png")

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        """For notebooks."""
        from pgpaces.show.draw import available

        drawn = {"image/svg+xml": self.svg} if available() else {}
        return {_VEGA_LITE: self.spec, "text/plain": repr(self), **drawn}

    def __repr__(self) -> str:
        """Its name and title."""
        return f"<plot {self.name}: {self.title}>"


def figure(
    name: str,
    title: str,
    about: str,
    *,
    columns: Sequence[str],
    data: Iterable[dict[str, Any]],
    template: str,
    **encodings: Any,
) -> Figure:
    """A chart of rows, each with the texts of the columns, as far as it has them, in `texts`.

    Each row describes itself by them. The table consists of the rows that have all of them.
    """
    return Figure(name, title, about, tuple(columns), tuple(data), template, encodings)


class Block(Struct, frozen=True):
    """A text in fixed type, line by line: a command, an SQL statement, a plan.

    title: the label of the folded block; empty: the block is not folded.
    """

    text: str
    title: str = ""


class Section(Struct, frozen=True):
    """An answer, or a part of one.

    key: for anchors and in JSON, unique in a report, and a prefix of the keys of its figures.
    main: the answer in a sentence, if it is not the headline. note: how to read it, or what ran.
    facts: names and values. value: a value of `analysis/`, for Python; document: the same for JSON,
    if not the value itself. said: the named values whose texts are the facts. findings: the most
    severe first. rows: the numbers. trials: the ids of the trials that it rests on. parts:
    subsections. aside: how to see more. folded: only the title is visible at first. facts_first:
    how many facts a screen has above its tables; None: all. rank: a terminal shows `answer` and
    `numbers`; Markdown all but `page`; the page shows all.
    """

    key: str
    title: str
    main: str = ""
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    value: Any = None
    document: Callable[[], Any] | None = None
    said: tuple[tuple[str, Message | Finding], ...] = ()
    rows: tuple[Number, ...] = ()
    findings: tuple[Finding, ...] = ()
    trials: tuple[str, ...] = ()
    note: str = ""
    headline: Headline | None = None
    next: tuple[Next, ...] = ()
    facts: Facts = ()
    blocks: tuple[Block, ...] = ()
    parts: tuple[Section, ...] = ()
    aside: tuple[str, ...] = ()
    folded: bool = False
    facts_first: int | None = None
    rank: Rank = "answer"

    @property
    def conclusion(self) -> str:
        """The answer in a sentence."""
        if self.main or self.headline is None:
            return self.main
        word = "" if self.headline.word in TOPICS else self.headline.word
        return ": ".join(filter(None, (word, self.headline.text)))

    @property
    def sentences(self) -> tuple[str, ...]:
        """The conclusion, and the findings."""
        return (*filter(None, (self.conclusion,)), *map(str, self.findings))


class Report(Struct, frozen=True):
    """A whole report: its question, the answer, and sections in their order.

    question: of its author. kind_question: what this kind of answer answers. headline: facts under
    the title. top: the answer in one screen. lead: the chart that shows the answer. document: the
    whole report as plain values, without its sections. rows: its numbers. Both are functions,
    because they take longer than the rest.
    """

    title: str
    question: str
    made_at: datetime
    version: str
    id: str
    headline: Facts
    sections: tuple[Section, ...]
    top: Section
    lead: Figure | None = None
    rerun: str = ""
    kind_question: str = ""
    document: Callable[[], Any] = dict
    rows: Callable[[], tuple[Number, ...]] = tuple

    def figures(self) -> Iterator[Figure]:
        if self.lead is not None:
            yield self.lead
        for section in self.sections:
            yield from (each for each in section.figures if each != self.lead)
