"""Bulk replays: one row each, which remembers what is sought, how far it has come, and when it may go on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Double, Row, cast, exists, func, insert, literal, select, text, update

from service.domain.model import DeliveryRow, DeliveryState
from service.domain.timestamps import format_rfc3339, parse_rfc3339
from service.store.database import Tx
from service.store.generations import Refusal
from service.store.tables import deliveries, events, replays, subscribers
from service.store.views import Page
from service.store.views_deliveries import Sought, conditions, rare_of, walk_of

MAX_MATCHED: Final = 1_000_000
WINDOW_ROWS: Final = 50_000
"""One chunk looks at no more rows of the table, however few of them match: its transaction stays short."""


class ReplayState(StrEnum):
    """How far a bulk replay is; a dry run is stored nowhere."""

    DRY_RUN = "dry-run"
    RUNNING = "running"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Matching:
    """What a filter finds at the instant `at`; of the `matched` some cannot be replayed any more."""

    at: datetime
    matched: int
    last_row: int
    skipped: Mapping[Refusal, int]


@dataclass(frozen=True, slots=True)
class ReplayRecord:
    """A bulk replay as it stands. `sought` has the states that are replayed, `after_row` is where it goes on."""

    id: UUID
    sought: Sought
    reason: str
    requested_by: str
    state: ReplayState
    matched: int
    replayed: int
    skipped: Mapping[Refusal, int]
    rate_per_second: float
    created_at: datetime
    finished_at: datetime | None = None
    after_row: int = field(default=0, repr=False)
    last_row: int = field(default=0, repr=False)

    @property
    def done(self) -> int:
        """How many of the matched ones it is through with."""
        return self.replayed + sum(self.skipped.values())


async def _conditions(tx: Tx, sought: Sought) -> list[ColumnElement[bool]]:
    named = [column == value for column, value in await walk_of(tx, sought)]
    rare = await rare_of(tx, sought)
    known = [] if rare is None else [rare]
    return [deliveries.c.finished_at.is_not(None), *named, *known, *conditions(sought, deliveries)]


async def is_subscriber(tx: Tx, slug: str) -> bool:
    """Whether there is, or ever was, a subscriber of this id."""
    known = exists().where(subscribers.c.id == slug)
    return bool((await tx.conn.execute(select(known))).scalar_one())


async def matching(tx: Tx, sought: Sought) -> Matching:
    """What the filter finds now, counted up to one more than MAX_MATCHED."""
    found = (
        select(deliveries.c.row, deliveries.c.event_id, deliveries.c.subscriber)
        .where(*await _conditions(tx, sought))
        .limit(literal(MAX_MATCHED + 1, literal_execute=True))
        .subquery()
    )
    deleted, purged = subscribers.c.deleted_at.is_not(None), events.c.body.is_(None)
    moved = subscribers.c.tenant_id != events.c.tenant_id
    query = select(
        func.clock_timestamp().label("at"),
        func.count().label("n"),
        func.coalesce(func.max(found.c.row), 0).label("last_row"),
        func.count().filter(deleted).label("deleted"),
        func.count().filter(~deleted, moved).label("moved"),
        func.count().filter(~deleted, ~moved, purged).label("purged"),
    ).select_from(
        found.join(subscribers, subscribers.c.row == found.c.subscriber).join(events, events.c.id == found.c.event_id)
    )
    row = (await tx.conn.execute(query)).one()
    skipped = {
        Refusal.PAYLOAD_PURGED: row.purged,
        Refusal.SUBSCRIBER_DELETED: row.deleted,
        Refusal.TENANT_CHANGED: row.moved,
    }
    return Matching(row.at, row.n, row.last_row, skipped)


async def add(tx: Tx, record: ReplayRecord) -> None:
    """Store a bulk replay."""
    values = {
        "id": record.id,
        "filter": document_of(record.sought),
        "reason": record.reason,
        "requested_by": record.requested_by,
        "rate_per_second": record.rate_per_second,
        "state": record.state.value,
        "matched": record.matched,
        "last_row": record.last_row,
        "created_at": record.created_at,
        "finished_at": record.finished_at,
    }
    await tx.conn.execute(insert(replays).values(**values))


async def read(tx: Tx, id: UUID) -> ReplayRecord | None:  # noqa: A002 - the column's name
    """One bulk replay."""
    row = (await tx.conn.execute(select(replays).where(replays.c.id == id))).one_or_none()
    return None if row is None else _record(row)


async def listed(tx: Tx, page: Page) -> list[ReplayRecord]:
    """One page of bulk replays, newest first; `page.after` is the id of the last one seen."""
    query = select(replays).order_by(replays.c.id.desc()).limit(page.sql_limit)
    if page.after is not None:
        query = query.where(replays.c.id < page.after)
    return [_record(row) for row in await tx.conn.execute(query)]


async def cancel(tx: Tx, id: UUID) -> bool:  # noqa: A002 - the column's name
    """Stop a running replay behind the chunk that is under way; False where it does not run."""
    stopping = (
        update(replays)
        .where(replays.c.id == id, replays.c.state == ReplayState.RUNNING.value)
        .values(state=ReplayState.CANCELLED.value, finished_at=func.clock_timestamp())
    )
    return (await tx.conn.execute(stopping)).rowcount == 1


_RUNNING = replays.c.state == literal(ReplayState.RUNNING.value, literal_execute=True)


async def take(tx: Tx) -> ReplayRecord | None:
    """A running replay that may go on now, locked until the end of the transaction; None where there is none."""
    query = (
        select(replays)
        .where(_RUNNING, replays.c.next_at <= func.now())
        .order_by(replays.c.next_at)
        .limit(literal(1, literal_execute=True))
        .with_for_update(skip_locked=True)
    )
    row = (await tx.conn.execute(query)).one_or_none()
    return None if row is None else _record(row)


async def seconds_to_next(tx: Tx) -> float | None:
    """Seconds until some running replay may go on; None where none runs. Negative: another worker is at it."""
    left = cast(func.extract("epoch", func.min(replays.c.next_at) - func.clock_timestamp()), Double)
    seconds: float | None = (await tx.conn.execute(select(left).where(_RUNNING))).scalar_one()
    return seconds


@dataclass(frozen=True, slots=True)
class Chunk:
    """The next deliveries of a bulk replay, and the row up to which the table has then been looked through."""

    rows: Sequence[DeliveryRow]
    after_row: int


async def next_chunk(tx: Tx, record: ReplayRecord, limit: int) -> Chunk:
    """The next matching deliveries, at most `limit`; those that ended after the replay was made are none of them."""
    end = min(record.last_row, record.after_row + WINDOW_ROWS)
    query = (
        select(deliveries.c.row)
        .where(deliveries.c.row > record.after_row, deliveries.c.row <= end)
        .where(deliveries.c.finished_at <= record.created_at, *await _conditions(tx, record.sought))
        .order_by(deliveries.c.row)
        .limit(literal(limit, literal_execute=True))
    )
    rows = [DeliveryRow(row.row) for row in await tx.conn.execute(query)]
    return Chunk(rows, rows[-1] if len(rows) == limit else end)


_PACE = text("now() + make_interval(secs => :pause)")


async def advance(tx: Tx, record: ReplayRecord, *, pause: float) -> None:
    """Write down how far it has come; it may go on in `pause` seconds. What it fell behind is not made good."""
    values = {
        "state": record.state.value,
        "matched": record.matched,
        "replayed": record.replayed,
        "skipped": {refusal.value: n for refusal, n in record.skipped.items()},
        "after_row": record.after_row,
        "next_at": _PACE.bindparams(pause=pause),
        "finished_at": None if record.state is ReplayState.RUNNING else func.clock_timestamp(),
    }
    await tx.conn.execute(update(replays).where(replays.c.id == record.id).values(**values))


def document_of(sought: Sought) -> dict[str, str]:
    """The filter as it is stored and shown: what is not asked for is left out."""
    told: dict[str, str | None] = {
        "state": sought.states[0].value if len(sought.states) == 1 else None,
        "reason": sought.reason,
        "subscriberId": sought.subscriber_id,
        "runId": str(sought.run) if sought.run else None,
        "eventType": sought.event_type,
        "since": format_rfc3339(sought.since) if sought.since else None,
        "until": format_rfc3339(sought.until) if sought.until else None,
    }
    return {name: value for name, value in told.items() if value is not None}


DEFAULT_STATES: Final = (DeliveryState.EXHAUSTED, DeliveryState.REJECTED)
"""What is replayed where no state is named: the others a person has to mean."""


def _sought(document: Mapping[str, str]) -> Sought:
    since, until, run = (document.get(name) for name in ("since", "until", "runId"))
    return Sought(
        states=(DeliveryState(document["state"]),) if "state" in document else DEFAULT_STATES,
        reason=document.get("reason"),
        subscriber_id=document.get("subscriberId"),
        run=UUID(run) if run else None,
        event_type=document.get("eventType"),
        since=parse_rfc3339(since) if since else None,
        until=parse_rfc3339(until) if until else None,
    )


def _record(row: Row[Any]) -> ReplayRecord:
    return ReplayRecord(
        id=row.id,
        sought=_sought(row.filter),
        reason=row.reason,
        requested_by=row.requested_by,
        state=ReplayState(row.state),
        matched=row.matched,
        replayed=row.replayed,
        skipped={Refusal(name): n for name, n in row.skipped.items()},
        rate_per_second=row.rate_per_second,
        created_at=row.created_at,
        finished_at=row.finished_at,
        after_row=row.after_row,
        last_row=row.last_row,
    )
