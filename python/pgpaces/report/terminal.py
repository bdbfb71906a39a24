"""Sections as text for a terminal: sentences, tables, small charts of blocks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pgpaces.report.escape import line
from pgpaces.report.grid import table
from pgpaces.report.numbers import NOT_KNOWN
from pgpaces.section import Bars, Facts, Headline, Report, Section, Sentence, Table, TableCell

if TYPE_CHECKING:
    from rich.console import RenderableType

# A word of a command; blanks within quotes part no words.
_WORD = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+|\S+""")
# A number and what it counts, which no line parts.
_UNIT = re.compile(r"(\d) (%|[a-zA-Z]{1,3}/?s?\b)")
_BAR_MIN, _BAR_MAX = 8, 50
_GROUPS_MAX = 12
# The number of rows without a measurement that are listed.
_ABSENT_MAX = 20
# Longer names of factors get a short one, which is explained above the table.
_LABEL_MAX = 12
_SIGNS = {"meets": "✓", "misses": "✗", "unknown": "?", "not valid": "?"}
_SAID = {"warning": ("!", "yellow"), "note": ("–", "dim")}
# The width of the names of facts, and the least of their values.
_NAME_MIN, _NAME_MAX, _VALUE_MIN = 11, 24, 20
_WARNINGS_MAX = 2
_STYLES = {"meets": "green", "misses": "red", "unknown": "yellow", "not valid": "magenta"}


def terminal(report: Report, width: int = 100) -> str:
    """The report in so many columns, without colors."""
    from rich.console import Console, Group

    console = Console(width=width, highlight=False, markup=False, emoji=False, color_system=None)
    segments = console.render(Group(*parts(report, width)))
    text = "".join(segment.text for segment in segments if not segment.control)
    return "\n".join(each.rstrip() for each in text.splitlines()) + "\n"


def parts(report: Report, width: int) -> list[RenderableType]:
    """The report, to be printed one after the other by a console that knows no markup."""
    return list(_parts(report, width))


def _parts(report: Report, width: int) -> Iterator[RenderableType]:
    from rich.text import Text

    yield Text(line(report.title), style="bold")
    if report.question:
        yield Text(line(report.question), style="dim")
    yield Text("")
    yield from _said(report.sentences, width)
    for each in report.sections:
        if each.rank in ("answer", "numbers"):
            yield Text("")
            # What all cells did follows from the answer: a title would only say that again.
            yield from answered(each, width) if each.key == "cells" else section(each, width)
    if report.rerun:
        yield Text("")
        yield Text(command(line(report.rerun), width, "again: "), style="dim")


def section(found: Section, width: int) -> Iterator[RenderableType]:
    """An answer of its own: its title, its sentences, its tables."""
    from rich.text import Text

    yield Text(line(found.title), style="bold")
    yield from answered(found, width)


def answered(found: Section, width: int) -> Iterator[RenderableType]:
    """What it says: its sentences and facts, then its tables and bars."""
    from rich.text import Text

    yield from _said(found.sentences, width)
    yield from () if found.headline else _facts(found.facts)
    shown = [each for each in found.tables if not each.folded]
    for number, each in enumerate(shown):
        if number or found.sentences or found.facts:
            yield Text("")
        if len(shown) > 1:
            yield Text(line(each.title), style="bold")
        yield from _table(each, width)
        if each.note and found.rank == "answer":
            yield Text(line(each.note), style="dim")
    for bars in found.bars:
        yield Text("")
        yield from _bars(bars, width)


def brief(found: Section, width: int) -> Iterator[RenderableType]:
    """A section in one screen: its headline, facts, warnings and what to do next."""
    from rich.padding import Padding
    from rich.text import Text

    yield from () if found.headline is None else _first(found.headline, width)
    if found.note:
        yield from (Text(f"  {each}") for each in _wrapped(line(found.note), width - 2))
    yield from _rows(found.facts, width)
    yield from _warned(found.sentences, width)
    for shown in found.tables:
        if shown.brief:
            yield from (
                Padding(part, (0, 0, 0, 2)) for part in _table(shown, width - 2, inline=True)
            )
    if found.aside:
        ran = f"run {found.trials[0][-8:]}   {found.aside}"
        yield from (Text(f"  {each}") for each in _wrapped(ran, width - 2))
    if found.next:
        yield from _rows(tuple(("next", each) for each in found.next), width)


def _first(top: Headline, width: int) -> Iterator[RenderableType]:
    from rich.text import Text

    style = f"bold {_STYLES.get(top.mark, '')}".strip()
    sign = f"{_SIGNS[top.mark]} " if top.mark else ""
    word = f"{sign}{top.word}  " if top.word else ""
    for each in _wrapped(word + line(top.text), width, indent=2):
        yield Text(each, style=style)


def _warned(said: Iterable[Sentence], width: int) -> Iterator[RenderableType]:
    """The first warnings, how many more there are, and footnotes."""
    from rich.text import Text

    said = list(said)
    warnings = [each for each in said if each.weight == "warning"]
    more = len(warnings) - _WARNINGS_MAX
    kept = warnings[:_WARNINGS_MAX]
    if more > 0:
        kept.append(Sentence(f"{more} more warning{'s' * (more > 1)}: --verbose", "warning"))
    for sentence in (*kept, *(each for each in said if each.weight == "note")):
        sign, style = _SAID[sentence.weight]
        for number, each in enumerate(_wrapped(line(sentence.text), width - 4)):
            yield Text(f"  {' ' if number else sign} {each}", style=style)


def whole(found: Section, width: int) -> Iterator[RenderableType]:
    """The same, and every table and fact behind it."""
    from rich.text import Text

    plain = tuple(replace(each, brief=False) for each in found.tables)
    noted = tuple(each for each in found.sentences if each.weight == "note")
    kept = found.sentences if found.headline is None or found.parts else noted
    yield from brief(replace(found, aside="", tables=plain, sentences=kept), width)
    if kept is noted:
        yield from _said((each for each in found.sentences if each.weight != "note"), width)
    for each in plain:
        yield Text("")
        yield from _table(each, width)
        if each.note:
            yield Text(line(each.note), style="dim")
    for part in found.parts:
        yield Text("")
        yield from _rows(part.facts, width)


def _rows(facts: Facts, width: int) -> Iterator[RenderableType]:
    """Names and values in two columns; a name that is that of the row above is left out."""
    from rich.text import Text

    names = [line(name) for name, _ in facts]
    left = max([_NAME_MIN, *(len(name) for name in names if len(name) <= _NAME_MAX)]) + 2
    last = ""
    for name, (_, value) in zip(names, facts, strict=True):
        long = len(name) > _NAME_MAX
        if long:
            yield Text(f"  {name}")
        shown = "" if long or name == last else name
        room = max(_VALUE_MIN, width - left - 2)
        # A command is copied: in lines that a shell takes as one.
        copied = value.startswith("pgpaces ")
        lines = command(line(value), room).splitlines() if copied else _wrapped(line(value), room)
        for number, each in enumerate(lines or [""]):
            yield Text(f"  {(shown if not number else ''):<{left}}{each}")
        last = name


def _wrapped(text: str, width: int, indent: int = 0) -> list[str]:
    """Lines that break between words, and never between a number and its unit."""
    from textwrap import wrap

    if len(text) <= width:
        return [text]
    glued = _UNIT.sub("\\1\0\\2", text)
    made = wrap(glued, width, subsequent_indent=" " * indent, break_on_hyphens=False)
    return [each.replace("\0", " ") for each in made]


def command(text: str, width: int, begin: str = "") -> str:
    """A command in lines that a shell takes as one, whatever is copied of a narrow terminal."""
    lines = [begin]
    for word in _WORD.findall(text):
        # The space and the backslash that another line takes.
        if lines[-1].strip() and len(lines[-1]) + len(word) + 2 > width:
            lines[-1] += "\\"
            lines.append("  ")
        lines[-1] += f"{word} "
    return "\n".join(lines).rstrip()


def _said(said: Iterable[Sentence], width: int) -> Iterator[RenderableType]:
    """Sentences: the answer stands out, and warnings. One may be a command to type."""
    from rich.text import Text

    styles = {"main": "bold", "warning": "yellow", "plain": "", "note": "dim"}
    for sentence in said:
        warning = "warning: " if sentence.weight == "warning" else ""
        text = f"{warning}{line(sentence.text)}"
        text = command(text, width) if text.startswith("pgpaces ") else text
        yield Text(text, style=styles[sentence.weight])


def _facts(facts: Facts) -> Iterator[RenderableType]:
    from rich.text import Text

    for name, value in facts:
        yield Text(f" {line(name)}: {line(value)}")


# --- tables ---------------------------------------------------------------------------------------


def _table(found: Table, width: int, *, inline: bool = False) -> Iterator[RenderableType]:
    """A table, names that are too long for their column explained above it.

    inline: intervals stand behind their values, so that a row is a line.
    """
    from rich.text import Text

    short = _short(found.columns[: found.labels])
    for name, whole in short.items():
        if name != line(whole):
            yield Text(f"{name}: {line(whole)}", style="dim")
    names = (*short, *(line(name) for name in found.columns[found.labels :]))
    left = set(found.absent[_ABSENT_MAX:])
    if inline:
        rows = tuple(tuple(_inline(cell) for cell in row) for row in found.rows)
        found = replace(found, rows=rows)
    yield _grid(found, names, width, left)
    if left:
        yield Text(f"and {len(left)} more cells that were not run", style="dim")


def _inline(cell: TableCell) -> TableCell:
    """A cell with its interval behind its value, where that is known."""
    ends = "" if cell.ends == NOT_KNOWN else cell.ends
    return replace(cell, text=f"{cell.text} ({ends})" if ends else cell.text, ends="")


def _short(names: Sequence[str]) -> dict[str, str]:
    """Short names for columns: the initials of long ones, no two the same."""
    found: dict[str, str] = {}
    for name in names:
        whole = line(name)
        made = whole
        if len(whole) > _LABEL_MAX:
            made = "".join(part[:1] for part in re.split(r"[\W_]+", whole) if part)[:_LABEL_MAX]
        while len(made) < 2 < len(whole) or made in found:
            made = f"{whole[: _LABEL_MAX - 3]}{len(found) + 1}"
            whole = f"{whole} "
        found[made] = name
    return found


def _grid(found: Table, names: Sequence[str], width: int, left: set[int]) -> RenderableType:
    """A table with as many columns as fit. left: the indexes of rows that are left out."""
    from rich.text import Text

    def needed(at: int) -> int:
        cells = (max(len(r[at].text), len(r[at].ends)) for r in found.rows)
        return max(len(names[at]), *cells, 0) + 2

    kept = list(range(len(names)))
    for name in found.spare:
        if sum(needed(at) for at in kept) > width and name in names:
            kept.remove(names.index(name))
    made = table(names[0], [names[at] for at in kept[1:]])
    for at, column in enumerate(made.columns):
        column.overflow = "fold"
        column.no_wrap = kept[at] >= found.labels
        column.justify = "left" if kept[at] < found.labels else "right"
    for number, row in enumerate(found.rows):
        if number not in left:
            made.add_row(
                *(
                    Text.assemble(
                        (line(row[at].text), _STYLES.get(row[at].mark, "")),
                        *([("\n" + row[at].ends, "dim")] if row[at].ends else []),
                    )
                    for at in kept
                )
            )
    return made


# --- bars -----------------------------------------------------------------------------------------


def _bars(found: Bars, width: int) -> Iterator[RenderableType]:
    """A chart of blocks, a group for each line of cells."""
    from rich.bar import Bar
    from rich.table import Table as Grid
    from rich.text import Text

    yield Text(line(found.title), style="bold")
    for name, bars in found.groups[:_GROUPS_MAX]:
        if name:
            yield Text(f" {line(name)}", style="dim")
        left = min(max(len(line(bar.name)) for bar in bars), width // 3)
        size = max(_BAR_MIN, min(_BAR_MAX, width - left - 34))
        made = Grid.grid(padding=(0, 1))
        made.add_column(width=left + 1, justify="right", no_wrap=True, overflow="ellipsis")
        made.add_column(width=size)
        made.add_column()
        for bar in bars:
            drawn = Bar(1.0, 0, bar.share, width=size, color=_STYLES.get(bar.mark, "blue"))
            made.add_row(Text(line(bar.name)), drawn, Text(bar.text))
        yield made
    if len(found.groups) > _GROUPS_MAX:
        yield Text(f" {len(found.groups) - _GROUPS_MAX} more lines are in the table")
