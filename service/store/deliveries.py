"""Deliveries on their hot path: claim and lapse, each one statement a batch.

Lock order everywhere: deliveries before lanes, lanes in the order of their rows. Claim and lapse lock the other way
round but never wait (`SKIP LOCKED`), so they cannot be part of a circle. Everyone who ends a lease or makes a delivery
due calls `lanes.wake` afterwards in the same transaction.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from sqlalchemy import Integer, bindparam, text

from service.domain.breaker import FAILURES_TO_OPEN
from service.domain.model import Claimed, DeliveryRow, Lapsed, SubscriberRow
from service.store.arrays import Flat, Spelled
from service.store.database import Tx

_TURN = 16
"""Deliveries of a whole turn; of a lane that may give out more at once it takes all of these."""
_CREDIT_SECONDS = 10
"""However long a lane had nothing, it is no further ahead than this: so long others may once have to wait for it."""

# One statement, so that lanes are locked for as short as can be. `turn` locks the lanes and reads them as they are
# then; everything else is seen as it was when the statement began. A wake-up may have been committed between the two:
# it has left its mark on the lane (`stale`), which then stays due. `leased` makes the room exact across workers, and
# the walk over one lane's due rows passes over at most its leased ones.
#
# `heads` may be sent at once, `reach` is how many rows may be leased for them: a strict lane gives out one head and the
# chain behind it. Retries (queue 1) get at most three quarters of a lane, and of a batch, so that first attempts (queue
# 0) always find room; bulk replays (queue 2) share the retries' part, and get only what the other two leave of it.
#
# The lane that stands furthest back in time (`claimed_at`) goes first, and pays with its place for what it takes: a
# whole turn moves it to now, which is behind all others, a part of a turn by that part of the way. So a lane that is
# due for less than its fair part is in front each time, however many lanes with a backlog take turns; one that is due
# for more waits as these do, until it takes whole turns. Why it took no more does not matter, whether nothing else was
# due, its room or its tokens were used up or the batch was full: what it took is paid for, so that nobody is served
# beyond his part, and who took nothing keeps his place. Two exceptions keep lanes that were long away and cannot give
# much now from standing before the others: on its ramp a lane has had its turn when it gave what it may, and so has
# one from which its origin's share refused something (found, and not kept).
_CLAIM = text(f"""
    WITH turn AS MATERIALIZED (
        SELECT *, xmin AS version FROM tocsin.lanes
         WHERE state = 'active' AND next_due_at <= now() AND throttled_until <= now() AND open_until <= now()
           AND NOT (SELECT paused FROM tocsin.dispatch) AND subscriber <> ALL(:full) AND origin <> ALL(:full_origins)
         ORDER BY claimed_at LIMIT :lanes FOR UPDATE SKIP LOCKED),
    lane AS MATERIALIZED (
        SELECT l.subscriber, l.version <> seen.xmin AS stale, l.ordering, l.max_concurrency, l.leased_late,
               l.rate_per_second,
               CASE WHEN l.rate_per_second IS NULL THEN NULL
                    ELSE least(greatest(1, l.rate_per_second / 10),
                               l.tokens + l.rate_per_second * extract(epoch FROM now() - l.tokens_at)) END AS tokens,
               CASE WHEN l.failures >= {FAILURES_TO_OPEN} OR l.ordering = 'strict'
                    THEN CASE WHEN l.leased = 0 THEN 1 ELSE 0 END
                    ELSE greatest(least(l.max_concurrency, coalesce(l.ramp, l.max_concurrency)) - l.leased, 0)
                    END AS slots,
               CASE WHEN l.ordering = 'strict' AND l.failures < {FAILURES_TO_OPEN} AND s.idempotent
                    THEN :chain END AS chain,
               greatest(:share - coalesce(o.flights, 0), 0) AS share,
               CASE WHEN l.ramp IS NULL THEN {_TURN} ELSE 1 END AS turn, l.claimed_at,
               l.origin, greatest(:share - coalesce(g.flights, 0), 0) AS origin_share
          FROM turn l
          JOIN tocsin.lanes seen USING (subscriber)
          JOIN tocsin.subscribers s ON s.row = l.subscriber
          LEFT JOIN unnest(:busy, :flights) AS o (subscriber, flights) ON o.subscriber = l.subscriber
          LEFT JOIN unnest(:origins, :origin_flights) AS g (origin, flights) ON g.origin = l.origin
         ORDER BY l.claimed_at),
    room AS MATERIALIZED (
        SELECT *, least(slots, share, floor(tokens))::int AS heads,
               CASE WHEN slots = 0 THEN 0 ELSE least(coalesce(chain, slots), floor(tokens)) END::int AS reach
          FROM lane),
    quota AS MATERIALIZED (
        SELECT *, greatest(least(heads, greatest(max_concurrency * 3 / 4, 1) - leased_late), 0) AS late_heads
          FROM room),
    late AS MATERIALIZED (
        SELECT p.row, p.subscriber, p.order_key FROM quota q CROSS JOIN LATERAL (
            SELECT d.row, d.subscriber, d.order_key FROM tocsin.deliveries d
             WHERE d.subscriber = q.subscriber AND d.finished_at IS NULL AND d.queue = 1 AND d.next_attempt_at <= now()
               AND d.lease_owner IS NULL
             ORDER BY d.next_attempt_at, d.row LIMIT q.late_heads FOR UPDATE SKIP LOCKED) p
         LIMIT :batch - :batch / 4),
    fresh AS MATERIALIZED (
        SELECT p.row, p.subscriber, p.order_key FROM (
            SELECT quota.*, (SELECT count(*) FROM late WHERE late.subscriber = quota.subscriber) AS taken FROM quota) q
         CROSS JOIN LATERAL (
            SELECT d.row, d.subscriber, d.order_key FROM tocsin.deliveries d
             WHERE d.subscriber = q.subscriber AND d.finished_at IS NULL AND d.queue = 0 AND d.next_attempt_at <= now()
               AND d.lease_owner IS NULL
             ORDER BY d.next_attempt_at, d.row LIMIT greatest(q.heads - q.taken, 0) FOR UPDATE SKIP LOCKED) p
         LIMIT greatest(:batch - (SELECT count(*) FROM late), 0)),
    bulk AS MATERIALIZED (
        SELECT p.row, p.subscriber, p.order_key FROM (
            SELECT quota.*, (SELECT count(*) FROM late WHERE late.subscriber = quota.subscriber) AS late_taken,
                   (SELECT count(*) FROM fresh WHERE fresh.subscriber = quota.subscriber) AS taken FROM quota) q
         CROSS JOIN LATERAL (
            SELECT d.row, d.subscriber, d.order_key FROM tocsin.deliveries d
             WHERE d.subscriber = q.subscriber AND d.finished_at IS NULL AND d.queue = 2 AND d.next_attempt_at <= now()
               AND d.lease_owner IS NULL
             ORDER BY d.next_attempt_at, d.row
             LIMIT greatest(least(q.heads - q.taken, q.late_heads) - q.late_taken, 0) FOR UPDATE SKIP LOCKED) p
         LIMIT greatest(:batch - (SELECT count(*) FROM late) - (SELECT count(*) FROM fresh), 0)),
    found AS MATERIALIZED (SELECT * FROM late UNION ALL SELECT * FROM fresh UNION ALL SELECT * FROM bulk),
    ranked AS MATERIALIZED (
        SELECT p.*, row_number() OVER (PARTITION BY origin ORDER BY claimed_at) <= origin_share AS kept
          FROM found p JOIN room USING (subscriber)),
    head AS MATERIALIZED (SELECT row, subscriber, order_key FROM ranked WHERE kept),
    counted AS MATERIALIZED (
        SELECT subscriber, count(*) AS found, count(*) FILTER (WHERE kept) AS n FROM ranked GROUP BY subscriber),
    follower AS MATERIALIZED (
        SELECT p.row, p.subscriber FROM head h JOIN room USING (subscriber) JOIN counted c USING (subscriber)
         CROSS JOIN LATERAL (
            SELECT d.row, d.subscriber FROM tocsin.deliveries d
             WHERE d.subscriber = h.subscriber AND d.order_key = h.order_key AND d.row > h.row
               AND d.finished_at IS NULL AND d.lease_owner IS NULL
             ORDER BY d.row LIMIT greatest((room.reach - c.n) / c.n, 0) FOR UPDATE SKIP LOCKED) p
         WHERE h.order_key IS NOT NULL),
    picked AS MATERIALIZED (SELECT row FROM head UNION ALL SELECT row FROM follower),
    leased AS (
        UPDATE tocsin.deliveries d
           SET lease_owner = :worker, leased_at = now(), lease_expires_at = now() + make_interval(secs => :lease),
               lease_seq = d.lease_seq + 1, next_attempt_at = least(d.next_attempt_at, now())
          FROM tocsin.subscribers s JOIN tocsin.lanes l ON l.subscriber = s.row
         WHERE d.row = ANY (ARRAY(SELECT row FROM picked)) AND s.row = d.subscriber
        RETURNING d.row, d.event_id, d.subscriber, s.revision, l.origin, d.run_id, d.generation, d.attempt_count,
                  d.generation_attempts, d.lease_seq, extract(epoch FROM now())::float8 AS leased_at,
                  extract(epoch FROM d.deadline_at - now())::float8 AS seconds_left,
                  extract(epoch FROM d.next_attempt_at)::float8 AS due_at, d.order_key, d.queue),
    tally AS MATERIALIZED (
        SELECT room.*, coalesce(c.n, 0) AS n, coalesce(l.n, 0) AS leased_n, coalesce(l.late, 0) AS late_n,
               coalesce(c.found > c.n, false) AS refused,
               (SELECT count(*) FROM found) >= :batch OR (SELECT count(*) FROM late) >= :batch - :batch / 4 AS cut
          FROM room LEFT JOIN counted c USING (subscriber)
          LEFT JOIN (SELECT subscriber, count(*) AS n, count(*) FILTER (WHERE queue > 0) AS late
                       FROM leased GROUP BY subscriber) l USING (subscriber)),
    turned AS (
        UPDATE tocsin.lanes l
           SET claimed_at = CASE
                   WHEN t.refused AND (t.n > 0 OR NOT t.cut) THEN clock_timestamp()
                   WHEN t.n > 0
                   THEN clock_timestamp() - greatest(1 - t.leased_n::float8 / greatest(t.heads, t.turn), 0)
                        * (clock_timestamp() - greatest(l.claimed_at, now() - interval '{_CREDIT_SECONDS} seconds'))
                   ELSE l.claimed_at END,
               leased = l.leased + t.leased_n, leased_late = l.leased_late + t.late_n,
               tokens = coalesce(t.tokens - t.leased_n, l.tokens),
               tokens_at = CASE WHEN t.tokens IS NULL THEN l.tokens_at ELSE now() END,
               lapse_at = CASE WHEN t.n > 0 THEN least(l.lapse_at, now() + make_interval(secs => :lease))
                               ELSE l.lapse_at END,
               next_due_at = CASE
                   WHEN t.n >= t.slots THEN 'infinity'
                   WHEN t.tokens - t.leased_n < 1
                   THEN now() + make_interval(secs => (1 - (t.tokens - t.leased_n)) / t.rate_per_second)
                   WHEN t.stale OR t.n >= t.share OR t.cut OR t.refused THEN l.next_due_at
                   ELSE (SELECT coalesce(min(n.at), 'infinity') FROM (VALUES (0), (1), (2)) AS kind (queue)
                          CROSS JOIN LATERAL (
                             SELECT d.next_attempt_at AS at FROM tocsin.deliveries d
                              WHERE d.subscriber = l.subscriber AND d.finished_at IS NULL AND d.queue = kind.queue
                                AND d.next_attempt_at > now() ORDER BY d.next_attempt_at LIMIT 1) n)
                   END
          FROM tally t WHERE l.subscriber = t.subscriber)
    SELECT row, event_id, subscriber, revision, origin, run_id, generation, attempt_count, generation_attempts,
           lease_seq, leased_at, seconds_left, due_at, order_key
      FROM leased ORDER BY row
""").bindparams(
    bindparam("full", type_=Flat("integer")),
    bindparam("full_origins", type_=Flat("text")),
    bindparam("lanes", type_=Integer),
    bindparam("busy", type_=Flat("integer")),
    bindparam("flights", type_=Flat("integer")),
    bindparam("origins", type_=Flat("text")),
    bindparam("origin_flights", type_=Flat("integer")),
    bindparam("chain", type_=Integer),
    bindparam("batch", type_=Integer),
    bindparam("share", type_=Integer),
)


@dataclass(frozen=True, slots=True)
class Appetite:
    """What one worker wants of the next claim.

    At most `batch` deliveries that may be sent at once, of at most `lanes` lanes; of one lane, and to one origin, no
    more than bring the worker's own requests (`flights`, `origin_flights`) to `share`. Of the lanes in `full` it takes
    nothing. Behind the head of a strict lane it leases up to `chain` deliveries in all.
    """

    batch: int
    share: int
    flights: Mapping[SubscriberRow, int] = field(default_factory=dict[SubscriberRow, int])
    origin_flights: Mapping[str, int] = field(default_factory=dict[str, int])
    full: Collection[SubscriberRow] = ()
    lanes: int = 64
    chain: int = 250

    @property
    def full_origins(self) -> list[str]:
        """The origins to which this worker sends as much as it may."""
        return [origin for origin, flights in self.origin_flights.items() if flights >= self.share]


async def claim(tx: Tx, appetite: Appetite, *, worker: str, lease_seconds: float) -> list[Claimed]:
    """Lease due deliveries in fair turn, in the order of their rows: those of one order key form a chain."""
    params = {
        "full": list(appetite.full),
        "full_origins": appetite.full_origins,
        "lanes": appetite.lanes,
        "busy": list(appetite.flights),
        "flights": list(appetite.flights.values()),
        "origins": list(appetite.origin_flights),
        "origin_flights": list(appetite.origin_flights.values()),
        "share": appetite.share,
        "batch": appetite.batch,
        "chain": appetite.chain,
        "worker": worker,
        "lease": float(lease_seconds),
    }
    return [Claimed(*row) for row in (await tx.conn.execute(_CLAIM, params)).all()]


# From the given rows on, each by its key. In one join the planner may begin with the lanes, of which statistics that
# were taken in a pause say that hardly any is active, and then looks at each delivery of each: seconds a batch.
_STANDING = text("""
    WITH held AS MATERIALIZED (
        SELECT d.row, d.subscriber, t.revision FROM unnest(:rows, :seqs, :revisions) AS t (row, seq, revision)
          JOIN tocsin.deliveries d USING (row)
         WHERE d.lease_seq = t.seq AND d.lease_owner IS NOT NULL AND d.finished_at IS NULL)
    SELECT row FROM held
     WHERE NOT (SELECT paused FROM tocsin.dispatch)
       AND (SELECT l.state FROM tocsin.lanes l WHERE l.subscriber = held.subscriber) = 'active'
       AND (SELECT s.revision FROM tocsin.subscribers s WHERE s.row = held.subscriber) = held.revision
""").bindparams(
    bindparam("rows", type_=Spelled("bigint")),
    bindparam("seqs", type_=Spelled("bigint")),
    bindparam("revisions", type_=Spelled("integer")),
)


async def standing(tx: Tx, leased: Collection[Claimed]) -> set[DeliveryRow]:
    """Those of these that may be sent as they were claimed.

    Their leases stand, so that none was cancelled meanwhile; their subscribers are as they were, and not paused.
    """
    values = {
        "rows": [claimed.row for claimed in leased],
        "seqs": [claimed.lease_seq for claimed in leased],
        "revisions": [claimed.revision for claimed in leased],
    }
    return {DeliveryRow(row.row) for row in await tx.conn.execute(_STANDING, values)}


_LAPSING = text("""
    SELECT subscriber FROM tocsin.lanes WHERE lapse_at <= now() ORDER BY lapse_at LIMIT :lanes FOR UPDATE SKIP LOCKED
""")

# The leased rows of a lane stand at its head, which no statistics tell: without this the planner would fetch all that
# is due in the lane and sort it.
_IN_ORDER = text("SELECT set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true)")

_LAPSE = text("""
    WITH lane AS MATERIALIZED (SELECT subscriber, leased, leased_late FROM tocsin.lanes WHERE subscriber = ANY(:lanes)),
    held AS MATERIALIZED (
        SELECT h.* FROM lane CROSS JOIN LATERAL (
            SELECT x.* FROM (VALUES (0), (1), (2)) AS kind (queue) CROSS JOIN LATERAL (
                SELECT d.row, d.subscriber, d.lease_owner, d.leased_at, d.lease_seq, d.lease_expires_at
                  FROM tocsin.deliveries d
                 WHERE d.subscriber = lane.subscriber AND d.finished_at IS NULL AND d.queue = kind.queue
                   AND d.next_attempt_at <= now() AND d.lease_owner IS NOT NULL
                 ORDER BY d.next_attempt_at, d.row
                 LIMIT CASE WHEN kind.queue > 0 THEN lane.leased_late ELSE lane.leased - lane.leased_late END
                 FOR UPDATE SKIP LOCKED) x) h),
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
      FROM held h JOIN tocsin.subscribers s ON s.row = h.subscriber JOIN tocsin.lanes l USING (subscriber)
     WHERE d.row = ANY (ARRAY(SELECT row FROM held)) AND d.row = h.row AND h.lease_expires_at < now()
    RETURNING d.row, d.event_id, d.subscriber, s.revision, l.origin, d.run_id, d.generation, d.attempt_count,
              d.generation_attempts, d.lease_seq, extract(epoch FROM now())::float8 AS leased_at,
              extract(epoch FROM d.deadline_at - now())::float8 AS seconds_left,
              extract(epoch FROM d.next_attempt_at)::float8 AS due_at, d.order_key,
              h.lease_owner AS dead_owner, extract(epoch FROM h.leased_at)::float8 AS dead_since,
              h.lease_seq AS dead_seq
""").bindparams(bindparam("lanes", type_=Flat("integer")))


async def lapse(tx: Tx, *, worker: str, lease_seconds: float, lanes: int) -> list[Claimed]:
    """Take over the leases that ran out, so that the caller can settle each as the dead owner's `in_doubt` attempt."""
    due = [row.subscriber for row in await tx.conn.execute(_LAPSING, {"lanes": lanes})]
    if not due:
        return []
    await tx.conn.execute(_IN_ORDER)
    rows = await tx.conn.execute(_LAPSE, {"lanes": due, "worker": worker, "lease": float(lease_seconds)})
    return sorted(
        (Claimed(*row[:-3])._replace(lapsed=Lapsed(*row[-3:])) for row in rows), key=lambda claimed: claimed.row
    )
