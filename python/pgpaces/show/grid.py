"""Tables of the terminal, as values of rich."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from pgpaces.show.escape import line


def table(title: str, names: Sequence[str]) -> Table:
    grid = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    grid.add_column(title)
    for name in names:
        grid.add_column(name, justify="right", no_wrap=True)
    return grid


def cell(text: str) -> Text:
    """A text that is truncated if the terminal is too narrow."""
    return Text(line(text), no_wrap=True, overflow="ellipsis")
