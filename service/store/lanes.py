"""Lanes: one hot row a subscriber, which says when and how much may be claimed from it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sqlalchemy import Double, Text, bindparam, text

from service.domain.breaker import FAILURES_TO_OPEN, PROBE_BASE_SECONDS, PROBE_CAP_SECONDS
from service.domain.model import SubscriberRow, SubscriberState
from service.domain.subscriber import Wanted
from service.domain.urls import origin
from service.store.arrays import Flat, Spelled
from service.store.database import Tx

_OPEN = text("""
    INSERT INTO tocsin.lanes (subscriber, origin, max_concurrency, rate_per_second, ordering, on_dead_letter)
    VALUES (:subscriber, :origin, :max_concurrency, :rate_per_second, :ordering, :on_dead_letter)
    ON CONFLICT (subscriber) DO UPDATE
       SET origin = excluded.origin, max_concurrency = excluded.max_concurrency,
           rate_per_second = excluded.rate_per_second,
           ordering = excluded.ordering, on_dead_letter = excluded.on_dead_letter,
           next_due_at = least(lanes.next_due_at, now())
""").bindparams(bindparam("rate_per_second", type_=Double))


async def open_lane(tx: Tx, subscriber: SubscriberRow, wanted: Wanted) -> None:
    """Give a subscriber its lane, or its lane new limits; a receiver that cannot deduplicate gets one at a time."""
    await tx.conn.execute(
        _OPEN,
        {
            "subscriber": subscriber,
            "origin": origin(wanted.url),
            "max_concurrency": wanted.max_concurrency if wanted.idempotent else 1,
            "rate_per_second": wanted.rate_per_second,
            "ordering": wanted.ordering.value,
            "on_dead_letter": wanted.on_dead_letter.value,
        },
    )


# Opening a lane again forgets its failures: whoever enables a subscriber has mended it. What waited goes out slowly at
# first: with each batch of answers that show life the ramp doubles, and ends at the limit.
_SET_STATE = text("""
    UPDATE tocsin.lanes
       SET state = :state, state_reason = :reason, failures = 0, probes = 0, open_until = '-infinity',
           ramp = CASE WHEN :state = 'active' AND state <> 'active' THEN 1 END,
           failing_since = NULL, next_due_at = least(next_due_at, now())
     WHERE subscriber = :subscriber
""").bindparams(bindparam("state", type_=Text))


async def set_state(tx: Tx, subscriber: SubscriberRow, state: SubscriberState, reason: str | None) -> None:
    """Pause, disable or open a lane; what is in flight finishes, what waits is held and lost by none of these."""
    await tx.conn.execute(_SET_STATE, {"subscriber": subscriber, "state": state.value, "reason": reason})


_DISABLE = text("""
    UPDATE tocsin.lanes l SET state = 'disabled', state_reason = :reason
      FROM unnest(:subscribers, :revisions) AS t (subscriber, revision)
      JOIN tocsin.subscribers s ON s.row = t.subscriber AND s.revision = t.revision
     WHERE l.subscriber = t.subscriber AND l.state <> 'disabled'
    RETURNING s.id
""").bindparams(bindparam("subscribers", type_=Flat("integer")), bindparam("revisions", type_=Flat("integer")))


async def disable(tx: Tx, revisions: Mapping[SubscriberRow, int], reason: str) -> list[str]:
    """Disable lanes on a receiver's word; returns the slugs of the ones that were not disabled before.

    The word counts only for the revision of the subscriber that it was said to: it may have another URL by now.
    """
    values = {"subscribers": list(revisions), "revisions": list(revisions.values()), "reason": reason}
    rows = await tx.conn.execute(_DISABLE, values)
    return [row.id for row in rows]


_DISABLE_FAILING = text("""
    WITH failing AS (
        SELECT subscriber FROM tocsin.lanes
         WHERE state = 'active' AND failures >= :failures AND failing_since < now() - make_interval(secs => :seconds)
         ORDER BY subscriber FOR UPDATE SKIP LOCKED)
    UPDATE tocsin.lanes l SET state = 'disabled', state_reason = :reason FROM failing f, tocsin.subscribers s
     WHERE l.subscriber = f.subscriber AND s.row = f.subscriber
       AND (SELECT count(*) FILTER (WHERE failing_since IS NOT NULL) * 2 <= greatest(count(*), 4) FROM tocsin.lanes
             WHERE state = 'active')
    RETURNING s.id
""")


async def disable_failing(tx: Tx, *, seconds: float, reason: str) -> list[str]:
    """Disable the lanes that have failed for so long without one success; returns their slugs.

    Nothing is disabled while most of the active lanes fail: then the fault is more likely ours than theirs.
    """
    values = {"failures": FAILURES_TO_OPEN, "seconds": float(seconds), "reason": reason}
    return [row.id for row in await tx.conn.execute(_DISABLE_FAILING, values)]


# Whatever changes what a lane may give out meets it here, under its lock: `told` has a row a lane, as `Wake` describes
# it, and for a batch of results what they say of the receiver. `failed` counts the transient failures behind the last
# sign of life, `alive` says whether there was one, `throttle` is how many seconds of quiet it asked for. With a sign of
# life an open lane closes, but its ramp lets out only twice as much a batch until the limit is reached; so it does
# behind a throttle. The probes of an open lane are jittered between half of the pause and all of it.
HEARD = f"""
    heard AS (
        SELECT l.subscriber, t.released, t.released_late, t.throttle, t.alive, t.failed,
               CASE WHEN t.alive THEN 0 ELSE l.failures END + t.failed AS failures,
               l.failures >= {FAILURES_TO_OPEN} AS was_open
          FROM told t JOIN tocsin.lanes l USING (subscriber) ORDER BY l.subscriber FOR UPDATE OF l)"""
WAKE = f"""
    UPDATE tocsin.lanes l
       SET leased = l.leased - h.released, leased_late = l.leased_late - h.released_late,
           next_due_at = least(l.next_due_at, clock_timestamp()),
           lapse_at = CASE WHEN l.leased <= h.released THEN 'infinity' ELSE l.lapse_at END,
           throttled_until = greatest(l.throttled_until, clock_timestamp() + make_interval(secs => h.throttle)),
           failures = h.failures,
           failing_since = CASE WHEN h.failed = 0 THEN CASE WHEN h.alive THEN NULL ELSE l.failing_since END
                                WHEN h.alive THEN clock_timestamp()
                                ELSE coalesce(l.failing_since, clock_timestamp()) END,
           probes = CASE WHEN h.failures < {FAILURES_TO_OPEN} THEN 0
                         WHEN h.failed > 0 THEN least(l.probes + 1, 30) ELSE l.probes END,
           open_until = CASE WHEN h.failures < {FAILURES_TO_OPEN} THEN '-infinity'
                             WHEN h.failed > 0 THEN clock_timestamp() + make_interval(secs =>
                                 (0.5 + random() / 2)
                                 * least({PROBE_CAP_SECONDS}, {PROBE_BASE_SECONDS} * 2.0 ^ least(l.probes, 30)))
                             ELSE l.open_until END,
           ramp = CASE WHEN h.failures >= {FAILURES_TO_OPEN} OR h.throttle IS NOT NULL THEN 1
                       WHEN NOT h.alive THEN l.ramp
                       WHEN h.was_open THEN 2
                       WHEN l.ramp * 2 >= l.max_concurrency THEN NULL
                       ELSE l.ramp * 2 END
      FROM heard h WHERE l.subscriber = h.subscriber"""

_WAKE = text(f"""
    WITH told AS (
        SELECT *, NULL::float8 AS throttle, false AS alive, 0 AS failed
          FROM unnest(:subscribers, :released, :released_late) AS t (subscriber, released, released_late)),
    {HEARD} {WAKE}
""").bindparams(
    bindparam("subscribers", type_=Spelled("integer")),
    bindparam("released", type_=Spelled("integer")),
    bindparam("released_late", type_=Spelled("integer")),
)


@dataclass(frozen=True, slots=True)
class Wake:
    """`released` leases of a lane ended, `released_late` of them on deliveries that had been tried before."""

    released: int = 0
    released_late: int = 0


async def wake(tx: Tx, wakes: Mapping[SubscriberRow, Wake]) -> None:
    """Have these lanes looked at again now; what a batch of results does to them is part of `settlements.settle`.

    Call it after the deliveries were written: everyone locks deliveries before lanes, and lanes in the order of their
    rows, so that no two transactions wait for each other in a circle.
    """
    values = list(wakes.values())
    await tx.conn.execute(
        _WAKE,
        {
            "subscribers": list(wakes),
            "released": [wake.released for wake in values],
            "released_late": [wake.released_late for wake in values],
        },
    )


_ROUSE = text("""
    UPDATE tocsin.lanes l SET next_due_at = now()
     WHERE l.state = 'active' AND l.next_due_at > now() AND l.leased = 0
       AND EXISTS (SELECT FROM tocsin.deliveries d
                    WHERE d.subscriber = l.subscriber AND d.finished_at IS NULL AND d.lease_owner IS NULL
                      AND d.next_attempt_at <= now() - interval '5 seconds')
""")


async def rouse(tx: Tx) -> int:
    """Make lanes due that are not although a delivery of theirs has been for seconds; returns how many there were."""
    return (await tx.conn.execute(_ROUSE)).rowcount


_NEXT = text("""
    SELECT extract(epoch FROM least(
               min(greatest(next_due_at, throttled_until, open_until))
                   FILTER (WHERE state = 'active' AND next_due_at < 'infinity' AND subscriber <> ALL(:full)
                             AND origin <> ALL(:full_origins) AND NOT (SELECT paused FROM tocsin.dispatch)),
               min(lapse_at) FILTER (WHERE lapse_at < 'infinity')) - clock_timestamp())::float8
      FROM tocsin.lanes
""").bindparams(bindparam("full", type_=Flat("integer")), bindparam("full_origins", type_=Flat("text")))


async def seconds_to_next(tx: Tx, full: Collection[SubscriberRow], full_origins: Collection[str]) -> float | None:
    """Seconds until some lane may have a delivery to claim or a lease to lapse (negative: already); None if never.

    `full` and `full_origins` are the lanes and origins of which the asking worker takes no more now.
    """
    values = {"full": list(full), "full_origins": list(full_origins)}
    seconds: float | None = (await tx.conn.execute(_NEXT, values)).scalar_one()
    return seconds
