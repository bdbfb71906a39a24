"""The report as Markdown: the same words and tables, for a wiki, an issue, a README.

Untrusted text is escaped: it yields no markup, no HTML, no link.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from pgpaces.show.escape import line
from pgpaces.show.section import Facts, Mark, Report, Section, Table, TableCell

_MARKS = re.compile(r"([\\`*\[\]|~#])|(?<![^\W_])_|_(?![^\W_])")
# Texts that Markdown renderers turn into links.
_LINKS = re.compile(r"(?i)(https?|ftp):|(www)\.")
# The level of headings in a section.
_TOP = 3
_SIGNS: dict[Mark, str] = {"": "", "pass": "✅", "fail": "❌", "unknown": "❔", "invalid": "❔"}
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;"}


def text(value: str) -> str:
    plain = _MARKS.sub(lambda match: f"\\{match[0]}", line(value))
    plain = re.sub(r"[&<>@]", lambda match: _ENTITIES[match[0]], plain)
    return _LINKS.sub(lambda match: f"{match[0][:-1]}&#{ord(match[0][-1])};", plain)


def paragraph(value: str) -> str:
    """A text that begins a line, where some characters would begin a list or a heading."""
    plain = re.sub(r"^\s*([-+=])", r"\\\1", text(value))
    return re.sub(r"^\s*(\d+)([.)])(?=\s|$)", r"\1\\\2", plain)


def code(value: str) -> str:
    """A text as code, fenced by more backticks than it has in a row."""
    shown = line(value)
    longest = max((len(run) for run in re.findall(r"`+", shown)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {shown} {fence}" if shown.strip() else text(shown)


def markdown(report: Report) -> str:
    return "\n".join(_parts(report)).rstrip() + "\n"


def summary(section: Section) -> str:
    top = section.headline
    title = section.title if top is None else f"{_SIGNS[top.mark]} {top.word}: {top.text}"
    # Facts without a name are drawn with blocks.
    facts = tuple(each for each in section.facts if each[0])
    parts = [f"## {text(title.strip())}\n", *_answer(section), *_pairs(facts)]
    for table in section.tables:
        parts += [
            f"<details><summary>{text(table.title)}</summary>\n",
            *_table(table),
            "</details>\n",
        ]
    return "\n".join(parts).rstrip() + "\n\n"


def _parts(report: Report) -> Iterator[str]:
    yield f"# {text(report.title)}\n"
    if report.question:
        yield f"{paragraph(report.question)}\n"
    yield "## The answer\n"
    yield from _answer(report.top)
    # Facts without a name are drawn with blocks.
    facts = (*report.headline, *report.top.facts)
    yield from (f"- {text(name)}: {paragraph(value)}" for name, value in facts if name)
    yield ""
    for section in report.sections:
        if section.rank != "page":
            yield f"## {text(section.title)}\n"
            if section.headline and section.key != report.top.key:
                yield from _answer(section)
            yield from _section(section, _TOP)
    yield f"Made by pgpaces {text(report.version)}."


def _section(section: Section, level: int) -> Iterator[str]:
    yield from () if section.headline else _pairs(section.facts)
    yield from (f"{paragraph(section.note)}\n",) if section.note else ()
    yield from (f"{code(block.text)}\n" for block in section.blocks if not block.title)
    tables = [table for table in section.tables if level == _TOP or not table.folded]
    for table in tables:
        if len(tables) > 1:
            yield f"{'#' * level} {text(table.title)}\n"
        yield from _table(table)
    for part in section.parts:
        yield f"{'#' * level} {text(part.title)}\n"
        yield from _section(part, level + 1)


def _answer(section: Section) -> Iterator[str]:
    yield f"- **{paragraph(section.conclusion)}**"
    notes = [each for each in section.findings if each.severity == "nothing"]
    for each in section.findings:
        yield from () if each in notes else (f"- Warning: {paragraph(str(each))}",)
    yield ""
    yield from (f"{paragraph(str(each))}\n" for each in notes)


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


def _pairs(pairs: Facts) -> Iterator[str]:
    for name, value in pairs:
        yield f"- {text(name)}: {code(value)}" if name else f"- {paragraph(value)}"
    yield from ("",) if pairs else ()
