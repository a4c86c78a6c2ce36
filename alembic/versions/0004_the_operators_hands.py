"""Replay, pause of all dispatch, retention, keys that end, and an audit trail that only grows."""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_QUEUES = """
    ALTER TABLE tocsin.deliveries ADD COLUMN queue smallint NOT NULL DEFAULT 0;
    UPDATE tocsin.deliveries SET queue = 1 WHERE generation > 1 OR generation_attempts > 0;
    DROP INDEX tocsin.ix_deliveries_due;
    ALTER TABLE tocsin.deliveries DROP COLUMN late;
    CREATE INDEX ix_deliveries_due
        ON tocsin.deliveries (subscriber, queue, next_attempt_at, row) WHERE finished_at IS NULL;
"""

_REPLAYS = """
    CREATE TABLE tocsin.generations (
        delivery bigint NOT NULL,
        generation integer NOT NULL,
        replay_id uuid,
        requested_by text NOT NULL,
        reason text NOT NULL,
        was_state text NOT NULL,
        was_reason text,
        at timestamptz NOT NULL DEFAULT now(),
        CONSTRAINT pk_generations PRIMARY KEY (delivery, generation)
    );

    CREATE TABLE tocsin.replays (
        id uuid NOT NULL,
        filter jsonb NOT NULL,
        reason text NOT NULL,
        requested_by text NOT NULL,
        rate_per_second double precision NOT NULL,
        state text NOT NULL,
        matched bigint NOT NULL,
        replayed bigint NOT NULL DEFAULT 0,
        skipped jsonb NOT NULL DEFAULT '{}'::jsonb,
        after_row bigint NOT NULL DEFAULT 0,
        last_row bigint NOT NULL,
        next_at timestamptz NOT NULL DEFAULT now(),
        created_at timestamptz NOT NULL DEFAULT now(),
        finished_at timestamptz,
        CONSTRAINT pk_replays PRIMARY KEY (id)
    );
    CREATE INDEX ix_replays_running ON tocsin.replays (next_at) WHERE state = 'running';
"""

_DISPATCH = """
    CREATE TABLE tocsin.dispatch (
        one boolean NOT NULL DEFAULT true,
        paused boolean NOT NULL DEFAULT false,
        reason text,
        paused_by text,
        since timestamptz,
        CONSTRAINT pk_dispatch PRIMARY KEY (one),
        CONSTRAINT ck_dispatch_one CHECK (one)
    );
    INSERT INTO tocsin.dispatch DEFAULT VALUES;
"""

_REST = """
    ALTER TABLE tocsin.events ALTER COLUMN body DROP NOT NULL;
    ALTER TABLE tocsin.events ADD COLUMN purged_at timestamptz;
    ALTER TABLE tocsin.events ADD COLUMN published_by text;
    CREATE INDEX ix_events_payload ON tocsin.events (id) WHERE body IS NOT NULL;
    ALTER TABLE tocsin.runs ADD COLUMN progress jsonb;
    ALTER TABLE tocsin.runs ADD COLUMN settlements integer NOT NULL DEFAULT 0;
    ALTER TABLE tocsin.api_keys ADD COLUMN expires_at timestamptz;
    ALTER TABLE tocsin.api_keys ADD COLUMN last_used_at timestamptz;
    CREATE INDEX ix_subscribers_audience ON tocsin.subscribers (tenant_id)
        WHERE deleted_at IS NULL AND event_types && '{tocsin.*, tocsin.delivery.*, tocsin.delivery.dead, tocsin.run.*,
            tocsin.run.failed, tocsin.run.settled, tocsin.subscriber.*, tocsin.subscriber.disabled}'::text[];
"""

_APPEND_ONLY = """
    CREATE FUNCTION tocsin.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'tocsin.% is append-only: % is refused', TG_TABLE_NAME, TG_OP
            USING ERRCODE = 'insufficient_privilege';
    END $$;
    CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON tocsin.audit
        FOR EACH STATEMENT EXECUTE FUNCTION tocsin.refuse_change();
    CREATE TRIGGER append_only BEFORE UPDATE OR TRUNCATE ON tocsin.attempts
        FOR EACH STATEMENT EXECUTE FUNCTION tocsin.refuse_change();
    CREATE TRIGGER append_only BEFORE UPDATE OR TRUNCATE ON tocsin.generations
        FOR EACH STATEMENT EXECUTE FUNCTION tocsin.refuse_change();
"""

_DOWN = """
    DROP TRIGGER append_only ON tocsin.attempts;
    DROP TRIGGER append_only ON tocsin.audit;
    DROP TABLE tocsin.generations, tocsin.replays, tocsin.dispatch;
    DROP FUNCTION tocsin.refuse_change();
    DROP INDEX tocsin.ix_subscribers_audience;
    ALTER TABLE tocsin.api_keys DROP COLUMN expires_at, DROP COLUMN last_used_at;
    ALTER TABLE tocsin.runs DROP COLUMN progress, DROP COLUMN settlements;
    UPDATE tocsin.events SET body = '' WHERE body IS NULL;
    DROP INDEX tocsin.ix_events_payload;
    ALTER TABLE tocsin.events DROP COLUMN purged_at, DROP COLUMN published_by, ALTER COLUMN body SET NOT NULL;
    DROP INDEX tocsin.ix_deliveries_due;
    ALTER TABLE tocsin.deliveries DROP COLUMN queue;
    ALTER TABLE tocsin.deliveries ADD COLUMN late boolean GENERATED ALWAYS AS (generation_attempts > 0) STORED;
    CREATE INDEX ix_deliveries_due
        ON tocsin.deliveries (subscriber, late, next_attempt_at, row) WHERE finished_at IS NULL;
"""


def upgrade() -> None:
    """Add what operators need; three queues in a lane instead of two, so that replays wait behind first attempts."""
    _run(_QUEUES, _REPLAYS, _DISPATCH, _REST)
    op.execute(_APPEND_ONLY.split("\n    CREATE TRIGGER", maxsplit=1)[0])
    for trigger in _APPEND_ONLY.split("\n    CREATE TRIGGER")[1:]:
        op.execute("CREATE TRIGGER" + trigger)


def downgrade() -> None:
    """Take it away again; purged payloads stay empty."""
    _run(_DOWN)


def _run(*scripts: str) -> None:
    """One statement at a time: the driver prepares each."""
    for script in scripts:
        for statement in filter(str.strip, script.split(";")):
            op.execute(statement)
