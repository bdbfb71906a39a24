"""The tables of the result database in its newest version, and the types of their columns.

New stores have these tables; `upgrades.py` upgrades older ones. `record.py` declares the numbers of
a second.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from pgpaces.core import record
from pgpaces.store import encoding


class Kind(Struct, frozen=True):
    """A type of columns in both databases. read: its value from that of a driver, unless null."""

    sqlite: str
    postgresql: str
    read: Callable[[Any], Any] | None = None


def _words(value: Any) -> Any:
    return encoding.read_text(value) if isinstance(value, str) else value


def _json(value: Any) -> Any:
    """SQLite's type of these columns turns texts of numbers into numbers."""
    return json.loads(value) if isinstance(value, str) else value


ID, STATE, CELL = (Kind(f"VARCHAR({n})", f"VARCHAR({n})") for n in (26, 12, 40))
INTEGER, BIGINT, TEXT = (Kind(name, name) for name in ("INTEGER", "BIGINT", "TEXT"))
WORDS = Kind("TEXT", "TEXT", _words)
MOMENT = Kind("DATETIME", "TIMESTAMP WITH TIME ZONE", encoding.moment)
JSON = Kind("JSON", "JSON", _json)
DOUBLE = Kind("DOUBLE", "DOUBLE PRECISION")
BYTES = Kind("BLOB", "BYTEA")


class Table(Struct, frozen=True):
    """A table. key: its primary key. null: columns that may be null. owner: of its first column."""

    name: str
    columns: Mapping[str, Kind]
    key: tuple[str, ...] = ("id",)
    null: tuple[str, ...] = ()
    owner: str = ""
    indexes: Mapping[str, str] = {}

    def statements(self, *, sqlite: bool) -> Iterator[str]:
        """The statements that create it."""
        parts = [
            f"{name} {kind.sqlite if sqlite else kind.postgresql}"
            + ("" if name in self.null else " NOT NULL")
            for name, kind in self.columns.items()
        ]
        if self.key:
            parts.append(f"PRIMARY KEY ({', '.join(self.key)})")
        if self.owner:
            parts.append(f"FOREIGN KEY ({next(iter(self.columns))}) REFERENCES {self.owner} (id)")
        yield f"CREATE TABLE {self.name} ({', '.join(parts)})"
        for name, columns in self.indexes.items():
            yield f"CREATE INDEX {name} ON {self.name} ({columns})"


_TIMES = {
    "count": BIGINT, "sum_ns": BIGINT, "square_sum": DOUBLE, "max_ns": BIGINT, "histogram": BYTES,
}  # fmt: skip


def _recorded(name: str, kind: type[record.Record]) -> Table:
    """The table of the records of this class."""
    columns = {"trial": ID, "second": INTEGER}
    fields: tuple[record.Declared, ...] = record.declared(kind)
    for one in fields:
        if one.is_times:
            columns |= {f"{one.name}_{part}": type_ for part, type_ in _TIMES.items()}
        elif one.rule.stored:
            number = INTEGER if one.rule.small else BIGINT
            columns[one.name] = number if one.type is int else JSON
    keys = dict.fromkeys(("trial", "second", *(one.name for one in fields if one.rule.key)))
    return Table(name, columns, tuple(keys), owner="trial")


experiment = Table(
    "experiment",
    {
        "id": ID, "name": WORDS, "started_at": MOMENT, "ended_at": MOMENT, "heartbeat": MOMENT,
        "state": STATE, "version": CELL, "document": JSON,
    },
    null=("ended_at",),
    indexes={"experiment_newest": "started_at, id"},
)  # fmt: skip
failure = Table(
    "failure",
    {
        "experiment": ID, "cell": CELL, "block": INTEGER, "attempt": INTEGER, "at": MOMENT,
        "error": WORDS,
    },
    ("experiment", "cell", "block", "attempt"),
    owner="experiment",
)  # fmt: skip
trial = Table(
    "trial",
    {
        "id": ID, "state": STATE, "started_at": MOMENT, "ended_at": MOMENT, "heartbeat": MOMENT,
        "version": CELL, "spec": JSON, "setup": JSON, "measured_ns": BIGINT, "error": WORDS,
        "notes": JSON, "findings": JSON, "summary": JSON, "experiment": ID, "cell": CELL,
        "levels": JSON, "block": INTEGER, "attempt": INTEGER, "explained": JSON, "rehearsed": JSON,
        "digest_version": INTEGER, "digest": TEXT,
    },
    null=(
        "ended_at", "measured_ns", "error", "summary", "experiment", "cell", "levels", "block",
        "attempt", "rehearsed", "digest_version", "digest",
    ),
    indexes={"trial_newest": "started_at, id", "trial_place": "experiment, block"},
)  # fmt: skip
interval = _recorded("interval", record.Interval)
tally = _recorded("tally", record.Tally)
statement = _recorded("statement", record.StatementTally)
sample = Table(
    "sample",
    {
        "trial": ID, "second": INTEGER, "source": WORDS, "name": WORDS, "value": DOUBLE,
        "unit": WORDS,
    },
    ("trial", "second", "source", "name"),
    null=("value",),
    owner="trial",
)  # fmt: skip
observed = Table(
    "observed",
    {
        "trial": ID, "node": WORDS, "moved": JSON, "executed": JSON, "grown": JSON,
        "blocked": JSON, "looks": BIGINT, "events": JSON, "tenths": BYTES,
    },
    ("trial", "node"),
    owner="trial",
)  # fmt: skip
tag = Table("tag", {"name": WORDS, "id": ID}, ("name", "id"), indexes={"ix_tag_id": "id"})
baseline = Table("baseline", {"name": WORDS, "id": ID}, ("name",), indexes={"ix_baseline_id": "id"})
disk = Table(
    "disk",
    {
        "id": ID, "name": WORDS, "started_at": MOMENT, "version": CELL, "host": JSON,
        "device": WORDS, "document": JSON,
    },
    indexes={"disk_newest": "started_at, id"},
)  # fmt: skip
# One row. Its table has a name by which a store is recognized.
version = Table("pgpaces", {"version": INTEGER}, ())
# The tables of a trial's parts, in the order in which rows can be deleted.
PARTS = (observed, sample, statement, tally, interval)
ALL = (experiment, failure, trial, *reversed(PARTS), tag, baseline, disk, version)
