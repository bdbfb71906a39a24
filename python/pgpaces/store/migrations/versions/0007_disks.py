"""What disks were found to do."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds the table of version 7."""
    op.create_table(
        "disk",
        sa.Column("id", sa.String(26), primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("version", sa.String(40), nullable=False),
        sa.Column("host", sa.JSON, nullable=False),
        sa.Column("device", sa.Text, nullable=False),
        sa.Column("document", sa.JSON, nullable=False),
    )
    op.create_index("disk_newest", "disk", ["started_at", "id"])
