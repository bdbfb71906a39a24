"""The report as Markdown: the same words and tables, for a wiki, an issue, a README.

What others wrote is escaped so that it shows as it is: no markup, no HTML, no link.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from pgpaces.report import tables
from pgpaces.report.escape import line
from pgpaces.report.page import Page
from pgpaces.report.section import Section, Table, TableCell
from pgpaces.report.words import Sentence

_MARKS = re.compile(r"([\\`*\[\]|~#])|(?<![^\W_])_|_(?![^\W_])")
# What readers of Markdown make a link of by themselves.
_LINKS = re.compile(r"(?i)(https?|ftp):|(www)\.")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;"}


def text(value: str) -> str:
    """A text of others in a line of Markdown."""
    plain = re.sub(r"[&<>@]", lambda found: _ENTITIES[found[0]], line(value))
    plain = _MARKS.sub(lambda found: f"\\{found[0]}", plain)
    return _LINKS.sub(lambda found: f"{found[0][:-1]}&#{ord(found[0][-1])};", plain)


def paragraph(value: str) -> str:
    """A text that begins a line, where some characters would begin a list or a heading."""
    plain = re.sub(r"^\s*([-+=])", r"\\\1", text(value))
    return re.sub(r"^\s*(\d+)([.)])(?=\s|$)", r"\1\\\2", plain)


def code(value: str) -> str:
    """A text as code: in more backticks than it has in a row."""
    shown = line(value)
    longest = max((len(run) for run in re.findall(r"`+", shown)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {shown} {fence}" if shown.strip() else text(shown)


def markdown(page: Page) -> str:
    """The report."""
    return "\n".join(_parts(page)).rstrip() + "\n"


def _parts(page: Page) -> Iterator[str]:
    yield f"# {text(page.title)}\n"
    if page.question:
        yield f"{paragraph(page.question)}\n"
    yield "## The answer\n"
    yield from _answer(page.answer)
    for section in page.sections:
        yield from _section(section)
    if not page.searched:
        yield from _of_cells(page)
    if page.failures:
        yield "## Trials that never began\n"
        yield from _pairs(tables.failures(page))
    if page.differences:
        yield "## What else differed\n"
        yield from _table(tables.differences(page))
    if not page.searched:
        yield "## Trials\n"
        yield from _table(tables.trials(page, page.rows))
    yield from _where(page)
    yield f"Made by pgpaces {text(page.about.version)}."


def _of_cells(page: Page) -> Iterator[str]:
    """All cells, and what is told of each."""
    yield "## All cells\n"
    yield from _table(tables.cells(page))
    yield from _beside_cells(page)
    if page.plans:
        yield "## How statements were executed\n"
        for plan in page.plans:
            yield f"{code(plan.text)}\n"
            yield from _table(tables.plans(page, plan)[0])


def _beside_cells(page: Page) -> Iterator[str]:
    """The tables that say more of the cells."""
    if (ratios := tables.ratios(page)).rows:
        yield f"## {ratios.title}\n"
        yield from _table(ratios)
    if page.beside:
        yield "## At the same time\n"
        yield from _table(tables.beside(page))
    if page.costs:
        yield "## What it costs\n"
        yield from _table(tables.costs(page))
    if page.statements:
        yield "## What each statement took\n"
        yield from _table(tables.statements(page))


def _section(section: Section) -> Iterator[str]:
    yield f"## {text(section.title)}\n"
    yield from _answer(section.said)
    for table in section.tables:
        if len(section.tables) > 1:
            yield f"### {text(table.title)}\n"
        yield from _table(table)


def _answer(said: Iterable[Sentence]) -> Iterator[str]:
    said = list(said)
    for weight, mark in (("main", "**"), ("warning", "")):
        for sentence in said:
            if sentence.weight == weight:
                mind = "Mind: " if weight == "warning" else ""
                yield f"- {mind}{mark}{paragraph(sentence.text)}{mark}"
    yield ""
    yield from (f"{paragraph(each.text)}\n" for each in said if each.weight == "plain")


def _where(page: Page) -> Iterator[str]:
    yield "## What was run, and where\n"
    yield from _pairs(page.asked)
    for place in page.places:
        yield f"### {text(place.name)}\n"
        yield from _pairs((*place.server, *place.generator))
        yield "Settings that are not at their default:\n"
        yield from _pairs(place.settings)
    if page.about.rerun:
        yield f"## Run it again\n\n{code(page.about.rerun)}\n"


def _table(table: Table) -> Iterator[str]:
    yield _row(text(name) for name in table.columns)
    yield _row("---" if n < table.labels else "--:" for n in range(len(table.columns)))
    yield from (_row(_cell(cell) for cell in row) for row in table.rows)
    yield ""
    if table.note:
        yield f"{text(table.note)}\n"


def _cell(cell: TableCell) -> str:
    ends = f" ({text(cell.ends)})" if cell.ends else ""
    return f"{text(cell.text)}{ends}"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _pairs(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    yield from (f"- {text(name)}: {code(value)}" for name, value in pairs)
    yield ""
