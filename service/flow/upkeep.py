"""Upkeep: the small recurring jobs of every worker; each is safe to run in all of them at once."""

from service.flow.control_subscribers import sweep_deleted
from service.flow.doorbell import Doorbell
from service.store import deliveries, idempotency, runs
from service.store.database import Database

PURGE_BATCH = 1_000


async def fan_out_published(db: Database, doorbell: Doorbell) -> bool:
    """Fan out the next events that were published to be sent at once; False when there are none."""
    async with db.begin() as tx:
        chunk = await deliveries.fan_out(tx, None)
    if chunk.deliveries:
        await doorbell.ring()
    return chunk.events > 0


async def note_settled(db: Database) -> bool:
    """Note runs that became settled while nobody could write it down."""
    async with db.begin() as tx:
        await runs.settle_all(tx)
    return False


async def purge_idempotency(db: Database) -> bool:
    """Delete the next answers kept for Idempotency-Keys whose time is over; False when there are no more."""
    async with db.begin() as tx:
        return await idempotency.purge_expired(tx, PURGE_BATCH) == PURGE_BATCH


async def cancel_deleted(db: Database) -> bool:
    """Cancel what a fan-out under way, or a crash, left behind the deletion of a subscriber."""
    return await sweep_deleted(db) > 0
