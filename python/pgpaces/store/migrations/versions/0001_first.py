"""Trials, their intervals, tallies, failures and statements."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def _times(prefix: str) -> list[sa.Column[Any]]:
    return [
        sa.Column(f"{prefix}_count", sa.BigInteger, nullable=False),
        sa.Column(f"{prefix}_sum_ns", sa.BigInteger, nullable=False),
        sa.Column(f"{prefix}_square_sum", sa.Double, nullable=False),
        sa.Column(f"{prefix}_max_ns", sa.BigInteger, nullable=False),
        sa.Column(f"{prefix}_histogram", sa.LargeBinary, nullable=False),
    ]


def _trial() -> sa.Column[Any]:
    return sa.Column("trial", sa.String(26), sa.ForeignKey("trial.id"), primary_key=True)


def upgrade() -> None:
    """Creates the tables of version 1."""
    op.create_table(
        "trial",
        sa.Column("id", sa.String(26), primary_key=True),
        sa.Column("state", sa.String(12), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False, index=True),
        sa.Column("ended_at", sa.DateTime(timezone=True)),
        sa.Column("heartbeat", sa.DateTime(timezone=True), nullable=False),
        sa.Column("version", sa.String(40), nullable=False),
        sa.Column("plan", sa.JSON, nullable=False),
        sa.Column("workload", sa.JSON, nullable=False),
        sa.Column("server", sa.JSON, nullable=False),
        sa.Column("host", sa.JSON, nullable=False),
        sa.Column("measured_ns", sa.BigInteger),
        sa.Column("error", sa.Text),
        sa.Column("notes", sa.JSON, nullable=False),
        sa.Column("summary", sa.JSON),
    )
    op.create_table(
        "interval",
        _trial(),
        sa.Column("second", sa.Integer, primary_key=True),
        sa.Column("cpu_ns", sa.JSON, nullable=False),
        sa.Column("in_flight_ns", sa.BigInteger, nullable=False),
        sa.Column("ended_ns", sa.BigInteger, nullable=False),
        sa.Column("connects", sa.Integer, nullable=False),
        sa.Column("disconnects", sa.Integer, nullable=False),
        sa.Column("messages", sa.JSON, nullable=False),
        *_times("dispatch"),
    )
    op.create_table(
        "tally",
        _trial(),
        sa.Column("second", sa.Integer, primary_key=True),
        sa.Column("due_second", sa.Integer, primary_key=True),
        sa.Column("script", sa.Integer, primary_key=True),
        sa.Column("due", sa.BigInteger, nullable=False),
        sa.Column("on_time", sa.BigInteger, nullable=False),
        sa.Column("late", sa.BigInteger, nullable=False),
        sa.Column("skipped", sa.BigInteger, nullable=False),
        sa.Column("failed", sa.JSON, nullable=False),
        sa.Column("unfinished", sa.BigInteger, nullable=False),
        *_times("latency"),
        *_times("lag"),
        *_times("service"),
    )
    op.create_table(
        "statement",
        _trial(),
        sa.Column("second", sa.Integer, primary_key=True),
        sa.Column("script", sa.Integer, primary_key=True),
        sa.Column("command", sa.Integer, primary_key=True),
        sa.Column("failed", sa.BigInteger, nullable=False),
        *_times("times"),
    )
