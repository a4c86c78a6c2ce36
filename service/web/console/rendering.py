"""Pages from templates: everything escaped, one frame around them all, and the headers that keep scripts out."""

import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from service.domain.model import Scope
from service.web.console import assets, charts, filters, notices, words
from service.web.console.notices import Notice
from service.web.console.session import Frame
from service.web.state import WebState

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = MappingProxyType({"content-security-policy": POLICY, "referrer-policy": "same-origin"})
"""The referrer policy lets the browser name our origin to ourselves when it posts a form."""

SECTIONS = (
    ("Overview", "/console/"),
    ("Runs", "/console/runs"),
    ("Jobs", "/console/jobs"),
    ("Deliveries", "/console/deliveries"),
    ("Dead letters", "/console/dead-letters"),
    ("Replays", "/console/replays"),
    ("Subscribers", "/console/subscribers"),
    ("Audit", "/console/audit"),
)

_ONCE_BYTES = 18


def page(request: Request, template: str, *, status: int = 200, **values: object) -> HTMLResponse:
    """The template with these values and with what every page has, as a response.

    Templates find: `session` (None where nobody is signed in), `csrf`, `once()` (fresh at each call), `now`, `dispatch`
    (how it stands; None where nobody is signed in), `notice`, `typed_into(action)` (what stood in that form when it was
    refused just now), `here` (the path), `query` (as given) and `may(scope)`.
    """
    state: WebState = request.app.state.web
    frame: Frame | None = getattr(request.state, "frame", None)
    notice = None if frame is None else notices.waiting(request, state.runtime.vault, frame.session.csrf)
    framed = _noticed(notice) | _framed(frame) | _asked(request) | values
    response = HTMLResponse(ENVIRONMENT.get_template(template).render(framed), status, dict(HEADERS))
    if notice is not None and status == HTTPStatus.OK:
        notices.clear(response)
    return response


def _noticed(notice: Notice | None) -> dict[str, object]:
    typed = notice.typed if notice else None

    def typed_into(action: str) -> Mapping[str, str]:
        return typed.fields if typed and typed.action == action else {}

    return {"notice": notice, "typed_into": typed_into}


def _framed(frame: Frame | None) -> dict[str, object]:
    if frame is None:
        return {"session": None, "csrf": "", "now": datetime.now(UTC), "dispatch": None, "may": lambda _: False}
    session = frame.session

    def may(scope: str) -> bool:
        return session.actor.scope.includes(Scope(scope))

    return {"session": session, "csrf": session.csrf, "now": frame.now, "dispatch": frame.dispatch, "may": may}


def _asked(request: Request) -> dict[str, object]:
    return {"here": request.url.path, "query": dict(request.query_params)}


def _once() -> str:
    return secrets.token_urlsafe(_ONCE_BYTES)


@pass_context
def _ago(context: Context, at: datetime | None) -> Markup:
    return words.ago(at, context["now"])


def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "ago": _ago,
        "stamp": words.stamp,
        "duration": words.duration,
        "number": words.number,
        "state": words.state,
        "tone": words.tone,
        "outside": words.outside,
        "isolated": words.isolated,
        "unturned": words.unturned,
    }
    offered: dict[str, Any] = {"asset": assets.url, "charts": charts, "link": filters.link, "once": _once}
    made.globals |= offered | {"sections": SECTIONS}
    return made


ENVIRONMENT = _environment()
