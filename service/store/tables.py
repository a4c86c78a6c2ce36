"""The tables as SQLAlchemy Core sees them; `alembic/versions` creates them and a test compares the two.

All live in the schema `tocsin`, so that the database of an application can be shared without a clash of names.
Hot tables leave room in their pages (fillfactor) and keep the columns that a claim touches out of every index, so
that claims stay heap-only updates. `deliveries` and `attempts` carry no foreign keys: their rows are only ever derived
from rows that exist, and the per-row trigger would cost the fan-out its speed.
"""

import json
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.types import TypeDecorator

from service.domain.operational import PATTERNS

SCHEMA = "tocsin"


class Document(TypeDecorator[Any]):
    """A jsonb column read as a Python value; elsewhere JSON leaves the driver as its exact text (see `database`)."""

    impl = JSONB
    cache_ok = True

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:  # noqa: ARG002 - the decorator's shape
        """Parse the text that the driver hands out."""
        return None if value is None else json.loads(value)


metadata = MetaData(
    schema=SCHEMA,
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    },
)

Instant = DateTime(timezone=True)
NOW = text("now()")

LISTENS = f"deleted_at IS NULL AND event_types && '{{{', '.join(PATTERNS)}}}'::text[]"
"""Of the subscribers, the few who ask for operational events."""

jobs = Table(
    "jobs",
    metadata,
    Column("name", Text, primary_key=True),
    Column("paused", Boolean, nullable=False, server_default=text("false")),
    Column("paused_reason", Text),
    Column("last_tick_at", Instant),
    Column("frozen_since", Instant),
)

runs = Table(
    "runs",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("job", Text, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("cutoff", Instant, nullable=False),
    Column("source", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("discovered", Boolean, nullable=False, server_default=text("false")),
    Column("events", BigInteger, nullable=False, server_default=text("0")),
    Column("lease_owner", Text),
    Column("lease_expires_at", Instant),
    Column("lease_seq", Integer, nullable=False, server_default=text("0")),
    Column("claimed_at", Instant, nullable=False, server_default=NOW),
    Column("started_at", Instant),
    Column("completed_at", Instant),
    Column("settled_at", Instant),
    Column("error", Text),
    Column("progress", Document),
    Column("settlements", Integer, nullable=False, server_default=text("0")),
    Column("traceparent", Text),
    UniqueConstraint("job", "run_id"),
    Index("ix_runs_open", "cutoff", "id", postgresql_where=text("state IN ('claimed', 'running')")),
    Index("ix_runs_unsettled", "id", postgresql_where=text("settled_at IS NULL AND state = 'completed'")),
    Index(None, "job", "id"),
)

events = Table(
    "events",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("tenant_id", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("topics", ARRAY(Text), nullable=False),
    Column("run_id", Uuid, ForeignKey("runs.id")),
    Column("due_at", Instant),
    Column("body", LargeBinary),
    Column("body_sha256", LargeBinary, nullable=False),
    Column("data_sha256", LargeBinary, nullable=False),
    Column("created_at", Instant, nullable=False, server_default=NOW),
    Column("fanned_out_at", Instant),
    Column("fan_out_after", Integer, nullable=False, server_default=text("0")),
    Column("purged_at", Instant),
    Column("published_by", Text),
    UniqueConstraint("tenant_id", "type", "subject", "version"),
    Index("ix_events_payload", "id", postgresql_where=text("body IS NOT NULL")),
    Index("ix_events_unfanned", "run_id", "id", postgresql_where=text("fanned_out_at IS NULL AND run_id IS NOT NULL")),
    Index(
        "ix_events_direct",
        "id",
        postgresql_where=text("fanned_out_at IS NULL AND run_id IS NULL AND due_at IS NULL"),
    ),
    Index(
        "ix_events_due",
        "due_at",
        "id",
        postgresql_where=text("fanned_out_at IS NULL AND run_id IS NULL AND due_at IS NOT NULL"),
    ),
    Index(None, "run_id", "id"),
    Index(None, "type", "id"),
    Index(None, "subject", "id"),
)

subscribers = Table(
    "subscribers",
    metadata,
    Column("row", Integer, Identity(always=True), primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("tenant_id", Text, nullable=False),
    Column("url", Text, nullable=False),
    Column("event_types", ARRAY(Text), nullable=False),
    Column("mode", Text, nullable=False),
    Column("idempotent", Boolean, nullable=False),
    Column("ordering", Text, nullable=False),
    Column("on_dead_letter", Text, nullable=False),
    Column("max_concurrency", Integer, nullable=False),
    Column("rate_per_second", Double),
    Column("timeout_seconds", Double, nullable=False),
    Column("max_attempts", Integer, nullable=False),
    Column("backoff_base_seconds", Double, nullable=False),
    Column("backoff_cap_seconds", Double, nullable=False),
    Column("deadline_seconds", Double, nullable=False),
    Column("headers", Document, nullable=False),  # by name; each value is sealed (`vault.seal_texts`)
    Column("revision", Integer, nullable=False, server_default=text("1")),
    Column("created_at", Instant, nullable=False, server_default=NOW),
    Column("updated_at", Instant, nullable=False, server_default=NOW),
    Column("deleted_at", Instant),
    Index("ix_subscribers_live", "tenant_id", "row", postgresql_where=text("deleted_at IS NULL")),
    Index("ix_subscribers_audience", "tenant_id", postgresql_where=text(LISTENS)),
)

secrets = Table(
    "subscriber_secrets",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("subscriber", Integer, ForeignKey("subscribers.row"), nullable=False),
    Column("sealed", LargeBinary, nullable=False),
    Column("created_at", Instant, nullable=False, server_default=NOW),
    Column("expires_at", Instant),
    Index(None, "subscriber", "id"),
)

lanes = Table(
    "lanes",
    metadata,
    Column("subscriber", Integer, ForeignKey("subscribers.row"), primary_key=True),
    Column("state", Text, nullable=False, server_default=text("'active'")),
    Column("state_reason", Text),
    Column("origin", Text, nullable=False, server_default=text("''")),
    Column("ordering", Text, nullable=False, server_default=text("'none'")),
    Column("on_dead_letter", Text, nullable=False, server_default=text("'skip'")),
    Column("max_concurrency", Integer, nullable=False),
    Column("leased", Integer, nullable=False, server_default=text("0")),
    Column("leased_late", Integer, nullable=False, server_default=text("0")),
    Column("rate_per_second", Double),
    Column("tokens", Double, nullable=False, server_default=text("1")),
    Column("tokens_at", Instant, nullable=False, server_default=NOW),
    Column("failures", Integer, nullable=False, server_default=text("0")),
    Column("probes", Integer, nullable=False, server_default=text("0")),
    Column("ramp", Integer),
    Column("open_until", Instant, nullable=False, server_default=text("'-infinity'")),
    Column("failing_since", Instant),
    Column("next_due_at", Instant, nullable=False, server_default=text("'infinity'")),
    Column("throttled_until", Instant, nullable=False, server_default=text("'-infinity'")),
    Column("lapse_at", Instant, nullable=False, server_default=text("'infinity'")),
    Column("claimed_at", Instant, nullable=False, server_default=text("'-infinity'")),
    postgresql_with={"fillfactor": "50", "autovacuum_vacuum_scale_factor": "0.01"},
)

deliveries = Table(
    "deliveries",
    metadata,
    Column("row", BigInteger, Identity(always=True), primary_key=True),
    Column("event_id", Uuid, nullable=False),
    Column("subscriber", Integer, nullable=False),
    Column("run_id", Uuid),
    Column("state", Text, nullable=False, server_default=text("'pending'")),
    Column("generation", Integer, nullable=False, server_default=text("1")),
    Column("attempt_count", BigInteger, nullable=False, server_default=text("0")),
    Column("generation_attempts", Integer, nullable=False, server_default=text("0")),
    Column("queue", SmallInteger, nullable=False, server_default=text("0")),  # see `model.Queue`
    Column("order_key", BigInteger),
    Column("next_attempt_at", Instant, nullable=False, server_default=NOW),
    Column("deadline_at", Instant, nullable=False),
    Column("lease_owner", Text),
    Column("leased_at", Instant),
    Column("lease_expires_at", Instant),
    Column("lease_seq", BigInteger, nullable=False, server_default=text("0")),
    Column("reason", Text),
    Column("created_at", Instant, nullable=False, server_default=NOW),
    Column("finished_at", Instant),
    UniqueConstraint("event_id", "subscriber"),
    Index(
        "ix_deliveries_due",
        "subscriber",
        "queue",
        "next_attempt_at",
        "row",
        postgresql_where=text("finished_at IS NULL"),
    ),
    Index(
        "ix_deliveries_order",
        "subscriber",
        "order_key",
        "row",
        postgresql_where=text("finished_at IS NULL AND order_key IS NOT NULL"),
    ),
    Index(
        "ix_deliveries_blocking",
        "subscriber",
        "order_key",
        postgresql_where=text("order_key IS NOT NULL AND state IN ('exhausted', 'rejected', 'ambiguous')"),
    ),
    Index("ix_deliveries_deadline", "deadline_at", postgresql_where=text("finished_at IS NULL")),
    Index(None, "run_id", "state", "row", postgresql_where=text("run_id IS NOT NULL")),
    Index(None, "subscriber", "row"),
    Index(
        "ix_deliveries_undelivered",
        "state",
        "row",
        postgresql_where=text("state IN ('exhausted', 'rejected', 'ambiguous', 'cancelled')"),
    ),
    Index(None, "reason", "row", postgresql_where=text("reason IS NOT NULL")),
    postgresql_with={"fillfactor": "70", "autovacuum_vacuum_scale_factor": "0.01"},
)

attempts = Table(
    "attempts",
    metadata,
    Column("delivery", BigInteger, primary_key=True),
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("lease_seq", BigInteger, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("counted", Boolean, nullable=False),
    Column("late", Boolean, nullable=False, server_default=text("false")),
    Column("status", SmallInteger),
    Column("detail", Text),
    Column("started_at", Instant, nullable=False),
    Column("duration_ms", BigInteger, nullable=False),
    Column("worker", Text, nullable=False),
    Column("excerpt", Text),
)

generations = Table(
    "generations",
    metadata,
    Column("delivery", BigInteger, primary_key=True),
    Column("generation", Integer, primary_key=True),
    Column("replay_id", Uuid),
    Column("requested_by", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("was_state", Text, nullable=False),
    Column("was_reason", Text),
    Column("at", Instant, nullable=False, server_default=NOW),
)

replays = Table(
    "replays",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("filter", Document, nullable=False),
    Column("reason", Text, nullable=False),
    Column("requested_by", Text, nullable=False),
    Column("rate_per_second", Double, nullable=False),
    Column("state", Text, nullable=False),
    Column("matched", BigInteger, nullable=False),
    Column("replayed", BigInteger, nullable=False, server_default=text("0")),
    Column("skipped", Document, nullable=False, server_default=text("'{}'::jsonb")),
    Column("after_row", BigInteger, nullable=False, server_default=text("0")),
    Column("last_row", BigInteger, nullable=False),
    Column("next_at", Instant, nullable=False, server_default=NOW),
    Column("created_at", Instant, nullable=False, server_default=NOW),
    Column("finished_at", Instant),
    Index("ix_replays_running", "next_at", postgresql_where=text("state = 'running'")),
)

dispatch = Table(
    "dispatch",
    metadata,
    Column("one", Boolean, primary_key=True, server_default=text("true")),
    Column("paused", Boolean, nullable=False, server_default=text("false")),
    Column("reason", Text),
    Column("paused_by", Text),
    Column("since", Instant),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("name", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("hash", LargeBinary, nullable=False, unique=True),
    Column("created_at", Instant, nullable=False, server_default=NOW),
    Column("revoked_at", Instant),
    Column("expires_at", Instant),
    Column("last_used_at", Instant),
    Index("uq_api_keys_live_name", "name", unique=True, postgresql_where=text("revoked_at IS NULL")),
)

idempotency = Table(
    "idempotency_keys",
    metadata,
    Column("actor", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("request_sha256", LargeBinary, nullable=False),
    Column("status", SmallInteger),
    Column("sealed_answer", LargeBinary),
    Column("created_at", Instant, nullable=False, server_default=NOW),
    Column("expires_at", Instant, nullable=False),
    Index(None, "expires_at"),
)

audit = Table(
    "audit",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("at", Instant, nullable=False, server_default=NOW),
    Column("actor", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("object", Text, nullable=False),
    Column("reason", Text),
    Column("detail", Document, nullable=False, server_default=text("'{}'::jsonb")),
    Index(None, "actor", "id"),
    Index(None, "object", "id"),
)

pulse = Table(
    "pulse",
    metadata,
    Column("minute", Instant, primary_key=True),
    Column("what", Text, primary_key=True),
    Column("n", BigInteger, nullable=False),
    Column("at", Instant, nullable=False, server_default=NOW),
    postgresql_with={"fillfactor": "50"},
)
