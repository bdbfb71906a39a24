"""Tables as rows: each row lists its cells, each cell after the title of its column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pgpaces.answers.trials import factor_name
from pgpaces.core.messages import message
from pgpaces.core.metrics import header
from pgpaces.show.numbers import metric_cell
from pgpaces.show.section import Table, TableCell
from pgpaces.spec.design import Factor, level_text
from pgpaces.spec.result import Estimate

Cells = Iterable[tuple[str, TableCell | str]]


def table_of(title: str, rows: Iterable[Cells], *, labels: int = 1, **more: Any) -> Table:
    """A table of rows that have the same columns. title: the name of a message, title-KEY."""
    every = [tuple(row) for row in rows]
    cells = tuple(
        tuple(TableCell(cell) if isinstance(cell, str) else cell for _, cell in row)
        for row in every
    )
    columns = tuple(name for name, _ in every[0]) if every else ()
    return Table(title.removeprefix("title-"), message(title), columns, labels, cells, **more)


def metrics(
    names: Iterable[str], read: Callable[[str], Estimate | None], above: str = "∞"
) -> Iterator[tuple[str, TableCell]]:
    """The cells of these metrics with their intervals; `above` stands for infinity."""
    yield from ((header(name), metric_cell(name, read(name), above)) for name in names)


def levels(factors: Iterable[Factor], own: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The level of each factor, of a cell with these levels; empty if it has none."""
    texts = {name: level_text(level) for name, level in own}
    yield from ((factor_name(each.name), texts.get(each.name, "")) for each in factors)
