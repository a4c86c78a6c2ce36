"""The pulse: how much of what happened in each minute. Statistics for rates and charts, and no evidence."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import bindparam, text

from service.store.arrays import Spelled
from service.store.database import Tx

ARRIVED: Final = "arrived"
"""Deliveries that fan-out made or a replay opened."""
ENDED: Final = "ended."
"""Before a state: deliveries that ended in it."""
ATTEMPT: Final = "attempt."
"""Before an outcome: attempts that ended so."""
SCAN: Final = "scan"
"""Looks of workers for what is due."""
KEPT_HOURS: Final = 25
MOST_MINUTES: Final = 5
"""Rates are those of so many whole minutes."""
RECENT_SECONDS: Final = 3600
"""A worker that has not looked for so long is told as one that never did."""

# In the order of the key, so that no two writers wait for each other in a circle.
_ADD = text("""
    INSERT INTO tocsin.pulse (minute, what, n)
    SELECT date_trunc('minute', now()), t.what, t.n FROM unnest(:whats, :ns) AS t (what, n) ORDER BY t.what
    ON CONFLICT (minute, what) DO UPDATE SET n = pulse.n + excluded.n, at = excluded.at
""").bindparams(bindparam("whats", type_=Spelled("text")), bindparam("ns", type_=Spelled("bigint")))


async def add(tx: Tx, counts: Mapping[str, int]) -> None:
    """Add these to the present minute. The last statement of its transaction: everyone writes to the same rows."""
    if counts:
        await tx.conn.execute(_ADD, {"whats": list(counts), "ns": list(counts.values())})


_PURGE = text(f"""
    DELETE FROM tocsin.pulse WHERE (minute, what) IN (
        SELECT minute, what FROM tocsin.pulse WHERE minute < now() - interval '{KEPT_HOURS} hours'
         ORDER BY minute, what LIMIT :limit FOR UPDATE SKIP LOCKED)
""")


async def purge(tx: Tx, limit: int) -> int:
    """Delete up to `limit` rows of minutes that nobody asks for any more; returns how many."""
    return (await tx.conn.execute(_PURGE, {"limit": limit})).rowcount


@dataclass(frozen=True, slots=True)
class Beat:
    """What happened within `minutes` whole minutes, at most MOST_MINUTES; fewer where the pulse is younger."""

    minutes: int
    arrived: int
    ended: int
    attempts: int


_LATELY = text(f"""
    WITH span AS MATERIALIZED (
        SELECT greatest(date_trunc('minute', now()) - interval '{MOST_MINUTES} minutes',
                        coalesce((SELECT min(minute) FROM tocsin.pulse), 'infinity')) AS first,
               date_trunc('minute', now()) AS past)
    SELECT CASE WHEN span.first < span.past THEN extract(epoch FROM span.past - span.first)::int / 60 ELSE 0 END
               AS minutes,
           coalesce(sum(p.n) FILTER (WHERE p.what = '{ARRIVED}'), 0)::bigint AS arrived,
           coalesce(sum(p.n) FILTER (WHERE starts_with(p.what, '{ENDED}')), 0)::bigint AS ended,
           coalesce(sum(p.n) FILTER (WHERE starts_with(p.what, '{ATTEMPT}')), 0)::bigint AS attempts
      FROM span LEFT JOIN tocsin.pulse p ON p.minute >= span.first AND p.minute < span.past
     GROUP BY span.first, span.past
""")


async def lately(tx: Tx) -> Beat:
    """What happened in the last whole minutes; a minute counts from the first that anybody wrote of."""
    return Beat(*(await tx.conn.execute(_LATELY)).one())


@dataclass(frozen=True, slots=True)
class Minute:
    """One minute of the pulse: how much of what."""

    at: datetime
    counts: Mapping[str, int]


_MINUTES = text("""
    SELECT g.minute, p.what, p.n
      FROM generate_series(date_trunc('minute', now()) - make_interval(mins => :most - 1),
                           date_trunc('minute', now()), interval '1 minute') AS g (minute)
      LEFT JOIN tocsin.pulse p ON p.minute = g.minute
     ORDER BY g.minute, p.what
""")


async def minutes(tx: Tx, most: int = 60) -> list[Minute]:
    """The last so many minutes, the present one last and not over yet; one in which nothing happened has no counts."""
    found: dict[datetime, dict[str, int]] = {}
    for row in await tx.conn.execute(_MINUTES, {"most": most}):
        counts = found.setdefault(row.minute, {})
        if row.what is not None:
            counts[row.what] = row.n
    return [Minute(at, counts) for at, counts in found.items()]


_HEARTBEAT = text(f"""
    SELECT max(at) FROM tocsin.pulse
     WHERE what = '{SCAN}' AND minute >= now() - interval '{RECENT_SECONDS + 60} seconds'
""")


async def heartbeat(tx: Tx) -> datetime | None:
    """When any worker last looked for what is due, to within a few seconds; None where that is an hour ago."""
    at: datetime | None = (await tx.conn.execute(_HEARTBEAT)).scalar_one()
    return at
