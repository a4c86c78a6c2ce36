"""The console, assembled: one module for each family of pages."""

from fastapi import APIRouter
from fastapi.responses import RedirectResponse, Response

from service.domain.errors import NotFound
from service.web.console import (
    audit,
    dead_letters,
    deliveries,
    delivery,
    entrance,
    jobs,
    overview,
    replays,
    review,
    runs,
    subscribers,
)
from service.web.console.assets import ASSETS
from service.web.console.route import ConsoleRoute
from service.web.console.session import HOME, Signed

FOR_EVER = "public, max-age=31536000, immutable"

_plain = APIRouter(include_in_schema=False)
_last = APIRouter(include_in_schema=False, route_class=ConsoleRoute)


@_plain.get("/console")
async def to_overview() -> Response:
    """The console's own address."""
    return RedirectResponse(HOME)


@_plain.get("/console/static/{name}")
async def get_asset(name: str) -> Response:
    """One file; the browser keeps it, since another content has another address."""
    asset = ASSETS.get(name)
    if asset is None:
        raise NotFound
    return Response(asset.content, media_type=asset.media_type, headers={"cache-control": FOR_EVER})


@_last.get("/console/{rest:path}")
async def get_nothing(_: Signed, rest: str) -> Response:
    """There is no such page; said on a page."""
    raise NotFound(f"The console has no page at {rest[:100]!r}.")


router = APIRouter()
# What matches every path comes last.
for _family in (
    _plain,
    entrance.router,
    overview.router,
    runs.router,
    jobs.router,
    audit.router,
    deliveries.router,
    delivery.router,
    dead_letters.router,
    review.router,
    replays.router,
    subscribers.router,
    _last,
):
    router.include_router(_family)
