"""Subscribers: who gets what, and steering them one by one."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import AfterValidator

from service.domain import errors
from service.domain.errors import Invalid, NotFound, Problem
from service.domain.identifiers import is_subscriber_slug
from service.domain.model import Scope
from service.domain.subscriber import DEFAULT_GRACE_SECONDS
from service.flow import control_subscribers
from service.flow.control_subscribers import NO_SUCH
from service.flow.vetting import Vetting
from service.runtime import Runtime
from service.store import subscribers
from service.store.vault import Vault
from service.web.answers import Answer, ok
from service.web.auth import Reader
from service.web.commands import Administer, Operate, Why
from service.web.described import CHANGES, KEYED, answers, refusals, takes
from service.web.fields import NoQuery
from service.web.keyring import Actor
from service.web.paging import Listed, ListQuery, whole
from service.web.state import House
from service.web.subscriber_fields import (
    EXAMPLE,
    Rotation,
    Subscriber,
    SubscriberIn,
    SubscriberList,
    SubscriberShown,
    TestSent,
    shown,
)

router = APIRouter(tags=["subscribers"])

SUBSCRIBERS = Listed("subscribers", whole(2**31 - 1))


def _slug(id: str) -> str:  # noqa: A002 - the path's name
    """The id in the path; one that no subscriber can have is not asked for."""
    if not is_subscriber_slug(id):
        raise NotFound(NO_SUCH)
    return id


Slug = Annotated[str, AfterValidator(_slug)]


def _vault_for(reader: Actor, house: Runtime) -> Vault | None:
    """What opens headers: they may be credentials, so that only those who may set them see their values."""
    return house.vault if reader.scope is Scope.ADMIN else None


@router.put(
    "/v1/subscribers/{id}",
    summary="Create or replace a subscriber",
    description=(
        "The whole of it: what is left out gets its default. The signing secret is made here unless one is given, is "
        "shown this one time, and stays as it is on every later PUT. The same PUT again changes nothing."
    ),
    responses={
        **answers(SubscriberShown, {201: "It was created; `secret` is shown now and never again."}),
        **answers(Subscriber, {200: "It was replaced, or was just so before."}),
        **refusals(*CHANGES),
    },
    openapi_extra=takes(SubscriberIn, EXAMPLE),
)
async def put_subscriber(id: str, command: Administer, house: House) -> Response:  # noqa: A002 - the path's name
    """Create (201) or replace (200)."""
    body = command.parse(SubscriberIn)
    if body.id not in (None, id):
        raise Invalid(Problem("/id", "must be the id in the path, or be left out"))
    vetting = Vetting(house.egress, house.settings.longest_attempt_seconds)

    async def work() -> Answer:
        put = await control_subscribers.put_subscriber(
            house.db,
            body.wanted(id),
            actor=command.actor,
            vault=house.vault,
            vetting=vetting,
            secret=body.secret,
        )
        if not put.created:
            return Answer.of(shown(put))
        return Answer.of(shown(put), HTTPStatus.CREATED, location=f"/v1/subscribers/{id}")

    return await command.do(work)


@router.get(
    "/v1/subscribers",
    summary="List subscribers",
    responses={**answers(SubscriberList, {200: "One page, newest first."}), **refusals(*KEYED, errors.Invalid)},
)
async def list_subscribers(query: Annotated[ListQuery, Query()], house: House, reader: Reader) -> Response:
    """One page of the live subscribers."""
    async with house.db.begin() as tx:
        found = await subscribers.listed(tx, SUBSCRIBERS.page(query), _vault_for(reader, house))
    items, cursor = SUBSCRIBERS.cut(query, found, lambda record: record.row)
    return ok(SubscriberList(items=[Subscriber.of(record) for record in items], next_cursor=cursor))


@router.get(
    "/v1/subscribers/{id}",
    summary="Read a subscriber",
    responses={**answers(Subscriber, {200: "As it stands now."}), **refusals(*KEYED, errors.Invalid, errors.NotFound)},
)
async def get_subscriber(id: Slug, _: NoQuery, house: House, reader: Reader) -> Response:  # noqa: A002 - the path's name
    """One live subscriber, without its secret."""
    async with house.db.begin() as tx:
        record = await subscribers.read(tx, id, _vault_for(reader, house))
    if record is None:
        raise NotFound(NO_SUCH)
    return ok(Subscriber.of(record))


@router.delete(
    "/v1/subscribers/{id}",
    summary="Delete a subscriber",
    description="Cancels what is unfinished and keeps the history. A later PUT under this id begins with a new secret.",
    status_code=HTTPStatus.NO_CONTENT,
    response_class=Response,
    responses=refusals(*CHANGES, errors.NotFound),
)
async def delete_subscriber(id: Slug, command: Administer, house: House) -> Response:  # noqa: A002 - the path's name
    """Deleted, with nothing left to send."""

    async def work() -> Answer:
        await control_subscribers.delete_subscriber(house.db, id, actor=command.actor)
        return Answer(HTTPStatus.NO_CONTENT, {}, b"")

    return await command.do(work)


@router.post(
    "/v1/subscribers/{id}/pause",
    summary="Pause a subscriber",
    description="Holds its deliveries and loses none; what is in flight finishes. Pausing it twice changes nothing.",
    responses={
        **answers(Subscriber, {200: "It is paused."}),
        **refusals(*CHANGES, errors.NotFound, errors.Conflict),
    },
    openapi_extra=takes(Why, {"reason": "the receiver is being deployed"}, required=False),
)
async def pause_subscriber(id: Slug, command: Operate, house: House) -> Response:  # noqa: A002 - the path's name
    """Hold the subscriber's deliveries."""
    wanted = command.parse_optional(Why)

    async def work() -> Answer:
        record = await control_subscribers.pause_subscriber(house.db, id, actor=command.actor, reason=wanted.reason)
        return Answer.of(Subscriber.of(record))

    return await command.do(work)


@router.post(
    "/v1/subscribers/{id}/resume",
    summary="Resume a subscriber",
    description="Sends to it again, whether it was paused or disabled. Resuming an active one changes nothing.",
    responses={**answers(Subscriber, {200: "It is active."}), **refusals(*CHANGES, errors.NotFound)},
    openapi_extra=takes(Why, {"reason": "the receiver is back"}, required=False),
)
async def resume_subscriber(id: Slug, command: Operate, house: House) -> Response:  # noqa: A002 - the path's name
    """Send to the subscriber again."""
    wanted = command.parse_optional(Why)

    async def work() -> Answer:
        record = await control_subscribers.resume_subscriber(
            house.db, house.doorbell, id, actor=command.actor, reason=wanted.reason
        )
        return Answer.of(Subscriber.of(record))

    return await command.do(work)


@router.post(
    "/v1/subscribers/{id}/rotate-secret",
    summary="Rotate a subscriber's secret",
    description=(
        "Makes a new secret. Those that signed until now go on beside it for `graceSeconds`, so that a receiver can "
        "change over at its own time; 0 ends them at once, for one that leaked or can no longer be decrypted."
    ),
    responses={
        **answers(SubscriberShown, {200: "`secret` is the new one, shown now and never again."}),
        **refusals(*CHANGES, errors.NotFound, errors.Conflict),
    },
    openapi_extra=takes(Rotation, {"graceSeconds": DEFAULT_GRACE_SECONDS}, required=False),
)
async def rotate_secret(id: Slug, command: Administer, house: House) -> Response:  # noqa: A002 - the path's name
    """The new secret, this one time."""
    body = command.parse_optional(Rotation)

    async def work() -> Answer:
        rotated = await control_subscribers.rotate_secret(
            house.db, id, actor=command.actor, vault=house.vault, grace_seconds=body.grace_seconds
        )
        return Answer.of(shown(rotated))

    return await command.do(work)


@router.post(
    "/v1/subscribers/{id}/test",
    summary="Send a test event to a subscriber",
    description=(
        "A signed `tocsin.test` event, to this subscriber alone, through the whole path: whatever its event types, "
        "with its limits, retries and pause."
    ),
    status_code=HTTPStatus.ACCEPTED,
    responses={
        **answers(TestSent, {202: "It is on its way; the delivery shows what came of it."}),
        **refusals(*CHANGES, errors.NotFound),
    },
)
async def send_test(id: Slug, command: Operate, house: House) -> Response:  # noqa: A002 - the path's name
    """The delivery to look at."""

    async def work() -> Answer:
        sent = await control_subscribers.send_test(house.db, house.doorbell, id, actor=command.actor)
        body = TestSent(event_id=sent.event, delivery_id=sent.delivery)
        return Answer.of(body, HTTPStatus.ACCEPTED, location=f"/v1/deliveries/{sent.delivery}")

    return await command.do(work)
