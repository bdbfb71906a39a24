"""What was found about a trial's validity. Older trials had no place for it."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds the column of version 3."""
    column = sa.Column("findings", sa.JSON, nullable=False, server_default="[]")
    op.add_column("trial", column)
