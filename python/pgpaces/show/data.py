"""An answer for programs: its values as JSON, its numbers as a tidy table for CSV and Parquet."""

from __future__ import annotations

import csv as csv_format
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, to_builtins

from pgpaces.core import findings
from pgpaces.core.errors import extra
from pgpaces.show import escape
from pgpaces.show.section import Next, Number, Report, Section
from pgpaces.spec.result import plain

if TYPE_CHECKING:
    from arro3.core import Table

Rows = Sequence[dict[str, Any]]
_BOUNDS = ("value", "low", "high")


def tidy(numbers: Sequence[Number]) -> list[dict[str, Any]]:
    """A row for each number, all with the same columns: the keys, metric, value, low, high, n.

    The bounds of a number without an interval are None, and so is a key that it does not have.
    """
    keys = dict.fromkeys(key for number in numbers for key in number.of)
    return [
        {
            **dict.fromkeys(keys),
            **number.of,
            "metric": number.metric,
            "value": one.value,
            "low": one.low if one.estimable else None,
            "high": one.high if one.estimable else None,
            "n": one.n,
        }
        for number in numbers
        for one in (number.estimate,)
    ]


class Frame(Struct, frozen=True):
    """The numbers of an answer as columns, one value a row: keys, metric, value, low, high, n.

    Any data frame library reads it through Arrow:

    `polars.DataFrame(frame)`, `pandas.DataFrame(frame.columns)`, `duckdb.from_arrow(frame)`.
    """

    columns: Mapping[str, tuple[Any, ...]]

    def __len__(self) -> int:
        """The number of rows."""
        return len(next(iter(self.columns.values()), ()))

    def rows(self) -> Iterator[dict[str, Any]]:
        """Each row, by column."""
        for values in zip(*self.columns.values(), strict=True):
            yield dict(zip(self.columns, values, strict=True))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The Arrow PyCapsule interface. Raises RunError if no Arrow library is installed."""
        return arrow([*self.rows()]).__arrow_c_stream__(requested_schema)


def csv(rows: Rows) -> str:
    out = io.StringIO()
    if rows:
        names = [str(escape.csv_cell(name)) for name in rows[0]]
        writer = csv_format.writer(out, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([escape.csv_cell(each) for each in row.values()] for row in rows)
    return out.getvalue()


def arrow(rows: Rows) -> Table:
    """The rows as an Arrow table of text, integer, and floating point columns.

    Raises RunError if arro3-core is not installed.
    """
    with extra("frames", "Parquet and data frames"):
        from arro3.core import Array, DataType, Table
    columns: dict[str, Any] = {}
    for name in rows[0] if rows else ():
        values = [row[name] for row in rows]
        kinds = {type(value) for value in values} - {type(None)}
        if kinds == {str}:
            values = [None if value is None else _utf8(value) for value in values]
            kind = DataType.utf8()
        else:
            whole = kinds == {int} and name not in _BOUNDS
            kind = DataType.int64() if whole else DataType.float64()
        columns[_utf8(name)] = Array(values, kind)
    return Table.from_pydict(columns)


def _utf8(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def parquet(rows: Rows) -> bytes:
    """The rows as a Parquet file. Raises RunError if arro3-io is not installed."""
    table = arrow(rows)
    with extra("frames", "Parquet and data frames"):
        from arro3.io import write_parquet

    out = io.BytesIO()
    write_parquet(table, out)
    return out.getvalue()


def json(report: Report) -> str:
    top = document(report.top)
    return escape.json_text({
        **top,
        "title": report.title,
        "asked": report.question,
        "sentences": report.top.sentences,
        "experiment": report.id,
        "made_at": report.made_at.isoformat(),
        "pgpaces": report.version,
        "rerun": report.rerun,
        "rows": tidy(report.rows()),
        "value": plain(report.document()),
        "sections": {each.key: document(each) for each in report.sections if each.rank == "answer"},
    })  # fmt: skip


class Verdict(Struct, frozen=True):
    """outcome: PASS, BETTER, ..., the cause of `why`, or null. text: the first line without it."""

    outcome: str | None
    text: str


class Labeled(Struct, frozen=True):
    """A line of the screen. name: of its sentence in messages.toml, with these values."""

    label: str
    name: str
    values: dict[str, Any]


class Found(Struct, frozen=True):
    """A finding; `pgpaces explain NAME` says what it means. about: a node, script, or generator."""

    name: str
    severity: findings.Severity
    about: str
    values: dict[str, Any]


class Document(Struct, frozen=True):
    """The JSON of an answer. question: run, sweep, capacity, comparison, why, trend, disk, ...

    title: what it is about. rows: its numbers, each with the keys of what it is of, metric, value,
    low, high, and n. next: commands that continue. trials: the ids of the runs that it rests on.
    value: everything else, by the question.
    """

    question: str
    title: str
    verdict: Verdict | None
    values: list[Labeled]
    rows: list[dict[str, str | int | float | None]]
    findings: list[Found]
    next: list[Next]
    trials: list[str]
    value: Any


def document(answer: Section) -> dict[str, Any]:
    """An answer of any question as plain values, in the form of `Document`."""
    top = answer.headline
    own: dict[str, Any] = to_builtins(
        Document(
            answer.key,
            answer.title,
            Verdict(top.outcome or None, top.text) if top else None,
            [Labeled(label, each.name, plain(dict(each.values))) for label, each in answer.said],
            tidy(answer.rows),
            [
                Found(each.name, each.severity, each.about, dict(each.values))
                for each in answer.findings
            ],
            list(answer.next),
            list(answer.trials),
            plain(answer.value if answer.document is None else answer.document()),
        )
    )
    return own
