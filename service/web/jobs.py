"""Jobs: how they stand, and holding and releasing their runs."""

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, Query, Response

from service.domain import errors
from service.domain.errors import NotFound
from service.domain.job import JobConfig
from service.flow import control
from service.runtime import Runtime
from service.store import views
from service.store.views import JobView
from service.web.answers import Answer, ok
from service.web.auth import Reader
from service.web.commands import Command, Operate, Why
from service.web.described import CHANGES, KEYED, answers, refusals, takes
from service.web.fields import NoQuery
from service.web.paging import Listed, ListQuery, name
from service.web.schemas import Job, JobList, Run
from service.web.state import House

router = APIRouter(tags=["jobs"])

JOBS = Listed("jobs", name)


@router.get(
    "/v1/jobs",
    summary="List jobs",
    responses={**answers(JobList, {200: "One page, by name."}), **refusals(*KEYED, errors.Invalid)},
)
async def list_jobs(_: Reader, house: House, query: Annotated[ListQuery, Query()]) -> Response:
    """One page of the configured jobs, by name."""
    page = JOBS.page(query)
    names = sorted(each for each in house.jobs if page.after is None or each > str(page.after))[: page.limit]
    shown, cursor = JOBS.cut(query, names, lambda each: each)
    async with house.db.begin() as tx:
        standings = await views.jobs(tx, shown)
    return ok(JobList(items=[_job(house.jobs[view.name], view) for view in standings], next_cursor=cursor))


@router.get(
    "/v1/jobs/{job}",
    summary="Read a job",
    responses={**answers(Job, {200: "The job as it stands now."}), **refusals(*KEYED, errors.Invalid, errors.NotFound)},
)
async def get_job(_: Reader, __: NoQuery, house: House, job: str) -> Response:
    """One job with its last run."""
    return ok(await _standing(house, configured(house, job)))


@router.post(
    "/v1/jobs/{job}/pause",
    summary="Pause a job",
    description="Ticks are accepted as before; their runs are held. A run that is being worked on finishes.",
    responses={**answers(Job, {200: "The job, paused."}), **refusals(*CHANGES, errors.NotFound)},
    openapi_extra=takes(Why, {"reason": "the warehouse is being moved"}, required=False),
)
async def pause_job(command: Operate, house: House, job: str) -> Response:
    """Hold the job's runs."""

    async def pause(reason: str | None) -> None:
        await control.pause_job(house.db, job, actor=command.actor, reason=reason)

    return await _steer(command, house, configured(house, job), pause)


@router.post(
    "/v1/jobs/{job}/resume",
    summary="Resume a job",
    description="Its held runs start, oldest cutoff first.",
    responses={**answers(Job, {200: "The job, running."}), **refusals(*CHANGES, errors.NotFound)},
    openapi_extra=takes(Why, {"reason": "the warehouse has moved"}, required=False),
)
async def resume_job(command: Operate, house: House, job: str) -> Response:
    """Let the job's runs start again."""

    async def resume(reason: str | None) -> None:
        await control.resume_job(house.db, house.doorbell, job, actor=command.actor, reason=reason)

    return await _steer(command, house, configured(house, job), resume)


def configured(house: Runtime, job: str) -> JobConfig:
    """The job of this name.

    Raises:
        NotFound: tocsin.toml has none.

    """
    config = house.jobs.get(job)
    if config is None:
        message = "No job of this name is declared in tocsin.toml."
        raise NotFound(message)
    return config


async def _steer(
    command: Command, house: Runtime, config: JobConfig, change: Callable[[str | None], Awaitable[None]]
) -> Response:
    wanted = command.parse_optional(Why)

    async def work() -> Answer:
        await change(wanted.reason)
        return Answer.of(await _standing(house, config))

    return await command.do(work)


async def _standing(house: Runtime, config: JobConfig) -> Job:
    async with house.db.begin() as tx:
        [view] = await views.jobs(tx, [config.name])
    return _job(config, view)


def _job(config: JobConfig, view: JobView) -> Job:
    return Job(
        job=config.name,
        source=config.source,
        event_type=config.event_type,
        paused=view.paused,
        paused_reason=view.paused_reason,
        last_tick_at=view.last_tick_at,
        frozen_since=view.frozen_since,
        last_run=None if view.last_run is None else Run.model_validate(view.last_run),
    )
