"""Routes of the console: whatever is refused becomes a page, and who is not signed in is led to where one may."""

from collections.abc import Callable, Coroutine, Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from service.domain.errors import Invalid, NotFound, TocsinError
from service.web.console.filters import link
from service.web.console.forms import FormExpired
from service.web.console.rendering import page
from service.web.console.session import HOME, PATH, SignInNeeded
from service.web.edge import log_failure
from service.web.faults import problems_of
from service.web.problems import Internal, MethodNotAllowed, document, kind_of

_IN_WORDS: Mapping[type[TocsinError], tuple[str, str]] = MappingProxyType(
    {
        FormExpired: ("This form is no longer good", "The page it was on is old, or belongs to another session."),
        Invalid: ("Some of this cannot be accepted", "Nothing was done."),
        MethodNotAllowed: (
            "This cannot be opened or sent here",
            "Nothing was done. Go to the page itself; what can be done there has a form on it.",
        ),
        NotFound: ("There is no such thing here", "It may have been deleted, or the address is not whole."),
    }
)
"""Title and mend where those of the API speak of requests."""


class ConsoleRoute(APIRoute):
    """A route whose refusals are read by people."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The route's handler with the console's own answers to what is raised in it."""
        inner = super().get_route_handler()

        async def handler(request: Request) -> Response:
            try:
                return await inner(request)
            except SignInNeeded:
                return _to_sign_in(request)
            except TocsinError as error:
                return refused(request, error)
            except RequestValidationError as error:
                return refused(request, Invalid(*problems_of(error.errors())))
            except HTTPException:
                raise
            except Exception as error:  # noqa: BLE001 - people read a page, whatever has happened
                log_failure(request.method, error)
                return refused(request, Internal())

        return handler


def refused(request: Request, error: TocsinError) -> Response:
    """The page that says what was refused, and the mend."""
    _, kind = kind_of(error)
    told = document(error)
    title, mend = next((words for each, words in _IN_WORDS.items() if isinstance(error, each)), (kind.title, kind.mend))
    answer = page(request, "refused.html", status=told["status"], problem=told, title=title, mend=mend)
    for name, value in kind.headers.items():
        if name != "www-authenticate":
            answer.headers[name] = value
    return answer


def _to_sign_in(request: Request) -> Response:
    """To the sign-in page, which leads back here.

    A link on another site's page brings no cookie along, since it is for our own pages alone. A page of ours that opens
    the same address at once does, so that whoever is signed in is not asked again.
    """
    if request.method != "GET":
        return RedirectResponse(f"{PATH}/sign-in", HTTPStatus.SEE_OTHER)
    here = link(request.url.path, request.query_params)
    if request.headers.get("sec-fetch-site") == "cross-site" and request.headers.get("sec-fetch-mode") == "navigate":
        return page(request, "bounce.html", target=here)
    wanted = None if here == HOME else here
    return RedirectResponse(link(f"{PATH}/sign-in", {"next": wanted}), HTTPStatus.SEE_OTHER)
