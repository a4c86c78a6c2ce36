"""What deleting a subscriber promises: nothing waits for ever, history stays, and it can come back as new."""

import asyncio

import pytest

from service.domain.errors import NotFound
from service.domain.model import SubscriberRow, SubscriberState
from service.domain.signing import decode_secret
from service.flow import control_subscribers
from service.flow.control_subscribers import Shown
from service.store import endings, fan_out, subscribers
from service.store.database import Database, Tx
from tests.scenes import Scene
from tests.steering import claim, delete, pause, put, resume, rotate, send_test, signs_with, trail


@pytest.fixture
def scene(database: Database) -> Scene:
    return Scene(database)


async def test_of_many_that_bring_a_deleted_one_back_at_once_one_creates(scene: Scene) -> None:
    await put(scene)
    await delete(scene)
    answers = await asyncio.gather(*(put(scene) for _ in range(8)))
    assert [answer.created for answer in answers].count(True) == 1
    assert len(await signs_with(scene, answers[0].record.row)) == 1


async def test_a_deletion_cancels_what_waits_and_what_is_in_flight_and_keeps_the_history(scene: Scene) -> None:
    created = await put(scene)
    await scene.event("s1")
    assert await claim(scene) == 1
    await scene.event("s2")
    assert await delete(scene) == 2
    rows = await scene.execute("SELECT state, reason, finished_at FROM tocsin.deliveries")
    assert [(row.state, row.reason) for row in rows] == [("cancelled", "subscriber-deleted")] * 2
    assert all(row.finished_at is not None for row in rows)
    assert await signs_with(scene, created.record.row) == ()
    assert (await trail(scene))[-1].action == "subscriber.deleted"


async def test_a_backlog_larger_than_one_transaction_is_cancelled_to_its_end(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = await put(scene)
    cancel = endings.cancel_pending

    async def in_threes(tx: Tx, row: SubscriberRow, reason: str) -> int:
        return await cancel(tx, row, reason, 3)

    monkeypatch.setattr(endings, "cancel_pending", in_threes)
    monkeypatch.setattr(endings, "BATCH", 3)
    await scene.execute(
        "INSERT INTO tocsin.deliveries (event_id, subscriber, deadline_at) "
        "SELECT gen_random_uuid(), :row, now() FROM generate_series(1, 10)",
        row=created.record.row,
    )
    assert await delete(scene) == 10
    assert await scene.states() == {"cancelled": 10}


async def test_a_subscriber_that_is_brought_back_meanwhile_keeps_what_is_new(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(scene)
    for subject in ("s1", "s2"):
        await scene.event(subject)
    cancel = endings.cancel_pending

    async def one_then_back(tx: Tx, row: SubscriberRow, reason: str) -> int:
        back.append(asyncio.create_task(put(scene)))
        return await cancel(tx, row, reason, 1)

    back: list[asyncio.Task[Shown]] = []
    monkeypatch.setattr(endings, "cancel_pending", one_then_back)
    monkeypatch.setattr(endings, "BATCH", 1)
    lock_deleted = subscribers.lock_deleted

    async def after_the_put(tx: Tx, row: SubscriberRow) -> bool:
        if back:
            assert (await back[0]).created
        return await lock_deleted(tx, row)

    monkeypatch.setattr(subscribers, "lock_deleted", after_the_put)
    assert await delete(scene) == 1
    assert await scene.states() == {"cancelled": 1, "pending": 1}


async def test_what_a_fan_out_added_beside_the_deletion_is_swept(scene: Scene) -> None:
    created = await put(scene)
    await delete(scene)
    event = await scene.event()
    async with scene.db.begin() as tx:
        await fan_out.enqueue(tx, event, created.record.row)
    assert await control_subscribers.sweep_deleted(scene.db) == 1
    assert await control_subscribers.sweep_deleted(scene.db) == 0
    assert await scene.states() == {"cancelled": 1}


async def test_a_deleted_subscriber_is_gone_for_every_verb(scene: Scene) -> None:
    await put(scene)
    await delete(scene)
    for verb in (delete, pause, resume, rotate, send_test):
        with pytest.raises(NotFound):
            await verb(scene)


async def test_a_slug_that_never_was_is_not_found_by_any_verb(scene: Scene) -> None:
    for verb in (delete, pause, resume, rotate, send_test):
        with pytest.raises(NotFound):
            await verb(scene)
    assert await trail(scene) == []


async def test_a_put_brings_a_deleted_subscriber_back_active_with_a_new_secret_and_its_history(scene: Scene) -> None:
    first = await put(scene)
    await scene.event()
    await pause(scene)
    await delete(scene)
    second = await put(scene, max_attempts=3)
    assert second.created
    assert second.secret not in (None, first.secret)
    assert second.record.row == first.record.row
    assert (second.record.state, second.record.wanted.max_attempts) == (SubscriberState.ACTIVE, 3)
    assert second.secret is not None
    assert await signs_with(scene, second.record.row) == (decode_secret(second.secret),)
    assert await scene.states() == {"cancelled": 1}
