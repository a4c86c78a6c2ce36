"""Whether the process lives, and whether it should get traffic."""

import asyncio
from functools import cache

from fastapi import APIRouter, Response

from service import migrations
from service.domain.errors import Unavailable
from service.runtime import Runtime
from service.store import views
from service.web.answers import ok
from service.web.described import OPEN, answers, refusals
from service.web.schemas import Health
from service.web.state import State, WebState

router = APIRouter(tags=["health"])

READY_SECONDS = 1.0
"""A probe gets its answer within this time, whatever the database does."""

_needed_revision = cache(migrations.head)


@router.get(
    "/livez",
    summary="Does the process live?",
    description="Never touches the database.",
    responses=answers(Health, {200: "It does."}),
    openapi_extra=OPEN,
)
@router.head("/livez", include_in_schema=False, name="head_livez")
async def get_livez() -> Response:
    """Answer, which is all there is to it."""
    return ok(Health(status="ok"))


@router.get(
    "/readyz",
    summary="Should it get traffic?",
    description=(
        "Yes, when the database can be written to, has this release's schema, and the process is not being stopped."
    ),
    responses={**answers(Health, {200: "It should."}), **refusals()},
    openapi_extra=OPEN,
)
@router.head("/readyz", include_in_schema=False, name="head_readyz")
async def get_readyz(state: State) -> Response:
    """Refuse with the reason, or agree."""
    if state.draining:
        message = "This process is being stopped."
        raise Unavailable(message)
    check = _checking(state)
    await asyncio.wait({check}, timeout=READY_SECONDS)
    if not check.done():
        message = f"The database did not answer within {READY_SECONDS:g} s."
        raise Unavailable(message)
    check.result()
    return ok(Health(status="ok"))


def _checking(state: WebState) -> asyncio.Task[None]:
    """The check that is under way, or a new one: probes of a database that hangs do not pile up.

    It is not cut off after READY_SECONDS, because ending a query that hangs may itself take longer than a probe waits.
    """
    if state.check is None or state.check.done():
        state.check = asyncio.create_task(_check(state.runtime))
        state.check.add_done_callback(lambda done: done.cancelled() or done.exception())
    return state.check


async def _check(runtime: Runtime) -> None:
    async with runtime.db.begin() as tx:
        read_only, revision = await views.is_read_only(tx), await views.schema_revision(tx)
    if read_only:
        message = "The database is read-only: ticks and deliveries need one that can be written to."
        raise Unavailable(message)
    if revision != _needed_revision():
        message = "The database's schema is not this release's: run `tocsin migrate`."
        raise Unavailable(message)
