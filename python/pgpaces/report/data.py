"""The report for programs: JSON of all of it; CSV and Parquet with its rows."""

from __future__ import annotations

import csv as tables_of_text
import io
from typing import TYPE_CHECKING, Any

from pgpaces.errors import RunError
from pgpaces.report import escape
from pgpaces.result import plain
from pgpaces.section import Records, Report, Section, Sentence

if TYPE_CHECKING:
    from arro3.core import Table


def csv(records: Records) -> str:
    """The rows as CSV; an empty field is not known, `inf` above every time."""
    out = io.StringIO()
    if records.rows:
        names = [str(escape.csv_cell(name)) for name in records.rows[0]]
        writer = tables_of_text.writer(out, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([escape.csv_cell(each) for each in row.values()] for row in records.rows)
    return out.getvalue()


def arrow(records: Records) -> Table:
    """The rows as an Arrow table: texts, integers, truths where all are, and for the rest numbers.

    Raises RunError where the library for it is not installed.
    """
    try:
        from arro3.core import Array, DataType, Table
    except ImportError:
        raise RunError(
            "there is no Arrow here: the library arro3-core is not installed",
            "install it where there is a wheel of it, or take csv or json",
        ) from None
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
    """A text without pieces of characters."""
    return text.encode("utf-8", "replace").decode()


def parquet(records: Records) -> bytes:
    """The rows as a Parquet file. Raises RunError where the library for it is not installed."""
    table = arrow(records)
    from arro3.io import write_parquet

    out = io.BytesIO()
    write_parquet(table, out)
    return out.getvalue()


def json(report: Report) -> str:
    """All of the report. An end of an estimate is null above every value, or where not known."""
    document = {
        "title": report.title,
        "question": report.question,
        "experiment": report.id,
        "made_at": report.made_at.isoformat(),
        "pgpaces": report.version,
        "rerun": report.rerun,
        "answer": [_sentence(each) for each in report.sentences],
        "sections": {each.key: section(each) for each in report.answers()},
        **report.document(),
    }
    return escape.json_text(document)


def section(found: Section) -> dict[str, Any]:
    """An answer of its own for programs."""
    return {
        "title": found.title,
        "answer": [_sentence(each) for each in found.sentences],
        "value": plain(found.value),
        "trials": list(found.trials),
    }


def _sentence(sentence: Sentence) -> dict[str, str]:
    return {"text": sentence.text, "weight": sentence.weight}
