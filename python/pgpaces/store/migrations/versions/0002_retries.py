"""Retries, connections of their own, clients that gave up. Older trials had none of them."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

COUNTS = (
    ("interval", "connect_ns"),
    ("tally", "retried"),
    ("tally", "retries"),
    ("statement", "retries"),
)


def upgrade() -> None:
    """Adds the columns of version 2."""
    for table, name in COUNTS:
        column = sa.Column(name, sa.BigInteger, nullable=False, server_default="0")
        op.add_column(table, column)
    aborted = sa.Column("aborted", sa.JSON, nullable=False, server_default="[]")
    op.add_column("interval", aborted)
