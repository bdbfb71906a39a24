"""The tables of the result database as they are in its newest version, and how values lie in them.

Knows no connection: `migrations/` makes these tables.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from pgpaces.store import form


class Moment(sa.TypeDecorator[datetime]):
    """A moment in UTC; without a zone it is taken for one."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        """In UTC."""
        return value if value is None else form.utc(value)

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        """In UTC."""
        return value if value is None else form.utc(value)


class Words(sa.TypeDecorator[str]):
    """A text of any characters: NUL and halves of surrogate pairs too, which databases refuse."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        """As it is, where that can be."""
        return value if value is None else form.text(value)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> str | None:
        """As it was."""
        return form.read_text(value) if isinstance(value, str) else value


class SensorNumber(sa.TypeDecorator[float]):
    """A number of a sensor. What is none is NULL, as SQLite has it anyway."""

    impl = sa.Double
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: sa.Dialect) -> float | None:
        """NaN as NULL."""
        return None if value is None or math.isnan(value) else value

    def process_result_value(self, value: float | None, dialect: sa.Dialect) -> float:
        """NULL as NaN."""
        return math.nan if value is None else value


metadata = sa.MetaData()


def _times_columns(prefix: str) -> list[sa.Column[Any]]:
    return [
        sa.Column(f"{prefix}_count", sa.BigInteger),
        sa.Column(f"{prefix}_sum_ns", sa.BigInteger),
        sa.Column(f"{prefix}_square_sum", sa.Double),
        sa.Column(f"{prefix}_max_ns", sa.BigInteger),
        sa.Column(f"{prefix}_histogram", sa.LargeBinary),
    ]


experiment = sa.Table(
    "experiment",
    metadata,
    sa.Column("id", sa.String(26), primary_key=True),
    sa.Column("name", Words),
    sa.Column("started_at", Moment),
    sa.Column("ended_at", Moment),
    sa.Column("heartbeat", Moment),
    sa.Column("state", sa.String(12)),
    sa.Column("version", sa.String(40)),
    sa.Column("document", sa.JSON),
)
failure = sa.Table(
    "failure",
    metadata,
    sa.Column("experiment", sa.String(26), primary_key=True),
    sa.Column("cell", sa.String(40), primary_key=True),
    sa.Column("block", sa.Integer, primary_key=True),
    sa.Column("attempt", sa.Integer, primary_key=True),
    sa.Column("at", Moment),
    sa.Column("error", Words),
)
trial = sa.Table(
    "trial",
    metadata,
    sa.Column("id", sa.String(26), primary_key=True),
    sa.Column("state", sa.String(12)),
    sa.Column("started_at", Moment),
    sa.Column("ended_at", Moment),
    sa.Column("heartbeat", Moment),
    sa.Column("version", sa.String(40)),
    sa.Column("plan", sa.JSON),
    sa.Column("workload", sa.JSON),
    sa.Column("server", sa.JSON),
    sa.Column("host", sa.JSON),
    sa.Column("measured_ns", sa.BigInteger),
    sa.Column("error", Words),
    sa.Column("notes", sa.JSON),
    sa.Column("findings", sa.JSON),
    sa.Column("summary", sa.JSON(none_as_null=True)),
    sa.Column("experiment", sa.String(26)),
    sa.Column("cell", sa.String(40)),
    sa.Column("levels", sa.JSON(none_as_null=True)),
    sa.Column("block", sa.Integer),
    sa.Column("attempt", sa.Integer),
    sa.Column("explained", sa.JSON),
    sa.Column("digest_version", sa.Integer),
    sa.Column("digest", sa.Text),
)
interval = sa.Table(
    "interval",
    metadata,
    sa.Column("trial", sa.String(26), primary_key=True),
    sa.Column("second", sa.Integer, primary_key=True),
    sa.Column("cpu_ns", sa.JSON),
    sa.Column("in_flight_ns", sa.BigInteger),
    sa.Column("pending_ns", sa.BigInteger),
    sa.Column("waited_ns", sa.BigInteger),
    sa.Column("ended_ns", sa.BigInteger),
    sa.Column("connects", sa.Integer),
    sa.Column("disconnects", sa.Integer),
    sa.Column("messages", sa.JSON),
    sa.Column("connect_ns", sa.BigInteger),
    sa.Column("aborted", sa.JSON),
    sa.Column("outages", sa.Integer),
    sa.Column("outage_ns_max", sa.BigInteger),
    sa.Column("down", sa.Integer),
    sa.Column("some_down_ns", sa.BigInteger),
    sa.Column("all_down_ns", sa.BigInteger),
    *_times_columns("dispatch"),
)
tally = sa.Table(
    "tally",
    metadata,
    sa.Column("trial", sa.String(26), primary_key=True),
    sa.Column("second", sa.Integer, primary_key=True),
    sa.Column("due_second", sa.Integer, primary_key=True),
    sa.Column("script", sa.Integer, primary_key=True),
    sa.Column("due", sa.BigInteger),
    sa.Column("on_time", sa.BigInteger),
    sa.Column("late", sa.BigInteger),
    sa.Column("skipped", sa.BigInteger),
    sa.Column("failed", sa.JSON),
    sa.Column("unfinished", sa.BigInteger),
    sa.Column("retried", sa.BigInteger),
    sa.Column("retries", sa.BigInteger),
    *_times_columns("latency"),
    *_times_columns("lag"),
    *_times_columns("service"),
)
statement = sa.Table(
    "statement",
    metadata,
    sa.Column("trial", sa.String(26), primary_key=True),
    sa.Column("second", sa.Integer, primary_key=True),
    sa.Column("script", sa.Integer, primary_key=True),
    sa.Column("command", sa.Integer, primary_key=True),
    sa.Column("failed", sa.BigInteger),
    sa.Column("retries", sa.BigInteger),
    *_times_columns("times"),
)
sample = sa.Table(
    "sample",
    metadata,
    sa.Column("trial", sa.String(26), primary_key=True),
    sa.Column("second", sa.Integer, primary_key=True),
    sa.Column("source", Words, primary_key=True),
    sa.Column("name", Words, primary_key=True),
    sa.Column("value", SensorNumber),
    sa.Column("unit", Words),
)
observed = sa.Table(
    "observed",
    metadata,
    sa.Column("trial", sa.String(26), primary_key=True),
    sa.Column("node", Words, primary_key=True),
    sa.Column("moved", sa.JSON),
    sa.Column("executed", sa.JSON),
    sa.Column("grown", sa.JSON),
    sa.Column("blocked", sa.JSON),
    sa.Column("looks", sa.BigInteger),
    sa.Column("events", sa.JSON),
    sa.Column("tenths", sa.LargeBinary),
)
tag = sa.Table(
    "tag",
    metadata,
    sa.Column("name", Words, primary_key=True),
    sa.Column("id", sa.String(26), primary_key=True),
)
baseline = sa.Table(
    "baseline",
    metadata,
    sa.Column("name", Words, primary_key=True),
    sa.Column("id", sa.String(26)),
)
disk = sa.Table(
    "disk",
    metadata,
    sa.Column("id", sa.String(26), primary_key=True),
    sa.Column("name", Words),
    sa.Column("started_at", Moment),
    sa.Column("version", sa.String(40)),
    sa.Column("host", sa.JSON),
    sa.Column("device", Words),
    sa.Column("document", sa.JSON),
)
# What belongs to a trial, in the order in which it can be taken away.
PARTS = (observed, sample, statement, tally, interval)
