"""Read-only questions about events; the body is read only where one event is asked for."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Row, Select, select

from service.domain.model import EventId, RunId
from service.store.database import Tx
from service.store.tables import events as table
from service.store.views import Page, is_one


@dataclass(frozen=True, slots=True)
class EventView:
    """An event as the outside sees it, without its body; `run` is the id of the run that found it."""

    id: EventId
    tenant_id: str
    type: str
    subject: str
    version: int
    run: RunId | None
    due_at: datetime | None
    payload_sha256: str
    created_at: datetime
    fanned_out_at: datetime | None
    purged_at: datetime | None
    """Since then its body is gone; its hash and its logical key are kept."""
    published_by: str | None


_QUERY: Select[Any] = select(
    table.c.id,
    table.c.tenant_id,
    table.c.type,
    table.c.subject,
    table.c.version,
    table.c.run_id,
    table.c.due_at,
    table.c.body_sha256,
    table.c.created_at,
    table.c.fanned_out_at,
    table.c.purged_at,
    table.c.published_by,
)


async def event(tx: Tx, id: UUID) -> tuple[EventView, bytes | None] | None:  # noqa: A002 - the column's name
    """One event and the exact bytes of its body; None in place of a body that was purged."""
    row = (await tx.conn.execute(_QUERY.add_columns(table.c.body).where(table.c.id == id))).one_or_none()
    return None if row is None else (_view(row), row.body)


async def page_of(tx: Tx, *, type: str | None, subject: str | None, page: Page) -> list[EventView]:  # noqa: A002
    """One page of events, newest first; `page.after` is the id of the last one seen."""
    walk = [
        (column, value) for column, value in ((table.c.subject, subject), (table.c.type, type)) if value is not None
    ]
    query = (
        _QUERY.where(*(is_one(column, value) for column, value in walk))
        .order_by(*(column.desc() for column, _ in walk[:1]), table.c.id.desc())
        .limit(page.sql_limit)
    )
    if page.after is not None:
        query = query.where(table.c.id < page.after)
    return [_view(row) for row in await tx.conn.execute(query)]


def _view(row: Row[Any]) -> EventView:
    return EventView(
        id=EventId(row.id),
        tenant_id=row.tenant_id,
        type=row.type,
        subject=row.subject,
        version=row.version,
        run=row.run_id,
        due_at=row.due_at,
        payload_sha256=row.body_sha256.hex(),
        created_at=row.created_at,
        fanned_out_at=row.fanned_out_at,
        purged_at=row.purged_at,
        published_by=row.published_by,
    )
