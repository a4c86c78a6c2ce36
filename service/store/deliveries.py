"""Deliveries on their hot path: fan-out, claim, lapse and settle, each one statement a batch.

Lock order everywhere: deliveries before lanes, lanes in the order of their rows. Claim and lapse lock the other way
round but never wait (`SKIP LOCKED`), so they cannot be part of a circle. Everyone who ends a lease or makes a delivery
due calls `lanes.wake` afterwards in the same transaction.
"""

from dataclasses import dataclass

from sqlalchemy import ARRAY, Integer, Row, bindparam, text

from service.domain.model import Claimed, DeliveryRow, EventId, Lapsed, RunId, SubscriberRow
from service.store.database import Tx
from service.store.lanes import Wake, wake

MAX_ROWS = 20_000
"""A fan-out transaction writes at most about this many rows."""

_TURN = text("""
    SELECT subscriber FROM tocsin.lanes
     WHERE state = 'active' AND next_due_at <= now() AND throttled_until <= now()
     ORDER BY claimed_at LIMIT :lanes FOR UPDATE SKIP LOCKED
""")

# A statement of its own behind the lock: its snapshot sees whatever was committed to these lanes before they were
# locked, so a wake-up cannot fall between the two. `leased` makes the room exact across workers, and the walk over one
# lane's due rows passes over at most its leased ones.
_CLAIM = text("""
    WITH lane AS MATERIALIZED (
        SELECT l.subscriber, greatest(l.max_concurrency - l.leased, 0) AS room
          FROM unnest(:lanes) WITH ORDINALITY AS t (subscriber, turn) JOIN tocsin.lanes l USING (subscriber)
         ORDER BY t.turn),
    picked AS MATERIALIZED (
        SELECT p.row, p.subscriber FROM lane CROSS JOIN LATERAL (
            SELECT d.row, d.subscriber FROM tocsin.deliveries d
             WHERE d.subscriber = lane.subscriber AND d.finished_at IS NULL AND d.next_attempt_at <= now()
               AND d.lease_owner IS NULL
             ORDER BY d.next_attempt_at, d.row LIMIT least(lane.room, :per_lane) FOR UPDATE SKIP LOCKED) p
         LIMIT :batch),
    tally AS MATERIALIZED (
        SELECT lane.subscriber, lane.room, count(p.row) AS n, (SELECT count(*) FROM picked) AS total
          FROM lane LEFT JOIN picked p USING (subscriber) GROUP BY lane.subscriber, lane.room),
    turned AS (
        UPDATE tocsin.lanes l
           SET claimed_at = CASE WHEN t.n > 0 OR t.total < :batch THEN clock_timestamp() ELSE l.claimed_at END,
               leased = l.leased + t.n,
               lapse_at = CASE WHEN t.n > 0 THEN least(l.lapse_at, now() + make_interval(secs => :lease))
                               ELSE l.lapse_at END,
               next_due_at = CASE
                   WHEN t.n >= t.room THEN 'infinity'
                   WHEN t.n >= :per_lane OR t.total >= :batch THEN l.next_due_at
                   ELSE coalesce((SELECT d.next_attempt_at FROM tocsin.deliveries d
                                   WHERE d.subscriber = l.subscriber AND d.finished_at IS NULL
                                     AND d.next_attempt_at > now()
                                   ORDER BY d.next_attempt_at LIMIT 1), 'infinity') END
          FROM tally t WHERE l.subscriber = t.subscriber)
    UPDATE tocsin.deliveries d
       SET lease_owner = :worker, leased_at = now(), lease_expires_at = now() + make_interval(secs => :lease),
           lease_seq = d.lease_seq + 1
      FROM picked p JOIN tocsin.subscribers s ON s.row = p.subscriber WHERE d.row = p.row
    RETURNING d.row, d.event_id, d.subscriber, s.revision, d.run_id, d.generation, d.attempt_count,
              d.generation_attempts, d.lease_seq, extract(epoch FROM d.deadline_at - now())::float8 AS seconds_left
""").bindparams(bindparam("lanes", type_=ARRAY(Integer)))


async def claim(tx: Tx, *, worker: str, lease_seconds: float, lanes: int, per_lane: int, batch: int) -> list[Claimed]:
    """Lease up to `batch` due deliveries, at most `per_lane` and the room of each of up to `lanes` due lanes."""
    turn = [row.subscriber for row in await tx.conn.execute(_TURN, {"lanes": lanes})]
    if not turn:
        return []
    params = {"lanes": turn, "worker": worker, "lease": float(lease_seconds), "per_lane": per_lane, "batch": batch}
    return [_claimed(row) for row in await tx.conn.execute(_CLAIM, params)]


def _claimed(row: Row[tuple[object, ...]], lapsed: Lapsed | None = None) -> Claimed:
    return Claimed(
        row=DeliveryRow(row.row),
        event_id=EventId(row.event_id),
        subscriber=SubscriberRow(row.subscriber),
        revision=row.revision,
        run_id=None if row.run_id is None else RunId(row.run_id),
        generation=row.generation,
        attempt_count=row.attempt_count,
        generation_attempts=row.generation_attempts,
        lease_seq=row.lease_seq,
        seconds_left=row.seconds_left,
        lapsed=lapsed,
    )


_LAPSING = text("""
    SELECT subscriber FROM tocsin.lanes WHERE lapse_at <= now() ORDER BY lapse_at LIMIT :lanes FOR UPDATE SKIP LOCKED
""")

_LAPSE = text("""
    WITH lane AS MATERIALIZED (SELECT subscriber, leased FROM tocsin.lanes WHERE subscriber = ANY(:lanes)),
    held AS MATERIALIZED (
        SELECT h.* FROM lane CROSS JOIN LATERAL (
            SELECT d.row, d.subscriber, d.lease_owner, d.leased_at, d.lease_seq, d.lease_expires_at
              FROM tocsin.deliveries d
             WHERE d.subscriber = lane.subscriber AND d.finished_at IS NULL AND d.next_attempt_at <= now()
               AND d.lease_owner IS NOT NULL
             ORDER BY d.next_attempt_at, d.row LIMIT lane.leased FOR UPDATE SKIP LOCKED) h),
    watched AS (
        UPDATE tocsin.lanes l
           SET lapse_at = coalesce((SELECT min(CASE WHEN h.lease_expires_at < now()
                                                    THEN now() + make_interval(secs => :lease)
                                                    ELSE h.lease_expires_at END)
                                      FROM held h WHERE h.subscriber = l.subscriber),
                                   CASE WHEN l.leased > 0 THEN now() + interval '1 second' ELSE 'infinity' END)
          FROM lane WHERE l.subscriber = lane.subscriber)
    UPDATE tocsin.deliveries d
       SET lease_owner = :worker, leased_at = now(), lease_expires_at = now() + make_interval(secs => :lease),
           lease_seq = d.lease_seq + 1
      FROM held h JOIN tocsin.subscribers s ON s.row = h.subscriber
     WHERE d.row = h.row AND h.lease_expires_at < now()
    RETURNING d.row, d.event_id, d.subscriber, s.revision, d.run_id, d.generation, d.attempt_count,
              d.generation_attempts, d.lease_seq, extract(epoch FROM d.deadline_at - now())::float8 AS seconds_left,
              h.lease_owner AS dead_owner, h.leased_at AS dead_since, h.lease_seq AS dead_seq
""").bindparams(bindparam("lanes", type_=ARRAY(Integer)))


async def lapse(tx: Tx, *, worker: str, lease_seconds: float, lanes: int) -> list[Claimed]:
    """Take over the leases that ran out, so that the caller can settle each as the dead owner's `in_doubt` attempt."""
    due = [row.subscriber for row in await tx.conn.execute(_LAPSING, {"lanes": lanes})]
    if not due:
        return []
    rows = await tx.conn.execute(_LAPSE, {"lanes": due, "worker": worker, "lease": float(lease_seconds)})
    return [_claimed(row, Lapsed(row.dead_owner, row.dead_since, row.dead_seq)) for row in rows]


_LIVE_SUBSCRIBERS = text("SELECT count(*) FROM tocsin.subscribers WHERE deleted_at IS NULL")

# One event's subscribers are fixed by the snapshot of the statement that fans it out; an event with more of them than
# fit one transaction remembers how far it came (`fan_out_after`) and goes on in the next.
_FAN_OUT = """
    WITH batch AS MATERIALIZED (
        SELECT id, run_id, tenant_id, topics, fan_out_after, due_at FROM tocsin.events
         WHERE fanned_out_at IS NULL AND {which} ORDER BY id LIMIT :events FOR UPDATE {wait}),
    kind AS MATERIALIZED (SELECT DISTINCT tenant_id, topics FROM batch),
    matching AS MATERIALIZED (
        SELECT k.tenant_id, k.topics, s.row, make_interval(secs => s.deadline_seconds) AS deadline
          FROM kind k JOIN tocsin.subscribers s
            ON s.tenant_id = k.tenant_id AND s.deleted_at IS NULL AND s.event_types && k.topics),
    pair AS MATERIALIZED (
        SELECT b.id, b.run_id, p.row, p.deadline FROM batch b CROSS JOIN LATERAL (
            SELECT m.row, m.deadline FROM matching m
             WHERE m.tenant_id = b.tenant_id AND m.topics = b.topics AND m.row > b.fan_out_after
             ORDER BY m.row LIMIT :per_event) p),
    added AS (
        INSERT INTO tocsin.deliveries (event_id, subscriber, run_id, deadline_at)
        SELECT id, row, run_id, now() + deadline FROM pair ORDER BY id, row
        ON CONFLICT (event_id, subscriber) DO NOTHING),
    marked AS (
        UPDATE tocsin.events e
           SET fan_out_after = coalesce(p.last, e.fan_out_after),
               fanned_out_at = CASE WHEN coalesce(p.n, 0) < :per_event THEN clock_timestamp() END
          FROM batch b LEFT JOIN (SELECT id, count(*) AS n, max(row) AS last FROM pair GROUP BY id) p USING (id)
         WHERE e.id = b.id)
    SELECT (SELECT count(*) FROM batch) AS events, (SELECT count(*) FROM pair) AS deliveries,
           ARRAY(SELECT DISTINCT row FROM pair ORDER BY row) AS subscribers
"""
_FAN_OUT_RUN = text(_FAN_OUT.format(which="run_id = :run_id", wait=""))
_FAN_OUT_DIRECT = text(_FAN_OUT.format(which="run_id IS NULL AND due_at IS NULL", wait="SKIP LOCKED"))


@dataclass(frozen=True, slots=True)
class FannedOut:
    """What one chunk of fan-out did; no events means that nothing is left to fan out."""

    events: int
    deliveries: int


async def fan_out(tx: Tx, run_id: RunId | None) -> FannedOut:
    """Make the deliveries of the next events of a run (None: of events published directly), at most `MAX_ROWS`."""
    subscribers = (await tx.conn.execute(_LIVE_SUBSCRIBERS)).scalar_one()
    # One more than there are, so that an event shows at once that it has no subscribers left.
    events = min(max(MAX_ROWS // (subscribers + 1), 1), 1_000)
    params: dict[str, object] = {"events": events, "per_event": MAX_ROWS // events}
    if run_id is None:
        row = (await tx.conn.execute(_FAN_OUT_DIRECT, params)).one()
    else:
        row = (await tx.conn.execute(_FAN_OUT_RUN, params | {"run_id": run_id})).one()
    if row.subscribers:
        await wake(tx, {SubscriberRow(subscriber): Wake() for subscriber in row.subscribers})
    return FannedOut(row.events, row.deliveries)


_ENQUEUE = text("""
    INSERT INTO tocsin.deliveries (event_id, subscriber, deadline_at)
    SELECT :event_id, s.row, now() + make_interval(secs => s.deadline_seconds)
      FROM tocsin.subscribers s WHERE s.row = :subscriber
    ON CONFLICT (event_id, subscriber) DO NOTHING
""")
_FANNED_OUT = text("UPDATE tocsin.events SET fanned_out_at = now() WHERE id = :event_id")


async def enqueue(tx: Tx, event_id: EventId, subscriber: SubscriberRow) -> None:
    """Deliver an event to this one subscriber only, whatever it subscribes to; the event counts as fanned out."""
    await tx.conn.execute(_FANNED_OUT, {"event_id": event_id})
    await tx.conn.execute(_ENQUEUE, {"event_id": event_id, "subscriber": subscriber})
    await wake(tx, {subscriber: Wake()})


_CANCEL = text("""
    WITH gone AS (
        SELECT row, lease_owner FROM tocsin.deliveries
         WHERE subscriber = :subscriber AND finished_at IS NULL ORDER BY next_attempt_at, row LIMIT :limit FOR UPDATE),
    cancelled AS (
        UPDATE tocsin.deliveries d
           SET state = 'cancelled', reason = :reason, finished_at = clock_timestamp(), lease_owner = NULL,
               leased_at = NULL, lease_expires_at = NULL
          FROM gone WHERE d.row = gone.row)
    SELECT count(*) AS n, count(lease_owner) AS leased FROM gone
""")


async def cancel_pending(tx: Tx, subscriber: SubscriberRow, reason: str, limit: int = MAX_ROWS) -> int:
    """Cancel up to `limit` unfinished deliveries of a subscriber; call again until it returns fewer.

    What is in flight is cancelled as well: its outcome arrives late and is kept as evidence.
    """
    row = (await tx.conn.execute(_CANCEL, {"subscriber": subscriber, "reason": reason, "limit": limit})).one()
    if row.leased:
        await wake(tx, {subscriber: Wake(released=row.leased)})
    return int(row.n)
