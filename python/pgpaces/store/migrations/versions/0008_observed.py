"""What was seen of servers that is no sample: differences, sizes, wait events. Older had none."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds the table of version 8."""
    op.create_table(
        "observed",
        sa.Column("trial", sa.String(26), sa.ForeignKey("trial.id"), primary_key=True),
        sa.Column("node", sa.Text, primary_key=True),
        sa.Column("moved", sa.JSON, nullable=False),
        sa.Column("executed", sa.JSON, nullable=False),
        sa.Column("grown", sa.JSON, nullable=False),
        sa.Column("blocked", sa.JSON, nullable=False),
        sa.Column("looks", sa.BigInteger, nullable=False),
        sa.Column("events", sa.JSON, nullable=False),
        sa.Column("tenths", sa.LargeBinary, nullable=False),
    )
