"""The tables of the result database in its newest version, and the types of their columns.

New stores have these tables; `upgrades.py` upgrades older ones. `record.py` declares the numbers of
a second.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import Any

import sqlalchemy as sa

from pgpaces.core import record
from pgpaces.store import encoding


class Moment(sa.TypeDecorator[datetime]):
    """A timestamp in UTC, which is also the default time zone."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        return value if value is None else encoding.utc(value)

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        return value if value is None else encoding.utc(value)


class Words(sa.TypeDecorator[str]):
    """A text of any characters, also NUL and halves of surrogate pairs, which databases reject."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        return value if value is None else encoding.text(value)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> str | None:
        return encoding.read_text(value) if isinstance(value, str) else value


class SensorNumber(sa.TypeDecorator[float]):
    """A number of a sensor. NaN is NULL, as always in SQLite."""

    impl = sa.Double
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: sa.Dialect) -> float | None:
        return None if value is None or math.isnan(value) else value

    def process_result_value(self, value: float | None, dialect: sa.Dialect) -> float:
        return math.nan if value is None else value


metadata = sa.MetaData()


_INTEGERS = {True: sa.Integer, False: sa.BigInteger}
_TIMES: dict[str, type[sa.types.TypeEngine[Any]]] = {
    "count": sa.BigInteger,
    "sum_ns": sa.BigInteger,
    "square_sum": sa.Double,
    "max_ns": sa.BigInteger,
    "histogram": sa.LargeBinary,
}


def _column(name: str, kind: Any, *more: Any, null: bool = False, key: bool = False) -> Any:
    return sa.Column(name, kind, *more, nullable=null, primary_key=key)


def _of_trial() -> Any:
    return _column("trial", sa.String(26), sa.ForeignKey("trial.id"), key=True)


def _recorded(kind: type[record.Record]) -> Iterator[Any]:
    for one in record.declared(kind):
        if one.is_times:
            yield from (_column(f"{one.name}_{part}", type_) for part, type_ in _TIMES.items())
        elif one.rule.stored:
            type_ = _INTEGERS[one.rule.small] if one.type is int else sa.JSON
            yield _column(one.name, type_, key=one.rule.key)


experiment = sa.Table(
    "experiment",
    metadata,
    _column("id", sa.String(26), key=True),
    _column("name", Words),
    _column("started_at", Moment),
    _column("ended_at", Moment, null=True),
    _column("heartbeat", Moment),
    _column("state", sa.String(12)),
    _column("version", sa.String(40)),
    _column("document", sa.JSON),
    sa.Index("experiment_newest", "started_at", "id"),
)
failure = sa.Table(
    "failure",
    metadata,
    _column("experiment", sa.String(26), sa.ForeignKey("experiment.id"), key=True),
    _column("cell", sa.String(40), key=True),
    _column("block", sa.Integer, key=True),
    _column("attempt", sa.Integer, key=True),
    _column("at", Moment),
    _column("error", Words),
)
trial = sa.Table(
    "trial",
    metadata,
    _column("id", sa.String(26), key=True),
    _column("state", sa.String(12)),
    _column("started_at", Moment),
    _column("ended_at", Moment, null=True),
    _column("heartbeat", Moment),
    _column("version", sa.String(40)),
    _column("spec", sa.JSON),
    _column("setup", sa.JSON),
    _column("measured_ns", sa.BigInteger, null=True),
    _column("error", Words, null=True),
    _column("notes", sa.JSON),
    _column("findings", sa.JSON),
    _column("summary", sa.JSON(none_as_null=True), null=True),
    _column("experiment", sa.String(26), null=True),
    _column("cell", sa.String(40), null=True),
    _column("levels", sa.JSON(none_as_null=True), null=True),
    _column("block", sa.Integer, null=True),
    _column("attempt", sa.Integer, null=True),
    _column("explained", sa.JSON),
    _column("digest_version", sa.Integer, null=True),
    _column("digest", sa.Text, null=True),
    sa.Index("trial_newest", "started_at", "id"),
    sa.Index("trial_place", "experiment", "block"),
)
_second = partial(_column, "second", sa.Integer, key=True)
interval = sa.Table("interval", metadata, _of_trial(), *_recorded(record.Interval))
tally = sa.Table("tally", metadata, _of_trial(), _second(), *_recorded(record.Tally))
statement = sa.Table(
    "statement", metadata, _of_trial(), _second(), *_recorded(record.StatementTally)
)
sample = sa.Table(
    "sample",
    metadata,
    _of_trial(),
    _second(),
    _column("source", Words, key=True),
    _column("name", Words, key=True),
    _column("value", SensorNumber, null=True),
    _column("unit", Words),
)
observed = sa.Table(
    "observed",
    metadata,
    _of_trial(),
    _column("node", Words, key=True),
    _column("moved", sa.JSON),
    _column("executed", sa.JSON),
    _column("grown", sa.JSON),
    _column("blocked", sa.JSON),
    _column("looks", sa.BigInteger),
    _column("events", sa.JSON),
    _column("tenths", sa.LargeBinary),
)
tag = sa.Table(
    "tag",
    metadata,
    _column("name", Words, key=True),
    _column("id", sa.String(26), key=True),
    sa.Index("ix_tag_id", "id"),
)
baseline = sa.Table(
    "baseline",
    metadata,
    _column("name", Words, key=True),
    _column("id", sa.String(26)),
    sa.Index("ix_baseline_id", "id"),
)
disk = sa.Table(
    "disk",
    metadata,
    _column("id", sa.String(26), key=True),
    _column("name", Words),
    _column("started_at", Moment),
    _column("version", sa.String(40)),
    _column("host", sa.JSON),
    _column("device", Words),
    _column("document", sa.JSON),
    sa.Index("disk_newest", "started_at", "id"),
)
# One row. Its table has a name by which a store is recognized.
version = sa.Table("pgpaces", metadata, _column("version", sa.Integer))
# The tables of a trial's parts, in the order in which rows can be deleted.
PARTS = (observed, sample, statement, tally, interval)
