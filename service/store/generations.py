"""Generations: a replay opens the next one of a delivery, with its history untouched and its key the same."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from sqlalchemy import DateTime, Row, SmallInteger, Text, Uuid, bindparam, text

from service.domain.model import DeliveryRow, DeliveryState, EventId, Queue, RunId, SubscriberRow
from service.domain.states import DEAD_LETTERS, REPLAYABLE
from service.store import chains
from service.store.arrays import Flat
from service.store.database import Tx
from service.store.lanes import Wake, wake


class Refusal(StrEnum):
    """Why a delivery gets no further generation."""

    CHANGED = "changed"
    """It is in no state that can be replayed, or has gone on since `ended_by`."""
    SUBSCRIBER_DELETED = "subscriber-deleted"
    TENANT_CHANGED = "tenant-changed"
    """Its event is of another tenant than its subscriber, whose URL must not get it."""
    PAYLOAD_PURGED = "payload-purged"


@dataclass(frozen=True, slots=True)
class Opened:
    """What became of one delivery that was to be replayed; `state` and `reason` are those that it had."""

    row: DeliveryRow
    event_id: EventId
    subscriber: SubscriberRow
    run_id: RunId | None
    order_key: int | None
    """Set where it keeps its place in a chain."""
    generation: int
    state: DeliveryState
    reason: str | None
    refused: Refusal | None


def _quoted(states: Collection[DeliveryState]) -> str:
    return ", ".join(f"'{state}'" for state in sorted(states))


BARRED: Final = f"""
    CASE WHEN s.deleted_at IS NOT NULL THEN '{Refusal.SUBSCRIBER_DELETED}'
         WHEN e.tenant_id <> s.tenant_id THEN '{Refusal.TENANT_CHANGED}'
         WHEN e.body IS NULL THEN '{Refusal.PAYLOAD_PURGED}' END"""
"""Why nothing of the event `e` is sent to the subscriber `s` again, however it ended; null where it may be."""

# Deleting a subscriber and purging a payload wait for this lock, or this waits for them: the statement behind it sees
# what they wrote. Subscribers are locked before deliveries by everyone.
_HOLD = text("""
    SELECT FROM tocsin.deliveries d
      JOIN tocsin.subscribers s ON s.row = d.subscriber
      JOIN tocsin.events e ON e.id = d.event_id
     WHERE d.row = ANY(:rows) ORDER BY s.row, d.row FOR SHARE OF s, e
""").bindparams(bindparam("rows", type_=Flat("bigint")))

_CHOSEN = "d.row, d.event_id, d.subscriber, d.run_id, d.order_key, d.reason, d.finished_at, d.generation, d.lease_owner"

# A dead letter that blocks its chain keeps its place: everything behind it still waits, which shows in the next of it.
# Of any other the successors were sent meanwhile, so that it leaves the order. Only what has ended is locked: what
# waits in a chain could not be promoted meanwhile, and nobody would come back to it.
_OPEN = text(f"""
    WITH held AS MATERIALIZED (
        SELECT {_CHOSEN}, d.state FROM tocsin.deliveries d
         WHERE d.row = ANY(:rows) AND d.finished_at IS NOT NULL ORDER BY d.row FOR NO KEY UPDATE),
    chosen AS MATERIALIZED (
        SELECT *, true AS held FROM held
        UNION ALL
        SELECT {_CHOSEN}, 'pending', false FROM tocsin.deliveries d
         WHERE d.row = ANY(:rows) AND d.row <> ALL (ARRAY(SELECT row FROM held))),
    judged AS MATERIALIZED (
        SELECT c.*, s.deadline_seconds,
               CASE WHEN c.state IN ({_quoted(DEAD_LETTERS)}) AND l.on_dead_letter = 'block'
                         AND NOT coalesce((SELECT n.next_attempt_at < 'infinity' OR n.attempt_count > 0
                                             FROM tocsin.deliveries n
                                            WHERE n.subscriber = c.subscriber AND n.order_key = c.order_key
                                              AND n.row > c.row AND n.finished_at IS NULL
                                            ORDER BY n.row LIMIT 1), false)
                    THEN c.order_key END AS kept,
               CASE WHEN NOT c.held OR c.state NOT IN ({_quoted(REPLAYABLE)}) OR c.finished_at > :ended_by
                    THEN '{Refusal.CHANGED}' ELSE {BARRED} END AS refused
          FROM chosen c
          JOIN tocsin.subscribers s ON s.row = c.subscriber
          JOIN tocsin.lanes l ON l.subscriber = c.subscriber
          JOIN tocsin.events e ON e.id = c.event_id),
    opened AS (
        UPDATE tocsin.deliveries d
           SET state = 'pending', reason = NULL, finished_at = NULL, generation = d.generation + 1,
               generation_attempts = 0, queue = :queue, order_key = j.kept,
               next_attempt_at = CASE WHEN j.kept IS NULL THEN now() ELSE 'infinity' END,
               deadline_at = now() + make_interval(secs => j.deadline_seconds)
          FROM judged j
         WHERE d.row = ANY (ARRAY(SELECT row FROM judged WHERE refused IS NULL)) AND d.row = j.row
        RETURNING d.row, d.generation),
    noted AS (
        INSERT INTO tocsin.generations (delivery, generation, replay_id, requested_by, reason, was_state, was_reason)
        SELECT j.row, o.generation, :replay_id, :requested_by, :reason, j.state, j.reason
          FROM opened o JOIN judged j USING (row))
    SELECT j.row, j.event_id, j.subscriber, j.run_id, j.kept, coalesce(o.generation, j.generation) AS generation,
           CASE WHEN j.lease_owner IS NULL THEN j.state ELSE 'leased' END AS state, j.reason, j.refused
      FROM judged j LEFT JOIN opened o USING (row) ORDER BY j.row
""").bindparams(
    bindparam("rows", type_=Flat("bigint")),
    bindparam("ended_by", type_=DateTime(timezone=True)),
    bindparam("queue", type_=SmallInteger),
    bindparam("replay_id", type_=Uuid),
    bindparam("requested_by", type_=Text),
    bindparam("reason", type_=Text),
)

# Written also where the run was not settled: whoever is about to note it as settled then sees that it changed
# (`runs.settle`).
_UNSETTLE = text("""
    WITH held AS MATERIALIZED (SELECT id FROM tocsin.runs WHERE id = ANY(:ids) ORDER BY id FOR UPDATE)
    UPDATE tocsin.runs r SET settled_at = NULL FROM held WHERE r.id = held.id
""").bindparams(bindparam("ids", type_=Flat("uuid")))


async def open_generations(
    tx: Tx,
    rows: Sequence[DeliveryRow],
    *,
    requested_by: str,
    reason: str,
    replay_id: UUID | None,
    queue: Queue,
    ended_by: datetime | None = None,
) -> list[Opened]:
    """Make these deliveries pending again, each as its next generation, in the order of their rows.

    Attempts, keys and bytes stay as they are, `attempt_count` goes on. With `ended_by` only those are replayed whose
    generation had ended by then. Their runs are unsettled until all deliveries are terminal once more. Of two at once
    one opens the generation; the other waits for it and is told `changed`. Rows that do not exist are missing.
    """
    await tx.conn.execute(_HOLD, {"rows": list(rows)})
    params = {
        "rows": list(rows),
        "requested_by": requested_by,
        "reason": reason,
        "replay_id": replay_id,
        "queue": int(queue),
        "ended_by": ended_by,
    }
    told = [_opened(row) for row in await tx.conn.execute(_OPEN, params)]
    await _follow(tx, [each for each in told if each.refused is None])
    return told


async def _follow(tx: Tx, opened: Sequence[Opened]) -> None:
    """What a due delivery asks for: its run is not settled, its lane is awake, the head of its chain is due."""
    if runs := {each.run_id for each in opened if each.run_id is not None}:
        await tx.conn.execute(_UNSETTLE, {"ids": list(runs)})
    if opened:
        await wake(tx, {each.subscriber: Wake() for each in opened})
        await chains.promote(tx, {(each.subscriber, each.order_key) for each in opened if each.order_key is not None})


def _opened(row: Row[Any]) -> Opened:
    return Opened(
        row=DeliveryRow(row.row),
        event_id=EventId(row.event_id),
        subscriber=SubscriberRow(row.subscriber),
        run_id=row.run_id,
        order_key=row.kept,
        generation=row.generation,
        state=DeliveryState(row.state),
        reason=row.reason,
        refused=None if row.refused is None else Refusal(row.refused),
    )
