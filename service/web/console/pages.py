"""The console, assembled: one module for each family of pages."""

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response
from fastapi.routing import APIRoute
from starlette.routing import Match
from starlette.types import Scope

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
from service.web.console.route import ConsoleRoute, refused
from service.web.console.session import HOME, PATH, Signed
from service.web.problems import Malformed, MethodNotAllowed

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
async def get_nothing(request: Request, _: Signed, rest: str) -> Response:  # noqa: ARG001 - named by the path
    """There is no such page; said on a page."""
    return unanswered(request, 404)


def is_below(path: str) -> bool:
    """Whether the path is one of the console's, where people read pages."""
    return path == PATH or path.startswith(f"{PATH}/")


def unanswered(request: Request, status: int) -> Response:
    """What the router itself refuses, as a page; needs no session and no database.

    An address that answers other methods alone, such as those that forms are sent to, says so (405), with `Allow`.
    """
    if status not in {404, 405}:
        return refused(request, Malformed())
    allowed = _methods(request.scope)
    if not allowed:
        return refused(request, NotFound(f"The console has no page at {request.url.path[:100]}."))
    response = refused(request, MethodNotAllowed())
    response.headers["allow"] = ", ".join(allowed)
    return response


def _methods(scope: Scope) -> list[str]:
    """What this address answers, where it does not answer the method that it was asked."""
    routes = [route for family in _FAMILIES for route in family.routes if route.matches(scope)[0] is Match.PARTIAL]
    return sorted({method for route in routes if isinstance(route, APIRoute) for method in route.methods or ()})


_FAMILIES = (
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
)

router = APIRouter()
# What matches every path comes last.
for _family in (*_FAMILIES, _last):
    router.include_router(_family)
