"""One index for the deliveries of a run instead of two: every settle has to write each of them."""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Put the row behind the state, and let go of the two indexes that this makes needless."""
    op.execute("""
        CREATE INDEX ix_deliveries_run_id_state_row
            ON tocsin.deliveries (run_id, state, row)
            WHERE run_id IS NOT NULL
    """)
    op.execute("DROP INDEX tocsin.ix_deliveries_run_states, tocsin.ix_deliveries_run_id_row")


def downgrade() -> None:
    """Put the two indexes back."""
    op.execute("""
        CREATE INDEX ix_deliveries_run_id_row ON tocsin.deliveries (run_id, row) WHERE run_id IS NOT NULL
    """)
    op.execute("""
        CREATE INDEX ix_deliveries_run_states ON tocsin.deliveries (run_id, state) WHERE run_id IS NOT NULL
    """)
    op.execute("DROP INDEX tocsin.ix_deliveries_run_id_state_row")
