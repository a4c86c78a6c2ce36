"""Subscribers: how each fares, steering it, a new secret, a test."""

from collections.abc import Awaitable, Callable
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from service.domain.errors import Invalid, NotFound, Problem
from service.domain.model import Scope, SubscriberState
from service.domain.subscriber import DEFAULT_GRACE_SECONDS, GRACE_SECONDS
from service.domain.urls import origin
from service.flow import control_subscribers
from service.flow.control_subscribers import NO_SUCH
from service.store import audit, dead_letters, subscribers, views_deliveries, views_lanes
from service.store.database import Tx
from service.store.subscribers import SubscriberRecord
from service.store.views import Page
from service.store.views_deliveries import Sought
from service.store.views_lanes import LaneView
from service.web.console.delivery import because
from service.web.console.filters import PER_PAGE, asked
from service.web.console.forms import Done, Form, act, posted
from service.web.console.rendering import page
from service.web.console.route import ConsoleRoute
from service.web.console.session import Session, Signed
from service.web.paging import ListQuery
from service.web.state import House
from service.web.subscribers import SUBSCRIBERS, Slug

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)

PATH = "/console/subscribers"
MOST = 1000
"""So many, the newest, are looked through for those in a state."""
RECENT, LINES = 8, 5


class Query(ListQuery):
    """Which subscribers: one by its id, those in a state, or all."""

    id: str | None = None
    state: SubscriberState | None = None


@router.get(PATH)
async def show_subscribers(request: Request, _: Signed, house: House) -> Response:
    """One page of subscribers, newest first, with how they fare."""
    query = asked(request, Query, limit=str(2 * PER_PAGE))
    if query.id:
        return RedirectResponse(f"{PATH}/{quote(query.id, safe='')}", 303)
    async with house.db.begin() as tx:
        shown, cursor = await _page(tx, query)
        standings = await views_lanes.standings(tx, [record.row for record in shown])
    rows = [_row(record, standings.get(record.row)) for record in shown]
    return page(request, "subscribers.html", rows=rows, next_cursor=cursor, states=list(SubscriberState), most=MOST)


def _row(record: SubscriberRecord, lane: LaneView | None) -> dict[str, object]:
    return {"record": record, "lane": lane, "origin": origin(record.wanted.url), "condition": condition(record, lane)}


async def _page(tx: Tx, query: Query) -> tuple[list[SubscriberRecord], str | None]:
    if query.state is not None:
        known = await subscribers.listed(tx, Page(MOST))
        return [record for record in known if record.state == query.state], None
    shown, cursor = SUBSCRIBERS.cut(query, await subscribers.listed(tx, SUBSCRIBERS.page(query)), lambda each: each.row)
    return list(shown), cursor


@router.get(f"{PATH}/{{id}}")
async def show_subscriber(request: Request, _: Signed, house: House, id: Slug) -> Response:  # noqa: A002 - the path's name
    """One subscriber: how it fares, what it was sent last, its limits, and what was done to it."""
    async with house.db.begin() as tx:
        record = await subscribers.read(tx, id)
        if record is None:
            raise NotFound(NO_SUCH)
        lane = (await views_lanes.standings(tx, [record.row])).get(record.row)
        return page(
            request,
            "subscriber.html",
            subscriber=record,
            wanted=record.wanted,
            lane=lane,
            condition=condition(record, lane),
            dead=await dead_letters.dead_letters(tx, subscriber_id=id, by_subscriber=False),
            recent=await views_deliveries.page_of(tx, Sought(subscriber_id=id), Page(RECENT)),
            trail=await audit.listed(tx, actor=None, object=f"subscriber:{id}", page=Page(LINES)),
            grace=int(DEFAULT_GRACE_SECONDS),
            longest_grace=int(GRACE_SECONDS.most),
        )


@router.post(f"{PATH}/{{id}}/pause")
async def pause_subscriber(request: Request, session: Signed, house: House, id: Slug) -> Response:  # noqa: A002
    """Hold its deliveries."""

    async def pause(form: Form) -> str:
        reason = because(form)
        await control_subscribers.pause_subscriber(house.db, id, actor=session.actor.name, reason=reason)
        return f"{id} is paused: its deliveries are held, none is lost."

    return await _steer(request, session, id, Scope.OPERATE, pause)


@router.post(f"{PATH}/{{id}}/resume")
async def resume_subscriber(request: Request, session: Signed, house: House, id: Slug) -> Response:  # noqa: A002
    """Send to it again."""

    async def resume(form: Form) -> str:
        await control_subscribers.resume_subscriber(
            house.db, house.doorbell, id, actor=session.actor.name, reason=form.reason()
        )
        return f"{id} is active: what waited goes out, slowly at first."

    return await _steer(request, session, id, Scope.OPERATE, resume)


@router.post(f"{PATH}/{{id}}/rotate-secret")
async def rotate_secret(request: Request, session: Signed, house: House, id: Slug) -> Response:  # noqa: A002
    """Make a new secret, which the next page shows this one time."""

    async def rotate(form: Form) -> str:
        shown = await control_subscribers.rotate_secret(
            house.db, id, actor=session.actor.name, vault=house.vault, grace_seconds=_grace(form)
        )
        return f"The new secret of {id}, shown this one time: {shown.secret}"

    return await _steer(request, session, id, Scope.ADMIN, rotate)


@router.post(f"{PATH}/{{id}}/test")
async def send_test(request: Request, session: Signed, house: House, id: Slug) -> Response:  # noqa: A002
    """Send a test event; then to its delivery."""

    async def test(_: Form) -> Done:
        sent = await control_subscribers.send_test(house.db, house.doorbell, id, actor=session.actor.name)
        return Done("The test is on its way; this page tells what comes of it.", f"/console/deliveries/{sent.delivery}")

    return await _steer(request, session, id, Scope.OPERATE, test)


def condition(record: SubscriberRecord, lane: LaneView | None) -> tuple[str, str]:
    """How it fares, in a word or two, and the tone of that."""
    if record.state is not SubscriberState.ACTIVE:
        return record.state.value, "bad" if record.state is SubscriberState.DISABLED else "wait"
    if lane and lane.is_open:
        return "circuit open", "bad"
    if lane and lane.throttled_until:
        return "throttled", "wait"
    return ("failing", "doubt") if lane and lane.failures else ("fine", "good")


def _grace(form: Form) -> float:
    given = form.get("graceSeconds")
    try:
        return float(given) if given else DEFAULT_GRACE_SECONDS
    except ValueError:
        raise Invalid(Problem("/graceSeconds", "must be a number of seconds")) from None


async def _steer(
    request: Request,
    session: Session,
    slug: str,
    needed: Scope,
    change: Callable[[Form], Awaitable[str | Done]],
) -> Response:
    form = await posted(request, session, needed)

    async def work() -> str | Done:
        return await change(form)

    return await act(request, session, form, work, f"{PATH}/{slug}")
