"""Sections as text for a terminal: sentences, tables, small charts of blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from textwrap import wrap

from msgspec.structs import replace
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from pgpaces.show.escape import line
from pgpaces.show.number_text import NOT_KNOWN
from pgpaces.show.section import Facts, Report, Section, Table, TableCell

# A word of a command; spaces within quotes do not separate words.
_WORD = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+|\S+""")
# A number and its unit, which stay on one line.
_UNIT = re.compile(r"(\d) (%|[a-zA-Z]{1,3}/?s?\b)")
# The number of rows without a measurement that are listed.
_ABSENT_MAX = 20
# Longer names of factors are abbreviated, with a key above the table.
_LABEL_MAX = 12
_SIGNS = {"pass": "✓", "fail": "✗", "unknown": "?", "invalid": "?"}
# The least and largest width of names of facts, and the least width of their values.
_NAME_MIN, _NAME_MAX, _VALUE_MIN = 11, 24, 20
_WARNINGS_MAX = 1
# The column at which the note of a first line ends, and that at which a question may begin.
_NOTE_ENDS, _QUESTION_AT = 80, 34
_STYLES = {"pass": "green", "fail": "red", "unknown": "yellow", "invalid": "magenta"}


def terminal(report: Report, width: int = 100) -> str:
    console = Console(width=width, highlight=False, markup=False, emoji=False, color_system=None)
    segments = console.render(Group(*parts(report, width)))
    text = "".join(segment.text for segment in segments if not segment.control)
    return "\n".join(each.rstrip() for each in text.splitlines()) + "\n"


def parts(report: Report, width: int) -> Iterator[RenderableType]:
    yield Text(line(report.title), style="bold")
    if report.question:
        yield Text(line(report.question), style="dim")
    yield Text("")
    yield from brief(_without(report.top), width, None)
    for each in report.sections:
        if each.rank in ("answer", "numbers"):
            yield Text("")
            if each.key != "cells":  # they follow the answer without a title
                yield Text(line(each.title), style="bold")
            if each.headline is None:
                yield from _rows(each.facts, width)
            elif each.key != report.top.key:
                yield from brief(_without(each), width, None)
                yield Text("")
            yield from _tables([table for table in each.tables if not table.folded], width)
    if report.rerun:
        yield Text("")
        yield _unbroken(command(line(report.rerun), width, "again: "), "dim")


def _without(answer: Section) -> Section:
    """The answer without tables and without commands."""
    return replace(answer, aside=(), next=(), tables=())


def _tables(shown: Sequence[Table], width: int) -> Iterator[RenderableType]:
    for number, each in enumerate(shown):
        yield from ("",) if number else ()
        if len(shown) > 1 and each.title:
            yield Text(line(each.title), style="bold")
        yield from _table(each, width)
        if each.note:
            yield Text(line(each.note), style="dim")


def brief(
    answer: Section, width: int, warnings: int | None = _WARNINGS_MAX
) -> Iterator[RenderableType]:
    """A section in one screen: its first line, values, findings, and what to do next.

    warnings: how many findings are shown. None: all.
    """
    yield from _top(answer, width)
    tables = [each for each in answer.tables if each.brief]
    if answer.facts or tables:
        yield Text("")
    yield from _rows(answer.facts[: answer.facts_first], width)
    for shown in tables:
        yield from (
            Padding(part, (0, 0, 0, 2), expand=False)
            for part in _table(shown, width - 2, inline=True)
        )
    if answer.facts_first is not None:
        yield from _rows(answer.facts[answer.facts_first :], width)
    for block in answer.blocks:
        yield from (_unbroken(f"    {line(each)}") for each in block.text.splitlines())
    for found in answer.findings[:warnings]:
        sign, style = ("–", "dim") if found.severity == "nothing" else ("!", "yellow")
        for number, each in enumerate(_wrapped(line(str(found)), width - 4)):
            yield Text(f"  {' ' if number else sign} {each}", style=style)
    if answer.aside:
        yield Text("")
        yield from (_unbroken(f"  {each}") for each in answer.aside)
    for number, step in enumerate(answer.next):
        lines = command(step.command, width, "  next: ").splitlines()
        if step.text and not number and len(lines) == 1:
            asked = f"{lines[0]:<{_QUESTION_AT}}    {step.text}"
            lines = [asked] if len(asked) <= width else lines
        yield from map(_unbroken, lines)


def _top(answer: Section, width: int) -> Iterator[RenderableType]:
    """The verdict and the number it rests on, with the note at the end of the line if it fits."""
    note, top = line(answer.note), answer.headline
    if top is not None:
        style = f"bold {_STYLES.get(top.mark, '')}".strip()
        sign = f"{_SIGNS[top.mark]} " if top.mark else ""
        word = f"{sign}{top.word}  " if top.word else ""
        first, *rest = _wrapped(word + line(top.text), width, indent=2)
        room = min(width, _NOTE_ENDS) - len(first) - len(note)
        if note and not rest and room > 2:
            yield Text.assemble((first, style), " " * room, note)
            return
        yield from (Text(each, style=style) for each in (first, *rest))
    if note:
        yield from (Text(f"  {each}") for each in _wrapped(note, width - 2))


def whole(answer: Section, width: int) -> Iterator[RenderableType]:
    yield from brief(replace(answer, aside=(), tables=()), width, None)
    yield from ("",) if answer.tables else ()
    yield from _tables(answer.tables, width)
    for part in answer.parts:
        yield Text("")
        yield from _rows(part.facts, width)


def _rows(facts: Facts, width: int) -> Iterator[RenderableType]:
    """Names and values in two columns, without names that repeat that of the row above."""
    names = [line(name) for name, _ in facts]
    left = max([_NAME_MIN, *(len(name) for name in names if len(name) <= _NAME_MAX)]) + 2
    last = ""
    for name, (_, value) in zip(names, facts, strict=True):
        long = len(name) > _NAME_MAX
        if long:
            yield Text(f"  {name}")
        shown = "" if long or name == last else name
        room = max(_VALUE_MIN, width - left - 2)
        # A command is wrapped so that a shell reads it as one.
        text, is_command = line(value), value.startswith("pgpaces ")
        lines = command(text, room).splitlines() if is_command else _wrapped(text, room)
        for number, each in enumerate(lines or [""]):
            begun = f"  {(shown if not number else ''):<{left}}{each}"
            yield _unbroken(begun) if is_command else Text(begun)
        last = name


def _wrapped(text: str, width: int, indent: int = 0) -> list[str]:
    """Lines that break between words, but not between a number and its unit."""
    glued = _UNIT.sub("\\1\0\\2", text)
    lines = [glued]
    if len(text) > width:
        lines = wrap(glued, width, subsequent_indent=" " * indent, break_on_hyphens=False)
    return [each.replace("\0", " ") for each in lines]


def command(text: str, width: int, begin: str = "") -> str:
    """A command in lines that a shell reads as one when copied from a narrow terminal."""
    lines = [begin]
    for word in _WORD.findall(text):
        # 2 is for the space and the backslash at the end of a line.
        if lines[-1].strip() and len(lines[-1]) + len(word) + 2 > width:
            lines[-1] += "\\"
            lines.append("  ")
        lines[-1] += f"{word} "
    return "\n".join(lines).rstrip()


def _unbroken(text: str, style: str = "") -> Text:
    """Lines of a command: a word that is too long runs over the width, if not cropped."""
    return Text(text, style=style, no_wrap=True, overflow="ignore")


def _table(content: Table, width: int, *, inline: bool = False) -> Iterator[RenderableType]:
    """A table, with a key of abbreviated names above it.

    inline: intervals follow their values, so that a row is a line.
    """
    short = _short(content.columns[: content.labels])
    for name, whole in short.items():
        if name != line(whole):
            yield Text(f"{name}: {line(whole)}", style="dim")
    names = (*short, *(line(name) for name in content.columns[content.labels :]))
    left = set(content.absent[_ABSENT_MAX:])
    rows = tuple(row for at, row in enumerate(content.rows) if at not in left)
    if inline:
        rows = tuple(tuple(map(_inline, row)) for row in rows)
    content = replace(content, rows=rows)
    columns = _fitting(content, names, width)
    yield from (_lines if inline else _grid)(content, names, columns)
    if left:
        yield Text(f"and {len(left)} more cells that were not run", style="dim")


def _short(names: Sequence[str]) -> dict[str, str]:
    """Unique short names of columns: the initials of long ones."""
    short: dict[str, str] = {}
    for name in names:
        whole = line(name)
        label = whole
        if len(whole) > _LABEL_MAX:
            label = "".join(part[:1] for part in re.split(r"[\W_]+", whole) if part)[:_LABEL_MAX]
        while len(label) < 2 < len(whole) or label in short:
            label = f"{whole[: _LABEL_MAX - 3]}{len(short) + 1}"
            whole = f"{whole} "
        short[label] = name
    return short


def _fitting(content: Table, names: Sequence[str], width: int) -> list[int]:
    def needed(at: int) -> int:
        cells = (max(len(r[at].text), len(r[at].ends)) for r in content.rows)
        return max(len(names[at]), *cells, 0) + 2

    columns = list(range(len(names)))
    for name in content.spare:
        if sum(map(needed, columns)) > width and name in names:
            columns.remove(names.index(name))
    return columns


def _inline(cell: TableCell) -> TableCell:
    ends = f" ({cell.ends})" if cell.ends not in ("", NOT_KNOWN) else ""
    sign = f"{_SIGNS[cell.mark]} " if cell.mark else ""
    return replace(cell, text=f"{sign}{cell.text}{ends}", ends="")


def _lines(content: Table, names: Sequence[str], columns: Sequence[int]) -> Iterator[Text]:
    for cells in (tuple(map(TableCell, names)), *content.rows):
        text = Text()
        for at in columns:
            size = max(len(line(names[at])), *(len(line(row[at].text)) for row in content.rows), 0)
            texts = at < content.labels or any(row[at].mark for row in content.rows)
            shown = line(cells[at].text)
            padded = f"{shown:<{size}}" if texts else f"{shown:>{size}}"
            last = at == columns[-1]
            text.append(padded.rstrip() if last else padded, _STYLES.get(cells[at].mark, ""))
            text.append("" if last else "  ")
        yield text


def _grid(content: Table, names: Sequence[str], columns: Sequence[int]) -> Iterator[Grid]:
    made = grid(names[0], [names[at] for at in columns[1:]])
    for at, column in zip(columns, made.columns, strict=True):
        column.overflow = "fold"
        column.no_wrap = at >= content.labels
        column.justify = "left" if at < content.labels else "right"
    for row in content.rows:
        made.add_row(
            *(
                Text.assemble(
                    (line(row[at].text), _STYLES.get(row[at].mark, "")),
                    *([("\n" + row[at].ends, "dim")] if row[at].ends else []),
                )
                for at in columns
            )
        )
    yield made


def grid(title: str, names: Sequence[str]) -> Grid:
    """An empty table: the title of its first column, and those of numbers."""
    made = Grid(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    made.add_column(title)
    for name in names:
        made.add_column(name, justify="right", no_wrap=True)
    return made


def cell(text: str) -> Text:
    """A text that is truncated if the terminal is too narrow."""
    return Text(line(text), no_wrap=True, overflow="ellipsis")
