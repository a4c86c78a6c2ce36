"""What Prometheus scrapes of a process with an API: its own counts, and how the database says that all stands."""

import time
from contextlib import suppress

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from service.domain.errors import Unavailable
from service.flow import gauges
from service.flow.counters import House
from service.store import jobs
from service.web.described import OPEN
from service.web.state import State, WebState

router = APIRouter(tags=["health"])

LOOK_SECONDS = 1.0
"""A scrape waits no longer for the database; it is answered without, too."""
FRESH_SECONDS = 5.0
"""So long nobody's scrape makes the database be asked again."""


@router.get(
    "/metrics",
    summary="What Prometheus scrapes",
    description="In its text format; keep it inside of your network, because it holds the names of jobs.",
    response_class=Response,
    response_description="All metrics.",
    openapi_extra=OPEN,
)
async def get_metrics(state: State) -> Response:
    """Every metric; when the last ticks came is also known of those that other processes took, or this one forgot."""
    if time.monotonic() >= state.look_again_at:
        await state.looks.join(None, lambda: _look(state))
    content = state.runtime.counters.text(House(state.gauges))
    return Response(content, media_type=CONTENT_TYPE_PLAIN_0_0_4)


async def _look(state: WebState) -> None:
    """Everyone who scrapes meanwhile waits for this look: what is not known yet must not read as an outage."""
    state.gauges = await gauges.look(state.runtime.db, LOOK_SECONDS)
    if state.gauges is not None:
        await _look_at_ticks(state)
    state.look_again_at = time.monotonic() + FRESH_SECONDS


async def _look_at_ticks(state: WebState) -> None:
    with suppress(Unavailable):
        async with state.runtime.db.bounded(seconds=LOOK_SECONDS).begin() as tx:
            came = await jobs.last_ticks(tx, state.runtime.jobs.keys())
        for job, at in came.items():
            state.runtime.counters.last_tick(job, at)
