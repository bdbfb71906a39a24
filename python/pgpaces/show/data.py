"""The report for programs: the whole as JSON; its rows as CSV and Parquet."""

from __future__ import annotations

import csv as csv_format
import io
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from pgpaces.core.errors import extra
from pgpaces.show import escape
from pgpaces.show.section import Records, Report, Section
from pgpaces.spec.result import plain

if TYPE_CHECKING:
    from arro3.core import Table


def csv(records: Records) -> str:
    out = io.StringIO()
    if records.rows:
        names = [str(escape.csv_cell(name)) for name in records.rows[0]]
        writer = csv_format.writer(out, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([escape.csv_cell(each) for each in row.values()] for row in records.rows)
    return out.getvalue()


def arrow(records: Records) -> Table:
    """The rows as an Arrow table of text, integer, boolean and floating point columns.

    Raises RunError if arro3-core is not installed.
    """
    with extra("frames", "Parquet and data frames"):
        from arro3.core import Array, DataType, Table
    columns: dict[str, Any] = {}
    for name in records.rows[0] if records.rows else ():
        values = [row[name] for row in records.rows]
        if name in records.texts:
            kind = DataType.utf8()
            values = [None if value is None else _utf8(str(value)) for value in values]
        elif name in records.whole:
            kind = DataType.int64()
        elif all(isinstance(value, bool) for value in values):
            kind = DataType.bool()
        else:
            kind = DataType.float64()
        columns[_utf8(name)] = Array(values, kind)
    return Table.from_pydict(columns)


def _utf8(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def parquet(records: Records) -> bytes:
    """The rows as a Parquet file. Raises RunError if arro3-io is not installed."""
    table = arrow(records)
    with extra("frames", "Parquet and data frames"):
        from arro3.io import write_parquet

    out = io.BytesIO()
    write_parquet(table, out)
    return out.getvalue()


def json(report: Report) -> str:
    document = {
        "title": report.title,
        "question": report.question,
        "experiment": report.id,
        "made_at": report.made_at.isoformat(),
        "pgpaces": report.version,
        "rerun": report.rerun,
        "verdict": verdict(report.top),
        "answer": to_builtins(report.sentences),
        "sections": {each.key: section(each) for each in report.answers()},
        **report.document(),
    }
    return escape.json_text(document)


def verdict(answer: Section) -> dict[str, str | None] | None:
    """The first line of an answer; its outcome is null where it is no verdict."""
    top = answer.headline
    return None if top is None else {"outcome": top.outcome or None, "text": top.text}


def section(answer: Section) -> dict[str, Any]:
    return {
        "title": answer.title,
        "verdict": verdict(answer),
        "answer": to_builtins(answer.sentences),
        "value": plain(answer.value),
        "trials": list(answer.trials),
    }
