"""Events: publishing one, reading what is stored."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response
from pydantic import Field

from service.domain import errors, jsontext
from service.domain.errors import NotFound
from service.domain.identifiers import parse_uuid
from service.domain.model import Found, Scope
from service.flow.publish import publish
from service.store import views_events
from service.store.views_events import EventView
from service.web import bodies
from service.web.answers import Answer
from service.web.auth import Reader
from service.web.commands import Command, commanded
from service.web.described import CHANGES, KEYED, answers, refusals, takes
from service.web.fields import In, InstantIn, NameText, NoQuery, SubjectText
from service.web.paging import Listed, ListQuery, uuid
from service.web.schemas import Event, EventInFull, EventList
from service.web.state import House

router = APIRouter(tags=["events"])

EVENTS = Listed("events", uuid)


class EventsQuery(ListQuery):
    """Which events."""

    type: NameText | None = Field(None, description="Of exactly this type.", examples=["shipment.expired"])
    subject: SubjectText | None = Field(None, description="About exactly this subject.", examples=["shp_1042"])


class Publish(In):
    """A fact. The same tenantId, type, subject and version with the same data is the same event, however often sent."""

    type: str = Field(description="Dotted words.")
    subject: str = Field(description="What it is about: 1-255 bytes of UTF-8.")
    version: int = Field(description="Grows with each change of the subject; from 0.")
    data: Any = Field(description="Any JSON, at most 256 KiB; delivered byte for byte as it stands here.")
    tenant_id: str = "default"
    due_at: InstantIn | None = Field(None, description="Wait for a run of an outbox job whose cutoff is not before.")


_EXAMPLE = {
    "type": "shipment.expired",
    "subject": "shp_1042",
    "version": 7,
    "data": {"shipmentId": "shp_1042", "status": "expired"},
}


@router.post(
    "/v1/events",
    summary="Publish an event",
    description="Stores the event once and delivers it to every subscriber whose tenant and event types match.",
    status_code=201,
    responses={
        **answers(EventInFull, {201: "The event is stored.", 200: "It had been published before, just the same."}),
        **refusals(*CHANGES, errors.EventConflict),
    },
    openapi_extra=takes(Publish, _EXAMPLE),
)
async def publish_event(
    command: Annotated[Command, Depends(commanded(Scope.OPERATE, bodies.EVENT_BYTES))], house: House
) -> Response:
    """Store an event with the data's exact source text."""
    members, sources = jsontext.parse_object(command.raw)
    wanted = bodies.validate(Publish, members)
    found = Found(
        type=wanted.type,
        subject=wanted.subject,
        version=wanted.version,
        data=sources["data"],
        tenant_id=wanted.tenant_id,
    )

    async def work() -> Answer:
        published = await publish(house.db, house.doorbell, found, wanted.due_at, actor=command.actor)
        status = 201 if published.created else 200
        return _in_full(published.event, published.body, status, location=f"/v1/events/{published.event.id}")

    return await command.do(work)


@router.get(
    "/v1/events",
    summary="List events",
    responses={**answers(EventList, {200: "One page, newest first."}), **refusals(*KEYED, errors.Invalid)},
)
async def list_events(_: Reader, house: House, query: Annotated[EventsQuery, Query()]) -> Response:
    """One page of events, without their bodies."""
    page = EVENTS.page(query)
    async with house.db.begin() as tx:
        found = await views_events.page_of(tx, type=query.type, subject=query.subject, page=page)
    shown, cursor = EVENTS.cut(query, found, lambda view: view.id)
    return Answer.of(EventList(items=[Event.model_validate(view) for view in shown], next_cursor=cursor)).response()


@router.get(
    "/v1/events/{id}",
    summary="Read an event",
    responses={
        **answers(EventInFull, {200: "The event with its exact body."}),
        **refusals(*KEYED, errors.Invalid, errors.NotFound),
    },
)
async def get_event(_: Reader, __: NoQuery, house: House, id: str) -> Response:  # noqa: A002 - the path's name
    """One event with its body."""
    event_id = parse_uuid(id)
    if event_id is None:
        raise NotFound
    async with house.db.begin() as tx:
        found = await views_events.event(tx, event_id)
    if found is None:
        raise NotFound
    return _in_full(*found).response()


def _in_full(view: EventView, body: bytes | None, status: int = 200, location: str | None = None) -> Answer:
    """The event with its body spliced in as it is stored, because parsing and writing it again would change bytes."""
    head = Event.model_validate(view).model_dump_json(by_alias=True).encode()
    return Answer.raw(head[:-1] + b',"payload":' + (body or b"null") + b"}", status, location)
