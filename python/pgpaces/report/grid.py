"""Tables of the terminal, as the library that draws them there has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pgpaces.report.escape import line

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text


def table(title: str, names: Sequence[str]) -> Table:
    """An empty table: one column of text that gives way, and numbers to the right of it."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    made = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    made.add_column(title)
    for name in names:
        made.add_column(name, justify="right", no_wrap=True)
    return made


def cell(text: str) -> Text:
    """A text that is cut where the terminal is too narrow for it."""
    from rich.text import Text

    return Text(line(text), no_wrap=True, overflow="ellipsis")
