"""Runs, and one run: how far it is, and which of its deliveries are stuck."""

from collections.abc import Sequence

from fastapi import APIRouter, Request, Response

from service.domain.errors import NotFound
from service.domain.identifiers import parse_uuid
from service.domain.model import DeliveryState, RunId, RunState, Scope
from service.domain.states import DEAD_LETTERS
from service.flow import control
from service.store import views, views_deliveries
from service.store.database import Tx
from service.store.views import Page, RunView
from service.store.views_deliveries import Sought
from service.store.views_delivery import DeliveryView
from service.web.console.filters import PER_PAGE, asked
from service.web.console.forms import act, posted
from service.web.console.rendering import page
from service.web.console.route import ConsoleRoute
from service.web.console.session import Signed
from service.web.runs import RUNS, RunsQuery
from service.web.state import House

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)

STUCK_SHOWN = 10
"""Of each kind."""


@router.get("/console/runs")
async def show_runs(request: Request, _: Signed, house: House) -> Response:
    """One page of runs, newest first."""
    query = asked(request, RunsQuery, limit=str(PER_PAGE))
    async with house.db.begin() as tx:
        found = await views.runs(tx, job=query.job, state=query.state, page=RUNS.page(query))
    shown, cursor = RUNS.cut(query, found, lambda view: view.id)
    return page(request, "runs.html", runs=shown, next_cursor=cursor, jobs=sorted(house.jobs), states=list(RunState))


@router.get("/console/runs/{id}")
async def show_run(request: Request, _: Signed, house: House, id: str) -> Response:  # noqa: A002 - the path's name
    """One run with its deliveries by state, the stuck ones first."""
    async with house.db.begin() as tx:
        view = await views.run(tx, _run(id))
        if view is None:
            raise NotFound("There is no run with this id.")
        stuck = await _stuck(tx, view)
    return page(request, "run.html", run=view, stuck=stuck, known=view.job in house.jobs)


@router.post("/console/runs/{id}/retry")
async def retry_run(request: Request, session: Signed, house: House, id: str) -> Response:  # noqa: A002 - the path's name
    """Open a failed run again."""
    form, run = await posted(request, session, Scope.OPERATE), _run(id)

    async def work() -> str:
        await control.retry_run(house.db, house.doorbell, run, actor=session.actor.name, reason=form.reason())
        return "The run goes on from where it stopped."

    return await act(request, session, form, work, f"/console/runs/{run}")


async def _stuck(tx: Tx, run: RunView) -> Sequence[DeliveryView]:
    """Dead letters, what is being sent, what waits: a few of each."""
    found: list[DeliveryView] = []
    for states in (tuple(sorted(DEAD_LETTERS)), (DeliveryState.LEASED,), (DeliveryState.PENDING,)):
        if any(run.deliveries[state.value] for state in states):
            found += await views_deliveries.page_of(tx, Sought(states=states, run=run.id), Page(STUCK_SHOWN))
    return found


def _run(text: str) -> RunId:
    found = parse_uuid(text)
    if found is None:
        raise NotFound("There is no run with this id.")
    return RunId(found)
