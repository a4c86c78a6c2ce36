"""Retention's statements: each looks at one bounded page, and deletes or empties what has had its time.

A page is `limit` rows in the order of an index, whatever becomes of them; what somebody else holds is passed over and
left to the next run. Nothing here waits for a lock, so that it can be part of no circle.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Boolean, TextClause, bindparam, text

from service.domain.model import EventId, SubscriberRow
from service.store.arrays import Flat
from service.store.database import Tx


@dataclass(frozen=True, slots=True)
class Page:
    """Which rows are looked at: `limit` of them behind `after`, a position in JSON's terms."""

    boundary: datetime
    """What is finished before it has had its time."""
    after: Sequence[Any]
    limit: int
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Swept:
    """What a page had: rows that are old enough, those of them that nobody needs, and those that are gone now.

    `after` is where to go on; None where there is nothing behind.
    """

    after: Sequence[Any] | None
    seen: int = 0
    eligible: int = 0
    done: int = 0


_DEAD = "('exhausted', 'rejected', 'ambiguous')"
# What a running bulk replay has before it may still be replayed, whatever its filter says.
_KEPT = """
    kept AS MATERIALIZED (
        SELECT min(after_row) AS after_row, max(last_row) AS last_row FROM tocsin.replays WHERE state = 'running')"""
_UNWANTED = "NOT coalesce(d.row > k.after_row AND d.row <= k.last_row, false)"
# A dead letter holds up its successors until a person has decided: time alone must not let them go.
_BLOCKING = f"""
    d.order_key IS NOT NULL AND d.state IN {_DEAD} AND EXISTS (
        SELECT FROM tocsin.lanes l JOIN tocsin.subscribers s ON s.row = l.subscriber
         WHERE l.subscriber = d.subscriber AND l.on_dead_letter = 'block' AND s.deleted_at IS NULL)"""

_DELIVERIES = """
    WITH {kept},
    page AS MATERIALIZED (
        SELECT d.row, d.created_at < :boundary AS old,
               d.created_at < :boundary AND d.finished_at < :boundary AND {unwanted} AND NOT ({blocking}) AS eligible
          FROM (SELECT row, subscriber, order_key, state, created_at, finished_at FROM tocsin.deliveries
                 WHERE {page} LIMIT :limit) d CROSS JOIN kept k),
    doomed AS MATERIALIZED (
        SELECT d.row FROM tocsin.deliveries d
         WHERE NOT :dry_run AND d.row = ANY (ARRAY(SELECT row FROM page WHERE eligible)) AND d.finished_at < :boundary
         ORDER BY d.row FOR UPDATE SKIP LOCKED),
    evidence AS (DELETE FROM tocsin.attempts WHERE delivery = ANY (ARRAY(SELECT row FROM doomed))),
    replayed AS (DELETE FROM tocsin.generations WHERE delivery = ANY (ARRAY(SELECT row FROM doomed))),
    gone AS (DELETE FROM tocsin.deliveries WHERE row = ANY (ARRAY(SELECT row FROM doomed)) RETURNING row)
    SELECT count(*) AS scanned, count(*) FILTER (WHERE old) AS seen, count(*) FILTER (WHERE eligible) AS eligible,
           (SELECT count(*) FROM gone) AS done, max(row) AS last
      FROM page
"""


def _deliveries(page: str) -> TextClause:
    filled = _DELIVERIES.format(kept=_KEPT, unwanted=_UNWANTED, blocking=_BLOCKING, page=page)
    return text(filled).bindparams(bindparam("dry_run", type_=Boolean))


_OLD_DELIVERIES = _deliveries("row > :after ORDER BY row")
_DELIVERIES_OF = _deliveries(
    "(subscriber, row) > (:subscriber, :after) AND subscriber <= :subscriber ORDER BY subscriber, row"
)


async def delete_deliveries(tx: Tx, page: Page) -> Swept:
    """Delete terminal deliveries with their evidence, oldest first, up to the first page that has none old enough."""
    row = (await tx.conn.execute(_OLD_DELIVERIES, _values(page) | {"after": page.after[0]})).one()
    more = row.scanned == page.limit and row.seen > 0
    return Swept([row.last] if more else None, row.seen, row.eligible, row.done)


async def delete_deliveries_of(tx: Tx, subscriber: SubscriberRow, page: Page) -> Swept:
    """The same for one subscriber, however many are too young."""
    values = _values(page) | {"subscriber": subscriber, "after": page.after[0]}
    row = (await tx.conn.execute(_DELIVERIES_OF, values)).one()
    return Swept([row.last] if row.scanned == page.limit else None, row.seen, row.eligible, row.done)


_NEXT_SUBSCRIBER = text("SELECT min(row) FROM tocsin.subscribers WHERE tenant_id = ANY(:tenants) AND row > :after")
_NEXT_SUBSCRIBER = _NEXT_SUBSCRIBER.bindparams(bindparam("tenants", type_=Flat("text")))


async def next_subscriber(tx: Tx, tenants: Sequence[str], after: SubscriberRow) -> SubscriberRow | None:
    """The next subscriber of these tenants, deleted or not; None behind the last."""
    row: int | None = (await tx.conn.execute(_NEXT_SUBSCRIBER, {"tenants": list(tenants), "after": after})).scalar_one()
    return None if row is None else SubscriberRow(row)


_DELETE = """
    WITH page AS MATERIALIZED (
        SELECT x.*, {eligible} AS eligible
          FROM (SELECT {columns} FROM tocsin.{table} WHERE {page} LIMIT :limit) x),
    doomed AS MATERIALIZED (
        SELECT id FROM tocsin.{table}
         WHERE NOT :dry_run AND id = ANY (ARRAY(SELECT id FROM page WHERE eligible)) ORDER BY id
           FOR UPDATE SKIP LOCKED),
    gone AS (DELETE FROM tocsin.{table} WHERE id = ANY (ARRAY(SELECT id FROM doomed)) RETURNING id)
    SELECT count(*) AS scanned, count(*) FILTER (WHERE eligible) AS eligible, (SELECT count(*) FROM gone) AS done,
           (SELECT jsonb_build_array({position})::text FROM page ORDER BY {backwards} LIMIT 1) AS last
      FROM page
"""


def _delete(table: str, *, columns: str, eligible: str, page: str, position: str = "id") -> TextClause:
    backwards = ", ".join(f"{column} DESC" for column in position.split(", "))
    filled = _DELETE.format(
        table=table, columns=columns, eligible=eligible, page=page, position=position, backwards=backwards
    )
    return text(filled).bindparams(bindparam("dry_run", type_=Boolean))


_BY_ID = "id > :after AND id < :upto ORDER BY id"
_KEY = "tenant_id, type, subject, version"
_EVENT = {
    "columns": f"id, {_KEY}, fanned_out_at",
    "eligible": "x.fanned_out_at < :boundary AND NOT EXISTS (SELECT FROM tocsin.deliveries d WHERE d.event_id = x.id)",
}
_EVENTS = _delete("events", page=_BY_ID, **_EVENT)
_EVENTS_OF = _delete(
    "events",
    page=f"({_KEY}) > (:tenant, :type, :subject, :version) AND tenant_id <= :tenant ORDER BY {_KEY}",
    position=_KEY,
    **_EVENT,
)
# A tick is refused by its cutoff: the run stays for as long as its own cutoff might be accepted.
_RUNS = _delete(
    "runs",
    columns="id, state, cutoff, claimed_at, completed_at",
    eligible="x.state IN ('completed', 'failed') AND x.cutoff < :boundary "
    "AND coalesce(x.completed_at, x.claimed_at) < :boundary "
    "AND NOT EXISTS (SELECT FROM tocsin.events e WHERE e.run_id = x.id) "
    "AND NOT EXISTS (SELECT FROM tocsin.deliveries d WHERE d.run_id = x.id)",
    page=_BY_ID,
)
_REPLAYS = _delete(
    "replays",
    columns="id, state, finished_at",
    eligible="x.state <> 'running' AND x.finished_at < :boundary",
    page=_BY_ID,
)


async def delete_events(tx: Tx, page: Page, upto: UUID) -> Swept:
    """Delete events, and with them their logical keys, that have no deliveries left."""
    return await _by_id(tx, _EVENTS, page, upto)


async def delete_runs(tx: Tx, page: Page, upto: UUID) -> Swept:
    """Delete ended runs, and with them their runIds, that have no events and no deliveries left."""
    return await _by_id(tx, _RUNS, page, upto)


async def delete_replays(tx: Tx, page: Page, upto: UUID) -> Swept:
    """Delete bulk replays that ended."""
    return await _by_id(tx, _REPLAYS, page, upto)


async def delete_events_of(tx: Tx, tenant: str, page: Page) -> Swept:
    """Delete a tenant's events that have no deliveries left; `page.after` is (type, subject, version)."""
    position = dict(zip(("type", "subject", "version"), page.after, strict=True))
    row = (await tx.conn.execute(_EVENTS_OF, _values(page) | position | {"tenant": tenant})).one()
    more = json.loads(row.last)[1:] if row.scanned == page.limit else None
    return Swept(more, row.scanned, row.eligible, row.done)


async def _by_id(tx: Tx, statement: TextClause, page: Page, upto: UUID) -> Swept:
    row = (await tx.conn.execute(statement, _values(page) | {"after": UUID(page.after[0]), "upto": upto})).one()
    more = json.loads(row.last) if row.scanned == page.limit else None
    return Swept(more, row.scanned, row.eligible, row.done)


def _values(page: Page) -> dict[str, object]:
    return {"boundary": page.boundary, "limit": page.limit, "dry_run": page.dry_run}


_SHARE = text("SELECT count(*) FILTER (WHERE event_id < :upto) AS old, count(*) AS n FROM tocsin.deliveries")


async def old_deliveries(tx: Tx, upto: UUID) -> tuple[int, int]:
    """How many deliveries are of events older than this id, and how many there are; read from an index alone."""
    row = (await tx.conn.execute(_SHARE, {"upto": upto})).one()
    return row.old, row.n


# Dead letters keep their payload for as long as they are kept, so that a person can still replay them.
_HAD_ITS_TIME = f"""
    d.finished_at IS NOT NULL AND d.finished_at < :boundary AND d.state NOT IN {_DEAD} AND {_UNWANTED}"""
_PAYLOADS = text(f"""
    WITH {_KEPT},
    page AS MATERIALIZED (
        SELECT id, fanned_out_at FROM tocsin.events
         WHERE id > :after AND id < :upto AND body IS NOT NULL ORDER BY id LIMIT :limit)
    SELECT p.id, c.n, coalesce(p.fanned_out_at < :boundary AND coalesce(c.had_their_time, true), false) AS eligible
      FROM page p CROSS JOIN LATERAL (
        SELECT count(*) AS n, bool_and({_HAD_ITS_TIME}) AS had_their_time
          FROM tocsin.deliveries d CROSS JOIN kept k WHERE d.event_id = p.id) c
     ORDER BY p.id
""")


@dataclass(frozen=True, slots=True)
class Payloads:
    """A page of events that still have their payload; `events` are those whose payload nobody needs."""

    last: EventId | None
    seen: int
    deliveries: int
    """How many deliveries had to be looked at."""
    events: list[EventId]


async def payloads(tx: Tx, page: Page, upto: UUID) -> Payloads:
    """Look at the next events that still have their payload."""
    values = {"boundary": page.boundary, "after": UUID(page.after[0]), "upto": upto, "limit": page.limit}
    rows = (await tx.conn.execute(_PAYLOADS, values)).all()
    eligible = [EventId(row.id) for row in rows if row.eligible]
    return Payloads(EventId(rows[-1].id) if rows else None, len(rows), sum(row.n for row in rows), eligible)


_LOCK = text("""
    SELECT id FROM tocsin.events WHERE id = ANY(:ids) AND body IS NOT NULL ORDER BY id FOR UPDATE SKIP LOCKED
""").bindparams(bindparam("ids", type_=Flat("uuid")))


async def lock_payloads(tx: Tx, events: Sequence[EventId]) -> list[EventId]:
    """Lock those of these events that nobody holds: a replay, which locks its event too, waits or is not met."""
    return [EventId(row.id) for row in await tx.conn.execute(_LOCK, {"ids": list(events)})]


_PURGE = text(f"""
    WITH {_KEPT}
    UPDATE tocsin.events e SET body = NULL, purged_at = now()
     WHERE e.id = ANY(:ids) AND NOT EXISTS (
        SELECT FROM tocsin.deliveries d CROSS JOIN kept k WHERE d.event_id = e.id AND NOT ({_HAD_ITS_TIME}))
""").bindparams(bindparam("ids", type_=Flat("uuid")))


async def purge_payloads(tx: Tx, events: Sequence[EventId], boundary: datetime) -> int:
    """Empty these events, which the caller has locked, where still nobody needs their payload; returns how many."""
    return (await tx.conn.execute(_PURGE, {"ids": list(events), "boundary": boundary})).rowcount
