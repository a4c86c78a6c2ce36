"""The pulse: what happened in each minute; and the trace that a tick belongs to, kept with its run."""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add both; what happened before is in no minute."""
    op.execute("""
        CREATE TABLE tocsin.pulse (
            minute timestamptz NOT NULL,
            what text NOT NULL,
            n bigint NOT NULL,
            at timestamptz NOT NULL DEFAULT now(),
            CONSTRAINT pk_pulse PRIMARY KEY (minute, what)
        ) WITH (fillfactor = 50)
    """)
    op.execute("ALTER TABLE tocsin.runs ADD COLUMN traceparent text")


def downgrade() -> None:
    """Take both away again."""
    op.execute("ALTER TABLE tocsin.runs DROP COLUMN traceparent")
    op.execute("DROP TABLE tocsin.pulse")
