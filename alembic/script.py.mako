"""${message}."""

from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}


def upgrade() -> None:
    """Expand only: what the running release reads and writes must go on working."""
    ${upgrades if upgrades else 'op.execute("")'}


def downgrade() -> None:
    """Take it back."""
    ${downgrades if downgrades else 'op.execute("")'}
