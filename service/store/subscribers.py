"""Subscribers: where deliveries go and how they are treated; their secrets are in `subscriber_secrets`, sealed.

The values of their own headers are sealed as well, each by itself; without a vault a record has `headers.MASK` there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Row,
    Select,
    bindparam,
    case,
    exists,
    func,
    select,
    text,
    update,
)
from sqlalchemy.dialects import postgresql

from service.domain.headers import MASK
from service.domain.model import (
    Destination,
    Mode,
    OnDeadLetter,
    Ordering,
    Policy,
    SubscriberRow,
    SubscriberState,
)
from service.domain.subscriber import Wanted
from service.store.arrays import Flat
from service.store.database import Tx
from service.store.tables import Document, deliveries, lanes, subscribers
from service.store.vault import Unreadable, Vault
from service.store.views import Page


@dataclass(frozen=True, slots=True)
class SubscriberRecord:
    """A stored subscriber and the state of its lane; its secret is never part of it.

    In `wanted.headers`, `headers.MASK` stands for each value that was not to be opened, or cannot be.
    """

    row: SubscriberRow
    wanted: Wanted
    state: SubscriberState
    state_reason: str | None
    revision: int
    created_at: datetime
    updated_at: datetime
    deleted_at: datetime | None
    head_of_line_at: datetime | None
    """When the oldest delivery that others wait for was made; None in a lane without order or without a queue."""


async def add(tx: Tx, wanted: Wanted, vault: Vault) -> SubscriberRow | None:
    """Store a subscriber under its slug; None where the slug is taken, be it by a deleted one."""
    added = (
        postgresql.insert(subscribers)
        .values(**_columns(wanted, vault))
        .on_conflict_do_nothing(index_elements=[subscribers.c.id])
        .returning(subscribers.c.row)
    )
    row = (await tx.conn.execute(added)).scalar_one_or_none()
    return None if row is None else SubscriberRow(row)


async def replace(tx: Tx, row: SubscriberRow, wanted: Wanted, vault: Vault) -> None:
    """Put `wanted` in the place of what is stored and bring a deleted subscriber back; its secrets stay."""
    changed = (
        update(subscribers)
        .where(subscribers.c.row == row)
        .values(**_columns(wanted, vault), revision=subscribers.c.revision + 1, updated_at=tx.now, deleted_at=None)
    )
    await tx.conn.execute(changed)


def _columns(wanted: Wanted, vault: Vault) -> dict[str, object]:
    headers = vault.seal_texts(wanted.headers)
    return asdict(wanted) | {"event_types": list(wanted.event_types), "headers": headers}


def _records() -> Select[Any]:
    state = func.coalesce(lanes.c.state, SubscriberState.ACTIVE.value).label("state")
    joined = subscribers.outerjoin(lanes, lanes.c.subscriber == subscribers.c.row)
    return select(subscribers, state, lanes.c.state_reason, _head_of_line().label("head_of_line_at")).select_from(
        joined
    )


def _head_of_line() -> ColumnElement[datetime | None]:
    """In a strict lane the first of its chain; with one chain a subject, the oldest of up to `_MAX_HEADS` heads."""
    ahead = select(deliveries.c.created_at).where(
        deliveries.c.subscriber == subscribers.c.row,
        deliveries.c.finished_at.is_(None),
        deliveries.c.order_key.is_not(None),
    )
    first = ahead.where(deliveries.c.order_key == 0).order_by(deliveries.c.row).limit(1)
    heads = ahead.where(deliveries.c.next_attempt_at < text("'infinity'")).limit(_MAX_HEADS).subquery()
    oldest = select(func.min(heads.c.created_at))
    return case(
        (subscribers.c.ordering == Ordering.STRICT.value, first.correlate(subscribers).scalar_subquery()),
        (subscribers.c.ordering == Ordering.SUBJECT.value, oldest.scalar_subquery()),
    )


_MAX_HEADS = 1000


async def has_unfinished(tx: Tx, row: SubscriberRow) -> bool:
    """Whether any delivery of the subscriber is not terminal."""
    waiting = exists().where(deliveries.c.subscriber == row, deliveries.c.finished_at.is_(None))
    return bool((await tx.conn.execute(select(waiting))).scalar_one())


async def read(tx: Tx, slug: str, vault: Vault | None = None, *, deleted: bool = False) -> SubscriberRecord | None:
    """The live subscriber of this slug, or a deleted one as well; its headers are opened with the vault, if given."""
    query = _records().where(subscribers.c.id == slug)
    if not deleted:
        query = query.where(subscribers.c.deleted_at.is_(None))
    found = (await tx.conn.execute(query)).one_or_none()
    return None if found is None else _record(found, vault)


async def lock(tx: Tx, slug: str, vault: Vault | None = None) -> SubscriberRecord | None:
    """The subscriber of this slug, deleted ones too, locked until the transaction ends: changes come one by one.

    Reading is a second statement: one that waited for the lock would show its lane as it was before the wait.
    """
    await tx.conn.execute(select(subscribers.c.row).where(subscribers.c.id == slug).with_for_update(key_share=True))
    found = (await tx.conn.execute(_records().where(subscribers.c.id == slug))).one_or_none()
    return None if found is None else _record(found, vault)


async def listed(tx: Tx, page: Page, vault: Vault | None = None) -> list[SubscriberRecord]:
    """One page of the live subscribers, newest first; `page.after` is the `row` of the last one seen."""
    query = (
        _records().where(subscribers.c.deleted_at.is_(None)).order_by(subscribers.c.row.desc()).limit(page.sql_limit)
    )
    if page.after is not None:
        query = query.where(subscribers.c.row < page.after)
    return [_record(row, vault) for row in await tx.conn.execute(query)]


async def delete(tx: Tx, row: SubscriberRow) -> None:
    """Mark a subscriber as deleted; its history keeps pointing at the row."""
    await tx.conn.execute(update(subscribers).where(subscribers.c.row == row).values(deleted_at=tx.now))


_LOCK_DELETED = text("SELECT deleted_at FROM tocsin.subscribers WHERE row = :row FOR NO KEY UPDATE")


async def lock_deleted(tx: Tx, row: SubscriberRow) -> bool:
    """Whether the subscriber is deleted; nobody brings it back while the transaction lasts."""
    return (await tx.conn.execute(_LOCK_DELETED, {"row": row})).scalar_one_or_none() is not None


_LEFT_OVER = text("""
    SELECT s.row FROM tocsin.subscribers s
     WHERE s.deleted_at IS NOT NULL
       AND EXISTS (SELECT FROM tocsin.deliveries d WHERE d.subscriber = s.row AND d.finished_at IS NULL)
""")


async def deleted_with_unfinished(tx: Tx) -> list[SubscriberRow]:
    """Deleted subscribers that still have deliveries to cancel: one look into an index for each that was deleted."""
    return [SubscriberRow(row.row) for row in await tx.conn.execute(_LEFT_OVER)]


def _record(row: Row[Any], vault: Vault | None) -> SubscriberRecord:
    wanted = Wanted(
        id=row.id,
        tenant_id=row.tenant_id,
        url=row.url,
        event_types=tuple(row.event_types),
        mode=Mode(row.mode),
        idempotent=row.idempotent,
        ordering=Ordering(row.ordering),
        on_dead_letter=OnDeadLetter(row.on_dead_letter),
        max_concurrency=row.max_concurrency,
        rate_per_second=row.rate_per_second,
        timeout_seconds=row.timeout_seconds,
        max_attempts=row.max_attempts,
        backoff_base_seconds=row.backoff_base_seconds,
        backoff_cap_seconds=row.backoff_cap_seconds,
        deadline_seconds=row.deadline_seconds,
        headers=_shown(vault, row.headers),
    )
    return SubscriberRecord(
        row=SubscriberRow(row.row),
        wanted=wanted,
        state=SubscriberState(row.state),
        state_reason=row.state_reason,
        revision=row.revision,
        created_at=row.created_at,
        updated_at=row.updated_at,
        deleted_at=row.deleted_at,
        head_of_line_at=row.head_of_line_at,
    )


_ADD_SECRET = text("""
    WITH changed AS (
        UPDATE tocsin.subscribers SET revision = revision + 1, updated_at = now() WHERE row = :subscriber)
    INSERT INTO tocsin.subscriber_secrets (subscriber, sealed) VALUES (:subscriber, :sealed)
""")


async def add_secret(tx: Tx, row: SubscriberRow, sealed: bytes) -> None:
    """Give the subscriber a secret that signs from now on, beside those that still do.

    Its revision grows, so that a worker which keeps the destination in memory reads it again.
    """
    await tx.conn.execute(_ADD_SECRET, {"subscriber": row, "sealed": sealed})


_RETIRE = text("""
    WITH gone AS (
        DELETE FROM tocsin.subscriber_secrets
         WHERE subscriber = :subscriber AND (:grace = 0 OR expires_at <= now()))
    UPDATE tocsin.subscriber_secrets
       SET expires_at = least(expires_at, now() + make_interval(secs => :grace))
     WHERE subscriber = :subscriber AND :grace > 0 AND (expires_at IS NULL OR expires_at > now())
    RETURNING id
""")


async def retire_secrets(tx: Tx, row: SubscriberRow, grace_seconds: float) -> int:
    """Let the present secrets sign for `grace_seconds` more, or less where they were retired before; says how many do.

    A grace of 0 ends all of them at once. Secrets whose time is over are erased.
    """
    params = {"subscriber": row, "grace": float(grace_seconds)}
    return len((await tx.conn.execute(_RETIRE, params)).all())


_DESTINATIONS = (
    text("""
    SELECT s.row, s.id, s.revision, s.url, s.mode, s.timeout_seconds, s.idempotent, s.max_attempts,
           s.backoff_base_seconds, s.backoff_cap_seconds, s.headers, k.sealed
      FROM tocsin.subscribers s
      CROSS JOIN LATERAL (
          SELECT array_agg(x.sealed ORDER BY x.id DESC) AS sealed FROM tocsin.subscriber_secrets x
           WHERE x.subscriber = s.row AND (x.expires_at IS NULL OR x.expires_at > now())) k
     WHERE s.row = ANY(:rows)
""")
    .bindparams(bindparam("rows", type_=Flat("integer")))
    .columns(headers=Document)
)


async def destinations(tx: Tx, rows: Sequence[SubscriberRow], vault: Vault) -> list[Destination]:
    """What is needed to send to these subscribers, deleted ones too, in one statement.

    Secrets are those valid now, newest first. A subscriber of whom one of them or a header cannot be opened, or who
    has no secret, is `unreadable`, with no secrets: what it waits for is held, never sent unsigned, half signed or
    without its headers.
    """
    found = await tx.conn.execute(_DESTINATIONS, {"rows": list(rows)})
    return [_destination(row, vault) for row in found]


def _destination(row: Row[Any], vault: Vault) -> Destination:
    try:
        secrets, headers = tuple(vault.open(each) for each in row.sealed or ()), vault.open_texts(row.headers)
    except Unreadable:
        secrets, headers = (), {}
    return Destination(
        row=SubscriberRow(row.row),
        slug=row.id,
        revision=row.revision,
        url=row.url,
        mode=Mode(row.mode),
        timeout_seconds=row.timeout_seconds,
        policy=Policy(row.idempotent, row.max_attempts, row.backoff_base_seconds, row.backoff_cap_seconds),
        headers=headers,
        secrets=secrets,
        unreadable=not secrets,
    )


def _shown(vault: Vault | None, sealed: Mapping[str, str]) -> Mapping[str, str]:
    masked = dict.fromkeys(sealed, MASK)
    try:
        return masked if vault is None else vault.open_texts(sealed)
    except Unreadable:
        return masked


async def longest_timeout(tx: Tx) -> float:
    """Seconds of the longest attempt that any live subscriber allows; 0 without subscribers."""
    query = select(func.coalesce(func.max(subscribers.c.timeout_seconds), 0.0)).where(
        subscribers.c.deleted_at.is_(None)
    )
    return float((await tx.conn.execute(query)).scalar_one())
