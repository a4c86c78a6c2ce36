"""Steering one delivery: replay, resolve, cancel."""

from enum import StrEnum
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import Field

from service.domain import errors
from service.domain.errors import NotFound
from service.domain.identifiers import parse_delivery_id
from service.domain.model import DeliveryState
from service.flow import control_deliveries
from service.flow.control_deliveries import Named
from service.web.answers import Answer
from service.web.commands import Operate
from service.web.described import CHANGES, answers, refusals, takes
from service.web.fields import In, ReasonText
from service.web.replay_schemas import DeliveryInFull
from service.web.state import House

router = APIRouter(tags=["deliveries"])


class Because(In):
    """Why it is done: 1-500 characters, which stand in the audit trail."""

    reason: ReasonText


class Resolution(StrEnum):
    """What a person found a dead letter to be."""

    DELIVERED = DeliveryState.DELIVERED.value
    CANCELLED = DeliveryState.CANCELLED.value


class Resolve(Because):
    """What the dead letter is, and how that is known."""

    resolution: Annotated[Resolution, Field(strict=False)]


@router.post(
    "/v1/deliveries/{id}/replay",
    summary="Replay a delivery",
    description=(
        "Sends it again as its next generation, with the same key and bytes; whatever happened stays on record. It "
        "must have ended, be it delivered, dead or cancelled. Of two replays at once one is accepted."
    ),
    status_code=HTTPStatus.ACCEPTED,
    responses={
        **answers(DeliveryInFull, {202: "It is on its way again."}),
        **refusals(*CHANGES, errors.NotFound, errors.PayloadPurged),
    },
    openapi_extra=takes(Because, {"reason": "the receiver is mended"}),
)
async def replay_delivery(command: Operate, house: House, id: str) -> Response:  # noqa: A002 - the path's name
    """Open the delivery's next generation."""
    wanted, named = command.parse(Because), _named(id)

    async def work() -> Answer:
        shown = await control_deliveries.replay_delivery(
            house.db, house.doorbell, named, actor=command.actor, reason=wanted.reason
        )
        return Answer.of(DeliveryInFull.of(shown), HTTPStatus.ACCEPTED)

    return await command.do(work)


@router.post(
    "/v1/deliveries/{id}/resolve",
    summary="Resolve a dead letter",
    description="For one that a person has looked at: says what it is; nothing is sent. What it blocked goes on.",
    responses={
        **answers(DeliveryInFull, {200: "It is resolved."}),
        **refusals(*CHANGES, errors.NotFound),
    },
    openapi_extra=takes(Resolve, {"resolution": "delivered", "reason": "billing has it, I asked them"}),
)
async def resolve_delivery(command: Operate, house: House, id: str) -> Response:  # noqa: A002 - the path's name
    """Put the dead letter into the state that a person found to be true."""
    wanted, named = command.parse(Resolve), _named(id)

    async def work() -> Answer:
        shown = await control_deliveries.resolve_delivery(
            house.db,
            house.doorbell,
            named,
            resolution=DeliveryState(wanted.resolution),
            actor=command.actor,
            reason=wanted.reason,
        )
        return Answer.of(DeliveryInFull.of(shown))

    return await command.do(work)


@router.post(
    "/v1/deliveries/{id}/cancel",
    summary="Cancel a delivery",
    description=(
        "Calls off one that has not ended. A request that is in flight is not taken back: its answer is kept as late "
        "evidence. Cancelling it twice changes nothing."
    ),
    responses={
        **answers(DeliveryInFull, {200: "It is cancelled."}),
        **refusals(*CHANGES, errors.NotFound),
    },
    openapi_extra=takes(Because, {"reason": "superseded by version 8"}),
)
async def cancel_delivery(command: Operate, house: House, id: str) -> Response:  # noqa: A002 - the path's name
    """Call the delivery off."""
    wanted, named = command.parse(Because), _named(id)

    async def work() -> Answer:
        shown = await control_deliveries.cancel_delivery(
            house.db, house.doorbell, named, actor=command.actor, reason=wanted.reason
        )
        return Answer.of(DeliveryInFull.of(shown))

    return await command.do(work)


def _named(text: str) -> Named:
    """The delivery in a path; what cannot be an id names none."""
    found = parse_delivery_id(text)
    if found is None:
        raise NotFound
    return Named(*found)
