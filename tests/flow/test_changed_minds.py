"""What is decided of a delivery after a worker has leased it, and before it is sent, is what counts."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from service.domain.model import Ordering
from service.domain.signing import sign
from service.flow import gate
from service.flow.dispatch import Limits
from service.store.database import Database
from tests import steering
from tests.operating import cancel, named, replay
from tests.polling import eventually
from tests.receivers import Answer, Receiver, Request, answer
from tests.scenes import Scene


def _subject(request: Request) -> str:
    return request.body.split(b'"subject":"')[1].split(b'"')[0].decode()


@pytest.fixture(autouse=True)
def _every_request_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "NEWS_SECONDS", 0.0)


async def _changed(
    scene: Scene, receiver: Receiver, hold: asyncio.Event, change: Callable[[], Awaitable[object]]
) -> list[str]:
    """Five events of a strict lane are leased, the first is out, the change is made; what is sent in all, in order."""
    for n in range(1, 6):
        await scene.event(f"e{n}", version=n)
    sending = asyncio.create_task(scene.dispatcher("w1").once())
    await eventually(lambda: receiver.requests)
    await change()
    hold.set()
    await sending
    await scene.drain(scene.dispatcher("w2"))
    [lane] = await scene.execute("SELECT leased, leased_late FROM tocsin.lanes")
    assert tuple(lane) == (0, 0)
    return [_subject(request) for request in receiver.requests]


@pytest.mark.parametrize("again", [False, True], ids=["cancelled", "cancelled and replayed"])
async def test_what_was_cancelled_in_its_place_is_not_sent_and_replayed_it_is_sent_once(
    database: Database, again: bool
) -> None:
    scene, hold = Scene(database), asyncio.Event()
    async with Receiver(answer(200, hold=hold), then=answer(200)) as receiver:
        await scene.subscriber("acme", receiver.url, ordering=Ordering.STRICT)

        async def change() -> None:
            third = named((await scene.views("acme"))[2].id)
            await cancel(scene, third)
            if again:
                await replay(scene, third)

        sent = await _changed(scene, receiver, hold, change)
        assert sorted(sent) == ["e1", "e2", *(["e3"] if again else []), "e4", "e5"]


async def test_a_secret_that_was_ended_signs_nothing_that_was_leased_before(database: Database) -> None:
    scene, hold = Scene(database), asyncio.Event()
    async with Receiver(answer(200, hold=hold), then=answer(200)) as receiver:
        await scene.subscriber("acme", receiver.url, ordering=Ordering.STRICT)
        fresh: list[bytes] = []

        async def change() -> None:
            fresh.append(await steering.rotate(scene, grace_seconds=0))

        assert await _changed(scene, receiver, hold, change) == [f"e{n}" for n in range(1, 6)]
        for request in receiver.requests[1:]:
            key, timestamp = request.header("webhook-id"), request.header("webhook-timestamp")
            assert key is not None
            assert timestamp is not None
            signed = sign((fresh[0],), key, int(timestamp), request.body)
            assert request.header("webhook-signature") == signed


async def test_requests_of_two_leases_on_one_delivery_take_and_free_a_slot_each(database: Database) -> None:
    scene, hold = Scene(database, Limits(concurrency=8)), asyncio.Event()
    async with Receiver(answer(200, hold=hold), then=answer(200, hold=hold)) as receiver:
        await scene.subscriber("acme", receiver.url)
        await scene.event()
        [view] = await scene.views("acme")
        dispatcher = scene.dispatcher()
        await dispatcher.take(8)
        await eventually(lambda: len(receiver.requests) == 1)
        await cancel(scene, named(view.id))
        await replay(scene, named(view.id))
        await dispatcher.take(8)
        await eventually(lambda: len(receiver.requests) == 2)
        assert dispatcher.flights == 2
        hold.set()
        await eventually(lambda: dispatcher.flights == 0)
        await dispatcher.settler.flush()
        assert dispatcher.room == 8
        for n in range(4):  # as many as a lane may have in this worker
            await scene.event(f"e{n}")
        assert await dispatcher.once() == 4
    [view] = (await scene.views("acme"))[:1]
    assert (view.state, view.generation, view.attempt_count) == ("delivered", 2, 1)


async def test_a_dead_letter_whose_successors_went_on_leaves_the_order_even_if_the_lane_blocks_by_now(
    database: Database,
) -> None:
    scene = Scene(database)

    def script(request: Request) -> Answer:
        return answer(404 if b'"version":1' in request.body else 500)

    async with Receiver(then=script) as receiver:
        await scene.subscriber("acme", receiver.url, ordering=Ordering.SUBJECT, max_attempts=50)
        for n in (1, 2, 3):
            await scene.event("x", version=n)
        dispatcher = scene.dispatcher()
        for _ in range(2):
            await dispatcher.once()
            await scene.make_due()
        await scene.execute("UPDATE tocsin.lanes SET on_dead_letter = 'block'")
        first, _, third = await scene.views("acme")
        await replay(scene, named(first.id))
        chain = await scene.execute("SELECT order_key IS NULL AS free FROM tocsin.deliveries ORDER BY row")
        assert [row.free for row in chain] == [True, False, False]
        assert third.held_by == "predecessor"
