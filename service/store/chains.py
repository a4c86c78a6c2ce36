"""Chains: the deliveries of one lane that wait for one another, by order key and in the order of their rows.

A delivery with a predecessor is parked: its `next_attempt_at` is infinity, so no claim meets it. Whatever ends or adds
a delivery of a chain calls `promote` behind the lane's lock, which makes the head due. Both a fan-out and a settle do
so; whichever comes second sees what the first wrote, so no head is forgotten.
"""

from collections.abc import Collection
from typing import TypeAlias

from sqlalchemy import bindparam, text

from service.domain.model import DeliveryRow, SubscriberRow
from service.store.arrays import Flat
from service.store.database import Tx

Link: TypeAlias = tuple[SubscriberRow, int]
"""A subscriber and an order key of it: one chain."""

# The head is found before it is locked: where somebody has it locked, nothing is promoted, and above all not what
# stands behind it. Whoever holds it puts it back, or ends it and promotes its successor afterwards.
_PROMOTE = text("""
    WITH chain AS MATERIALIZED (SELECT * FROM unnest(:subscribers, :keys) AS t (subscriber, order_key)),
    head AS MATERIALIZED (
        SELECT h.row FROM chain c JOIN tocsin.lanes l USING (subscriber) CROSS JOIN LATERAL (
            SELECT d.row FROM tocsin.deliveries d
             WHERE d.subscriber = c.subscriber AND d.order_key = c.order_key AND d.finished_at IS NULL
             ORDER BY d.row LIMIT 1) first
         CROSS JOIN LATERAL (
            SELECT d.row FROM tocsin.deliveries d
             WHERE d.row = first.row AND d.finished_at IS NULL AND d.next_attempt_at = 'infinity'
               AND d.lease_owner IS NULL FOR NO KEY UPDATE SKIP LOCKED) h
         WHERE l.on_dead_letter = 'skip' OR NOT EXISTS (
                SELECT FROM tocsin.deliveries b
                 WHERE b.subscriber = c.subscriber AND b.order_key = c.order_key AND b.row < h.row
                   AND b.state IN ('exhausted', 'rejected', 'ambiguous')))
    UPDATE tocsin.deliveries d SET next_attempt_at = now() FROM head h WHERE d.row = h.row
""").bindparams(bindparam("subscribers", type_=Flat("integer")), bindparam("keys", type_=Flat("bigint")))


async def promote(tx: Tx, links: Collection[Link]) -> None:
    """Make the parked heads of these chains due, where no dead letter blocks them; call it after `lanes.wake`."""
    if links:
        subscribers, keys = zip(*links, strict=True)
        await tx.conn.execute(_PROMOTE, {"subscribers": list(subscribers), "keys": list(keys)})


_LINKS = text("""
    SELECT DISTINCT subscriber, order_key FROM tocsin.deliveries
     WHERE subscriber = :subscriber AND finished_at IS NULL AND order_key IS NOT NULL
""")


async def links_of(tx: Tx, subscriber: SubscriberRow) -> list[Link]:
    """The chains of a subscriber that are not at their end."""
    rows = await tx.conn.execute(_LINKS, {"subscriber": subscriber})
    return [(SubscriberRow(row.subscriber), row.order_key) for row in rows]


_MOST_BLOCKING = 1_000

# Dead letters are found by their own index, which does not have them in order.
_AHEAD = text(f"""
    SELECT least(
        CASE WHEN l.on_dead_letter = 'block' THEN (
            SELECT min(b.row) FROM (
                SELECT row FROM tocsin.deliveries
                 WHERE subscriber = d.subscriber AND order_key = d.order_key AND row < d.row
                   AND state IN ('exhausted', 'rejected', 'ambiguous') LIMIT {_MOST_BLOCKING}) b) END,
        (SELECT row FROM tocsin.deliveries
          WHERE subscriber = d.subscriber AND order_key = d.order_key AND row < d.row AND finished_at IS NULL
          ORDER BY row LIMIT 1))
      FROM tocsin.deliveries d JOIN tocsin.lanes l ON l.subscriber = d.subscriber
     WHERE d.row = :row AND d.order_key IS NOT NULL
""")


async def ahead(tx: Tx, row: DeliveryRow) -> DeliveryRow | None:
    """What a parked delivery waits for: the first of its chain that has not ended, or that blocks it.

    Of more than a thousand dead letters it is one of them, and need not be the first. None where nothing is before it.
    """
    found = (await tx.conn.execute(_AHEAD, {"row": row})).scalar_one_or_none()
    return None if found is None else DeliveryRow(found)
