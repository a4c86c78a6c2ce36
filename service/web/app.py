"""The HTTP API, assembled: routes, the edge around them, and how every error leaves as a problem."""

from typing import Any

import structlog
from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic.alias_generators import to_camel
from starlette.exceptions import HTTPException
from starlette.routing import Match

from service.domain.errors import Invalid, NotFound, TocsinError
from service.runtime import Runtime
from service.web import (
    audit,
    backlog,
    dead_letters,
    deliveries,
    delivery_verdicts,
    dispatch,
    document,
    events,
    explain,
    health,
    jobs,
    metrics,
    pages,
    reconciliation,
    replays,
    runs,
    subscribers,
    ticks,
)
from service.web.answers import Answer
from service.web.console import pages as console
from service.web.edge import Edge
from service.web.faults import problems_of
from service.web.paging import single_valued
from service.web.problems import Internal, Malformed, MethodNotAllowed, kind_of
from service.web.state import WebState

log = structlog.get_logger()

_ROUTERS = (
    ticks.router,
    jobs.router,
    runs.router,
    events.router,
    subscribers.router,
    deliveries.router,
    explain.router,
    delivery_verdicts.router,
    replays.router,
    dead_letters.router,
    dispatch.router,
    audit.router,
    backlog.router,
    reconciliation.router,
    health.router,
    metrics.router,
    pages.router,
    console.router,
)


def create_app(runtime: Runtime) -> FastAPI:
    """The API of this runtime; `state_of(app).draining` takes it out of service before it stops."""
    app = _assemble()
    app.state.web = WebState(runtime)
    return app


def openapi_document() -> dict[str, Any]:
    """The OpenAPI document; needs no database."""
    return _assemble().openapi()


def _assemble() -> FastAPI:
    app = FastAPI(
        title="Tocsin",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        # The framework's own spans would hold paths, its logs what exceptions say; ours are those of docs/tracing.md.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        dependencies=[Depends(single_valued)],
        generate_unique_id_function=_operation_id,
    )
    for router in _ROUTERS:
        app.include_router(router)
    app.add_api_route("/openapi.json", _openapi, include_in_schema=False)
    document.describe_webhooks(app)
    _describe_itself(app)
    _refuse_with_problems(app)
    app.add_middleware(Edge)
    return app


def _operation_id(route: APIRoute) -> str:
    return to_camel(route.name)


async def _openapi(request: Request) -> Response:
    return JSONResponse(request.app.openapi())


def _describe_itself(app: FastAPI) -> None:
    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            ours = [route for router in _ROUTERS for route in router.routes if isinstance(route, APIRoute)]
            app.openapi_schema = document.build(app, ours)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _refuse_with_problems(app: FastAPI) -> None:
    app.add_exception_handler(TocsinError, _on_refusal)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)


async def _on_refusal(request: Request, error: Exception) -> Response:
    refusal = error if isinstance(error, TocsinError) else Internal()
    known, _ = kind_of(refusal)
    if known is Internal:
        log.error("request.failed", method=request.method, error=type(error).__qualname__, detail=refusal.detail)
    return Answer.refusal(refusal).response()


async def _on_invalid(_request: Request, error: Exception) -> Response:
    """What FastAPI found wrong with path, query or headers, without the input that it would show."""
    faults = error.errors() if isinstance(error, RequestValidationError) else ()
    return Answer.refusal(Invalid(*problems_of(faults))).response()


async def _on_http(request: Request, error: Exception) -> Response:
    """What the router itself refuses: unknown paths, wrong methods, requests that cannot be read."""
    status = error.status_code if isinstance(error, HTTPException) else 400
    if console.is_below(request.url.path):
        return console.unanswered(request, status)
    refusal = {404: NotFound, 405: MethodNotAllowed}.get(status, Malformed)()
    response = Answer.refusal(refusal).response()
    if isinstance(refusal, MethodNotAllowed):
        response.headers["allow"] = ", ".join(_allowed(request))
    return response


def _allowed(request: Request) -> list[str]:
    """Every method that this path answers; the router would name those of one route only."""
    known = [route for router in _ROUTERS for route in router.routes]
    routes = [route for route in known if route.matches(request.scope)[0] is not Match.NONE]
    return sorted({method for route in routes for method in getattr(route, "methods", None) or ()})
