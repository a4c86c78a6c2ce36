"""One delivery: what happened to it, and what a person may do about it."""

from collections.abc import Awaitable, Callable

from fastapi import APIRouter, Request, Response

from service.domain.errors import Invalid, NotFound, Problem
from service.domain.identifiers import parse_delivery_id
from service.domain.model import DeliveryState, Scope
from service.domain.states import CANCELLABLE, REPLAYABLE, RESOLVABLE
from service.flow import control_deliveries
from service.flow.control_deliveries import Named
from service.store import evidence, views_events
from service.web.console.forms import Form, act, posted
from service.web.console.rendering import page
from service.web.console.route import ConsoleRoute
from service.web.console.session import Session, Signed
from service.web.console.story import SHOWN, moments, summary
from service.web.delivery_verdicts import Resolution
from service.web.state import House

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)

NO_SUCH = "There is no delivery with this id."
BODY_SHOWN = 8192
"""Bytes, of what is sent."""


@router.get("/console/deliveries/{id}")
async def show_delivery(request: Request, _: Signed, house: House, id: str) -> Response:  # noqa: A002 - the path's name
    """One delivery with its evidence, and the bytes that it carries."""
    named = named_in(id)
    async with house.db.begin() as tx:
        found = await evidence.whole(tx, named.event_id, named.subscriber_row)
        event = await views_events.event(tx, named.event_id)
    if found is None or event is None:
        raise NotFound(NO_SUCH)
    about, body = event
    told = moments(found, about.published_by)
    state = found.delivery.state
    return page(
        request,
        "delivery.html",
        delivery=found.delivery,
        summary=summary(found.delivery),
        moments=told if "all" in request.query_params else told[-SHOWN:],
        left_out=max(len(told) - SHOWN, 0),
        purged_at=about.purged_at,
        body=None if body is None else body[:BODY_SHOWN].decode("utf-8", "replace"),
        size=None if body is None else len(body),
        can_replay=state in REPLAYABLE and about.purged_at is None,
        can_resolve=state in RESOLVABLE,
        can_cancel=state in CANCELLABLE,
    )


@router.post("/console/deliveries/{id}/replay")
async def replay_delivery(request: Request, session: Signed, house: House, id: str) -> Response:  # noqa: A002
    """Send it again, as its next generation."""
    named = named_in(id)

    async def replay(form: Form) -> str:
        reason = because(form)
        await control_deliveries.replay_delivery(
            house.db, house.doorbell, named, actor=session.actor.name, reason=reason
        )
        return "It is on its way again, with the same key and bytes."

    return await _operate(request, session, id, replay)


@router.post("/console/deliveries/{id}/resolve")
async def resolve_delivery(request: Request, session: Signed, house: House, id: str) -> Response:  # noqa: A002
    """Say what a dead letter is; nothing is sent."""
    named = named_in(id)

    async def resolve(form: Form) -> str:
        resolution, reason = resolution_in(form.get("resolution")), because(form)
        await control_deliveries.resolve_delivery(
            house.db, house.doorbell, named, resolution=resolution, actor=session.actor.name, reason=reason
        )
        return f"It is resolved as {resolution.value}."

    return await _operate(request, session, id, resolve)


@router.post("/console/deliveries/{id}/cancel")
async def cancel_delivery(request: Request, session: Signed, house: House, id: str) -> Response:  # noqa: A002
    """Call it off."""
    named = named_in(id)

    async def cancel(form: Form) -> str:
        reason = because(form)
        await control_deliveries.cancel_delivery(
            house.db, house.doorbell, named, actor=session.actor.name, reason=reason
        )
        return "It is called off: nothing more is sent."

    return await _operate(request, session, id, cancel)


def named_in(text: str) -> Named:
    """The delivery of this id.

    Raises:
        NotFound: no delivery can have it.

    """
    found = parse_delivery_id(text)
    if found is None:
        raise NotFound(NO_SUCH)
    return Named(*found)


def because(form: Form) -> str:
    """The reason, which has to be there.

    Raises:
        Invalid: it is not, or it cannot be accepted.

    """
    return form.reason(required=True) or ""


def resolution_in(text: str) -> DeliveryState:
    """What a person found a dead letter to be.

    Raises:
        Invalid: a dead letter cannot be that.

    """
    if text not in list(Resolution):
        raise Invalid(Problem("/resolution", f"must be one of {', '.join(Resolution)}"))
    return DeliveryState(text)


async def _operate(request: Request, session: Session, id: str, change: Callable[[Form], Awaitable[str]]) -> Response:  # noqa: A002
    form = await posted(request, session, Scope.OPERATE)

    async def work() -> str:
        return await change(form)

    return await act(request, session, form, work, f"/console/deliveries/{id}")
