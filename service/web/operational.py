"""What the bodies of operational events look like, for the OpenAPI document; `flow.operational` writes them."""

from typing import Literal
from uuid import UUID

from pydantic import Field

from service.domain.identifiers import delivery_id
from service.domain.model import Outcome, RunSource
from service.domain.operational import Operational
from service.web.fields import Instant, Out
from service.web.schemas import WebhookBody

_RUN = "019ad3c4-7c00-7d3e-9b1a-2f6f1f6f0a11"
_EVENT = "019ad3c4-7d10-7a52-8c77-5b1c9e0d4f22"
_DELIVERY = delivery_id(UUID(_EVENT), 24)


class RunTold(Out):
    """What is told of any run."""

    run: UUID = Field(description="The run's `id`.", examples=[_RUN])
    job: str = Field(examples=["shipments.expire"])
    run_id: str = Field(examples=["nightly-2026-11-30"])
    cutoff: Instant
    source: RunSource
    events: int = Field(examples=[100])
    claimed_at: Instant


class SettledCounts(Out):
    """How many of the run's deliveries ended in which state."""

    total: int = Field(examples=[2000])
    delivered: int = Field(examples=[1998])
    exhausted: int = Field(examples=[1])
    rejected: int = Field(examples=[1])
    ambiguous: int = Field(examples=[0])
    cancelled: int = Field(examples=[0])


class RunSettledData(RunTold):
    """Every delivery of the run is terminal."""

    deliveries: SettledCounts
    completed_at: Instant


class RunFailedData(RunTold):
    """The run's source could not be read."""

    error: str = Field(description="Why, and the mend.", examples=["the database refused the statement: …"])


class FinalOutcome(Out):
    """How the last attempt ended."""

    outcome: Outcome = Field(alias="class", examples=["rejected"])
    status: int | None = Field(examples=[404])
    detail: str | None = Field(examples=[None])


class DeliveryDeadData(Out):
    """A delivery is a dead letter: nothing more is sent unless a person replays it."""

    delivery_id: str = Field(examples=[_DELIVERY])
    key: str = Field(description="The `webhook-id` that its receiver was sent.", examples=[f"{_EVENT}:billing"])
    event_id: UUID = Field(examples=[_EVENT])
    event_type: str = Field(examples=["shipment.expired"])
    subject: str = Field(examples=["shp_1042"])
    version: int = Field(examples=[7])
    subscriber_id: str = Field(examples=["billing"])
    run: UUID | None = Field(examples=[_RUN])
    state: Literal["exhausted", "rejected", "ambiguous"]
    reason: str | None = Field(examples=["attempts"])
    generation: int = Field(examples=[1])
    attempt_count: int = Field(examples=[8])
    last_outcome: FinalOutcome | None
    created_at: Instant
    finished_at: Instant


class SubscriberDisabledData(Out):
    """Tocsin has disabled a subscriber by itself; its deliveries are held until somebody resumes it."""

    subscriber_id: str = Field(examples=["billing"])
    reason: str = Field(examples=["the receiver answered 410 Gone"])


class RunSettled(WebhookBody):
    """`subject` is the run's id; `version` counts how often it has been settled."""

    type: Literal[Operational.RUN_SETTLED]
    subject: str = Field(examples=[_RUN])
    version: int = Field(examples=[1])
    data: RunSettledData


class RunFailed(WebhookBody):
    """`subject` is the run's id; `version` is higher each time it fails."""

    type: Literal[Operational.RUN_FAILED]
    subject: str = Field(examples=[_RUN])
    version: int = Field(examples=[1])
    data: RunFailedData


class DeliveryDead(WebhookBody):
    """`subject` is the delivery's id; `version` is the generation that ended so."""

    type: Literal[Operational.DELIVERY_DEAD]
    subject: str = Field(examples=[_DELIVERY])
    version: int = Field(examples=[1])
    data: DeliveryDeadData


class SubscriberDisabled(WebhookBody):
    """`subject` is the subscriber's id; `version` is the moment in microseconds since 1970."""

    type: Literal[Operational.SUBSCRIBER_DISABLED]
    subject: str = Field(examples=["billing"])
    version: int = Field(examples=[1796004003482910])
    data: SubscriberDisabledData


BODIES: dict[Operational, tuple[type[WebhookBody], str, str]] = {
    Operational.RUN_SETTLED: (
        RunSettled,
        "A run is settled",
        "Every delivery of a run is terminal; once more when a replay has opened it and it is settled again.",
    ),
    Operational.RUN_FAILED: (
        RunFailed,
        "A run failed",
        "Its source could not be read; mend the job and retry the run.",
    ),
    Operational.DELIVERY_DEAD: (
        DeliveryDead,
        "A delivery is a dead letter",
        "Its attempts or its deadline are used up, its receiver said no for good, or nobody knows whether it arrived.",
    ),
    Operational.SUBSCRIBER_DISABLED: (
        SubscriberDisabled,
        "A subscriber was disabled",
        "Its receiver answered 410 Gone, or has not answered well for five days. Its deliveries are held, not lost.",
    ),
}
"""Of each type: its body, a title, and when it is published."""
