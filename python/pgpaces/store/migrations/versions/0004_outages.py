"""Outages: how long clients were without a connection. Of older trials it is not known: none."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

COLUMNS = {
    "outages": sa.Integer,
    "outage_ns_max": sa.BigInteger,
    "down": sa.Integer,
    "some_down_ns": sa.BigInteger,
    "all_down_ns": sa.BigInteger,
}


def upgrade() -> None:
    """Adds the columns of version 4."""
    for name, kind in COLUMNS.items():
        column: sa.Column[int] = sa.Column(name, kind, nullable=False, server_default="0")
        op.add_column("interval", column)
