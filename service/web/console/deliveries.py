"""Deliveries, sought by what stands in the address of the page."""

from collections.abc import Sequence

from fastapi import APIRouter, Request, Response

from service.domain.model import DeliveryState
from service.store import subscribers, views_deliveries
from service.store.database import Tx
from service.store.views import Page
from service.web.console.filters import PER_PAGE, asked
from service.web.console.instants import WallIn, wall
from service.web.console.rendering import page
from service.web.console.route import ConsoleRoute
from service.web.console.session import Signed
from service.web.console.story import REASONS
from service.web.deliveries import DELIVERIES, DeliveriesQuery
from service.web.state import House

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)

OFFERED = 500
"""So many subscribers, the newest, are offered to choose from; any may be typed."""


class Query(DeliveriesQuery):
    """As the API takes it, and instants as browsers give them."""

    since: WallIn | None = None
    until: WallIn | None = None


@router.get("/console/deliveries")
async def show_deliveries(request: Request, _: Signed, house: House) -> Response:
    """One page of deliveries, newest first."""
    query = asked(request, Query, limit=str(PER_PAGE))
    async with house.db.begin() as tx:
        found = await views_deliveries.page_of(tx, query.sought(), DELIVERIES.page(query))
        slugs = await offered(tx)
    shown, cursor = DELIVERIES.cut(query, found, lambda view: view.row, found.looked_to)
    return page(
        request,
        "deliveries.html",
        deliveries=shown,
        next_cursor=cursor,
        states=list(DeliveryState),
        reasons=REASONS,
        slugs=slugs,
        since=wall(query.since),
        until=wall(query.until),
    )


async def offered(tx: Tx) -> Sequence[str]:
    """Ids of subscribers for a field to complete, by name."""
    return sorted(record.wanted.id for record in await subscribers.listed(tx, Page(OFFERED)))
