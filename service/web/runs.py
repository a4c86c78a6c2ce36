"""Runs: reading them, starting one by hand, letting a failed one go on."""

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field

from service.domain import errors
from service.domain.errors import CutoffOutOfRange, NotFound, Problem
from service.domain.identifiers import parse_uuid
from service.domain.model import RunId, RunState
from service.flow import control
from service.store import views
from service.web.answers import Answer, ok
from service.web.auth import Reader
from service.web.commands import Operate, Why
from service.web.described import CHANGES, KEYED, answers, refusals, takes
from service.web.fields import In, InstantIn, NameText, NoQuery, ReasonText, RunIdText
from service.web.jobs import configured
from service.web.paging import Listed, ListQuery, uuid
from service.web.schemas import Run, RunList, TickAccepted
from service.web.state import House
from service.web.ticks import accepted_answer

router = APIRouter(tags=["runs"])

RUNS = Listed("runs", uuid)


class RunsQuery(ListQuery):
    """Which runs."""

    job: NameText | None = Field(None, description="Of this job only.", examples=["shipments.expire"])
    state: RunState | None = Field(None, description="In this state only.")


class Start(In):
    """What a tick would ask for, in an operator's name."""

    run_id: RunIdText = Field(description="1-200 bytes of UTF-8, no control characters.")
    cutoff: InstantIn
    reason: ReasonText | None = None


@router.get(
    "/v1/runs",
    summary="List runs",
    responses={**answers(RunList, {200: "One page, newest first."}), **refusals(*KEYED, errors.Invalid)},
)
async def list_runs(_: Reader, house: House, query: Annotated[RunsQuery, Query()]) -> Response:
    """One page of runs."""
    page = RUNS.page(query)
    async with house.db.begin() as tx:
        found = await views.runs(tx, job=query.job, state=query.state, page=page)
    shown, cursor = RUNS.cut(query, found, lambda view: view.id)
    return ok(RunList(items=[Run.model_validate(view) for view in shown], next_cursor=cursor))


@router.get(
    "/v1/runs/{id}",
    summary="Read a run",
    responses={**answers(Run, {200: "The run as it stands now."}), **refusals(*KEYED, errors.Invalid, errors.NotFound)},
)
async def get_run(_: Reader, __: NoQuery, house: House, id: str) -> Response:  # noqa: A002 - the path's name
    """One run with the counts of its deliveries."""
    async with house.db.begin() as tx:
        view = await views.run(tx, _run(id))
    if view is None:
        raise NotFound
    return ok(Run.model_validate(view))


@router.post(
    "/v1/jobs/{job}/runs",
    summary="Start a run by hand",
    description="As a tick would: the same runId and cutoff again get the same run.",
    status_code=202,
    responses={
        **answers(TickAccepted, {202: "The run is claimed.", 200: "It had been claimed before: `duplicate`."}),
        **refusals(*CHANGES, errors.NotFound, errors.RunConflict, errors.CutoffOutOfRange),
    },
    openapi_extra=takes(
        Start, {"runId": "catch-up-2026-11-30", "cutoff": "2026-11-30T02:00:00Z", "reason": "the scheduler was down"}
    ),
)
async def start_run(command: Operate, house: House, job: str) -> Response:
    """Claim a run in the name of the key's holder."""
    config = configured(house, job)
    wanted = command.parse(Start)

    async def work() -> Answer:
        try:
            accepted = await control.start_run(
                house.db,
                house.doorbell,
                config,
                run_id=wanted.run_id,
                cutoff=wanted.cutoff,
                actor=command.actor,
                reason=wanted.reason,
            )
        except CutoffOutOfRange as error:
            raise CutoffOutOfRange(*(Problem("/cutoff", each.detail) for each in error.problems)) from None
        if not accepted.duplicate:
            house.counters.run(config.name, RunState.CLAIMED)
        return accepted_answer(accepted)

    return await command.do(work)


@router.post(
    "/v1/runs/{id}/retry",
    summary="Retry a failed run",
    description="It goes on from where it stopped; nothing is found or sent twice.",
    responses={
        **answers(Run, {200: "The run, claimed again."}),
        **refusals(*CHANGES, errors.NotFound, errors.Conflict),
    },
    openapi_extra=takes(Why, {"reason": "the statement is mended"}, required=False),
)
async def retry_run(command: Operate, house: House, id: str) -> Response:  # noqa: A002 - the path's name
    """Open a failed run again."""
    wanted, run = command.parse_optional(Why), _run(id)

    async def work() -> Answer:
        view = await control.retry_run(house.db, house.doorbell, run, actor=command.actor, reason=wanted.reason)
        return Answer.of(Run.model_validate(view))

    return await command.do(work)


def _run(text: str) -> RunId:
    """The id in a path; what cannot be one names no run."""
    found = parse_uuid(text)
    if found is None:
        raise NotFound
    return RunId(found)
