"""Experiments and the place of trials in them, samples, digests, names. Older trials had none."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds the tables and columns of version 6."""
    op.create_table(
        "experiment",
        sa.Column("id", sa.String(26), primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True)),
        sa.Column("heartbeat", sa.DateTime(timezone=True), nullable=False),
        sa.Column("state", sa.String(12), nullable=False),
        sa.Column("version", sa.String(40), nullable=False),
        sa.Column("document", sa.JSON, nullable=False),
    )
    op.create_index("experiment_newest", "experiment", ["started_at", "id"])
    op.create_table(
        "failure",
        sa.Column("experiment", sa.String(26), sa.ForeignKey("experiment.id"), primary_key=True),
        sa.Column("cell", sa.String(40), primary_key=True),
        sa.Column("block", sa.Integer, primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("error", sa.Text, nullable=False),
    )
    op.create_table(
        "sample",
        sa.Column("trial", sa.String(26), sa.ForeignKey("trial.id"), primary_key=True),
        sa.Column("second", sa.Integer, primary_key=True),
        sa.Column("source", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("value", sa.Double),
        sa.Column("unit", sa.Text, nullable=False),
    )
    # What they mean is a trial or an experiment, so no foreign key.
    op.create_table(
        "tag",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("id", sa.String(26), primary_key=True, index=True),
    )
    op.create_table(
        "baseline",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("id", sa.String(26), nullable=False, index=True),
    )
    for column in (
        sa.Column("experiment", sa.String(26)),
        sa.Column("cell", sa.String(40)),
        sa.Column("levels", sa.JSON),
        sa.Column("block", sa.Integer),
        sa.Column("attempt", sa.Integer),
        sa.Column("explained", sa.JSON, nullable=False, server_default="[]"),
        sa.Column("digest_version", sa.Integer),
        sa.Column("digest", sa.Text),
    ):
        op.add_column("trial", column)
    op.create_index("trial_place", "trial", ["experiment", "block"])
    op.create_index("trial_newest", "trial", ["started_at", "id"])
    op.drop_index("ix_trial_started_at", "trial")
