"""A screen is a declaration: which named values of an answer stand where, in which order.

It turns an answer into a section, which every form of output shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from pgpaces.core.findings import Finding, filled, placeholders
from pgpaces.core.messages import Message, catalog
from pgpaces.show.number_text import NOT_KNOWN, estimate_cell
from pgpaces.show.section import Facts, Headline, Next, Section, Table, TableCell, Values
from pgpaces.spec.result import Estimate

# A row of a table: cells, each after the title of its column.
Cells = Iterable[tuple[str, TableCell | str]]


class Screen(Struct, frozen=True):
    """The names of values on the first screen and in the details, in their order.

    spare: those that the first screen leaves out, in this order, if it has more than `most` lines.
    """

    first: tuple[str, ...]
    details: tuple[str, ...] = ()
    spare: tuple[str, ...] = ()
    most: int = 8

    def section(
        self,
        headline: Headline,
        values: Values,
        *,
        findings: Sequence[Finding] = (),
        steps: Sequence[Next] = (),
        main: str = "",
        aside: str = "",
        whole: bool = False,
        **more: Any,
    ) -> Section:
        """The answer. findings: the most severe first; the first screen has one. steps: commands.

        main: the answer in a sentence, for pages and CI. aside: how to see more. whole: it has
        everything. more: other fields of the section.
        """
        said: dict[str, list[str]] = {}
        every = tuple(values)
        for name, value in every:
            said.setdefault(name, []).append(str(value))
        facts = self._facts(self.first, said)
        for name in () if whole else self.spare:
            if len(facts) > self.most:
                facts = tuple(each for each in facts if each[0] != name)
        details = Section("details", "Details", facts=self._facts(self.details, said))
        return Section(
            headline=headline,
            facts=facts,
            said=every,
            findings=tuple(findings),
            main=main,
            parts=(details,) if details.facts else (),
            next=tuple(steps),
            aside=(aside,) if aside else (),
            **more,
        )

    def _facts(self, names: Sequence[str], said: dict[str, list[str]]) -> Facts:
        return tuple((name, text) for name in names for text in said.get(name, ()))


def told(name: str, facts: Mapping[str, Any]) -> Message:
    """The message of this name with those of the facts that its sentence shows."""
    shown = sorted(placeholders(catalog()[name]), key=[*facts].index)
    return Message(name, {key: facts[key] for key in shown})


def table_of(
    name: str,
    rows: Iterable[Cells | Mapping[str, Any]],
    *,
    labels: int = 1,
    samples: int = 0,
    **more: Any,
) -> Table:
    """The table of this name in messages.toml: title, titles of columns, cells of a row, note.

    Of a table whose columns depend on its rows the catalog has only the title. rows: values for the
    cells of the catalog, where `–` stands for an unknown value, and an interval follows its
    estimate; or the cells, each after the title of its column. samples: for the note. more: other
    fields of the table.
    """
    title, *rest = catalog()[name].splitlines()
    columns, forms = (each.split(" | ") for each in (rest or ("", ""))[:2])
    every = [
        [(column, _cell(form, row)) for column, form in zip(columns, forms, strict=True)]
        if isinstance(row, Mapping)
        else [*row]
        for row in rows
    ]
    fields = {"note": filled(" ".join(rest[2:]), {"samples": samples}), **more}
    return Table(
        name.partition("-")[2],
        title,
        tuple(column for column, _ in every[0]) if every else (),
        labels,
        tuple(
            tuple(TableCell(cell) if isinstance(cell, str) else cell for _, cell in row)
            for row in every
        ),
        **fields,
    )


def _cell(form: str, row: Mapping[str, Any]) -> TableCell:
    values = {key: row[key] for key in placeholders(form)}
    if None in values.values():
        return TableCell(NOT_KNOWN)
    key, one = next(iter(values.items()))
    if isinstance(one, Estimate):
        return estimate_cell(one, lambda value: filled(form, {key: value}))
    return one if isinstance(one, TableCell) else TableCell(filled(form, values).strip())


def bounds(estimate: Estimate | None) -> tuple[float, float] | None:
    """Both ends of an interval, for the formats of the catalog; None if there is none."""
    return (estimate.low, estimate.high) if estimate is not None and estimate.estimable else None
