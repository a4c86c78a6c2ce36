"""What operators do to deliveries, in a word each, for tests."""

from datetime import datetime
from typing import Any

from service.domain.identifiers import parse_delivery_id
from service.domain.model import DeliveryState
from service.flow import control_deliveries, control_replays, replaying
from service.flow.control_deliveries import Named
from service.store import evidence, replays
from service.store.evidence import Evidence
from service.store.replays import ReplayRecord
from service.store.views_deliveries import Sought
from tests.scenes import Scene


async def only(scene: Scene, slug: str = "acme") -> Named:
    """The one delivery of a subscriber."""
    [view] = await scene.views(slug)
    return named(view.id)


def named(delivery: str) -> Named:
    found = parse_delivery_id(delivery)
    assert found is not None
    return Named(*found)


async def read(scene: Scene, delivery: Named) -> Evidence:
    async with scene.db.begin() as tx:
        found = await evidence.whole(tx, delivery.event_id, delivery.subscriber_row)
    assert found is not None
    return found


async def replay(scene: Scene, delivery: Named, *, actor: str = "alice", reason: str = "mended") -> Evidence:
    return await control_deliveries.replay_delivery(scene.db, scene.doorbell, delivery, actor=actor, reason=reason)


async def resolve(scene: Scene, delivery: Named, resolution: DeliveryState = DeliveryState.DELIVERED) -> Evidence:
    return await control_deliveries.resolve_delivery(
        scene.db, scene.doorbell, delivery, resolution=resolution, actor="alice", reason="they have it"
    )


async def cancel(scene: Scene, delivery: Named) -> Evidence:
    return await control_deliveries.cancel_delivery(scene.db, scene.doorbell, delivery, actor="bob", reason="obsolete")


async def replay_all(
    scene: Scene, *states: DeliveryState, rate: float = 10_000, dry_run: bool = False, **sought: Any
) -> ReplayRecord:
    return await control_replays.start_replay(
        scene.db,
        scene.doorbell,
        Sought(states=states, **sought),
        actor="alice",
        reason="mended",
        rate=rate,
        dry_run=dry_run,
    )


async def progress(scene: Scene, replay_: ReplayRecord) -> ReplayRecord:
    async with scene.db.begin() as tx:
        found = await replays.read(tx, replay_.id)
    assert found is not None
    return found


async def run_replays(scene: Scene) -> None:
    """Release everything that waits, whatever its rate: the clock is turned behind each chunk."""
    while await replaying.once(scene.db, scene.doorbell):
        await scene.execute("UPDATE tocsin.replays SET next_at = now() - interval '1 second' WHERE state = 'running'")


async def clock(scene: Scene) -> datetime:
    async with scene.db.begin() as tx:
        return tx.now
