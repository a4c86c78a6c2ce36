"""The whole evidence of one delivery: every attempt, every replay, and what operators did to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Row, literal, select

from service.domain.identifiers import delivery_id
from service.domain.model import DeliveryRow, DeliveryState, Outcome
from service.store import audit, views_delivery
from service.store.audit import AuditLine
from service.store.database import Tx
from service.store.tables import attempts, generations
from service.store.views import Page
from service.store.views_delivery import DeliveryView

MAX_SHOWN = 1000
"""Of one delivery's attempts, replays and actions, the newest; replays may pile up more."""


@dataclass(frozen=True, slots=True)
class AttemptView:
    """One attempt as the outside sees it. `late` ones lost their lease: they are evidence and decided nothing."""

    number: int
    generation: int
    outcome: Outcome
    status: int | None
    detail: str | None
    counted: bool
    late: bool
    started_at: datetime
    duration_ms: int
    worker: str
    response_excerpt: str | None


@dataclass(frozen=True, slots=True)
class GenerationView:
    """How a generation after the first was opened, and how the one before it had ended."""

    generation: int
    requested_by: str
    reason: str
    at: datetime
    replay_id: UUID | None
    was_state: DeliveryState
    was_reason: str | None


@dataclass(frozen=True, slots=True)
class Evidence:
    """A delivery and all that happened to it; each sequence is oldest first and has the newest MAX_SHOWN."""

    delivery: DeliveryView
    attempts: Sequence[AttemptView]
    replays: Sequence[GenerationView]
    actions: Sequence[AuditLine]


def audited(event_id: UUID, subscriber_row: int) -> str:
    """The delivery as the `object` of an audit line."""
    return f"delivery:{delivery_id(event_id, subscriber_row)}"


async def whole(tx: Tx, event_id: UUID, subscriber_row: int) -> Evidence | None:
    """The delivery of this event to this subscriber, with its evidence; None where there is none."""
    view = await views_delivery.delivery(tx, event_id, subscriber_row)
    if view is None:
        return None
    lines = await audit.listed(tx, actor=None, object=audited(event_id, subscriber_row), page=Page(MAX_SHOWN))
    return Evidence(view, await _attempts_of(tx, view.row), await _replays_of(tx, view.row), lines[::-1])


async def _attempts_of(tx: Tx, row: DeliveryRow) -> Sequence[AttemptView]:
    query = (
        select(attempts)
        .where(attempts.c.delivery == row)
        .order_by(attempts.c.id.desc())
        .limit(literal(MAX_SHOWN, literal_execute=True))
    )
    return [_attempt(found) for found in (await tx.conn.execute(query)).all()[::-1]]


async def _replays_of(tx: Tx, row: DeliveryRow) -> Sequence[GenerationView]:
    query = (
        select(generations)
        .where(generations.c.delivery == row)
        .order_by(generations.c.generation.desc())
        .limit(literal(MAX_SHOWN, literal_execute=True))
    )
    return [_generation(found) for found in (await tx.conn.execute(query)).all()[::-1]]


def _attempt(row: Row[Any]) -> AttemptView:
    return AttemptView(
        number=row.number,
        generation=row.generation,
        outcome=Outcome(row.outcome),
        status=row.status,
        detail=row.detail,
        counted=row.counted,
        late=row.late,
        started_at=row.started_at,
        duration_ms=row.duration_ms,
        worker=row.worker,
        response_excerpt=row.excerpt,
    )


def _generation(row: Row[Any]) -> GenerationView:
    return GenerationView(
        generation=row.generation,
        requested_by=row.requested_by,
        reason=row.reason,
        at=row.at,
        replay_id=row.replay_id,
        was_state=DeliveryState(row.was_state),
        was_reason=row.was_reason,
    )
