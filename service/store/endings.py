"""How deliveries end without an attempt: cancelled with their subscriber, or past their deadline."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text

from service.domain.model import DeliveryRow, EventId, RunId, SubscriberRow
from service.store import chains
from service.store.database import Tx
from service.store.lanes import Wake, wake

BATCH = 20_000

_CANCEL = text("""
    WITH gone AS (
        SELECT row, lease_owner, queue FROM tocsin.deliveries
         WHERE subscriber = :subscriber AND finished_at IS NULL ORDER BY queue, next_attempt_at, row
         LIMIT :limit FOR NO KEY UPDATE),
    cancelled AS (
        UPDATE tocsin.deliveries d
           SET state = 'cancelled', reason = :reason, finished_at = clock_timestamp(), lease_owner = NULL,
               leased_at = NULL, lease_expires_at = NULL
          FROM gone WHERE d.row = gone.row)
    SELECT count(*) AS n, count(lease_owner) AS leased,
           count(lease_owner) FILTER (WHERE queue > 0) AS leased_late
      FROM gone
""")


async def cancel_pending(tx: Tx, subscriber: SubscriberRow, reason: str, limit: int = BATCH) -> int:
    """Cancel up to `limit` unfinished deliveries of a subscriber; call again until it returns fewer.

    What is in flight is cancelled as well: its outcome arrives late and is kept as evidence.
    """
    row = (await tx.conn.execute(_CANCEL, {"subscriber": subscriber, "reason": reason, "limit": limit})).one()
    if row.leased:
        await wake(tx, {subscriber: Wake(released=row.leased, released_late=row.leased_late)})
    return int(row.n)


@dataclass(frozen=True, slots=True)
class Expired:
    """A delivery whose deadline passed while it waited."""

    row: DeliveryRow
    event_id: EventId
    subscriber: SubscriberRow
    run_id: RunId | None
    order_key: int | None


_EXPIRE = text("""
    WITH gone AS (
        SELECT row FROM tocsin.deliveries
         WHERE finished_at IS NULL AND deadline_at <= now() AND lease_owner IS NULL
         ORDER BY deadline_at LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED)
    UPDATE tocsin.deliveries d SET state = 'exhausted', reason = 'deadline', finished_at = clock_timestamp()
      FROM gone WHERE d.row = gone.row
    RETURNING d.row, d.event_id, d.subscriber, d.run_id, d.order_key
""")


async def expire(tx: Tx, limit: int) -> Sequence[Expired]:
    """End up to `limit` deliveries that nobody is sending and whose deadline is over, also of paused subscribers."""
    expired = [Expired(*row) for row in await tx.conn.execute(_EXPIRE, {"limit": limit})]
    links = {(each.subscriber, each.order_key) for each in expired if each.order_key is not None}
    if links:
        await wake(tx, {subscriber: Wake() for subscriber, _ in links})
        await chains.promote(tx, links)
    return expired
