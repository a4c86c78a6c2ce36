"""What a subscriber looks like from outside: the body of a PUT, and the answers."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Self
from uuid import UUID

from pydantic import BeforeValidator, Field
from pydantic.json_schema import SkipJsonSchema

from service.domain import subscriber as bounds
from service.domain.model import Mode, OnDeadLetter, Ordering, SubscriberState
from service.domain.subscriber import DEFAULT_GRACE_SECONDS, MAX_EVENT_TYPES, Bound, Wanted
from service.flow.control_subscribers import Shown
from service.store.subscribers import SubscriberRecord
from service.web.fields import In, Instant, Out
from service.web.paging import Listing

EXAMPLE: Mapping[str, object] = {"url": "https://billing.example/hooks", "eventTypes": ["shipment.*"]}
_HEADERS: Mapping[str, str] = {"x-team": "billing"}


def _no_state(_: object) -> None:
    message = "cannot be set here; use POST /v1/subscribers/{id}/pause or /resume"
    raise ValueError(message)


def _between(bound: Bound, description: str) -> Any:
    """A number whose bounds are shown here and kept by `flow.vetting`."""
    return Field(description=description, json_schema_extra={"minimum": bound.least, "maximum": bound.most})


_Chosen = Field(strict=False)
"""JSON has no enumerations: the text of one is what it takes."""


class SubscriberIn(In):
    """The whole of a subscriber; what is left out gets its default."""

    id: str | None = Field(None, description="The id in the path, if it is given at all.")
    tenant_id: str = Field("default", description="Events of this tenant are delivered.")
    url: str = Field(description="http or https, at most 2048 bytes, to an address that the guard lets through.")
    event_types: list[str] = Field(
        ["*"],
        description="Exact types, beginnings like `shipment.*`, or `*` for all.",
        json_schema_extra={"minItems": 1, "maxItems": MAX_EVENT_TYPES, "uniqueItems": True},
    )
    mode: Annotated[Mode, _Chosen] = Field(Mode.LIVE, description="`shadow` records what would be sent, sends nothing.")
    secret: str | None = Field(
        None,
        description="At creation only: `whsec_` and the base64 of 24-64 bytes. One is made where none is given.",
    )
    idempotent: Annotated[
        bool, Field(description="Whether the receiver knows repeats by their key; decides what follows a timeout.")
    ] = True
    ordering: Annotated[Ordering, _Chosen] = Ordering.NONE
    on_dead_letter: Annotated[OnDeadLetter, _Chosen] = OnDeadLetter.SKIP
    max_concurrency: Annotated[int, _between(bounds.MAX_CONCURRENCY, "Requests in flight, over all workers.")] = 16
    rate_per_second: Annotated[float | None, _between(bounds.RATE_PER_SECOND, "Null for no limit.")] = None
    timeout_seconds: float = Field(15.0, description="For a whole attempt; at least 0.5, and it must fit the lease.")
    max_attempts: Annotated[int, _between(bounds.MAX_ATTEMPTS, "Then the delivery is exhausted.")] = 8
    backoff_base_seconds: Annotated[float, _between(bounds.BACKOFF_BASE_SECONDS, "Doubles each time.")] = 1.0
    backoff_cap_seconds: float = Field(900.0, description="No backoff is longer; from the base to a day.")
    deadline_seconds: Annotated[float, _between(bounds.DEADLINE_SECONDS, "Then it is exhausted.")] = 259_200.0
    headers: dict[str, str] = Field(
        {},
        description="Sent with every request, credentials too: values are sealed in the database. At most 20.",
        examples=[_HEADERS],
    )
    state: SkipJsonSchema[Annotated[None, BeforeValidator(_no_state)]] = None

    def wanted(self, slug: str) -> Wanted:
        """The same in the house's own words."""
        values = self.model_dump(exclude={"id", "secret", "state", "event_types"})
        return Wanted(id=slug, event_types=tuple(self.event_types), **values)


class Rotation(In):
    """How long the older secrets go on signing."""

    grace_seconds: Annotated[float, _between(bounds.GRACE_SECONDS, "0 ends them at once.")] = DEFAULT_GRACE_SECONDS


class Subscriber(Out):
    """A destination with its limits and promises; its secret is never part of it."""

    id: str = Field(examples=["billing"])
    tenant_id: str = Field(examples=["default"])
    url: str = Field(examples=["https://billing.example/hooks"])
    event_types: list[str] = Field(examples=[["shipment.*"]])
    state: SubscriberState
    state_reason: str | None = Field(description="Why it is paused or disabled.", examples=[None])
    mode: Mode
    idempotent: bool
    ordering: Ordering
    on_dead_letter: OnDeadLetter
    max_concurrency: int = Field(examples=[16])
    rate_per_second: float | None = Field(examples=[None])
    timeout_seconds: float = Field(examples=[15])
    max_attempts: int = Field(examples=[8])
    backoff_base_seconds: float = Field(examples=[1])
    backoff_cap_seconds: float = Field(examples=[900])
    deadline_seconds: float = Field(examples=[259200])
    headers: dict[str, str] = Field(
        description="`***` stands for a value that only an `admin` key sees, or that can no longer be opened.",
        examples=[_HEADERS],
    )
    head_of_line_at: Instant | None = Field(
        description="In an ordered lane, when the oldest delivery that others wait for was made.", examples=[None]
    )
    created_at: Instant
    updated_at: Instant

    @classmethod
    def of(cls, record: SubscriberRecord, **more: object) -> Self:
        """The stored subscriber as it looks from outside."""
        about = {
            "state": record.state,
            "state_reason": record.state_reason,
            "head_of_line_at": record.head_of_line_at,
            "created_at": record.created_at,
            "updated_at": record.updated_at,
        }
        return cls.model_validate(asdict(record.wanted) | about | more)


class SubscriberShown(Subscriber):
    """A subscriber with the secret that was just made for it."""

    secret: str = Field(description="Keep it now: it is never shown again.", examples=["whsec_…"])


class SubscriberList(Listing[Subscriber]):
    """Subscribers, newest first."""


class TestSent(Out):
    """A test event on its way."""

    event_id: UUID
    delivery_id: str = Field(description="Read it to see what came of the test.")


def shown(change: Shown) -> Subscriber:
    """What a change leaves, with the secret where one was made."""
    if change.secret is None:
        return Subscriber.of(change.record)
    return SubscriberShown.of(change.record, secret=change.secret)
