"""The return value of every call of the Python API: an answer with its text, charts and trials.

One class over sections: a notebook shows a card, a file has a report, a data frame has rows.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct

from pgpaces.answers.sweep.page import Page
from pgpaces.answers.sweep.report import report
from pgpaces.core.errors import PlanError, RunError
from pgpaces.core.findings import Finding
from pgpaces.show.data import Frame, tidy
from pgpaces.show.render import form_of, render
from pgpaces.show.section import Figure, Number, Report, Section


class Answer(Struct, frozen=True):
    """An answer to one question: about a run, an experiment, a search, a comparison, a cause.

    A notebook shows its verdict, a chart and its tables.
    """

    section: Section
    _load_page: Callable[[], Page]

    @property
    def value(self) -> Any:
        """The answer as numbers: a value of `pgpaces.analysis`."""
        return self.section.value

    @property
    def verdict(self) -> str:
        """The first word, such as PASS, FAIL or UNKNOWN; empty if there is none."""
        return self.section.headline.outcome if self.section.headline else ""

    @property
    def sentences(self) -> tuple[str, ...]:
        """The answer in words, the most important sentence first."""
        return self.section.sentences

    @property
    def rows(self) -> tuple[Number, ...]:
        """The numbers of the answer with their intervals, or else the numbers of its report."""
        return self.section.rows or self.document().rows()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What weakens or explains the answer: names and values, the most severe first."""
        return self.section.findings

    @property
    def trials(self) -> tuple[str, ...]:
        """The ids of the runs that it rests on."""
        return self.section.trials

    @property
    def figures(self) -> tuple[Figure, ...]:
        """Its charts, the main one first; those of its report if it has none."""
        return self.section.figures or tuple(self.document().figures())

    @property
    def page(self) -> Page:
        """Its trials, with this answer first. Raises StoreError."""
        return self._load_page()

    def frame(self) -> Frame:
        """Its numbers as a tidy table: a row for each metric of each thing that it is about."""
        rows = tidy(self.rows)
        return Frame({name: tuple(row[name] for row in rows) for name in (rows[0] if rows else ())})

    def plot(self, name: str | None = None) -> Figure:
        """A chart by its name, by default the first. Raises PlanError if there is none."""
        plots = {plot.name: plot for plot in self.figures}
        if not plots:
            raise PlanError("no-chart")
        chosen = next(iter(plots)) if name is None else name
        if chosen not in plots:
            raise PlanError("unknown-chart", chart=name, charts=", ".join(plots))
        return plots[chosen]

    def report(self, path: str | Path) -> Path:
        """Writes its report in the form of the file name's extension: .html, .md, .json, ..."""
        path = Path(path)
        try:
            path.write_bytes(render(self.document(), form_of(str(path))))
        except OSError as error:
            raise RunError("cannot-write", path=path, why=error.strerror or error) from None
        return path

    def document(self) -> Report:
        """Its report as values, of which every form is made. Raises StoreError."""
        return report(self.page)

    def __str__(self) -> str:
        """The answer in words."""
        return "\n".join(self.sentences) or "no answer"

    def __repr__(self) -> str:
        """The headline, else the first sentence."""
        head, first = self.section.headline, str(self).partition("\n")[0]
        return f"<{self.section.key}: {f'{head.word} {head.text}'.strip() if head else first}>"

    def _repr_html_(self) -> str:
        """For notebooks: the verdict, its sentences, its chart and its tables."""
        from pgpaces.show.html import card

        figure = next(iter(self.section.figures), None) or self.document().lead
        return card(self.section, figure)
