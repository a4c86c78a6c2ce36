"""The audit trail: who did what to which thing, when and why; a line is written in the transaction of what it tells."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, insert, select

from service.store.database import Tx
from service.store.tables import audit
from service.store.views import Page, is_one


@dataclass(frozen=True, slots=True)
class AuditLine:
    """One thing that somebody did."""

    id: int
    at: datetime
    actor: str
    action: str
    object: str
    reason: str | None
    detail: Mapping[str, Any]


async def write(
    tx: Tx,
    *,
    actor: str,
    action: str,
    object: str,  # noqa: A002 - the column's name
    reason: str | None = None,
    detail: Mapping[str, object] | None = None,
) -> None:
    """Add a line; `action` like `subscriber.paused`, `object` like `subscriber:acme`.

    `detail` says what changed, before and after; secrets, paths of URLs and header values have no place in it.
    """
    values = {"actor": actor, "action": action, "object": object, "reason": reason, "detail": dict(detail or {})}
    await tx.conn.execute(insert(audit).values(**values))


async def listed(tx: Tx, *, actor: str | None, object: str | None, page: Page) -> list[AuditLine]:  # noqa: A002 - the column's name
    """One page of the trail, newest first; `page.after` is the `id` of the last line seen."""
    walk = [
        (column, value) for column, value in ((audit.c.object, object), (audit.c.actor, actor)) if value is not None
    ]
    query = (
        select(audit)
        .where(*(is_one(column, value) for column, value in walk))
        .order_by(*(column.desc() for column, _ in walk[:1]), audit.c.id.desc())
        .limit(page.sql_limit)
    )
    if page.after is not None:
        query = query.where(audit.c.id < page.after)
    return [_line(row) for row in await tx.conn.execute(query)]


def _line(row: Row[Any]) -> AuditLine:
    return AuditLine(row.id, row.at, row.actor, row.action, row.object, row.reason, row.detail)
