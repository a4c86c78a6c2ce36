"""The first bell: every table of 0.1.0, in a schema of its own.

Written out in SQL, so that it stays what it was whatever the code becomes.
"""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# `alembic/env.py` has created the schema `tocsin` already: the table of versions lives in it as well.
STATEMENTS = (
    """
    CREATE TABLE tocsin.api_keys (
        id uuid NOT NULL,
        name text NOT NULL,
        scope text NOT NULL,
        hash bytea NOT NULL,
        created_at timestamptz DEFAULT now() NOT NULL,
        revoked_at timestamptz,
        CONSTRAINT pk_api_keys PRIMARY KEY (id),
        CONSTRAINT uq_api_keys_hash UNIQUE (hash)
    )
    """,
    """
    CREATE UNIQUE INDEX uq_api_keys_live_name
        ON tocsin.api_keys (name)
        WHERE revoked_at IS NULL
    """,
    """
    CREATE TABLE tocsin.attempts (
        delivery bigint NOT NULL,
        id bigint GENERATED ALWAYS AS IDENTITY,
        number bigint NOT NULL,
        generation integer NOT NULL,
        lease_seq bigint NOT NULL,
        outcome text NOT NULL,
        counted boolean NOT NULL,
        late boolean DEFAULT false NOT NULL,
        status smallint,
        detail text,
        started_at timestamptz NOT NULL,
        duration_ms bigint NOT NULL,
        worker text NOT NULL,
        excerpt text,
        CONSTRAINT pk_attempts PRIMARY KEY (delivery, id)
    )
    """,
    """
    CREATE TABLE tocsin.audit (
        id bigint GENERATED ALWAYS AS IDENTITY,
        at timestamptz DEFAULT now() NOT NULL,
        actor text NOT NULL,
        action text NOT NULL,
        object text NOT NULL,
        reason text,
        detail jsonb DEFAULT '{}'::jsonb NOT NULL,
        CONSTRAINT pk_audit PRIMARY KEY (id)
    )
    """,
    """
    CREATE INDEX ix_audit_actor_id
        ON tocsin.audit (actor, id)
    """,
    """
    CREATE INDEX ix_audit_object_id
        ON tocsin.audit (object, id)
    """,
    """
    CREATE TABLE tocsin.deliveries (
        row bigint GENERATED ALWAYS AS IDENTITY,
        event_id uuid NOT NULL,
        subscriber integer NOT NULL,
        run_id uuid,
        state text DEFAULT 'pending' NOT NULL,
        generation integer DEFAULT 1 NOT NULL,
        attempt_count bigint DEFAULT 0 NOT NULL,
        generation_attempts integer DEFAULT 0 NOT NULL,
        late boolean GENERATED ALWAYS AS (generation_attempts > 0) STORED,
        order_key bigint,
        next_attempt_at timestamptz DEFAULT now() NOT NULL,
        deadline_at timestamptz NOT NULL,
        lease_owner text,
        leased_at timestamptz,
        lease_expires_at timestamptz,
        lease_seq bigint DEFAULT 0 NOT NULL,
        reason text,
        created_at timestamptz DEFAULT now() NOT NULL,
        finished_at timestamptz,
        CONSTRAINT pk_deliveries PRIMARY KEY (row),
        CONSTRAINT uq_deliveries_event_id_subscriber UNIQUE (event_id, subscriber)
    ) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01)
    """,
    """
    CREATE INDEX ix_deliveries_undelivered
        ON tocsin.deliveries (state, row)
        WHERE state IN ('exhausted', 'rejected', 'ambiguous', 'cancelled')
    """,
    """
    CREATE INDEX ix_deliveries_due
        ON tocsin.deliveries (subscriber, late, next_attempt_at, row)
        WHERE finished_at IS NULL
    """,
    """
    CREATE INDEX ix_deliveries_order
        ON tocsin.deliveries (subscriber, order_key, row)
        WHERE finished_at IS NULL AND order_key IS NOT NULL
    """,
    """
    CREATE INDEX ix_deliveries_blocking
        ON tocsin.deliveries (subscriber, order_key)
        WHERE order_key IS NOT NULL AND state IN ('exhausted', 'rejected', 'ambiguous')
    """,
    """
    CREATE INDEX ix_deliveries_deadline
        ON tocsin.deliveries (deadline_at)
        WHERE finished_at IS NULL
    """,
    """
    CREATE INDEX ix_deliveries_run_id_row
        ON tocsin.deliveries (run_id, row)
        WHERE run_id IS NOT NULL
    """,
    """
    CREATE INDEX ix_deliveries_run_states
        ON tocsin.deliveries (run_id, state)
        WHERE run_id IS NOT NULL
    """,
    """
    CREATE INDEX ix_deliveries_subscriber_row
        ON tocsin.deliveries (subscriber, row)
    """,
    """
    CREATE TABLE tocsin.idempotency_keys (
        actor text NOT NULL,
        key text NOT NULL,
        request_sha256 bytea NOT NULL,
        status smallint,
        sealed_answer bytea,
        created_at timestamptz DEFAULT now() NOT NULL,
        expires_at timestamptz NOT NULL,
        CONSTRAINT pk_idempotency_keys PRIMARY KEY (actor, key)
    )
    """,
    """
    CREATE INDEX ix_idempotency_keys_expires_at
        ON tocsin.idempotency_keys (expires_at)
    """,
    """
    CREATE TABLE tocsin.jobs (
        name text NOT NULL,
        paused boolean DEFAULT false NOT NULL,
        paused_reason text,
        last_tick_at timestamptz,
        CONSTRAINT pk_jobs PRIMARY KEY (name)
    )
    """,
    """
    CREATE TABLE tocsin.runs (
        id uuid NOT NULL,
        job text NOT NULL,
        run_id text NOT NULL,
        cutoff timestamptz NOT NULL,
        source text NOT NULL,
        state text NOT NULL,
        discovered boolean DEFAULT false NOT NULL,
        events bigint DEFAULT 0 NOT NULL,
        lease_owner text,
        lease_expires_at timestamptz,
        lease_seq integer DEFAULT 0 NOT NULL,
        claimed_at timestamptz DEFAULT now() NOT NULL,
        started_at timestamptz,
        completed_at timestamptz,
        settled_at timestamptz,
        error text,
        CONSTRAINT pk_runs PRIMARY KEY (id),
        CONSTRAINT uq_runs_job_run_id UNIQUE (job, run_id)
    )
    """,
    """
    CREATE INDEX ix_runs_job_id
        ON tocsin.runs (job, id)
    """,
    """
    CREATE INDEX ix_runs_open
        ON tocsin.runs (cutoff, id)
        WHERE state IN ('claimed', 'running')
    """,
    """
    CREATE INDEX ix_runs_unsettled
        ON tocsin.runs (id)
        WHERE settled_at IS NULL AND state = 'completed'
    """,
    """
    CREATE TABLE tocsin.subscribers (
        row integer GENERATED ALWAYS AS IDENTITY,
        id text NOT NULL,
        tenant_id text NOT NULL,
        url text NOT NULL,
        event_types text[] NOT NULL,
        mode text NOT NULL,
        idempotent boolean NOT NULL,
        ordering text NOT NULL,
        on_dead_letter text NOT NULL,
        max_concurrency integer NOT NULL,
        rate_per_second double precision,
        timeout_seconds double precision NOT NULL,
        max_attempts integer NOT NULL,
        backoff_base_seconds double precision NOT NULL,
        backoff_cap_seconds double precision NOT NULL,
        deadline_seconds double precision NOT NULL,
        headers jsonb NOT NULL,
        revision integer DEFAULT 1 NOT NULL,
        created_at timestamptz DEFAULT now() NOT NULL,
        updated_at timestamptz DEFAULT now() NOT NULL,
        deleted_at timestamptz,
        CONSTRAINT pk_subscribers PRIMARY KEY (row),
        CONSTRAINT uq_subscribers_id UNIQUE (id)
    )
    """,
    """
    CREATE INDEX ix_subscribers_live
        ON tocsin.subscribers (tenant_id, row)
        WHERE deleted_at IS NULL
    """,
    """
    CREATE TABLE tocsin.events (
        id uuid NOT NULL,
        tenant_id text NOT NULL,
        type text NOT NULL,
        subject text NOT NULL,
        version bigint NOT NULL,
        topics text[] NOT NULL,
        run_id uuid,
        due_at timestamptz,
        body bytea NOT NULL,
        body_sha256 bytea NOT NULL,
        data_sha256 bytea NOT NULL,
        created_at timestamptz DEFAULT now() NOT NULL,
        fanned_out_at timestamptz,
        fan_out_after integer DEFAULT 0 NOT NULL,
        CONSTRAINT pk_events PRIMARY KEY (id),
        CONSTRAINT uq_events_tenant_id_type_subject_version UNIQUE (tenant_id, type, subject, version),
        CONSTRAINT fk_events_run_id FOREIGN KEY (run_id) REFERENCES tocsin.runs (id)
    )
    """,
    """
    CREATE INDEX ix_events_direct
        ON tocsin.events (id)
        WHERE fanned_out_at IS NULL AND run_id IS NULL AND due_at IS NULL
    """,
    """
    CREATE INDEX ix_events_due
        ON tocsin.events (due_at, id)
        WHERE fanned_out_at IS NULL AND run_id IS NULL AND due_at IS NOT NULL
    """,
    """
    CREATE INDEX ix_events_run_id_id
        ON tocsin.events (run_id, id)
    """,
    """
    CREATE INDEX ix_events_subject_id
        ON tocsin.events (subject, id)
    """,
    """
    CREATE INDEX ix_events_type_id
        ON tocsin.events (type, id)
    """,
    """
    CREATE INDEX ix_events_unfanned
        ON tocsin.events (run_id, id)
        WHERE fanned_out_at IS NULL AND run_id IS NOT NULL
    """,
    """
    CREATE TABLE tocsin.lanes (
        subscriber integer NOT NULL,
        state text DEFAULT 'active' NOT NULL,
        state_reason text,
        origin text DEFAULT '' NOT NULL,
        ordering text DEFAULT 'none' NOT NULL,
        on_dead_letter text DEFAULT 'skip' NOT NULL,
        max_concurrency integer NOT NULL,
        leased integer DEFAULT 0 NOT NULL,
        leased_late integer DEFAULT 0 NOT NULL,
        rate_per_second double precision,
        tokens double precision DEFAULT 1 NOT NULL,
        tokens_at timestamptz DEFAULT now() NOT NULL,
        failures integer DEFAULT 0 NOT NULL,
        probes integer DEFAULT 0 NOT NULL,
        ramp integer,
        open_until timestamptz DEFAULT '-infinity' NOT NULL,
        failing_since timestamptz,
        next_due_at timestamptz DEFAULT 'infinity' NOT NULL,
        throttled_until timestamptz DEFAULT '-infinity' NOT NULL,
        lapse_at timestamptz DEFAULT 'infinity' NOT NULL,
        claimed_at timestamptz DEFAULT '-infinity' NOT NULL,
        CONSTRAINT pk_lanes PRIMARY KEY (subscriber),
        CONSTRAINT fk_lanes_subscriber FOREIGN KEY (subscriber) REFERENCES tocsin.subscribers (row)
    ) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01)
    """,
    """
    CREATE TABLE tocsin.subscriber_secrets (
        id bigint GENERATED ALWAYS AS IDENTITY,
        subscriber integer NOT NULL,
        sealed bytea NOT NULL,
        created_at timestamptz DEFAULT now() NOT NULL,
        expires_at timestamptz,
        CONSTRAINT pk_subscriber_secrets PRIMARY KEY (id),
        CONSTRAINT fk_subscriber_secrets_subscriber FOREIGN KEY (subscriber) REFERENCES tocsin.subscribers (row)
    )
    """,
    """
    CREATE INDEX ix_subscriber_secrets_subscriber_id
        ON tocsin.subscriber_secrets (subscriber, id)
    """,
)

TABLES = (
    "tocsin.subscriber_secrets",
    "tocsin.lanes",
    "tocsin.events",
    "tocsin.subscribers",
    "tocsin.runs",
    "tocsin.jobs",
    "tocsin.idempotency_keys",
    "tocsin.deliveries",
    "tocsin.audit",
    "tocsin.attempts",
    "tocsin.api_keys",
)


def upgrade() -> None:
    """Create the tables and their indexes."""
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    """Drop every table, with all that is in them."""
    for table in TABLES:
        op.execute(f"DROP TABLE {table}")
