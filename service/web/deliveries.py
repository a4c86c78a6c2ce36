"""Deliveries: which there are, and the whole evidence of one."""

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field

from service.domain import errors
from service.domain.errors import NotFound
from service.domain.identifiers import parse_delivery_id
from service.domain.model import DeliveryState
from service.store import evidence, views_deliveries
from service.store.views_deliveries import MOST, Sought
from service.web.answers import ok
from service.web.auth import Reader
from service.web.described import KEYED, answers, refusals
from service.web.fields import EndReason, InstantIn, NameText, NoQuery, UuidIn
from service.web.paging import Listed, ListQuery, whole
from service.web.replay_schemas import DeliveryInFull
from service.web.schemas import Delivery, DeliveryList
from service.web.state import House

router = APIRouter(tags=["deliveries"])

DELIVERIES = Listed("deliveries", whole(2**63 - 1))


class DeliveriesQuery(ListQuery):
    """Which deliveries."""

    state: DeliveryState | None = Field(None, description="In this state only.")
    reason: EndReason | None = Field(None, description="Which ended for this reason.", examples=["attempts"])
    subscriber_id: NameText | None = Field(None, description="To this subscriber only.", examples=["billing"])
    run_id: UuidIn | None = Field(None, description="Of this run only: the Run's `id`.")
    event_id: UuidIn | None = Field(None, description="Of this event only.")
    event_type: NameText | None = Field(None, description="Of exactly this type.", examples=["shipment.expired"])
    since: InstantIn | None = Field(None, description="Made at this instant or later.")
    until: InstantIn | None = Field(None, description="Made before this instant.")

    def sought(self) -> Sought:
        """As the store is asked."""
        return Sought(
            states=() if self.state is None else (self.state,),
            reason=self.reason,
            subscriber_id=self.subscriber_id,
            run=self.run_id,
            event_id=self.event_id,
            event_type=self.event_type,
            since=self.since,
            until=self.until,
        )


@router.get(
    "/v1/deliveries",
    summary="List deliveries",
    description=(
        f"For a page of an `eventType` or a `reason` at most {MOST:,} deliveries are looked at: it may be short, even "
        "empty, and still have a `nextCursor`, which leads on."
    ),
    responses={**answers(DeliveryList, {200: "One page, newest first."}), **refusals(*KEYED, errors.Invalid)},
)
async def list_deliveries(_: Reader, house: House, query: Annotated[DeliveriesQuery, Query()]) -> Response:
    """One page of deliveries, without payloads."""
    page = DELIVERIES.page(query)
    async with house.db.begin() as tx:
        found = await views_deliveries.page_of(tx, query.sought(), page)
    shown, cursor = DELIVERIES.cut(query, found, lambda view: view.row, found.looked_to)
    return ok(DeliveryList(items=[Delivery.model_validate(view) for view in shown], next_cursor=cursor))


@router.get(
    "/v1/deliveries/{id}",
    summary="Read a delivery",
    description="With every attempt, every replay, and what operators did to it.",
    responses={
        **answers(DeliveryInFull, {200: "The delivery and its evidence."}),
        **refusals(*KEYED, errors.Invalid, errors.NotFound),
    },
)
async def get_delivery(_: Reader, __: NoQuery, house: House, id: str) -> Response:  # noqa: A002 - the path's name
    """One delivery with its evidence."""
    named = parse_delivery_id(id)
    if named is None:
        raise NotFound
    async with house.db.begin() as tx:
        found = await evidence.whole(tx, *named)
    if found is None:
        raise NotFound
    return ok(DeliveryInFull.of(found))
