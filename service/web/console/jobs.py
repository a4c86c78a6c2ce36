"""Jobs: how they stand, pausing and resuming them, and starting a run by hand."""

from collections.abc import Awaitable, Callable

from fastapi import APIRouter, Request, Response

from service.domain.errors import CutoffOutOfRange, Invalid, Problem
from service.domain.model import Scope
from service.domain.timestamps import format_rfc3339
from service.flow import control
from service.store import views
from service.web.bodies import validate
from service.web.console.forms import Done, Form, act, posted
from service.web.console.rendering import page
from service.web.console.route import ConsoleRoute
from service.web.console.session import Session, Signed
from service.web.jobs import configured
from service.web.runs import Start
from service.web.state import House

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)

BACK = "/console/jobs"


@router.get("/console/jobs")
async def show_jobs(request: Request, _: Signed, house: House) -> Response:
    """Every job of tocsin.toml."""
    async with house.db.begin() as tx:
        standings = await views.jobs(tx, sorted(house.jobs))
        cutoff = format_rfc3339(tx.now.replace(microsecond=0))
    return page(request, "jobs.html", jobs=[(house.jobs[view.name], view) for view in standings], cutoff=cutoff)


@router.post("/console/jobs/{job}/pause")
async def pause_job(request: Request, session: Signed, house: House, job: str) -> Response:
    """Hold the job's runs."""
    name = configured(house, job).name

    async def pause(form: Form) -> str:
        reason = form.reason(required=True)
        await control.pause_job(house.db, name, actor=session.actor.name, reason=reason)
        return f"{name} is paused: ticks are accepted, their runs are held."

    return await _operate(request, session, pause)


@router.post("/console/jobs/{job}/resume")
async def resume_job(request: Request, session: Signed, house: House, job: str) -> Response:
    """Let the job's runs start again."""
    name = configured(house, job).name

    async def resume(form: Form) -> str:
        await control.resume_job(house.db, house.doorbell, name, actor=session.actor.name, reason=form.reason())
        return f"{name} goes on: its held runs start, oldest cutoff first."

    return await _operate(request, session, resume)


@router.post("/console/jobs/{job}/runs")
async def start_run(request: Request, session: Signed, house: House, job: str) -> Response:
    """Claim a run in the name of whoever is signed in; then to that run."""
    config = configured(house, job)

    async def start(form: Form) -> Done:
        wanted = validate(Start, {"runId": form.get("runId"), "cutoff": form.get("cutoff")})
        reason = form.reason(required=True)
        try:
            accepted = await control.start_run(
                house.db,
                house.doorbell,
                config,
                run_id=wanted.run_id,
                cutoff=wanted.cutoff,
                actor=session.actor.name,
                reason=reason,
            )
        except CutoffOutOfRange as error:
            raise Invalid(*(Problem("/cutoff", each.detail) for each in error.problems)) from None
        told = "This run had been claimed before; here it is." if accepted.duplicate else "The run is claimed."
        return Done(told, f"/console/runs/{accepted.run.id}")

    return await _operate(request, session, start)


async def _operate(request: Request, session: Session, change: Callable[[Form], Awaitable[str | Done]]) -> Response:
    form = await posted(request, session, Scope.OPERATE)

    async def work() -> str | Done:
        return await change(form)

    return await act(request, session, form, work, BACK)
