"""Settling: one fenced statement writes what became of a batch of attempts, their evidence, and what lanes learn."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import bindparam, text

from service.domain.breaker import ALIVE, TRANSIENT
from service.domain.model import Answer, Claimed, DeliveryRow, DeliveryState, Outcome, Settlement
from service.store import chains
from service.store.arrays import Spelled
from service.store.chains import Link
from service.store.database import Tx
from service.store.lanes import HEARD, WAKE


class Settled(NamedTuple):
    """One attempt that ended: the lease it ran under, what came of it, and what the delivery becomes.

    `answer` is None where no attempt was made (the deadline passed first): then no evidence row is written.
    `worker` and `started_at` (seconds since 1970 by the database's clock) are those of the attempt, which for a lapsed
    lease are the dead owner's.
    """

    claimed: Claimed
    settlement: Settlement
    answer: Answer | None
    worker: str
    started_at: float
    duration_ms: int = 0
    last: bool = True
    """Whether its worker is through with the chain; behind it there is room in the lane again."""
    slug: str | None = None
    """The subscriber's id, for the log; None where the subscriber could not be read."""


_COLUMNS: Mapping[str, str] = {
    "rows": "bigint",
    "seqs": "bigint",
    "states": "text",
    "counted": "boolean",
    "delays": "float8",
    "throttles": "float8",
    "reasons": "text",
    "numbers": "bigint",
    "generations": "integer",
    "evidence_seqs": "bigint",
    "outcomes": "text",
    "statuses": "smallint",
    "details": "text",
    "started": "float8",
    "durations": "bigint",
    "workers": "text",
    "excerpts": "text",
}


def _quoted(outcomes: Iterable[Outcome]) -> str:
    return ", ".join(f"'{outcome}'" for outcome in sorted(outcomes))


_SETTLE = text(f"""
    WITH given AS MATERIALIZED (
        SELECT * FROM unnest({", ".join(f":{name}" for name in _COLUMNS)})
            WITH ORDINALITY
            AS t (row, seq, state, counted, delay, throttle, reason, number, generation, evidence_seq, outcome, status,
                  detail, started_at, duration_ms, worker, excerpt, n)),
    settled AS (
        UPDATE tocsin.deliveries d
           SET state = g.state, reason = g.reason,
               attempt_count = d.attempt_count + g.counted::int,
               generation_attempts = d.generation_attempts + g.counted::int,
               queue = CASE WHEN d.queue = 0 AND g.counted THEN 1 ELSE d.queue END,
               next_attempt_at = CASE WHEN g.state = 'pending'
                                      THEN coalesce(clock_timestamp() + make_interval(secs => g.delay), 'infinity')
                                      ELSE d.next_attempt_at END,
               finished_at = CASE WHEN g.state <> 'pending' THEN clock_timestamp() END,
               lease_owner = NULL, leased_at = NULL, lease_expires_at = NULL
          FROM given g
         WHERE d.row = g.row AND d.lease_seq = g.seq AND d.lease_owner IS NOT NULL AND d.finished_at IS NULL
        RETURNING d.row, d.subscriber, g.n, g.throttle,
                  d.generation > 1 OR d.generation_attempts > g.counted::int AS late,
                  g.outcome IN ({_quoted(ALIVE)}) AS alive, g.outcome IN ({_quoted(TRANSIENT)}) AS failed),
    evidence AS (
        INSERT INTO tocsin.attempts (delivery, number, generation, lease_seq, outcome, counted, late, status, detail,
                                     started_at, duration_ms, worker, excerpt)
        SELECT g.row, g.number, g.generation, g.evidence_seq, g.outcome, g.counted AND s.row IS NOT NULL,
               s.row IS NULL, g.status, g.detail, to_timestamp(g.started_at), g.duration_ms, g.worker, g.excerpt
          FROM given g LEFT JOIN settled s USING (row)
         WHERE g.outcome IS NOT NULL
           AND (s.row IS NOT NULL OR NOT EXISTS (
                SELECT FROM tocsin.attempts a
                 WHERE a.delivery = g.row AND a.lease_seq = g.evidence_seq AND a.worker = g.worker
                   AND a.outcome = g.outcome)
                AND EXISTS (SELECT FROM tocsin.deliveries d WHERE d.row = g.row FOR KEY SHARE))),
    told AS (
        SELECT subscriber, count(*) AS released, count(*) FILTER (WHERE late) AS released_late,
               max(throttle) AS throttle, coalesce(bool_or(alive), false) AS alive,
               count(*) FILTER (WHERE failed AND n > coalesce(last_alive, 0)) AS failed
          FROM (SELECT *, max(n) FILTER (WHERE alive) OVER (PARTITION BY subscriber) AS last_alive FROM settled) s
         GROUP BY subscriber),
    {HEARD},
    woken AS ({WAKE})
    SELECT row FROM settled
""").bindparams(*(bindparam(name, type_=Spelled(kind)) for name, kind in _COLUMNS.items()))


async def settle(tx: Tx, batch: Sequence[Settled]) -> set[DeliveryRow]:
    """Write a batch of ended attempts, and tell the lanes what room they have again and how their receivers are.

    Returns the deliveries that were settled. The others were taken over or cancelled meanwhile: their attempts are kept
    as late evidence and change nothing. Writing a batch again, after a commit whose answer was lost, adds nothing. A
    batch names each delivery at most once. It is one statement, and a second one where deliveries wait for others
    (`chained`): then it needs a transaction.
    """
    rows = await tx.conn.execute(_SETTLE, _arrays(batch))
    settled = {DeliveryRow(row.row) for row in rows}
    links = {link for item in batch if item.claimed.row in settled and (link := _link(item))}
    await chains.promote(tx, links)
    return settled


def chained(batch: Sequence[Settled]) -> bool:
    """Whether any of these deliveries is part of a chain."""
    return any(item.claimed.order_key is not None for item in batch)


def _link(item: Settled) -> Link | None:
    """The chain whose head may have changed: this delivery is terminal, or was put back behind another."""
    key = item.claimed.order_key
    moved = item.settlement.state is not DeliveryState.PENDING or item.settlement.delay is None
    return (item.claimed.subscriber, key) if key is not None and moved else None


def _arrays(batch: Sequence[Settled]) -> dict[str, list[object]]:
    rows = [_row(item) for item in batch]
    return {name: list(column) for name, column in zip(_COLUMNS, zip(*rows, strict=True), strict=True)}


def _row(item: Settled) -> tuple[object, ...]:
    claimed, decision, answer = item.claimed, item.settlement, item.answer
    return (
        claimed.row,
        claimed.lease_seq,
        decision.state,
        decision.counted,
        decision.delay,
        decision.throttle,
        decision.reason,
        claimed.attempt_count + 1,
        claimed.generation,
        claimed.lapsed.lease_seq if claimed.lapsed else claimed.lease_seq,
        answer.outcome if answer else None,
        answer.status if answer else None,
        answer.detail if answer else None,
        item.started_at,
        item.duration_ms,
        item.worker,
        answer.excerpt if answer else None,
    )
