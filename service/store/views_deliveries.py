"""Read-only questions about deliveries: one page of them, or one; `evidence` has what happened to it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Column,
    ColumnElement,
    FromClause,
    Row,
    Select,
    any_,
    bindparam,
    case,
    func,
    literal,
    null,
    select,
    text,
    true,
    union_all,
)

from service.domain.identifiers import delivery_id, delivery_key
from service.domain.model import DeliveryRow, DeliveryState, EventId, HeldBy, Outcome, RunId, SubscriberState
from service.store.database import Tx
from service.store.tables import attempts, deliveries, dispatch, events, lanes, subscribers
from service.store.views import Page, is_one


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


@dataclass(frozen=True, slots=True)
class Sought:
    """Which deliveries; None asks for all. `since` is inclusive, `until` is not; both are about `created_at`.

    Of several `states`, in any of them: those are terminal.
    """

    states: tuple[DeliveryState, ...] = ()
    reason: str | None = None
    subscriber_id: str | None = None
    run: UUID | None = None
    event_id: UUID | None = None
    event_type: str | None = None
    since: datetime | None = None
    until: datetime | None = None


_OPEN = deliveries.c.finished_at.is_(None)
_LEASED = deliveries.c.lease_owner.is_not(None)


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


async def page_of(tx: Tx, sought: Sought, page: Page) -> list[DeliveryView]:
    """One page of deliveries, newest first; `page.after` is the `row` of the last one seen.

    The page is cut before anything is joined to it, so that an index gives its rows in order.
    """
    walk = await walk_of(tx, sought)
    split = _split(sought, walk)
    chosen = (
        select(deliveries)
        .where(*(is_one(column, value) for column, value in walk))
        .where(*conditions(replace(sought, states=()) if split else sought))
        .order_by(*(column.desc() for column, _ in walk[:1]), deliveries.c.row.desc())
        .limit(page.sql_limit)
    )
    if sought.event_type is not None:
        chosen = chosen.join(events, events.c.id == deliveries.c.event_id).where(events.c.type == sought.event_type)
    if page.after is not None:
        chosen = chosen.where(deliveries.c.row < page.after)
    merged = _by_state(chosen, split, page) if split else chosen
    return [_view(row) for row in await tx.conn.execute(_described(merged.subquery("chosen")))]


def _split(sought: Sought, walk: Sequence[tuple[Column[Any], object]]) -> list[list[ColumnElement[bool]]]:
    """The states by each of which the page has to be asked for, as their conditions; none where one walk serves.

    The indexes of a run's deliveries and of what was not delivered have the state before the row: one in the order of
    the rows alone would be one more for every settle to write.
    """
    if len(sought.states) > 1:
        return [_in_state(state) for state in sought.states]
    if not sought.states and walk and walk[0][0] is deliveries.c.run_id:
        return [[_stored(state)] for state in sorted(set(DeliveryState) - {DeliveryState.LEASED})]
    return []


def _by_state(chosen: Select[Any], split: Sequence[Sequence[ColumnElement[bool]]], page: Page) -> Select[Any]:
    """The same page, merged from one of each state."""
    each = union_all(*(chosen.where(*state) for state in split)).subquery()
    return select(each).order_by(each.c.row.desc()).limit(page.sql_limit)


async def walk_of(tx: Tx, sought: Sought) -> list[tuple[Column[Any], object]]:
    """What is sought by an index, narrowest first: its column and the value there."""
    walk: list[tuple[Column[Any], object]] = []
    if sought.event_id is not None:
        walk.append((deliveries.c.event_id, sought.event_id))
    if sought.run is not None:
        walk.append((deliveries.c.run_id, sought.run))
    if sought.subscriber_id is not None:
        named = select(subscribers.c.row).where(subscribers.c.id == sought.subscriber_id)
        walk.append((deliveries.c.subscriber, (await tx.conn.execute(named)).scalar_one_or_none()))
    return walk


async def delivery(tx: Tx, event_id: UUID, subscriber_row: int) -> DeliveryView | None:
    """The delivery of this event to this subscriber."""
    query = _described(deliveries).where(deliveries.c.event_id == event_id, deliveries.c.subscriber == subscriber_row)
    row = (await tx.conn.execute(query)).one_or_none()
    return None if row is None else _view(row)


async def of_rows(tx: Tx, rows: Sequence[DeliveryRow]) -> list[DeliveryView]:
    """Those of these deliveries that there are, newest first."""
    chosen = select(deliveries).where(deliveries.c.row == any_(literal(list(rows), ARRAY(BigInteger))))
    return [_view(row) for row in await tx.conn.execute(_described(chosen.subquery("chosen")))]


def conditions(sought: Sought) -> Iterator[ColumnElement[bool]]:
    """What else is sought of a delivery, as far as its own row tells."""
    if len(sought.states) == 1:
        yield from _in_state(sought.states[0])
    elif sought.states:
        yield deliveries.c.state.in_(bindparam(None, sought.states, expanding=True, literal_execute=True))
    if sought.reason is not None:
        yield deliveries.c.reason == sought.reason
    if sought.since is not None:
        yield deliveries.c.created_at >= sought.since
    if sought.until is not None:
        yield deliveries.c.created_at < sought.until


def _in_state(state: DeliveryState) -> list[ColumnElement[bool]]:
    """The state as it is stored; inlined, because a partial index is used only for a state that the planner sees."""
    if state is DeliveryState.LEASED:
        return [_OPEN, _stored(DeliveryState.PENDING), _LEASED]
    if state is DeliveryState.PENDING:
        return [_OPEN, _stored(DeliveryState.PENDING), ~_LEASED]
    return [_stored(state)]


def _stored(state: DeliveryState) -> ColumnElement[bool]:
    return deliveries.c.state == literal(state.value, literal_execute=True)


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
