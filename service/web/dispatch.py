"""Dispatch as a whole: how it stands, and holding and releasing every delivery at once."""

from collections.abc import Awaitable, Callable

from fastapi import APIRouter, Response
from pydantic import Field

from service.domain import errors
from service.flow import control
from service.runtime import Runtime
from service.store import dispatching
from service.store.dispatching import Standing
from service.web.answers import Answer, ok
from service.web.auth import Reader
from service.web.commands import Command, Operate, Why
from service.web.described import CHANGES, KEYED, answers, refusals, takes
from service.web.fields import Instant, NoQuery, Out
from service.web.state import House

router = APIRouter(tags=["dispatch"])


class Dispatch(Out):
    """Whether deliveries are claimed at all."""

    paused: bool = Field(examples=[True])
    reason: str | None = Field(description="Why it is paused.", examples=["a bad release of ours"])
    paused_by: str | None = Field(description="The name of the API key that paused it.", examples=["alice"])
    since: Instant | None = Field(description="Since when it is paused.")
    leased: int = Field(
        description="Deliveries in flight. While it is paused they only become fewer: at 0 nothing is being sent.",
        examples=[3],
    )


@router.get(
    "/v1/dispatch",
    summary="Read how dispatch stands",
    responses={
        **answers(Dispatch, {200: "Whether it is paused, and what is in flight."}),
        **refusals(*KEYED, errors.Invalid),
    },
)
async def get_dispatch(_: Reader, __: NoQuery, house: House) -> Response:
    """How dispatch stands now."""
    return ok(await _standing(house))


@router.post(
    "/v1/dispatch/pause",
    summary="Pause all dispatch",
    description=(
        "Nothing is claimed any more, anywhere; what is in flight finishes. Ticks are accepted, runs are discovered "
        "and fanned out, deadlines go on. Pausing again changes nothing and keeps the first reason."
    ),
    responses={**answers(Dispatch, {200: "Dispatch, paused."}), **refusals(*CHANGES)},
    openapi_extra=takes(Why, {"reason": "a bad release of ours"}, required=False),
)
async def pause_dispatch(command: Operate, house: House) -> Response:
    """Hold every delivery."""

    async def pause(reason: str | None) -> Standing:
        return await control.pause_dispatch(house.db, actor=command.actor, reason=reason)

    return await _steer(command, house, pause)


@router.post(
    "/v1/dispatch/resume",
    summary="Resume dispatch",
    description="What waited goes out, each subscriber slowly at first; one that is paused itself stays so.",
    responses={**answers(Dispatch, {200: "Dispatch, running."}), **refusals(*CHANGES)},
    openapi_extra=takes(Why, {"reason": "the release was taken back"}, required=False),
)
async def resume_dispatch(command: Operate, house: House) -> Response:
    """Let deliveries be claimed again."""

    async def resume(reason: str | None) -> Standing:
        return await control.resume_dispatch(house.db, house.doorbell, actor=command.actor, reason=reason)

    return await _steer(command, house, resume)


async def _steer(command: Command, house: Runtime, change: Callable[[str | None], Awaitable[Standing]]) -> Response:
    wanted = command.parse_optional(Why)

    async def work() -> Answer:
        await change(wanted.reason)
        return Answer.of(await _standing(house))

    return await command.do(work)


async def _standing(house: Runtime) -> Dispatch:
    async with house.db.begin() as tx:
        standing, leased = await dispatching.standing(tx), await dispatching.leased(tx)
    return Dispatch(
        paused=standing.paused,
        reason=standing.reason,
        paused_by=standing.paused_by,
        since=standing.since,
        leased=leased,
    )
