"""What is told of a delivery; `views_deliveries` has the list of them, and `evidence` what happened to one."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    FromClause,
    Row,
    Select,
    any_,
    case,
    func,
    literal,
    null,
    select,
    text,
    true,
)

from service.domain.identifiers import delivery_id, delivery_key
from service.domain.model import DeliveryRow, DeliveryState, EventId, HeldBy, Outcome, RunId, SubscriberState
from service.store.database import Tx
from service.store.tables import attempts, deliveries, dispatch, events, lanes, subscribers


@dataclass(frozen=True, slots=True)
class LastOutcome:
    """How the latest attempt ended; one that lost its lease before it ended does not count."""

    outcome: Outcome
    status: int | None
    detail: str | None


@dataclass(frozen=True, slots=True)
class DeliveryView:
    """A delivery as the outside sees it. `row` is its place in the list, and stays inside."""

    row: DeliveryRow
    id: str
    key: str
    event_id: EventId
    event_type: str
    subject: str
    version: int
    tenant_id: str
    subscriber_id: str
    run: RunId | None
    state: DeliveryState
    held_by: HeldBy | None
    generation: int
    attempt_count: int
    generation_attempts: int
    next_attempt_at: datetime | None
    lease_owner: str | None
    lease_expires_at: datetime | None
    deadline_at: datetime
    last_outcome: LastOutcome | None
    reason: str | None
    payload_sha256: str
    created_at: datetime
    finished_at: datetime | None


def _described(chosen: FromClause) -> Select[Any]:
    """What is told of these deliveries, which are the table or a page of it; newest first."""
    last = (
        select(attempts.c.outcome, attempts.c.status, attempts.c.detail)
        .where(attempts.c.delivery == chosen.c.row)
        .order_by(attempts.c.late, attempts.c.id.desc())
        .limit(literal(1, literal_execute=True))
        .lateral("last")
    )
    source = (
        chosen.join(events, events.c.id == chosen.c.event_id)
        .join(subscribers, subscribers.c.row == chosen.c.subscriber)
        .outerjoin(lanes, lanes.c.subscriber == chosen.c.subscriber)
        .outerjoin(last, true())
    )
    return (
        select(
            chosen,
            events.c.type.label("event_type"),
            events.c.subject,
            events.c.version,
            events.c.tenant_id,
            events.c.body_sha256,
            subscribers.c.id.label("slug"),
            _held_by(chosen).label("held_by"),
            _next_attempt_at(chosen).label("due_at"),
            last.c.outcome.label("last_outcome"),
            last.c.status.label("last_status"),
            last.c.detail.label("last_detail"),
        )
        .select_from(source)
        .order_by(chosen.c.row.desc())
    )


def _held_by(chosen: FromClause) -> ColumnElement[str | None]:
    return case(
        (chosen.c.finished_at.is_not(None) | chosen.c.lease_owner.is_not(None), null()),
        (lanes.c.state == SubscriberState.PAUSED.value, HeldBy.SUBSCRIBER_PAUSED.value),
        (lanes.c.state == SubscriberState.DISABLED.value, HeldBy.SUBSCRIBER_DISABLED.value),
        (select(dispatch.c.paused).scalar_subquery(), HeldBy.DISPATCH_PAUSED.value),
        (chosen.c.next_attempt_at == text("'infinity'"), HeldBy.PREDECESSOR.value),
        (lanes.c.open_until > func.now(), HeldBy.CIRCUIT_OPEN.value),
        (lanes.c.throttled_until > func.now(), HeldBy.THROTTLED.value),
        ((chosen.c.next_attempt_at <= func.now()) & (lanes.c.leased >= _slots()), HeldBy.LANE_FULL.value),
        else_=null(),
    )


def _slots() -> ColumnElement[int]:
    """How many requests the lane lets out at once just now."""
    return func.least(lanes.c.max_concurrency, func.coalesce(lanes.c.ramp, lanes.c.max_concurrency))


def _next_attempt_at(chosen: FromClause) -> ColumnElement[datetime | None]:
    """When it comes, behind its lane's throttle or probe.

    Null when none is to come or when it waits for its predecessor, which is stored as infinity.
    """
    waits = chosen.c.finished_at.is_not(None) | (chosen.c.next_attempt_at == text("'infinity'"))
    later = func.greatest(chosen.c.next_attempt_at, lanes.c.throttled_until, lanes.c.open_until)
    return case((waits, null()), (chosen.c.lease_owner.is_not(None), chosen.c.next_attempt_at), else_=later)


async def delivery(tx: Tx, event_id: UUID, subscriber_row: int) -> DeliveryView | None:
    """The delivery of this event to this subscriber."""
    query = _described(deliveries).where(deliveries.c.event_id == event_id, deliveries.c.subscriber == subscriber_row)
    row = (await tx.conn.execute(query)).one_or_none()
    return None if row is None else _view(row)


async def of_rows(tx: Tx, rows: Sequence[DeliveryRow]) -> list[DeliveryView]:
    """Those of these deliveries that there are, newest first."""
    return await of(tx, select(deliveries).where(deliveries.c.row == any_(literal(list(rows), ARRAY(BigInteger)))))


async def of(tx: Tx, chosen: Select[Any]) -> list[DeliveryView]:
    """The chosen rows of the table, newest first; they are cut to a page before anything is joined to them."""
    return [_view(row) for row in await tx.conn.execute(_described(chosen.subquery("chosen")))]


def _view(row: Row[Any]) -> DeliveryView:
    state = _state(row)
    leased = state is DeliveryState.LEASED
    return DeliveryView(
        row=DeliveryRow(row.row),
        id=delivery_id(row.event_id, row.subscriber),
        key=delivery_key(row.event_id, row.slug),
        event_id=EventId(row.event_id),
        event_type=row.event_type,
        subject=row.subject,
        version=row.version,
        tenant_id=row.tenant_id,
        subscriber_id=row.slug,
        run=row.run_id,
        state=state,
        held_by=None if row.held_by is None else HeldBy(row.held_by),
        generation=row.generation,
        attempt_count=row.attempt_count,
        generation_attempts=row.generation_attempts,
        next_attempt_at=row.due_at,
        lease_owner=row.lease_owner if leased else None,
        lease_expires_at=row.lease_expires_at if leased else None,
        deadline_at=row.deadline_at,
        last_outcome=_last(row),
        reason=row.reason,
        payload_sha256=row.body_sha256.hex(),
        created_at=row.created_at,
        finished_at=row.finished_at,
    )


def _state(row: Row[Any]) -> DeliveryState:
    stored = DeliveryState(row.state)
    return DeliveryState.LEASED if stored is DeliveryState.PENDING and row.lease_owner is not None else stored


def _last(row: Row[Any]) -> LastOutcome | None:
    if row.last_outcome is None:
        return None
    return LastOutcome(Outcome(row.last_outcome), row.last_status, row.last_detail)
