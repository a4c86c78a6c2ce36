"""The audit trail: who did what to which thing, when and why."""

import json
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request, Response

from service.store import audit
from service.web.audit import AUDIT, AuditQuery
from service.web.console.filters import PER_PAGE, asked
from service.web.console.rendering import page
from service.web.console.route import ConsoleRoute
from service.web.console.session import Signed
from service.web.state import House

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)


@router.get("/console/audit")
async def show_audit(request: Request, _: Signed, house: House) -> Response:
    """One page of the trail, newest first."""
    query = asked(request, AuditQuery, limit=str(2 * PER_PAGE))
    async with house.db.begin() as tx:
        found = await audit.listed(tx, actor=query.actor, object=query.object, page=AUDIT.page(query))
    shown, cursor = AUDIT.cut(query, found, lambda line: line.id)
    lines = [(line, _told(line.detail)) for line in shown]
    return page(request, "audit.html", lines=lines, next_cursor=cursor)


def _told(detail: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What changed, as names and values to read."""
    return [
        (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for name, value in detail.items()
    ]
