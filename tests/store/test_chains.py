"""Chains: nobody overtakes the head of a chain, and none is forgotten, whoever is busy with it just then."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from sqlalchemy import text

from service.domain.model import DeliveryRow, Ordering, Queue
from service.store import generations, verdicts
from service.store.database import Database
from service.store.generations import Refusal
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
