"""The audit trail, to read: who did what to which thing, when and why."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import Field

from service.domain import errors
from service.store import audit
from service.web.answers import ok
from service.web.auth import Reader
from service.web.described import KEYED, answers, refusals
from service.web.fields import Instant, NameText, Out
from service.web.paging import Listed, Listing, ListQuery, whole
from service.web.state import House

router = APIRouter(tags=["audit"])

AUDIT = Listed("audit", whole(2**63 - 1))


class AuditLine(Out):
    """One thing that somebody did. Lines are only ever added."""

    id: int = Field(examples=[4711])
    at: Instant
    actor: str = Field(
        description="The API key's name; `bootstrap`, `cli` and `tocsin` are no stored keys.", examples=["alice"]
    )
    action: str = Field(examples=["subscriber.updated"])
    object: str = Field(examples=["subscriber:billing"])
    reason: str | None = Field(examples=["the receiver moved"])
    detail: dict[str, Any] = Field(
        description="What changed, before and after; of URLs the origin, of headers the names, of secrets nothing.",
        examples=[{"changed": ["maxAttempts"], "before": {"maxAttempts": 8}, "after": {"maxAttempts": 30}}],
    )


class AuditTrail(Listing[AuditLine]):
    """The trail, newest first."""


class AuditQuery(ListQuery):
    """Which lines."""

    actor: NameText | None = Field(None, description="What this actor did.", examples=["alice"])
    object: NameText | None = Field(
        None, description="What was done to this thing: its kind, a colon, its id.", examples=["subscriber:billing"]
    )


@router.get(
    "/v1/audit",
    summary="Read the audit trail",
    responses={**answers(AuditTrail, {200: "One page, newest first."}), **refusals(*KEYED, errors.Invalid)},
)
async def list_audit(_: Reader, house: House, query: Annotated[AuditQuery, Query()]) -> Response:
    """One page of the trail."""
    page = AUDIT.page(query)
    async with house.db.begin() as tx:
        found = await audit.listed(tx, actor=query.actor, object=query.object, page=page)
    shown, cursor = AUDIT.cut(query, found, lambda line: line.id)
    return ok(AuditTrail(items=[AuditLine.model_validate(line) for line in shown], next_cursor=cursor))
