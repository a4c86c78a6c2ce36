"""Settling: one fenced statement writes what became of a batch of attempts, and their evidence in any case."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    DateTime,
    Double,
    Integer,
    SmallInteger,
    Text,
    bindparam,
    text,
)
from sqlalchemy.types import TypeEngine

from service.domain.model import Answer, Claimed, DeliveryRow, Settlement, SubscriberRow
from service.store.database import Tx
from service.store.lanes import Wake, wake


@dataclass(frozen=True, slots=True)
class Settled:
    """One attempt that ended: the lease it ran under, what came of it, and what the delivery becomes.

    `answer` is None where no attempt was made (the deadline passed first): then no evidence row is written.
    `worker` and `started_at` are those of the attempt, which for a lapsed lease are the dead owner's.
    """

    claimed: Claimed
    settlement: Settlement
    answer: Answer | None
    worker: str
    started_at: datetime


_COLUMNS: Mapping[str, type[TypeEngine[Any]] | TypeEngine[Any]] = {
    "rows": BigInteger,
    "seqs": BigInteger,
    "states": Text,
    "counted": Boolean,
    "delays": Double,
    "reasons": Text,
    "numbers": BigInteger,
    "generations": Integer,
    "evidence_seqs": BigInteger,
    "outcomes": Text,
    "statuses": SmallInteger,
    "details": Text,
    "started": DateTime(timezone=True),
    "durations": BigInteger,
    "workers": Text,
    "excerpts": Text,
}

_SETTLE = text(f"""
    WITH given AS MATERIALIZED (
        SELECT * FROM unnest({", ".join(f":{name}" for name in _COLUMNS)})
            AS t (row, seq, state, counted, delay, reason, number, generation, evidence_seq, outcome, status, detail,
                  started_at, duration_ms, worker, excerpt)),
    settled AS (
        UPDATE tocsin.deliveries d
           SET state = g.state, reason = g.reason,
               attempt_count = d.attempt_count + g.counted::int,
               generation_attempts = d.generation_attempts + g.counted::int,
               next_attempt_at = CASE WHEN g.state = 'pending'
                                      THEN clock_timestamp() + make_interval(secs => g.delay)
                                      ELSE d.next_attempt_at END,
               finished_at = CASE WHEN g.state <> 'pending' THEN clock_timestamp() END,
               lease_owner = NULL, leased_at = NULL, lease_expires_at = NULL
          FROM given g
         WHERE d.row = g.row AND d.lease_seq = g.seq AND d.lease_owner IS NOT NULL AND d.finished_at IS NULL
        RETURNING d.row),
    evidence AS (
        INSERT INTO tocsin.attempts (delivery, number, generation, lease_seq, outcome, counted, late, status, detail,
                                     started_at, duration_ms, worker, excerpt)
        SELECT g.row, g.number, g.generation, g.evidence_seq, g.outcome, g.counted AND s.row IS NOT NULL,
               s.row IS NULL, g.status, g.detail, g.started_at, g.duration_ms, g.worker, g.excerpt
          FROM given g LEFT JOIN settled s USING (row)
         WHERE g.outcome IS NOT NULL
           AND (s.row IS NOT NULL OR NOT EXISTS (
                SELECT FROM tocsin.attempts a
                 WHERE a.delivery = g.row AND a.lease_seq = g.evidence_seq AND a.worker = g.worker
                   AND a.outcome = g.outcome)))
    SELECT row FROM settled
""").bindparams(*(bindparam(name, type_=ARRAY(kind)) for name, kind in _COLUMNS.items()))


async def settle(tx: Tx, batch: Sequence[Settled]) -> set[DeliveryRow]:
    """Write a batch of ended attempts and free their room in the lanes.

    Returns the deliveries that were settled. The others were taken over or cancelled meanwhile: their attempts are kept
    as late evidence and change nothing. Writing a batch again, after a commit whose answer was lost, adds nothing. A
    batch names each delivery at most once.
    """
    result = await tx.conn.execute(_SETTLE, _arrays(batch))
    settled = {DeliveryRow(row.row) for row in result}
    wakes = _wakes([item for item in batch if item.claimed.row in settled])
    if wakes:
        await wake(tx, wakes)
    return settled


def _wakes(settled: Sequence[Settled]) -> dict[SubscriberRow, Wake]:
    released = Counter(item.claimed.subscriber for item in settled)
    throttles: dict[SubscriberRow, float] = {}
    for item in settled:
        if item.settlement.throttle is not None:
            lane = item.claimed.subscriber
            throttles[lane] = max(throttles.get(lane, 0.0), item.settlement.throttle)
    return {lane: Wake(n, throttles.get(lane)) for lane, n in released.items()}


def _arrays(batch: Sequence[Settled]) -> dict[str, list[object]]:
    rows = [_row(item) for item in batch]
    return {name: list(column) for name, column in zip(_COLUMNS, zip(*rows, strict=True), strict=True)}


def _row(item: Settled) -> tuple[object, ...]:
    claimed, decision, answer = item.claimed, item.settlement, item.answer
    return (
        claimed.row,
        claimed.lease_seq,
        decision.state.value,
        decision.counted,
        decision.delay,
        decision.reason,
        claimed.attempt_count + 1,
        claimed.generation,
        claimed.lapsed.lease_seq if claimed.lapsed else claimed.lease_seq,
        answer.outcome.value if answer else None,
        answer.status if answer else None,
        answer.detail if answer else None,
        item.started_at,
        answer.duration_ms if answer else 0,
        item.worker,
        answer.excerpt if answer else None,
    )
