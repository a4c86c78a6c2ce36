"""What answers look like: the names that schedulers, receivers and scripts rely on, made from the store's views."""

from typing import Any
from uuid import UUID

from pydantic import Field

from service.domain.identifiers import delivery_id
from service.domain.model import DeliveryState, HeldBy, Outcome, RunSource, RunState
from service.web.fields import Instant, Out
from service.web.paging import Listing

_RUN = "019ad3c4-7c00-7d3e-9b1a-2f6f1f6f0a11"
_EVENT = "019ad3c4-7d10-7a52-8c77-5b1c9e0d4f22"
_DELIVERY = delivery_id(UUID(_EVENT), 24)
_SHA256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"


class DeliveryCounts(Out):
    """How many of a run's deliveries are in each state; `leased` ones are being sent."""

    total: int = Field(examples=[2000])
    pending: int = Field(examples=[18])
    leased: int = Field(examples=[0])
    delivered: int = Field(examples=[1980])
    exhausted: int = Field(examples=[1])
    rejected: int = Field(examples=[1])
    ambiguous: int = Field(examples=[0])
    cancelled: int = Field(examples=[0])


class Run(Out):
    """The one execution that (job, runId) ever gets.

    `completed` means that every event is found and fanned out; `settled`, that every delivery is terminal as well.
    """

    id: UUID = Field(examples=[_RUN])
    job: str = Field(examples=["shipments.expire"])
    run_id: str = Field(examples=["nightly-2026-11-30"])
    cutoff: Instant
    source: RunSource
    state: RunState
    settled: bool
    events: int = Field(examples=[100])
    deliveries: DeliveryCounts
    oldest_pending_age_seconds: float | None = Field(examples=[12.5])
    claimed_at: Instant
    started_at: Instant | None
    completed_at: Instant | None
    settled_at: Instant | None
    error: str | None = Field(description="Why the run failed, and the mend.", examples=[None])
    progress: dict[str, Any] | None = Field(
        description="How far a source that does work of its own has come, such as retention.", examples=[None]
    )


class RunList(Listing[Run]):
    """Runs, newest first."""


class TickAccepted(Out):
    """The tick has its run; `duplicate` when it had come before."""

    accepted: bool = Field(examples=[True])
    duplicate: bool = Field(examples=[False])
    run: Run


class Job(Out):
    """A job of tocsin.toml and how it stands."""

    job: str = Field(examples=["shipments.expire"])
    source: str = Field(examples=["sql"])
    event_type: str | None = Field(examples=["shipment.expired"])
    paused: bool
    paused_reason: str | None = Field(examples=[None])
    last_tick_at: Instant | None
    frozen_since: Instant | None = Field(
        description="Since then each tick that came has only repeated a run of long ago: its body does not change.",
        examples=[None],
    )
    last_run: Run | None


class JobList(Listing[Job]):
    """Jobs, by name."""


class Event(Out):
    """An immutable fact; unique by tenantId, type, subject and version."""

    id: UUID = Field(examples=[_EVENT])
    tenant_id: str = Field(examples=["default"])
    type: str = Field(examples=["shipment.expired"])
    subject: str = Field(examples=["shp_1042"])
    version: int = Field(examples=[7])
    run: UUID | None = Field(description="The id of the run that found it.", examples=[_RUN])
    due_at: Instant | None = Field(description="It waits for a run of an outbox job whose cutoff is not before.")
    payload_sha256: str = Field(description="Of the exact body bytes.", examples=[_SHA256])
    created_at: Instant
    fanned_out_at: Instant | None
    purged_at: Instant | None = Field(
        description="Since then its payload is gone: a retention job deleted it.", examples=[None]
    )
    published_by: str | None = Field(
        description="The API key that published it; null where a run found it.", examples=[None]
    )


class EventInFull(Event):
    """An event with its body."""

    payload: Any = Field(
        description="The exact body that every receiver gets, byte for byte as it stands here; null once it is purged.",
        examples=[
            {
                "id": _EVENT,
                "type": "shipment.expired",
                "timestamp": "2026-11-30T02:00:03.482910Z",
                "tenantId": "default",
                "subject": "shp_1042",
                "version": 7,
                "data": {"shipmentId": "shp_1042", "status": "expired"},
            }
        ],
    )


class EventList(Listing[Event]):
    """Events, newest first, without their bodies."""


class LastOutcome(Out):
    """How the latest attempt ended."""

    outcome: Outcome = Field(serialization_alias="class")
    status: int | None = Field(examples=[429])
    detail: str | None = Field(examples=["HTTP 429"])


class Delivery(Out):
    """One event on its way to one subscriber."""

    id: str = Field(examples=[_DELIVERY])
    key: str = Field(description="The `webhook-id`: constant for ever.", examples=[f"{_EVENT}:billing"])
    event_id: UUID = Field(examples=[_EVENT])
    event_type: str = Field(examples=["shipment.expired"])
    subject: str = Field(examples=["shp_1042"])
    version: int = Field(examples=[7])
    tenant_id: str = Field(examples=["default"])
    subscriber_id: str = Field(examples=["billing"])
    run: UUID | None = Field(examples=[_RUN])
    state: DeliveryState
    held_by: HeldBy | None = Field(description="Why it is not being sent although it may be due.")
    generation: int = Field(examples=[1])
    attempt_count: int = Field(description="Over all generations; never reset.", examples=[2])
    generation_attempts: int = Field(examples=[2])
    next_attempt_at: Instant | None = Field(description="Null when it is terminal.")
    lease_owner: str | None = Field(description="The worker that is sending it.", examples=[None])
    lease_expires_at: Instant | None
    deadline_at: Instant
    last_outcome: LastOutcome | None
    reason: str | None = Field(description="Why it is in a terminal state.", examples=[None])
    payload_sha256: str = Field(examples=[_SHA256])
    created_at: Instant
    finished_at: Instant | None


class DeliveryList(Listing[Delivery]):
    """Deliveries, newest first."""


class Attempt(Out):
    """One try at a delivery; evidence that is never changed."""

    number: int = Field(examples=[1])
    generation: int = Field(examples=[1])
    outcome: Outcome
    status: int | None = Field(examples=[429])
    detail: str | None = Field(examples=["HTTP 429"])
    counted: bool = Field(description="Whether it used up one of maxAttempts.")
    late: bool = Field(description="Its lease was lost before it ended: evidence that decided nothing.")
    started_at: Instant
    duration_ms: int = Field(examples=[184])
    worker: str = Field(examples=["host:4711:a1b2c3"])
    response_excerpt: str | None = Field(examples=["slow down"])


class Health(Out):
    """The process answers."""

    status: str = Field(examples=["ok"])


class FieldFault(Out):
    """One fault in the input, without the value."""

    pointer: str = Field(description="RFC 6901; /query/... and /header/... for those.", examples=["/cutoffIso"])
    detail: str = Field(examples=["must be RFC 3339 with an offset, like 2026-11-30T02:00:00Z"])


class ProblemDocument(Out):
    """A refusal (RFC 9457)."""

    type: str = Field(description="A path that this service serves a page under.", examples=["/problems/invalid"])
    title: str = Field(examples=["Some fields cannot be accepted"])
    status: int = Field(examples=[422])
    detail: str = Field(examples=["The request has fields that cannot be accepted."])
    errors: list[FieldFault] | None = None


class WebhookBody(Out):
    """What a receiver gets: the same bytes on every attempt, in every generation, to every subscriber."""

    id: UUID = Field(examples=[_EVENT])
    type: str = Field(examples=["shipment.expired"])
    timestamp: Instant
    tenant_id: str = Field(examples=["default"])
    subject: str = Field(examples=["shp_1042"])
    version: int = Field(examples=[7])
    data: Any = Field(examples=[{"shipmentId": "shp_1042", "status": "expired"}])
