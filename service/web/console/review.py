"""Dead letters that a person has ticked: first what would become of them, then the deed, with its reason."""

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum

from fastapi import APIRouter, Request, Response

from service.domain.errors import Conflict, Invalid, NotFound, PayloadPurged, Problem
from service.domain.identifiers import delivery_id
from service.domain.model import DeliveryState, Scope
from service.domain.states import DEAD_LETTERS
from service.flow import control_deliveries
from service.flow.control_deliveries import Named
from service.runtime import Runtime
from service.store import selections
from service.store.selections import Picked
from service.web.console.delivery import because, named_in
from service.web.console.filters import link
from service.web.console.forms import Done, act, posted
from service.web.console.rendering import page
from service.web.console.route import ConsoleRoute
from service.web.console.session import Signed
from service.web.console.story import REASONS
from service.web.delivery_verdicts import Resolution
from service.web.state import House

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)

QUEUE = "/console/dead-letters"
PATH = f"{QUEUE}/review"
MAX_PICKED = 100
"""Of one selection; more than that is a bulk replay, which goes on by itself."""


class Deed(StrEnum):
    """What is done with the selected ones."""

    REPLAY = "replay"
    DELIVERED = Resolution.DELIVERED.value
    CANCELLED = Resolution.CANCELLED.value


_DONE: Mapping[Deed, str] = {
    Deed.REPLAY: "going out again",
    Deed.DELIVERED: "resolved as delivered",
    Deed.CANCELLED: "resolved as cancelled",
}


@router.get(PATH)
async def show_review(request: Request, _: Signed, house: House) -> Response:
    """What would become of the selected ones; nothing is done yet."""
    named = _named(list(request.query_params))
    found = await _picked(house, named)
    dead = [each for each in found if each.delivery.state in DEAD_LETTERS]
    return page(
        request,
        "review.html",
        picks=found,
        dead=dead,
        letters=DEAD_LETTERS,
        going=sum(each.refused is None for each in dead),
        refused=Counter(each.refused.value for each in dead if each.refused),
        gone=len(named) - len(dead),
        subscribers=Counter(each.delivery.subscriber_id for each in dead).most_common(),
        kinds=Counter((each.delivery.state.value, each.delivery.reason) for each in dead).most_common(),
        reasons=REASONS,
    )


@router.post(PATH)
async def settle(request: Request, session: Signed, house: House) -> Response:
    """Replay or resolve the selected ones, each by itself; those that are dead no longer are left alone."""
    form = await posted(request, session, Scope.OPERATE)
    named = _named(form.all("id"))

    async def work() -> Done:
        deed, reason = _deed(form.get("deed")), because(form)
        # Looked at once more: what was settled since the review is not to be sent again.
        dead = [each for each in await _picked(house, named) if each.delivery.state in DEAD_LETTERS]
        told = [await _done(house, named_in(each.delivery.id), deed, session.actor.name, reason) for each in dead]
        return Done(_told(deed, sum(told), len(named)), QUEUE)

    return await act(request, session, form, work, address(named))


def address(named: Sequence[Named]) -> str:
    """Where the review of these is: each is a parameter of its own, because none may stand there twice."""
    return link(PATH, {delivery_id(each.event_id, each.subscriber_row): 1 for each in named})


async def _picked(house: Runtime, named: Sequence[Named]) -> list[Picked]:
    async with house.db.begin() as tx:
        return await selections.picked(tx, [(each.event_id, each.subscriber_row) for each in named])


async def _done(house: Runtime, named: Named, deed: Deed, actor: str, reason: str) -> bool:
    """Do it to one; False where somebody or something was faster, or nothing is there to send."""
    try:
        if deed is Deed.REPLAY:
            await control_deliveries.replay_delivery(house.db, house.doorbell, named, actor=actor, reason=reason)
        else:
            await control_deliveries.resolve_delivery(
                house.db, house.doorbell, named, resolution=DeliveryState(deed.value), actor=actor, reason=reason
            )
    except (Conflict, NotFound, PayloadPurged):
        return False
    return True


def _told(deed: Deed, done: int, asked: int) -> str:
    left = f" {asked - done} could not be, or needed nothing any more." if asked > done else ""
    return f"{done} {'is' if done == 1 else 'are'} {_DONE[deed]}.{left}"


def _deed(text: str) -> Deed:
    if text not in list(Deed):
        raise Invalid(Problem("/deed", "must say what to do with them"))
    return Deed(text)


def _named(ids: Sequence[str]) -> list[Named]:
    """The deliveries of these ids, each once."""
    found = [named_in(each) for each in dict.fromkeys(ids)]
    if not found:
        raise Invalid(Problem("/id", "must name at least one dead letter: tick some in the list"))
    if len(found) > MAX_PICKED:
        raise Invalid(Problem("/id", f"must name at most {MAX_PICKED}: for more, replay by filter"))
    return found
