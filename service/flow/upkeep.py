"""Upkeep: the small recurring jobs of every worker; each is safe to run in all of them at once."""

import structlog

from service.domain.breaker import DISABLE_AFTER_SECONDS
from service.domain.identifiers import delivery_id
from service.flow import disabling, operational
from service.flow.control_subscribers import sweep_deleted
from service.flow.counters import Counters
from service.flow.doorbell import Doorbell
from service.store import endings, idempotency, lanes, pulse, runs
from service.store.database import Database
from service.store.fan_out import fan_out

log = structlog.get_logger()

PURGE_BATCH = 1_000
EXPIRE_BATCH = 5_000
FAILING_REASON = "no success for 5 days"


async def fan_out_published(db: Database, doorbell: Doorbell, counters: Counters | None = None) -> bool:
    """Fan out the next events that were published to be sent at once; False when there are none."""
    async with db.begin() as tx:
        chunk = await fan_out(tx, None)
    if chunk.deliveries:
        if counters:
            counters.arrived(chunk.deliveries)
        await doorbell.ring()
    return chunk.events > 0


async def note_settled(db: Database) -> bool:
    """Note runs that became settled while nobody could write it down."""
    async with db.begin() as tx:
        await operational.runs_settled(tx, await runs.settle_all(tx))
    return False


async def purge_idempotency(db: Database) -> bool:
    """Delete the next answers kept for Idempotency-Keys whose time is over; False when there are no more."""
    async with db.begin() as tx:
        return await idempotency.purge_expired(tx, PURGE_BATCH) == PURGE_BATCH


async def purge_pulse(db: Database) -> bool:
    """Delete the next minutes that nobody asks for any more; False when there are no more of them."""
    async with db.begin() as tx:
        return await pulse.purge(tx, PURGE_BATCH) == PURGE_BATCH


async def cancel_deleted(db: Database) -> bool:
    """Cancel what a fan-out under way, or a crash, left behind the deletion of a subscriber."""
    return await sweep_deleted(db) > 0


async def expire_overdue(db: Database, counters: Counters | None = None) -> bool:
    """End the next deliveries whose deadline passed while they waited; False when there are no more."""
    async with db.begin() as tx:
        expired = await endings.expire(tx, EXPIRE_BATCH)
        await operational.deliveries_dead(tx, [each.row for each in expired])
    if counters:
        counters.expired(len(expired))
    async with db.begin() as tx:
        await operational.settle_runs(tx, list({each.run_id for each in expired if each.run_id is not None}))
    for each in expired:
        log.warning("delivery.expired", delivery=delivery_id(each.event_id, each.subscriber), reason="deadline")
    return len(expired) == EXPIRE_BATCH


async def disable_failing(db: Database) -> bool:
    """Disable subscribers that have failed for five days without one success: held, not lost."""
    async with db.begin() as tx:
        slugs = await lanes.disable_failing(tx, seconds=DISABLE_AFTER_SECONDS, reason=FAILING_REASON)
        await disabling.note(tx, slugs, FAILING_REASON)
    return False


async def mend_lanes(db: Database) -> bool:
    """Look again at lanes that rest although something in them is due, whatever it was that let them fall asleep."""
    async with db.begin() as tx:
        woken = await lanes.rouse(tx)
    if woken:
        log.warning("lanes.roused", lanes=woken)
    return False
