"""The report as text for a terminal: the words, small charts of blocks, the table of cells."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pgpaces.answers import crossing
from pgpaces.answers.cells import Row
from pgpaces.answers.crossing import Line
from pgpaces.report import tables, words
from pgpaces.report.charts import Measure, measures
from pgpaces.report.escape import line
from pgpaces.report.page import Page
from pgpaces.report.section import Section, Table
from pgpaces.report.text import interval, table
from pgpaces.report.words import Sentence

if TYPE_CHECKING:
    from rich.console import RenderableType

# Columns that go first where a terminal is narrow.
_SPARE = (
    "to mind",
    "p",
    "B is",
    "limit",
    "input MB/s",
    "WAL MB/s",
    "WAL B a row",
    "WAL B a byte of input",
    "median s",
    "stddev ms",
    "skipped %",
    "unfinished %",
    "failed %",
    "late %",
    "trials",
    "TPS",
    "latency ms",
    "p95 ms",
    "p99 ms",
    "a year",
    "users",
    "written a day",
)
# A word of a command; blanks within quotes part no words.
_WORD = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+|\S+""")
_CHARTS = ("missed", "p95", "rate", "rows_s", "seconds")
_BAR_MIN, _BAR_MAX = 8, 50
_LINES_MAX = 12
# So many cells that were not run are listed.
_NOT_RUN_MAX = 20
# Longer names of factors get a short one, which is explained above the table.
_LABEL_MAX = 12
_STYLES = {"held": "green", "did not hold": "red", "not known": "yellow", "not valid": "magenta"}


def terminal(page: Page, width: int = 100) -> str:
    """The report in so many columns, without colours."""
    from rich.console import Console, Group

    console = Console(width=width, highlight=False, markup=False, emoji=False, color_system=None)
    segments = console.render(Group(*parts(page, width)))
    text = "".join(segment.text for segment in segments if not segment.control)
    return "\n".join(each.rstrip() for each in text.splitlines()) + "\n"


def parts(page: Page, width: int) -> list[RenderableType]:
    """The report, to be printed one after the other by a console that knows no markup."""
    return list(_parts(page, width))


def _parts(page: Page, width: int) -> Iterator[RenderableType]:
    from rich.text import Text

    yield Text(line(page.title), style="bold")
    if page.question:
        yield Text(line(page.question), style="dim")
    yield Text("")
    yield from _said(page.answer, width)
    yield Text("")
    for each in page.sections:
        yield from section(each, width)
        yield Text("")
    if not page.searched:
        yield from _of_cells(page, width)
    yield from _failures(page)
    if page.about.rerun:
        yield Text("")
        yield Text(command(line(page.about.rerun), width, "again: "), style="dim")


def _of_cells(page: Page, width: int) -> Iterator[RenderableType]:
    """The tables of cells and the bars."""
    from rich.text import Text

    shown = _shortened(page)
    yield from _tables(shown, width, left=len(page.rows) - len(shown.rows))
    if len(page.rows) > 1 and any(row.trials for row in page.rows):
        for measure in measures(page):
            if measure.key in _CHARTS:
                yield Text("")
                yield from _chart(shown, measure, width)


def _failures(page: Page) -> Iterator[RenderableType]:
    from rich.text import Text

    if page.failures:
        yield Text("")
        yield Text("trials that never began", style="bold")
        for where, why in tables.failures(page):
            yield Text(f" {line(where)}: {line(why)}")


def section(found: Section, width: int) -> Iterator[RenderableType]:
    """An answer of its own: its title, its sentences, its tables."""
    from rich.text import Text

    yield Text(line(found.title), style="bold")
    yield from answered(found, width)


def answered(found: Section, width: int) -> Iterator[RenderableType]:
    """What it says: its sentences, then its tables."""
    from rich.text import Text

    yield from _said(found.said, width)
    shown = [each for each in found.tables if not each.folded]
    for each in shown:
        yield Text("")
        if len(shown) > 1:
            yield Text(line(each.title), style="bold")
        yield _cells(each, [line(name) for name in each.columns], width)
        if each.note:
            yield Text(line(each.note), style="dim")


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
    """Sentences: the answer stands out, and what to mind. One may be a command to type."""
    from rich.text import Text

    styles = {"main": "bold", "warning": "yellow", "plain": ""}
    for sentence in said:
        mind = "mind: " if sentence.weight == "warning" else ""
        text = f"{mind}{line(sentence.text)}"
        text = command(text, width) if text.startswith("pgpaces ") else text
        yield Text(text, style=styles[sentence.weight])


def _tables(page: Page, width: int, left: int) -> Iterator[RenderableType]:
    """All cells but those that are left out, and what machines cost."""
    from rich.text import Text

    cells = tables.cells(page)
    short = _short(cells.columns[: cells.labels])
    for name, whole in short.items():
        if name != line(whole):
            yield Text(f"{name}: {line(whole)}", style="dim")
    # Without a limit the answer is the cell that did most: its TPS is the last to go.
    spare = _SPARE if page.limits else (*(name for name in _SPARE if name != "TPS"), "TPS")
    yield _cells(cells, (*short, *cells.columns[cells.labels :]), width, spare)
    if left:
        yield Text(f"and {left} more cells that were not run", style="dim")
    yield from _others(page, {whole.strip(): name for name, whole in short.items()}, width)
    if len(page.costs) > 1:
        yield Text("")
        costs = tables.costs(page)
        yield _cells(costs, costs.columns, width)


def _shortened(page: Page) -> Page:
    """With the first cells alone of those that were not run."""
    absent = [row for row in page.rows if not row.trials]
    left = {row.cell.key for row in absent[_NOT_RUN_MAX:]}
    if not left:
        return page
    lines = (
        replace(each, rows=tuple(row for row in each.rows if row.cell.key not in left))
        for each in page.lines
    )
    return replace(
        page,
        rows=tuple(row for row in page.rows if row.cell.key not in left),
        lines=tuple(each for each in lines if each.rows),
    )


def _others(page: Page, short: Mapping[str, str], width: int) -> Iterator[RenderableType]:
    """The tables beside that of cells, if there is something in them. short: of columns."""
    from rich.text import Text

    for other in (tables.ratios(page), tables.beside(page)):
        if other.rows:
            yield Text("")
            yield Text(other.title.lower(), style="bold")
            yield _cells(other, [short.get(name, name) for name in other.columns], width)


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


def _cells(
    cells: Table, names: Sequence[str], width: int, spare: Sequence[str] = _SPARE
) -> RenderableType:
    """The table of cells, with as many columns as fit. spare: those that go, in this order."""
    from rich.text import Text

    def needed(at: int) -> int:
        return max(len(names[at]), *(max(len(r[at].text), len(r[at].ends)) for r in cells.rows)) + 2

    kept = list(range(len(names)))
    for name in spare:
        if sum(needed(at) for at in kept) > width and name in names:
            kept.remove(names.index(name))
    made = table(names[0], [names[at] for at in kept[1:]])
    for at, column in enumerate(made.columns):
        column.overflow = "fold"
        column.no_wrap = kept[at] >= cells.labels
        column.justify = "left" if kept[at] < cells.labels else "right"
    for row in cells.rows:
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


def _chart(page: Page, measure: Measure, width: int) -> Iterator[RenderableType]:
    """Bars of a number, a group for each line."""
    from rich.text import Text

    values = [_value(row, measure) for each in page.lines for row in each.rows]
    finite = [value for value in values if value is not None and value != float("inf")]
    top = max(finite, default=0.0)
    yield Text(line(measure.axis), style="bold")
    for each in page.lines[:_LINES_MAX]:
        if each.levels:
            yield Text(f" {line(words.line_name(each))}", style="dim")
        yield _bars(page, each, measure, (top, width))
    if len(page.lines) > _LINES_MAX:
        yield Text(f" {len(page.lines) - _LINES_MAX} more lines are in the table")


def _value(row: Row, measure: Measure) -> float | None:
    estimate = row.estimate(measure.key)
    return None if estimate is None else estimate.value


def _bars(page: Page, group: Line, measure: Measure, room: tuple[float, int]) -> RenderableType:
    from rich.bar import Bar
    from rich.table import Table
    from rich.text import Text

    top, width = room
    names = _names(page, group, width // 3)
    left = min(max(map(len, names)), width // 3)
    size = max(_BAR_MIN, min(_BAR_MAX, width - left - 34))
    made = Table.grid(padding=(0, 1))
    made.add_column(width=left + 1, justify="right", no_wrap=True, overflow="ellipsis")
    made.add_column(width=size)
    made.add_column()
    for name, row in zip(names, group.rows, strict=True):
        value = _value(row, measure)
        length = 0.0 if value is None or not top else min(value, top) / top
        colour = _STYLES[crossing.verdict(row, page.missed_max)] if page.limits else "blue"
        bar = Bar(1.0, 0, length, width=size, color=colour)
        made.add_row(Text(name), bar, Text(_number(row, measure)))
    return made


def _names(page: Page, group: Line, room: int) -> list[str]:
    """What stands beside the bars: levels alone where there is no room for what they are of."""
    if page.main is not None:
        return [line(crossing.level_of(row, page.main.name)) for row in group.rows]
    names = [line(words.cell_name(row)) for row in group.rows]
    if max(map(len, names)) <= room:
        return names
    return [line(", ".join(level for _, level in row.cell.levels)) for row in group.rows]


def _number(row: Row, measure: Measure) -> str:
    estimate = row.estimate(measure.key)
    if estimate is None:
        return "not run"
    ends = interval(estimate, measure.form) if estimate.estimable else ""
    value = "above" if estimate.value == float("inf") else measure.form(estimate.value)
    marked = "" if row.sound else ", not valid"
    return f"{value}{f' ({ends})' if ends else ''}{marked}"
