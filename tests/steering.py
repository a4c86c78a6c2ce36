"""What operators do to the subscriber `acme`, in a word each, for tests."""

from typing import Any

from service.domain.model import SubscriberRow, SubscriberState
from service.domain.signing import decode_secret
from service.flow import control_subscribers
from service.flow.control_subscribers import Sent, Shown
from service.flow.egress import Egress
from service.flow.vetting import Vetting
from service.store import audit, deliveries, subscribers
from service.store.audit import AuditLine
from service.store.deliveries import Appetite
from service.store.views import Page
from tests.scenes import Scene
from tests.wanting import wanted


async def _somewhere(_host: str, _port: int) -> list[str]:
    return ["203.0.114.7"]


async def put(scene: Scene, slug: str = "acme", secret: str | None = None, **changes: Any) -> Shown:
    return await control_subscribers.put_subscriber(
        scene.db,
        wanted(slug, **changes),
        actor="alice",
        vault=scene.vault,
        vetting=Vetting(Egress((), (), _somewhere), 50),
        secret=secret,
    )


async def delete(scene: Scene) -> int:
    return await control_subscribers.delete_subscriber(scene.db, "acme", actor="alice")


async def pause(scene: Scene, reason: str | None = "deploy") -> SubscriberState:
    record = await control_subscribers.pause_subscriber(scene.db, "acme", actor="bob", reason=reason)
    return record.state


async def resume(scene: Scene) -> SubscriberState:
    record = await control_subscribers.resume_subscriber(scene.db, scene.doorbell, "acme", actor="bob", reason="done")
    return record.state


async def rotate(scene: Scene, grace_seconds: float = 60.0) -> bytes:
    rotated = await control_subscribers.rotate_secret(
        scene.db, "acme", actor="alice", vault=scene.vault, grace_seconds=grace_seconds
    )
    assert rotated.secret is not None
    return decode_secret(rotated.secret)


async def send_test(scene: Scene) -> Sent:
    return await control_subscribers.send_test(scene.db, scene.doorbell, "acme", actor="bob")


async def claim(scene: Scene) -> int:
    async with scene.db.begin() as tx:
        return len(await deliveries.claim(tx, Appetite(batch=10, share=10), worker="w", lease_seconds=60))


async def blocked(scene: Scene) -> bool:
    """Whether anybody in this database waits for a lock."""
    waiting = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    return bool(await scene.execute(waiting))


async def signs_with(scene: Scene, row: SubscriberRow) -> tuple[bytes, ...]:
    async with scene.db.begin() as tx:
        [destination] = await subscribers.destinations(tx, [row], scene.vault)
    return destination.secrets


async def trail(scene: Scene) -> list[AuditLine]:
    """The audit trail, oldest first."""
    async with scene.db.begin() as tx:
        return (await audit.listed(tx, actor=None, object=None, page=Page(100)))[::-1]
