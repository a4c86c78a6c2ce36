"""Deliveries by the reason for which they ended; a delivery that a 2xx ended has none, and is in no such index."""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the index; claims and settles of delivered ones never write to it."""
    op.execute("""
        CREATE INDEX ix_deliveries_reason_row
            ON tocsin.deliveries (reason, row)
            WHERE reason IS NOT NULL
    """)


def downgrade() -> None:
    """Walk the table again."""
    op.execute("DROP INDEX tocsin.ix_deliveries_reason_row")
