"""The pages that people open: what a problem means and its mend, and the operations; no script, no CDN."""

import json
from collections.abc import Iterator
from html import escape
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, PlainTextResponse, Response

from service.domain.errors import NotFound
from service.web.problems import TABLE, Kind, type_uri

router = APIRouter(include_in_schema=False)

_BY_SLUG = {kind.slug: kind for kind in TABLE.values()}

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 54rem; margin: 2rem auto; padding: 0 1rem; }
code, pre { font-family: ui-monospace, monospace; font-size: .9em; }
pre { overflow-x: auto; padding: .7rem; border: 1px solid #8886; border-radius: .3rem; }
section { border-top: 1px solid #8886; padding: .5rem 0; }
.method { font-weight: 700; }
table { border-collapse: collapse; } td { padding: .1rem .8rem .1rem 0; vertical-align: top; }
"""


@router.get("/problems")
async def list_problems() -> Response:
    """Every kind of problem."""
    rows = "".join(
        f"<tr><td>{int(kind.status)}</td><td><a href='{type_uri(kind)}'>{escape(kind.slug)}</a></td>"
        f"<td>{escape(kind.title)}</td></tr>"
        for kind in sorted(_BY_SLUG.values(), key=lambda kind: (kind.status, kind.slug))
    )
    return _page("Problems", f"<table>{rows}</table>")


@router.get("/problems/{slug}")
async def get_problem(slug: str, request: Request) -> Response:
    """What happened and the mend, as a page or, where `Accept` does not ask for HTML, as text."""
    kind = _BY_SLUG.get(slug)
    if kind is None:
        raise NotFound
    if "text/html" in request.headers.get("accept", ""):
        return _page(kind.title, _paragraphs(kind))
    return PlainTextResponse(f"{kind.title} (HTTP {int(kind.status)})\n\n{kind.mend}\n")


def _paragraphs(kind: Kind) -> str:
    status = f"{int(kind.status)} {kind.status.phrase}"
    return f"<p>HTTP {escape(status)} · <code>{escape(type_uri(kind))}</code></p><p>{escape(kind.mend)}</p>"


@router.get("/docs")
async def get_docs(request: Request) -> Response:
    """The operations as the OpenAPI document describes them."""
    document = request.app.openapi()
    intro = f"<p>{escape(document['info']['description'])} <a href='/openapi.json'>openapi.json</a></p>"
    return _page(f"Tocsin {document['info']['version']}", intro + "".join(_operations(document)))


def _operations(document: dict[str, Any]) -> Iterator[str]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield _operation(path, method, operation)


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    head = f"<h2><span class='method'>{method.upper()}</span> <code>{escape(path)}</code></h2>"
    told = f"<p>{escape(operation['summary'])}. {escape(operation.get('description', ''))}</p>"
    rows = "".join(
        f"<tr><td><code>{escape(each['name'])}</code></td><td>{escape(each['in'])}</td>"
        f"<td>{escape(each.get('description', ''))}</td></tr>"
        for each in operation.get("parameters", [])
    )
    statuses = ", ".join(
        f"{escape(status)} {escape(answer['description'])}" for status, answer in operation["responses"].items()
    )
    return f"<section>{head}{told}<table>{rows}</table>{_body(operation)}<p>Answers: {statuses}</p></section>"


def _body(operation: dict[str, Any]) -> str:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    return f"<pre>{escape(json.dumps(content['example'], indent=2))}</pre>" if "example" in content else ""


def _page(title: str, content: str) -> HTMLResponse:
    text = (
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{escape(title)} · Tocsin</title>"
        f"<meta name='viewport' content='width=device-width'><style>{_STYLE}</style>"
        f"<h1>{escape(title)}</h1>{content}</html>"
    )
    return HTMLResponse(text, headers={"content-security-policy": _POLICY})
