"""What operators see of replays and dead letters: a delivery in full, a bulk replay, the kinds of dead letters."""

from typing import Any, Self
from uuid import UUID

from pydantic import Field

from service.domain.identifiers import delivery_id
from service.domain.model import DeliveryState, Outcome
from service.store.dead_letters import MAX_READ
from service.store.evidence import Evidence
from service.store.generations import Refusal
from service.store.replays import ReplayRecord, ReplayState, document_of
from service.web.fields import Instant, Out
from service.web.paging import Listing
from service.web.schemas import Attempt, Delivery

_REPLAY = "019ad3c4-7f00-7b1e-8a2b-3c4d5e6f7081"
_DELIVERY = delivery_id(UUID("019ad3c4-7d10-7a52-8c77-5b1c9e0d4f22"), 24)


class DeliveryReplay(Out):
    """How a generation after the first was opened; each attempt names the generation that it belongs to."""

    generation: int = Field(examples=[2])
    requested_by: str = Field(description="The name of the API key.", examples=["alice"])
    reason: str = Field(examples=["the receiver is mended"])
    at: Instant
    replay_id: UUID | None = Field(description="The bulk replay that it was part of.", examples=[None])
    was_state: DeliveryState = Field(description="In which state the generation before had ended.")
    was_reason: str | None = Field(examples=["rejected-by-receiver"])


class DeliveryAction(Out):
    """What an operator did to this delivery: a line of the audit trail."""

    at: Instant
    actor: str = Field(examples=["alice"])
    action: str = Field(examples=["delivery.replayed"])
    reason: str | None = Field(examples=["the receiver is mended"])


class DeliveryInFull(Delivery):
    """A delivery with its evidence; of each list the newest thousand, oldest first."""

    attempts: list[Attempt]
    replays: list[DeliveryReplay]
    actions: list[DeliveryAction] = Field(description="Bulk replays are no actions on it: they are in `replays`.")

    @classmethod
    def of(cls, found: Evidence) -> Self:
        """From the store's record."""
        return cls(
            **Delivery.model_validate(found.delivery).model_dump(),
            attempts=[Attempt.model_validate(each) for each in found.attempts],
            replays=[DeliveryReplay.model_validate(each) for each in found.replays],
            actions=[DeliveryAction.model_validate(each) for each in found.actions],
        )


class Skipped(Out):
    """Matching deliveries that are not replayed, by why."""

    payload_purged: int = Field(description="Retention deleted what would be sent.", examples=[0])
    subscriber_deleted: int = Field(examples=[0])
    tenant_changed: int = Field(description="The subscriber is of another tenant than the event.", examples=[0])
    changed: int = Field(
        description="They were replayed, resolved or tried since the replay was made; known at its end.", examples=[3]
    )


class Replay(Out):
    """A bulk replay: everything that had ended and matched when it was made, released at its rate."""

    id: UUID | None = Field(description="Null for a dry run, which is stored nowhere.", examples=[_REPLAY])
    filter: dict[str, Any] = Field(examples=[{"subscriberId": "billing", "reason": "attempts"}])
    reason: str = Field(examples=["billing was down all night"])
    requested_by: str = Field(description="The name of the API key.", examples=["alice"])
    state: ReplayState
    matched: int = Field(examples=[1200])
    replayed: int = Field(description="Released so far: each is a new generation.", examples=[400])
    skipped: Skipped
    rate_per_second: float = Field(examples=[100])
    created_at: Instant
    finished_at: Instant | None
    eta_seconds: float | None = Field(description="Until all are released; null when it has ended.", examples=[8.0])

    @classmethod
    def of(cls, record: ReplayRecord) -> Self:
        """From the store's record."""
        dry, running = record.state is ReplayState.DRY_RUN, record.state is ReplayState.RUNNING
        left = max(record.matched - record.done, 0) / record.rate_per_second
        return cls(
            id=None if dry else record.id,
            filter=document_of(record.sought),
            reason=record.reason,
            requested_by=record.requested_by,
            state=record.state,
            matched=record.matched,
            replayed=record.replayed,
            skipped=Skipped(
                payload_purged=record.skipped.get(Refusal.PAYLOAD_PURGED, 0),
                subscriber_deleted=record.skipped.get(Refusal.SUBSCRIBER_DELETED, 0),
                tenant_changed=record.skipped.get(Refusal.TENANT_CHANGED, 0),
                changed=record.skipped.get(Refusal.CHANGED, 0),
            ),
            rate_per_second=record.rate_per_second,
            created_at=record.created_at,
            finished_at=record.finished_at,
            eta_seconds=round(left, 1) if dry or running else None,
        )


class ReplayList(Listing[Replay]):
    """Bulk replays, newest first."""


class DeadKind(Out):
    """Dead letters that ended alike."""

    state: DeliveryState
    reason: str | None = Field(examples=["attempts"])
    outcome: Outcome | None = Field(
        serialization_alias="class", description="How their last attempt ended; null where none was made."
    )
    status: int | None = Field(examples=[404])
    subscriber_id: str | None = Field(description="Set where it was asked for by subscriber.", examples=[None])
    subscribers: int = Field(description="How many subscribers they are of.", examples=[2])
    count: int = Field(examples=[1000])
    oldest: Instant = Field(description="When the first of them ended.")
    newest: Instant = Field(description="When the last of them ended.")
    detail: str | None = Field(
        description="What is known of the failure of the newest of them, or what its receiver said.",
        examples=["no such shipment"],
    )
    example: str = Field(description="The newest of them.", examples=[_DELIVERY])


class DeadLetters(Out):
    """The dead letters there are, by what became of them; the most frequent kind first."""

    kinds: list[DeadKind] = Field(serialization_alias="groups")
    read: int = Field(description=f"How many were looked at: at most the newest {MAX_READ:,}.", examples=[1000])
    truncated: bool = Field(description="There are more, or more kinds of them.", examples=[False])
