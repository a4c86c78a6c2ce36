"""Read-only questions about lanes: how subscribers fare just now, and how much waits for each."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Row, bindparam, text

from service.domain.breaker import FAILURES_TO_OPEN
from service.domain.model import SubscriberRow
from service.store.arrays import Flat
from service.store.database import Tx

MAX_COUNTED: Final = 1_000
"""Of what waits in one lane."""


@dataclass(frozen=True, slots=True)
class LaneView:
    """A lane as it stands. `waiting` is what has not ended and is not in flight, counted up to MAX_COUNTED.

    `oldest_due_age_seconds` is None where nothing is due. Instants that have passed are None.
    """

    leased: int
    slots: int
    """How many requests it lets out at once just now."""
    failures: int
    """Transient ones in a row."""
    failing_since: datetime | None
    open_until: datetime | None
    throttled_until: datetime | None
    waiting: int
    oldest_due_age_seconds: float | None

    @property
    def is_capped(self) -> bool:
        """Whether more wait than were counted."""
        return self.waiting >= MAX_COUNTED

    @property
    def is_open(self) -> bool:
        """Whether its circuit is open: the receiver has failed so often in a row that it is only probed."""
        return self.failures >= FAILURES_TO_OPEN


# What is due first is asked of each queue by itself, because the index has the queue before the instant.
_STANDINGS = text(f"""
    SELECT l.subscriber, l.leased, least(l.max_concurrency, coalesce(l.ramp, l.max_concurrency)) AS slots, l.failures,
           l.failing_since,
           CASE WHEN l.open_until > now() THEN l.open_until END AS open_until,
           CASE WHEN l.throttled_until > now() THEN l.throttled_until END AS throttled_until,
           (SELECT count(*) FROM (
               SELECT FROM tocsin.deliveries d
                WHERE d.subscriber = l.subscriber AND d.finished_at IS NULL AND d.lease_owner IS NULL
                LIMIT {MAX_COUNTED}) w) AS waiting,
           extract(epoch FROM now() - (
               SELECT min(n.at) FROM (VALUES (0), (1), (2)) AS kind (queue)
                CROSS JOIN LATERAL (
                   SELECT d.next_attempt_at AS at FROM tocsin.deliveries d
                    WHERE d.subscriber = l.subscriber AND d.finished_at IS NULL AND d.queue = kind.queue
                      AND d.next_attempt_at <= now() AND d.lease_owner IS NULL
                    ORDER BY d.next_attempt_at LIMIT 1) n))::float8 AS age
      FROM tocsin.lanes l WHERE l.subscriber = ANY(:rows)
""").bindparams(bindparam("rows", type_=Flat("integer")))


async def standings(tx: Tx, rows: Sequence[SubscriberRow]) -> dict[SubscriberRow, LaneView]:
    """How the lanes of these subscribers stand; those that have none are missing."""
    found = await tx.conn.execute(_STANDINGS, {"rows": list(rows)})
    return {SubscriberRow(row.subscriber): _view(row) for row in found}


def _view(row: Row[Any]) -> LaneView:
    return LaneView(
        leased=row.leased,
        slots=row.slots,
        failures=row.failures,
        failing_since=row.failing_since,
        open_until=row.open_until,
        throttled_until=row.throttled_until,
        waiting=row.waiting,
        oldest_due_age_seconds=row.age,
    )
