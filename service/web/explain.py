"""Why a subscriber got an event, or did not."""

from typing import Annotated, Self
from uuid import UUID

from fastapi import APIRouter, Query, Response
from pydantic import AfterValidator, Field

from service.domain import errors
from service.domain.errors import Invalid, Problem
from service.domain.identifiers import parse_delivery_key, parse_uuid
from service.domain.model import Mode, SubscriberState
from service.flow import explaining
from service.flow.explaining import Cause, Explanation
from service.store.subscribers import SubscriberRecord
from service.web.answers import ok
from service.web.auth import Reader
from service.web.described import KEYED, answers, refusals
from service.web.fields import Asked, Instant, NameText, Out
from service.web.schemas import Delivery, Event
from service.web.state import House

router = APIRouter(tags=["deliveries"])


_EVENT = "019ad3c4-7d10-7a52-8c77-5b1c9e0d4f22"


def _parsed(text: str) -> tuple[UUID, str | None]:
    """The event, and the subscriber where the text is a whole webhook-id.

    Raises:
        ValueError: it is neither.

    """
    event = parse_uuid(text)
    found = parse_delivery_key(text) if event is None else (event, None)
    if found is None:
        msg = "must be a UUID in its usual form of 36 characters, or a whole webhook-id: that, a colon, the subscriber"
        raise ValueError(msg)
    return found


def _event_or_key(text: str) -> str:
    _parsed(text)
    return text


EventOrKey = Annotated[str, AfterValidator(_event_or_key)]


class ExplainQuery(Asked):
    """Which event, and which subscriber."""

    event_id: EventOrKey = Field(
        description="The Event's `id`, or a whole `webhook-id`: that and, behind a colon, the Subscriber's `id`.",
        examples=[_EVENT, f"{_EVENT}:billing"],
    )
    subscriber_id: NameText | None = Field(
        None,
        description="The Subscriber's `id`; deleted ones are known too. To be left out only where `eventId` has it.",
        examples=["billing"],
    )

    def both(self) -> tuple[UUID, str]:
        """The event and the subscriber.

        Raises:
            Invalid: no subscriber is named, or two are.

        """
        event, named = _parsed(self.event_id)
        slug = named or self.subscriber_id
        if slug is None:
            raise Invalid(Problem("/query/subscriberId", "is required where eventId is no whole webhook-id"))
        if self.subscriber_id not in {None, slug}:
            raise Invalid(Problem("/query/subscriberId", "is not the subscriber that eventId names behind its colon"))
        return event, slug


class Addressee(Out):
    """What of a subscriber decides whether it gets an event."""

    id: str = Field(examples=["billing"])
    tenant_id: str = Field(examples=["default"])
    event_types: list[str] = Field(examples=[["shipment.*"]])
    mode: Mode
    state: SubscriberState
    state_reason: str | None = Field(description="Why it is paused or disabled.", examples=[None])
    created_at: Instant
    updated_at: Instant
    deleted_at: Instant | None = Field(examples=[None])

    @classmethod
    def of(cls, record: SubscriberRecord) -> Self:
        """From the store's record."""
        wanted = record.wanted
        return cls(
            id=wanted.id,
            tenant_id=wanted.tenant_id,
            event_types=list(wanted.event_types),
            mode=wanted.mode,
            state=record.state,
            state_reason=record.state_reason,
            created_at=record.created_at,
            updated_at=record.updated_at,
            deleted_at=record.deleted_at,
        )


class ExplanationShown(Out):
    """The first thing that explains it, and all that it is judged by; null is what there is not."""

    event_id: UUID = Field(examples=[_EVENT])
    subscriber_id: str = Field(examples=["billing"])
    cause: Cause
    verdict: str = Field(
        description="Why, and the mend, for a person to read.",
        examples=["The receiver answered 200: it has it."],
    )
    matching: list[str] = Field(
        description="Those of the subscriber's present `eventTypes` that ask for the event's type.",
        examples=[["shipment.*"]],
    )
    event: Event | None
    subscriber: Addressee | None
    delivery: Delivery | None
    predecessor: Delivery | None = Field(description="In an ordered lane, what the delivery waits for.")

    @classmethod
    def of(cls, event_id: UUID, subscriber_id: str, found: Explanation) -> Self:
        """From what was found of the two."""
        known = found.known
        return cls(
            event_id=event_id,
            subscriber_id=subscriber_id,
            cause=found.cause,
            verdict=found.verdict,
            matching=list(known.matching),
            event=None if known.event is None else Event.model_validate(known.event),
            subscriber=None if known.subscriber is None else Addressee.of(known.subscriber),
            delivery=None if known.delivery is None else Delivery.model_validate(known.delivery),
            predecessor=None if known.predecessor is None else Delivery.model_validate(known.predecessor),
        )


@router.get(
    "/v1/explain",
    summary="Explain why a subscriber got an event, or did not",
    description="Whether both are there, whether they match, what became of the delivery; and what mends it.",
    responses={
        **answers(ExplanationShown, {200: "Why, also where there is no such event or subscriber."}),
        **refusals(*KEYED, errors.Invalid),
    },
)
async def get_explanation(_: Reader, house: House, query: Annotated[ExplainQuery, Query()]) -> Response:
    """Why the subscriber got the event, or did not."""
    event_id, subscriber_id = query.both()
    found = await explaining.explain(house.db, event_id, subscriber_id)
    return ok(ExplanationShown.of(event_id, subscriber_id, found))
