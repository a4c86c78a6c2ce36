"""Signing in with an API key, and out."""

import re
from http import HTTPStatus
from urllib.parse import urlsplit

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from service.domain.errors import Forbidden, Unauthenticated
from service.domain.model import Scope
from service.web.console import forms, notices, session
from service.web.console.rendering import page
from service.web.console.route import ConsoleRoute
from service.web.console.session import HOME, PATH, Signed
from service.web.state import State

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)

_OURS = re.compile(r"/console/[!-\[\]-~]*")
"""Printable ASCII without the backslash, which some browsers take for a slash."""
_WRONG = "No live key is this one. `tocsin keys create` makes a key; a revoked or expired one stays refused."


@router.get("/console/sign-in")
async def show_sign_in(request: Request, state: State) -> Response:
    """The form; whoever is signed in already goes on."""
    wanted = _ours(request.query_params.get("next", ""))
    if await session.session_of(request, state):
        return RedirectResponse(wanted, HTTPStatus.SEE_OTHER)
    return page(request, "sign_in.html", wanted=wanted, wrong=None)


@router.post("/console/sign-in")
async def sign_in(request: Request, state: State) -> Response:
    """Begin a session for the holder of the key."""
    _from_here(request)
    fields, _ = await forms.read(request)
    key, wanted = fields.get("key", [""])[0].strip(), _ours(fields.get("next", [""])[0])
    house = state.runtime
    try:
        await state.keyring.actor(session.at_the_door(state), house.settings.bootstrap_key, key)
    except Unauthenticated:
        return page(request, "sign_in.html", status=HTTPStatus.UNAUTHORIZED, wanted=wanted, wrong=_WRONG)
    response = RedirectResponse(wanted, HTTPStatus.SEE_OTHER)
    session.begin(request, response, house.vault, key)
    notices.clear(response)
    return response


@router.post("/console/sign-out")
async def sign_out(request: Request, signed: Signed) -> Response:
    """End the session in this browser."""
    await forms.posted(request, signed, Scope.READ)
    response = RedirectResponse(f"{PATH}/sign-in", HTTPStatus.SEE_OTHER)
    session.end(response)
    notices.clear(response)
    return response


def _ours(wanted: str) -> str:
    """The page to go on to: one of ours, the overview where it is none."""
    return wanted if _OURS.fullmatch(wanted) else HOME


def _from_here(request: Request) -> None:
    """Before there is a session, only the browser can say that the form is ours.

    Raises:
        Forbidden: another site has sent it, to have somebody work in a session that is not their own.

    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    foreign = site not in {"same-origin", "none"} if site else origin and urlsplit(origin).netloc != request.url.netloc
    if foreign:
        raise Forbidden("This sign-in was sent by another site. Open the console's own sign-in page.")
