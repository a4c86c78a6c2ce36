"""Gauges: how the whole house stands, for `/metrics`; bounded whatever the size of the tables."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sqlalchemy import text

from service.domain.model import DeliveryState, SubscriberState
from service.domain.pace import Pace
from service.store import backlog, pulse
from service.store.backlog import Backlog
from service.store.database import Tx

MOST: Final = 100_000
"""No state is counted beyond this."""
SMALL: Final = 10_000
"""A table of at most so many deliveries is counted; of a larger one the planner's statistics are taken."""
MOST_RUNS: Final = 1_000
_COUNTED: Final = (
    DeliveryState.EXHAUSTED,
    DeliveryState.REJECTED,
    DeliveryState.AMBIGUOUS,
    DeliveryState.CANCELLED,
)


@dataclass(frozen=True, slots=True)
class Gauges:
    """How everything stands at one moment.

    Ages are seconds, instants seconds since 1970 by the database's clock; None where there is nothing of the kind.
    """

    backlog: Backlog
    pace: Pace
    finished: Mapping[DeliveryState, int]
    subscribers: Mapping[SubscriberState, int]
    run_lag_seconds: float | None
    leases_overdue: int
    scanned_at: float | None


# The states stand in the statements as they are: a partial index is used only for a state that the planner can see.
_FINISHED = text(
    " UNION ALL ".join(
        f"SELECT '{state}' AS state, "  # noqa: ISC003
        + f"(SELECT count(*) FROM (SELECT FROM tocsin.deliveries WHERE state = '{state}' LIMIT {MOST}) x) AS n"
        for state in _COUNTED
    )
)

_DELIVERED = text(f"""
    WITH few AS MATERIALIZED (
        SELECT count(*) AS n, count(*) FILTER (WHERE state = 'delivered') AS delivered
          FROM (SELECT state FROM tocsin.deliveries ORDER BY row LIMIT {SMALL + 1}) x),
    guess AS (
        SELECT greatest(c.reltuples, 0) * coalesce((
                   SELECT f.share FROM pg_stats s,
                          unnest(s.most_common_vals::text::text[], s.most_common_freqs) AS f (state, share)
                    WHERE s.schemaname = 'tocsin' AND s.tablename = 'deliveries' AND s.attname = 'state'
                      AND f.state = 'delivered' LIMIT 1), 0) AS n
          FROM pg_class c WHERE c.oid = 'tocsin.deliveries'::regclass)
    SELECT CASE WHEN few.n <= {SMALL} THEN few.delivered ELSE greatest(few.delivered, guess.n::bigint) END
      FROM few, guess
""")

_SUBSCRIBERS = text("""
    SELECT l.state, count(*) AS n FROM tocsin.lanes l JOIN tocsin.subscribers s ON s.row = l.subscriber
     WHERE s.deleted_at IS NULL GROUP BY l.state
""")

_RUNS = text(f"""
    SELECT extract(epoch FROM now() - min(claimed_at))::float8 FROM (
        SELECT claimed_at FROM tocsin.runs WHERE state IN ('claimed', 'running')
         ORDER BY cutoff, id LIMIT {MOST_RUNS}) open
""")

_OVERDUE = text(f"""
    SELECT (SELECT count(*) FROM (
                SELECT FROM tocsin.lanes l CROSS JOIN (VALUES (0::smallint), (1::smallint), (2::smallint)) AS k (queue)
                 CROSS JOIN LATERAL (
                    SELECT lease_expires_at FROM tocsin.deliveries
                     WHERE subscriber = l.subscriber AND finished_at IS NULL AND queue = k.queue
                       AND next_attempt_at <= now() AND lease_owner IS NOT NULL
                     ORDER BY next_attempt_at, row
                     LIMIT CASE WHEN k.queue > 0 THEN l.leased_late ELSE l.leased - l.leased_late END) d
                 WHERE l.leased > 0 AND l.lapse_at <= now() AND d.lease_expires_at < now() LIMIT {MOST}) x)
         + (SELECT count(*) FROM (
                SELECT FROM tocsin.runs WHERE state IN ('claimed', 'running') AND lease_owner IS NOT NULL
                   AND lease_expires_at < now() LIMIT {MOST_RUNS}) y)
""")


async def read(tx: Tx, seconds: float) -> Gauges:
    """All of them, no statement for longer than `seconds`."""
    await backlog.plan(tx, seconds)
    stands = await backlog.read(tx)
    beat = await pulse.lately(tx)
    finished = {DeliveryState(row.state): int(row.n) for row in await tx.conn.execute(_FINISHED)}
    finished[DeliveryState.DELIVERED] = (await tx.conn.execute(_DELIVERED)).scalar_one()
    lanes = {SubscriberState(row.state): int(row.n) for row in await tx.conn.execute(_SUBSCRIBERS)}
    lag: float | None = (await tx.conn.execute(_RUNS)).scalar_one()
    overdue: int = (await tx.conn.execute(_OVERDUE)).scalar_one()
    scanned = await pulse.heartbeat(tx)
    return Gauges(
        backlog=stands,
        pace=Pace.of(beat.minutes, beat.arrived, beat.ended, beat.attempts),
        finished=finished,
        subscribers={state: lanes.get(state, 0) for state in SubscriberState},
        run_lag_seconds=None if lag is None else max(lag, 0.0),
        leases_overdue=overdue,
        scanned_at=None if scanned is None else scanned.timestamp(),
    )
