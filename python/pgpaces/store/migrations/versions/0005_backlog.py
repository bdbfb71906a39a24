"""What is due and not done, over time. Of older trials it is not known: none."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds the columns of version 5."""
    for name in ("pending_ns", "waited_ns"):
        column = sa.Column(name, sa.BigInteger, nullable=False, server_default="0")
        op.add_column("interval", column)
