"""The dead letters as a queue to work through: by kind, and one by one with a box to tick; `review` goes on."""

from fastapi import APIRouter, Request, Response

from service.domain.errors import Invalid, Problem
from service.domain.model import DeliveryState
from service.domain.states import DEAD_LETTERS
from service.store import dead_letters, views_deliveries
from service.store.views_deliveries import Sought
from service.web.console.deliveries import offered
from service.web.console.filters import PER_PAGE, asked
from service.web.console.rendering import page
from service.web.console.route import ConsoleRoute
from service.web.console.session import Signed
from service.web.console.story import REASONS
from service.web.fields import EndReason, NameText
from service.web.paging import Listed, ListQuery, whole
from service.web.state import House

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)

LETTERS = Listed("dead-letters", whole(2**63 - 1))
LETTER_STATES = tuple(sorted(DEAD_LETTERS))


class Query(ListQuery):
    """Which dead letters, and how finely they are counted."""

    state: DeliveryState | None = None
    reason: EndReason | None = None
    subscriber_id: NameText | None = None
    event_type: NameText | None = None
    by_subscriber: bool = False

    def sought(self) -> Sought:
        """As the store is asked.

        Raises:
            Invalid: what is in that state is not dead.

        """
        if self.state is not None and self.state not in DEAD_LETTERS:
            raise Invalid(Problem("/query/state", f"must be one of {', '.join(LETTER_STATES)}"))
        return Sought(
            states=LETTER_STATES if self.state is None else (self.state,),
            reason=self.reason,
            subscriber_id=self.subscriber_id,
            event_type=self.event_type,
        )


@router.get("/console/dead-letters")
async def show_dead_letters(request: Request, _: Signed, house: House) -> Response:
    """The kinds that there are, and one page of the letters themselves, newest first."""
    query = asked(request, Query, limit=str(PER_PAGE))
    sought = query.sought()
    async with house.db.begin() as tx:
        found = await views_deliveries.page_of(tx, sought, LETTERS.page(query))
        counted = await dead_letters.dead_letters(
            tx, subscriber_id=query.subscriber_id, by_subscriber=query.by_subscriber
        )
        slugs = await offered(tx)
    shown, cursor = LETTERS.cut(query, found, lambda view: view.row, found.looked_to)
    return page(
        request,
        "dead_letters.html",
        kinds=[kind for kind in counted.kinds if kind.state in sought.states and query.reason in {None, kind.reason}],
        counted=counted,
        letters=shown,
        next_cursor=cursor,
        states=LETTER_STATES,
        reasons=REASONS,
        slugs=slugs,
    )
