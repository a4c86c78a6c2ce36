"""What rotating a subscriber's secret promises to a receiver: no request between the two that it cannot verify."""

import asyncio
from time import monotonic

import pytest

from service.domain.signing import decode_secret, sign
from service.flow import control_subscribers, outbound
from service.store.database import Database
from tests.polling import eventually
from tests.receivers import Receiver, Request, answer
from tests.scenes import Scene
from tests.web.conftest import called

DAY = 24 * 3600.0


def _signed_with(request: Request, *secrets: str) -> bool:
    """Whether the signatures are those of exactly these secrets, in this order."""
    headers = request.headers
    keys = [decode_secret(secret) for secret in secrets]
    timestamp = int(headers["webhook-timestamp"])
    return headers["webhook-signature"] == sign(keys, headers["webhook-id"], timestamp, request.body)


async def _rotate(scene: Scene, grace_seconds: float) -> str:
    shown = await control_subscribers.rotate_secret(
        scene.db, "acme", actor="alice", vault=scene.vault, grace_seconds=grace_seconds
    )
    assert shown.secret is not None
    return shown.secret


async def test_retries_and_replays_are_signed_with_the_secrets_of_their_moment(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with called(database) as api, Receiver(answer(500), answer(500), then=answer(200)) as receiver:
        scene = api.scene
        first = await scene.subscriber("acme", receiver.url)
        await scene.event()
        dispatcher = scene.dispatcher()
        await dispatcher.once()
        second = await _rotate(scene, DAY)
        await scene.make_due()
        await dispatcher.once()
        await scene.execute("UPDATE tocsin.subscriber_secrets SET expires_at = now() WHERE expires_at IS NOT NULL")
        await scene.make_due()
        monkeypatch.setattr(outbound, "monotonic", lambda: monotonic() + 15)  # so long a destination is remembered
        await dispatcher.once()
        [view] = await scene.views("acme")
        replayed = await api.client.post(f"/v1/deliveries/{view.id}/replay", json={"reason": "again"})
        assert replayed.status_code == 202
        await dispatcher.once()
        before, overlap, after, replay = receiver.requests
        assert _signed_with(before, first)
        assert _signed_with(overlap, second, first)
        assert _signed_with(after, second)
        assert _signed_with(replay, second)
        assert len({request.header("webhook-id") for request in receiver.requests}) == 1
        assert len({request.body for request in receiver.requests}) == 1


async def test_beside_a_running_worker_every_request_verifies_with_the_old_secret_and_newer_events_with_both(
    database: Database,
) -> None:
    scene = Scene(database)
    async with Receiver(then=answer(200, delay=0.005)) as receiver:
        first = await scene.subscriber("acme", receiver.url, max_concurrency=8)
        stop = asyncio.Event()
        working = asyncio.create_task(scene.worker().run(stop))
        older = {await _sent(scene, number) for number in range(30)}
        second = await _rotate(scene, DAY)
        newer = {await _sent(scene, number) for number in range(30, 60)}
        await eventually(lambda: len(receiver.requests) == 60)
        stop.set()
        await working
    both = {_event(request) for request in receiver.requests if _signed_with(request, second, first)}
    alone = {_event(request) for request in receiver.requests if _signed_with(request, first)}
    assert both | alone == older | newer
    assert newer <= both


async def _sent(scene: Scene, number: int) -> str:
    event = await scene.event(f"subject-{number}")
    await scene.doorbell.ring()
    return str(event)


def _event(request: Request) -> str:
    return request.headers["webhook-id"].partition(":")[0]
