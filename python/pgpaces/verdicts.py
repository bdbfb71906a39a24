"""The Python face of answers: a value with its words, charts and trials, the same as the command's.

`Answer` shows any `Section` with the page of the trials behind it. Knows no arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgpaces.errors import PlanError
from pgpaces.sweeps import Plot, written

if TYPE_CHECKING:
    from pgpaces.report.page import Page
    from pgpaces.report.section import Section


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to one question: better or worse, a trend, a forecast, a capacity, why it was late.

    In a notebook it shows its words, charts and tables.
    """

    section: Section
    _gathered: Callable[[], Page] = field(repr=False)

    @property
    def value(self) -> Any:
        """The answer as numbers: a value of `pgpaces.answers`."""
        return self.section.value

    @property
    def said(self) -> tuple[str, ...]:
        """The answer in words, the most important sentence first."""
        return tuple(sentence.text for sentence in self.section.said)

    @property
    def trials(self) -> tuple[str, ...]:
        """The ids of the runs that it stands on."""
        return self.section.trials

    @property
    def figures(self) -> tuple[Plot, ...]:
        """Its charts."""
        return tuple(Plot(figure) for figure in self.section.figures)

    @property
    def page(self) -> Page:
        """The report on its trials, with this answer in front. Raises StoreError."""
        return self._gathered()

    def plot(self, name: str | None = None) -> Plot:
        """A chart by its name, by default the first. Raises PlanError where there is none."""
        found = {plot.name: plot for plot in self.figures}
        chosen = next(iter(found), None) if name is None else name
        if chosen not in found:
            what = "no chart" if name is None else f"no chart '{name}'"
            raise PlanError(f"there is {what}", f"there are {', '.join(found) or 'none'}")
        return found[chosen]

    def report(self, path: str | Path) -> Path:
        """Writes its report; the form is that of the file's ending: .html, .md, .json, ..."""
        return written(self.page, Path(path))

    def __str__(self) -> str:
        """The answer in words."""
        return "\n".join(self.said)

    def __repr__(self) -> str:
        """The first sentence."""
        return f"<{self.section.key}: {self.said[0] if self.said else 'no answer'}>"

    def _repr_html_(self) -> str:
        """For notebooks: the words, the charts and the tables."""
        from pgpaces.report.html import answered

        return answered(self.section)
