"""Bulk replays: counting beforehand, starting, following and stopping one."""

from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Response
from pydantic import Field

from service.domain import errors
from service.domain.errors import NotFound
from service.domain.identifiers import parse_uuid
from service.domain.model import DeliveryState
from service.flow import control_replays
from service.flow.control_replays import DEFAULT_RATE
from service.store import replays
from service.store.replays import MAX_MATCHED
from service.store.views_deliveries import Sought
from service.web.answers import Answer, ok
from service.web.auth import Reader
from service.web.commands import Operate
from service.web.delivery_verdicts import Because
from service.web.described import CHANGES, KEYED, answers, refusals, takes
from service.web.fields import EndReason, In, InstantIn, NameText, NoQuery, UuidIn
from service.web.paging import Listed, ListQuery, uuid
from service.web.replay_schemas import Replay, ReplayList
from service.web.state import House

router = APIRouter(tags=["replays"])

REPLAYS = Listed("replays", uuid)


class ReplayFilter(In):
    """Which deliveries; at least one of these has to be named."""

    state: Annotated[DeliveryState | None, Field(strict=False)] = Field(
        None, description="A terminal state; without it, what is exhausted or rejected. The others have to be meant."
    )
    reason: EndReason | None = Field(None, description="The `reason` of the deliveries.", examples=["attempts"])
    subscriber_id: NameText | None = None
    run_id: UuidIn | None = Field(None, description="The Run's `id`.")
    event_type: NameText | None = Field(None, description="Exactly this type.")
    since: InstantIn | None = Field(None, description="Made at this instant or later.")
    until: InstantIn | None = Field(None, description="Made before this instant.")

    def sought(self) -> Sought:
        """As the store is asked."""
        return Sought(
            states=() if self.state is None else (self.state,),
            reason=self.reason,
            subscriber_id=self.subscriber_id,
            run=self.run_id,
            event_type=self.event_type,
            since=self.since,
            until=self.until,
        )


class ReplayIn(Because):
    """What to replay, why, and how fast."""

    filter: ReplayFilter
    dry_run: Annotated[bool, Field(description="Only count.")] = False
    rate_per_second: float = Field(DEFAULT_RATE, ge=0.1, le=10_000, description="Deliveries released a second.")


@router.post(
    "/v1/replays",
    summary="Replay many deliveries",
    description=(
        "Everything that has ended and matches now, each as its next generation, behind first attempts and retries and "
        f"at a rate. Durable: it goes on after a crash. At most {MAX_MATCHED:,} at once."
    ),
    status_code=HTTPStatus.ACCEPTED,
    responses={
        **answers(Replay, {202: "It runs; or, for a dry run, what it would do."}),
        **refusals(*CHANGES, errors.PayloadPurged),
    },
    openapi_extra=takes(
        ReplayIn, {"filter": {"subscriberId": "billing", "reason": "attempts"}, "reason": "billing was down all night"}
    ),
)
async def start_replay(command: Operate, house: House) -> Response:
    """Start a bulk replay in the name of the key's holder."""
    wanted = command.parse(ReplayIn)

    async def work() -> Answer:
        record = await control_replays.start_replay(
            house.db,
            house.doorbell,
            wanted.filter.sought(),
            actor=command.actor,
            reason=wanted.reason,
            rate=wanted.rate_per_second,
            dry_run=wanted.dry_run,
        )
        location = None if wanted.dry_run else f"/v1/replays/{record.id}"
        return Answer.of(Replay.of(record), HTTPStatus.ACCEPTED, location)

    return await command.do(work)


@router.get(
    "/v1/replays",
    summary="List bulk replays",
    responses={**answers(ReplayList, {200: "One page, newest first."}), **refusals(*KEYED, errors.Invalid)},
)
async def list_replays(_: Reader, house: House, query: Annotated[ListQuery, Query()]) -> Response:
    """One page of bulk replays."""
    async with house.db.begin() as tx:
        found = await replays.listed(tx, REPLAYS.page(query))
    shown, cursor = REPLAYS.cut(query, found, lambda record: record.id)
    return ok(ReplayList(items=[Replay.of(record) for record in shown], next_cursor=cursor))


@router.get(
    "/v1/replays/{id}",
    summary="Read a bulk replay",
    responses={**answers(Replay, {200: "How far it is."}), **refusals(*KEYED, errors.Invalid, errors.NotFound)},
)
async def get_replay(_: Reader, __: NoQuery, house: House, id: str) -> Response:  # noqa: A002 - the path's name
    """One bulk replay."""
    async with house.db.begin() as tx:
        record = await replays.read(tx, _replay(id))
    if record is None:
        raise NotFound
    return ok(Replay.of(record))


@router.post(
    "/v1/replays/{id}/cancel",
    summary="Stop a bulk replay",
    description="What it has released stays released. Cancelling it twice changes nothing.",
    responses={**answers(Replay, {200: "It is cancelled."}), **refusals(*CHANGES, errors.NotFound)},
    openapi_extra=takes(Because, {"reason": "billing is down again"}),
)
async def cancel_replay(command: Operate, house: House, id: str) -> Response:  # noqa: A002 - the path's name
    """Release nothing more."""
    wanted, replay = command.parse(Because), _replay(id)

    async def work() -> Answer:
        record = await control_replays.cancel_replay(house.db, replay, actor=command.actor, reason=wanted.reason)
        return Answer.of(Replay.of(record))

    return await command.do(work)


def _replay(text: str) -> UUID:
    """The id in a path; what cannot be one names no replay."""
    found = parse_uuid(text)
    if found is None:
        raise NotFound
    return found
