"""The backlog: what is due, scheduled and held, how old the oldest is, and in which lanes it is worst.

Every look is bounded: the heads of each lane's queues give the ages, whatever waits behind them; counts end at a cap.
What holds a lane is judged as `views_delivery` does for one delivery, but for two: a lane whose circuit is open is
held also while its probe is in flight; one that is full holds nothing, what waits in it is due.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Row, text

from service.domain.breaker import FAILURES_TO_OPEN
from service.domain.model import HeldBy
from service.store.database import Tx

MOST: Final = 100_000
"""No more deliveries are counted than this in all: first those whose time has come, of lanes that are not held."""
MOST_IN_QUEUE: Final = 10_000
"""Nor more than this in one of a lane's three queues, so that one lane does not hide the others."""
WORST: Final = 20
MOST_UNFANNED: Final = 10_000
"""No more published events are counted than this."""
NEAREST: Final = 1_000
"""So many deliveries whose deadline is nearest are looked at for the oldest, beside the heads of all queues."""


@dataclass(frozen=True, slots=True)
class Lane:
    """A subscriber whose deliveries wait although their time has come.

    `due` counts those, held or not; `oldest_due_age_seconds` is None where all wait for a predecessor. `reason` is why
    they wait; None where it is for a worker. `next_at` is when the lane is looked at next; None where nobody knows.
    """

    subscriber_id: str
    due: int
    oldest_due_age_seconds: float | None
    reason: HeldBy | None
    next_at: datetime | None


@dataclass(frozen=True, slots=True)
class Backlog:
    """Every unfinished delivery, each in one of four counts; and the published events that are still to become some.

    `due` may be sent now, `scheduled` has its time ahead, `held` waits for something else than a worker or a free place
    in its lane (LANE_FULL is due), `leased` is being sent.
    Where `capped`, at least so many are. `remaining` is what is due, estimated where that was not counted to its end.
    Ages are seconds, None where there is nothing of the kind; that of what is due leaves out what is held.
    """

    at: datetime
    due: int
    scheduled: int
    held: int
    leased: int
    capped: bool
    remaining: int
    oldest_due_age_seconds: float | None
    oldest_pending_age_seconds: float | None
    unfanned: int
    """Published events, at most MOST_UNFANNED, that are not fanned out to all of their subscribers."""
    oldest_unfanned_age_seconds: float | None
    dispatch_paused: bool
    lanes: Sequence[Lane]

    @property
    def pending(self) -> int:
        """Unfinished and not being sent."""
        return self.due + self.scheduled + self.held


# The leased ones of a lane stand at the head of its due ones, which no statistics tell: without these settings the
# planner would fetch and sort all of them.
_PLAN = text("""
    SELECT set_config('statement_timeout', :timeout, true), set_config('enable_seqscan', 'off', true),
           set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true)
""")

HELD_BY: Final = f"""
    CASE WHEN l.state = 'paused' THEN '{HeldBy.SUBSCRIBER_PAUSED}'
         WHEN l.state = 'disabled' THEN '{HeldBy.SUBSCRIBER_DISABLED}'
         WHEN (SELECT paused FROM tocsin.dispatch) THEN '{HeldBy.DISPATCH_PAUSED}'
         WHEN l.open_until > now() OR l.failures >= {FAILURES_TO_OPEN} THEN '{HeldBy.CIRCUIT_OPEN}'
         WHEN l.throttled_until > now() THEN '{HeldBy.THROTTLED}' END"""
"""What holds the lane `l` as a whole; null where nothing does."""

_OPENED = """CASE WHEN d.generation = 1 THEN d.created_at
                  ELSE greatest(d.created_at, d.deadline_at - make_interval(secs => s.deadline_seconds)) END"""
"""When a delivery became pending: a replayed one when it was replayed."""

_QUEUES = "(VALUES (0::smallint), (1::smallint), (2::smallint)) AS kind (queue)"


def _count(columns: str, when: str, most: str = str(MOST)) -> str:
    """What a lane has of a kind, with the length of the longest queue; lanes that are not held come first."""
    return f"""
        SELECT subscriber, sum(n)::bigint AS n, sum(parked)::bigint AS parked, max(n) AS longest FROM (
            SELECT subscriber, queue, count(*) AS n, {columns} AS parked FROM (
                SELECT slot.subscriber, slot.queue, d.next_attempt_at FROM slot CROSS JOIN LATERAL (
                    SELECT next_attempt_at FROM tocsin.deliveries
                     WHERE subscriber = slot.subscriber AND finished_at IS NULL AND queue = slot.queue AND {when}
                     ORDER BY next_attempt_at LIMIT {MOST_IN_QUEUE}) d
                 LIMIT {most}) each
             GROUP BY subscriber, queue) queues
         GROUP BY subscriber"""


_PARKED = "count(*) FILTER (WHERE next_attempt_at = 'infinity')"
_LEFT = f"greatest({MOST} - (SELECT coalesce(sum(n), 0) FROM come), 0)::bigint"

# `come` are those whose time has come, the leased ones among them, `ahead` the others; `head` is the first of each
# queue that is not leased. A lane that has only deliveries that wait for others is held by those.
_READ = text(f"""
    WITH lane AS MATERIALIZED (
        SELECT l.subscriber, l.leased, l.state, {HELD_BY} AS held_by,
               l.leased >= least(l.max_concurrency, coalesce(l.ramp, l.max_concurrency)) AS full_up,
               greatest(l.next_due_at, l.throttled_until, l.open_until) AS next_at
          FROM tocsin.lanes l),
    slot AS MATERIALIZED (
        SELECT subscriber, queue FROM lane CROSS JOIN {_QUEUES} ORDER BY held_by IS NOT NULL, subscriber),
    come AS MATERIALIZED ({_count("0", "next_attempt_at <= now()")}),
    ahead AS MATERIALIZED ({_count(_PARKED, "next_attempt_at > now()", _LEFT)}),
    head AS MATERIALIZED (
        SELECT slot.subscriber, min(d.next_attempt_at) FILTER (WHERE d.next_attempt_at <= now()) AS since,
               min({_OPENED}) AS opened
          FROM slot JOIN tocsin.subscribers s ON s.row = slot.subscriber CROSS JOIN LATERAL (
            SELECT next_attempt_at, created_at, deadline_at, generation FROM tocsin.deliveries
             WHERE subscriber = slot.subscriber AND finished_at IS NULL AND queue = slot.queue AND lease_owner IS NULL
             ORDER BY next_attempt_at, row LIMIT 1) d
         GROUP BY slot.subscriber),
    nearest AS (
        SELECT min({_OPENED}) AS opened FROM (
            SELECT * FROM tocsin.deliveries WHERE finished_at IS NULL ORDER BY deadline_at LIMIT {NEAREST}) d
          JOIN tocsin.subscribers s ON s.row = d.subscriber),
    stand AS MATERIALIZED (
        SELECT lane.*, greatest(coalesce(come.n, 0) - lane.leased, 0) AS waiting,
               coalesce(ahead.n - ahead.parked, 0) AS later, coalesce(ahead.parked, 0) AS parked,
               come.n AS come, ahead.n AS ahead, greatest(come.longest, ahead.longest) AS longest,
               come.longest AS come_longest, h.since, h.opened
          FROM lane LEFT JOIN come USING (subscriber) LEFT JOIN ahead USING (subscriber)
          LEFT JOIN head h USING (subscriber)),
    total AS (
        SELECT coalesce(sum(waiting) FILTER (WHERE held_by IS NULL), 0)::bigint AS due,
               coalesce(sum(later) FILTER (WHERE held_by IS NULL), 0)::bigint AS scheduled,
               coalesce(sum(CASE WHEN held_by IS NULL THEN parked ELSE waiting + later + parked END), 0)::bigint
                   AS held,
               coalesce(sum(leased), 0)::bigint AS leased,
               coalesce(sum(coalesce(come, 0) + coalesce(ahead, 0)) >= {MOST}
                        OR max(longest) >= {MOST_IN_QUEUE}, false) AS capped,
               coalesce(sum(come) FILTER (WHERE held_by IS NULL) >= {MOST}
                        OR max(come_longest) FILTER (WHERE held_by IS NULL) >= {MOST_IN_QUEUE}, false) AS due_capped,
               extract(epoch FROM now() - min(since) FILTER (WHERE held_by IS NULL))::float8 AS due_age,
               extract(epoch FROM now() - least(min(opened), (SELECT opened FROM nearest)))::float8 AS pending_age
          FROM stand),
    direct AS (
        SELECT count(*) AS unfanned, extract(epoch FROM now() - min(created_at))::float8 AS unfanned_age FROM (
            SELECT created_at FROM tocsin.events
             WHERE fanned_out_at IS NULL AND run_id IS NULL AND due_at IS NULL ORDER BY id LIMIT {MOST_UNFANNED}) e),
    worst AS (
        SELECT s.id, s.row AS place, stand.state <> 'active' AS is_off, stand.waiting, stand.since,
               coalesce(stand.held_by, CASE WHEN stand.since IS NULL THEN '{HeldBy.PREDECESSOR}'
                                            WHEN stand.full_up THEN '{HeldBy.LANE_FULL}' END) AS reason,
               stand.next_at
          FROM stand JOIN tocsin.subscribers s ON s.row = stand.subscriber
         WHERE stand.since IS NOT NULL OR (stand.parked > 0 AND stand.later = 0 AND stand.leased = 0)
         ORDER BY stand.state <> 'active', stand.since NULLS LAST, s.row LIMIT {WORST})
    SELECT total.*, direct.*, (SELECT paused FROM tocsin.dispatch) AS paused, now() AS at,
           (SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = 'tocsin.ix_deliveries_due'::regclass)
               AS estimate,
           worst.id, worst.waiting, extract(epoch FROM now() - worst.since)::float8 AS age, worst.reason,
           CASE WHEN worst.next_at = 'infinity' OR worst.reason IN (
                    '{HeldBy.SUBSCRIBER_PAUSED}', '{HeldBy.SUBSCRIBER_DISABLED}', '{HeldBy.DISPATCH_PAUSED}',
                    '{HeldBy.PREDECESSOR}', '{HeldBy.LANE_FULL}') THEN NULL
                ELSE greatest(worst.next_at, now()) END AS next_at
      FROM total CROSS JOIN direct LEFT JOIN worst ON true
     ORDER BY worst.is_off, worst.since NULLS LAST, worst.place
""")


async def plan(tx: Tx, seconds: float) -> None:
    """Have the rest of this transaction walk indexes, and let no statement of it last longer than `seconds`."""
    await tx.conn.execute(_PLAN, {"timeout": f"{seconds * 1000:.0f}ms"})


async def read(tx: Tx) -> Backlog:
    """The backlog as it stands; `plan` comes before it."""
    rows = (await tx.conn.execute(_READ)).all()
    return _backlog(rows[0], [_lane(row) for row in rows if row.id is not None])


def _lane(row: Row[Any]) -> Lane:
    reason = None if row.reason is None else HeldBy(row.reason)
    return Lane(row.id, row.waiting, _age(row.age), reason, row.next_at)


def _backlog(row: Row[Any], lanes: Sequence[Lane]) -> Backlog:
    uncounted = row.estimate - (row.due + row.scheduled + row.held + row.leased)
    return Backlog(
        at=row.at,
        due=row.due,
        scheduled=row.scheduled,
        held=row.held,
        leased=row.leased,
        capped=row.capped,
        remaining=row.due + (max(uncounted, 0) if row.due_capped else 0),
        oldest_due_age_seconds=_age(row.due_age),
        oldest_pending_age_seconds=_age(row.pending_age),
        unfanned=row.unfanned,
        oldest_unfanned_age_seconds=_age(row.unfanned_age),
        dispatch_paused=row.paused,
        lanes=lanes,
    )


def _age(seconds: float | None) -> float | None:
    """A clock that was turned back makes no age negative."""
    return None if seconds is None else max(seconds, 0.0)
