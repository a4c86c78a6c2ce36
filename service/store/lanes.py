"""Lanes: one hot row a subscriber, which says when and how much may be claimed from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import ARRAY, Double, Integer, bindparam, text

from service.domain.model import SubscriberRow, SubscriberState
from service.store.database import Tx

_OPEN = text("""
    INSERT INTO tocsin.lanes (subscriber, max_concurrency) VALUES (:subscriber, :max_concurrency)
    ON CONFLICT (subscriber) DO UPDATE SET max_concurrency = excluded.max_concurrency
""")


async def open_lane(tx: Tx, subscriber: SubscriberRow, max_concurrency: int) -> None:
    """Give a subscriber its lane, or its lane a new limit."""
    await tx.conn.execute(_OPEN, {"subscriber": subscriber, "max_concurrency": max_concurrency})


_SET_STATE = text("UPDATE tocsin.lanes SET state = :state, state_reason = :reason WHERE subscriber = :subscriber")


async def set_state(tx: Tx, subscriber: SubscriberRow, state: SubscriberState, reason: str | None) -> None:
    """Pause, disable or open a lane; what is in flight finishes, what waits is held and lost by none of these."""
    await tx.conn.execute(_SET_STATE, {"subscriber": subscriber, "state": state.value, "reason": reason})


_DISABLE = text("""
    UPDATE tocsin.lanes l SET state = 'disabled', state_reason = :reason FROM tocsin.subscribers s
     WHERE l.subscriber = ANY(:subscribers) AND l.state <> 'disabled' AND s.row = l.subscriber
    RETURNING s.id
""").bindparams(bindparam("subscribers", type_=ARRAY(Integer)))


async def disable(tx: Tx, subscribers: Sequence[SubscriberRow], reason: str) -> list[str]:
    """Disable lanes on a receiver's word; returns the slugs of the ones that were not disabled before."""
    rows = await tx.conn.execute(_DISABLE, {"subscribers": list(subscribers), "reason": reason})
    return [row.id for row in rows]


_WAKE = text("""
    WITH woken AS (
        SELECT l.subscriber, t.released, t.throttle
          FROM unnest(:subscribers, :released, :throttles) AS t (subscriber, released, throttle)
          JOIN tocsin.lanes l USING (subscriber) ORDER BY l.subscriber FOR UPDATE OF l)
    UPDATE tocsin.lanes l
       SET leased = l.leased - w.released, next_due_at = least(l.next_due_at, clock_timestamp()),
           throttled_until = greatest(l.throttled_until, clock_timestamp() + make_interval(secs => w.throttle))
      FROM woken w WHERE l.subscriber = w.subscriber
""").bindparams(
    bindparam("subscribers", type_=ARRAY(Integer)),
    bindparam("released", type_=ARRAY(Integer)),
    bindparam("throttles", type_=ARRAY(Double)),
)


@dataclass(frozen=True, slots=True)
class Wake:
    """What one lane learns: how many of its leases ended, and for how many seconds its receiver asked for quiet."""

    released: int = 0
    throttle: float | None = None


async def wake(tx: Tx, wakes: Mapping[SubscriberRow, Wake]) -> None:
    """Have these lanes looked at again now.

    Call it after the deliveries were written: everyone locks deliveries before lanes, and lanes in the order of their
    rows, so that no two transactions wait for each other in a circle.
    """
    await tx.conn.execute(
        _WAKE,
        {
            "subscribers": list(wakes),
            "released": [wake.released for wake in wakes.values()],
            "throttles": [wake.throttle for wake in wakes.values()],
        },
    )


_NEXT = text("""
    SELECT extract(epoch FROM least(
               min(greatest(next_due_at, throttled_until)) FILTER (WHERE state = 'active' AND next_due_at < 'infinity'),
               min(lapse_at) FILTER (WHERE lapse_at < 'infinity')) - clock_timestamp())::float8
      FROM tocsin.lanes
""")


async def seconds_to_next(tx: Tx) -> float | None:
    """Seconds until some lane may have a delivery to claim or a lease to lapse (negative: already); None if never."""
    seconds: float | None = (await tx.conn.execute(_NEXT)).scalar_one()
    return seconds
