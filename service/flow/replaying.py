"""Bulk replays at work: chunk by chunk at their rate, each chunk one transaction, so that a crash loses nothing."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import structlog

from service.domain.model import Queue
from service.flow.counters import Counters
from service.flow.doorbell import Doorbell
from service.store import replays
from service.store.database import Database, Tx
from service.store.generations import Opened, Refusal, open_generations
from service.store.replays import Chunk, ReplayRecord, ReplayState

log = structlog.get_logger()

CHUNKS_A_SECOND: Final = 4
MAX_CHUNK: Final = 1_000
LONGEST_REST: Final = 0.5
"""Seconds; a replay that was cancelled or begun meanwhile is noticed after them."""
SHORTEST_REST: Final = 0.02


async def once(db: Database, doorbell: Doorbell, counters: Counters | None = None) -> bool:
    """Release the next chunk of a bulk replay, or rest until one is due; False when none is running.

    Safe in every worker at once: a chunk is released behind the lock of its replay.
    """
    async with db.begin() as tx:
        record = await replays.take(tx)
        moved = None if record is None else await _release(tx, record)
        rest = await replays.seconds_to_next(tx) if moved is None else None
    if counters and moved and record:
        counters.arrived(moved.replayed - record.replayed)
    if moved is None:
        if rest is not None:
            await asyncio.sleep(min(max(rest, SHORTEST_REST), LONGEST_REST))
        return rest is not None
    await doorbell.ring()
    if moved.state is ReplayState.COMPLETED:
        _tell(moved)
    return True


async def _release(tx: Tx, record: ReplayRecord) -> ReplayRecord:
    """Open the generations of the next chunk and write down how far the replay is."""
    limit = min(max(1, int(record.rate_per_second / CHUNKS_A_SECOND)), MAX_CHUNK)
    chunk = await replays.next_chunk(tx, record, limit)
    told = await open_generations(
        tx,
        chunk.rows,
        requested_by=record.requested_by,
        reason=record.reason,
        replay_id=record.id,
        queue=Queue.BULK,
        ended_by=record.created_at,
    )
    moved = _moved(record, chunk, told)
    await replays.advance(tx, moved, pause=(moved.replayed - record.replayed) / record.rate_per_second)
    return moved


def _moved(record: ReplayRecord, chunk: Chunk, told: Sequence[Opened]) -> ReplayRecord:
    """The replay behind this chunk. What matched at its beginning and was met nowhere has changed meanwhile."""
    skipped = Counter(record.skipped)
    skipped.update(each.refused for each in told if each.refused is not None)
    opened = sum(each.refused is None for each in told)
    moved = replace(record, replayed=record.replayed + opened, skipped=dict(skipped), after_row=chunk.after_row)
    moved = replace(moved, matched=max(moved.matched, moved.done))
    if chunk.after_row < record.last_row:
        return moved
    skipped[Refusal.CHANGED] += moved.matched - moved.done
    return replace(moved, skipped=dict(skipped), state=ReplayState.COMPLETED)


def _tell(moved: ReplayRecord) -> None:
    log.info(
        "replay.completed",
        replay=str(moved.id),
        requested_by=moved.requested_by,
        matched=moved.matched,
        replayed=moved.replayed,
        skipped=sum(moved.skipped.values()),
    )
