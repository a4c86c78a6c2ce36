"""Chains: nobody overtakes the head of a chain, and none is forgotten, whoever is busy with it just then."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import pytest_asyncio
from sqlalchemy import text
from uuid_utils.compat import uuid7

from service.domain.eventbody import compose
from service.domain.model import DeliveryRow, EventId, Found, Ordering, Queue
from service.flow import upkeep
from service.store import events, generations, verdicts
from service.store.database import Database
from service.store.fan_out import fan_out
from service.store.generations import Refusal
from tests.polling import eventually
from tests.receivers import Receiver
from tests.scenes import Scene

_CHAIN = """
    SELECT row, state, next_attempt_at < 'infinity' AS due FROM tocsin.deliveries WHERE finished_at IS NULL ORDER BY row
"""


@pytest_asyncio.fixture(params=[Ordering.STRICT, Ordering.SUBJECT])
async def scene(database: Database, request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    """A subscriber that keeps an order, and a first delivery to it."""
    scene = Scene(database)
    async with Receiver() as receiver:
        await scene.subscriber("acme", receiver.url, ordering=request.param)
    await scene.event(version=1)
    yield scene


async def test_what_comes_while_the_head_is_being_settled_is_parked_behind_it(scene: Scene) -> None:
    async with scene.db.begin() as settling:
        # A settle locks its deliveries first, and waits for the lane that a fan-out holds meanwhile.
        await settling.conn.execute(text("SELECT FROM tocsin.deliveries FOR NO KEY UPDATE"))
        await scene.event(version=2)
    assert [each.due for each in await scene.execute(_CHAIN)] == [True, False]


async def test_a_replay_that_is_refused_keeps_nobody_from_following_the_head(scene: Scene) -> None:
    await scene.event(version=2)
    head, second = (DeliveryRow(each.row) for each in await scene.execute(_CHAIN))
    async with scene.db.begin() as replaying:
        [told] = await generations.open_generations(
            replaying, [second], requested_by="test", reason="too early", replay_id=None, queue=Queue.RETRY
        )
        assert told.refused is Refusal.CHANGED
        async with scene.db.begin() as cancelling:
            assert await verdicts.call_off(cancelling, head)
    assert [(each.row, each.due) for each in await scene.execute(_CHAIN)] == [(second, True)]


async def test_late_evidence_of_the_head_keeps_nobody_from_following(scene: Scene) -> None:
    await scene.event(version=2)
    head, second = (DeliveryRow(each.row) for each in await scene.execute(_CHAIN))
    async with scene.db.begin() as settling:
        await settling.conn.execute(text(f"SELECT FROM tocsin.deliveries WHERE row = {second} FOR KEY SHARE"))
        async with scene.db.begin() as cancelling:
            assert await verdicts.call_off(cancelling, head)
    assert [(each.row, each.due) for each in await scene.execute(_CHAIN)] == [(second, True)]


async def test_what_is_published_later_waits_for_the_fan_out_of_what_was_published_before(scene: Scene) -> None:
    first, second = await _published(scene, version=2), await _published(scene, version=3)
    async with scene.db.begin() as slow:
        # A fan-out locks its events first, and its rows may take their time.
        await slow.conn.execute(text("SELECT FROM tocsin.events WHERE id = :id FOR UPDATE"), {"id": first})
        other = asyncio.create_task(upkeep.fan_out_published(scene.db, scene.doorbell))
        await eventually(lambda: _waiting(scene))
    assert await other
    rows = await scene.execute("SELECT event_id FROM tocsin.deliveries ORDER BY row")
    assert [row.event_id for row in rows][1:] == [first, second]


async def test_a_worker_that_is_stopped_within_a_fan_out_holds_up_the_others_for_seconds_only(
    database: Database,
) -> None:
    limit = text("SELECT current_setting('idle_in_transaction_session_timeout')::interval")
    async with database.begin() as tx:
        await fan_out(tx, None)
        assert timedelta(0) < (await tx.conn.execute(limit)).scalar_one() <= timedelta(seconds=5)


async def _published(scene: Scene, *, version: int) -> EventId:
    """An event that nobody has fanned out yet."""
    async with scene.db.begin() as tx:
        found = Found(type="shipment.expired", subject="ship-1", version=version, data="{}")
        event = compose(found, EventId(uuid7()), tx.now)
        await events.add(tx, [event])
    return event.id


async def _waiting(scene: Scene) -> bool:
    """Whether somebody waits for a lock."""
    [row] = await scene.execute("SELECT count(*) AS n FROM pg_locks WHERE NOT granted")
    return bool(row.n)
