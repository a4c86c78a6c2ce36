"""Since when a job's ticks have only repeated a run of long ago."""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; it has no default, so no row is written anew."""
    op.execute("ALTER TABLE tocsin.jobs ADD COLUMN frozen_since timestamptz")


def downgrade() -> None:
    """Forget it."""
    op.execute("ALTER TABLE tocsin.jobs DROP COLUMN frozen_since")
