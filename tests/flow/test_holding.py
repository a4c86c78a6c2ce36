"""What a pause promises of deliveries that are claimed, due or in flight, and how a lane begins again after it."""

import asyncio
from time import monotonic

import pytest

from service.domain.model import HeldBy, Ordering, Queue
from service.flow import control_subscribers, dispatch, gate
from service.store import deliveries, dispatching
from service.store.database import Database
from service.store.deliveries import Appetite
from tests.polling import eventually
from tests.receivers import Receiver, Request, answer
from tests.scenes import Scene


def _subject(request: Request) -> str:
    return request.body.split(b'"subject":"')[1].split(b'"')[0].decode()


async def _switch(scene: Scene, *, paused: bool) -> bool:
    async with scene.db.begin() as tx:
        return await (dispatching.pause(tx, reason="rollback", by="ops") if paused else dispatching.resume(tx))


@pytest.fixture(params=["subscriber", "dispatch"])
def what(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def _pause(scene: Scene, what: str) -> None:
    if what == "dispatch":
        assert await _switch(scene, paused=True)
    else:
        await control_subscribers.pause_subscriber(scene.db, "strict", actor="ops", reason="rollback")


async def _resume(scene: Scene, what: str) -> None:
    if what == "dispatch":
        assert await _switch(scene, paused=False)
    else:
        await control_subscribers.resume_subscriber(scene.db, scene.doorbell, "strict", actor="ops", reason=None)


async def test_what_was_leased_behind_the_one_in_flight_is_not_sent_after_a_pause(
    database: Database, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "NEWS_SECONDS", 0.0)
    scene, hold = Scene(database), asyncio.Event()
    async with Receiver(answer(200), answer(200, hold=hold), then=answer(200)) as receiver:
        await scene.subscriber("strict", receiver.url, ordering=Ordering.STRICT)
        for n in range(1, 6):
            await scene.event(f"e{n}", version=n)
        dispatcher = scene.dispatcher()
        round_ = asyncio.create_task(dispatcher.once())
        await eventually(lambda: len(receiver.requests) == 2)
        await _pause(scene, what)
        hold.set()
        assert await round_ == 5
        assert [_subject(request) for request in receiver.requests] == ["e1", "e2"]
        assert await scene.states() == {"delivered": 2, "pending": 3}
        counts = await scene.execute("SELECT attempt_count FROM tocsin.deliveries ORDER BY row")
        assert [row.attempt_count for row in counts] == [1, 1, 0, 0, 0]
        assert await dispatcher.once() == 0

        await _resume(scene, what)
        await scene.drain(dispatcher)
        assert [_subject(request) for request in receiver.requests] == [f"e{n}" for n in range(1, 6)]


async def test_nothing_goes_out_while_the_database_cannot_say_whether_it_still_may(database: Database) -> None:
    scene, away = Scene(database), Database("postgresql+asyncpg://nobody@127.0.0.1:1/nowhere")
    await scene.subscriber("strict", "http://127.0.0.1:9/")
    await scene.event()
    async with database.begin() as tx:
        [claimed] = await deliveries.claim(tx, Appetite(1, 1), worker="w", lease_seconds=60)
    for db, goes in ((database, True), (away, False)):
        assert await gate.Gate(db, [claimed], monotonic() - 2 * gate.NEWS_SECONDS).lets(claimed) is goes
    await away.close()


async def test_while_dispatch_is_paused_nothing_is_claimed_and_each_delivery_says_so(database: Database) -> None:
    scene = Scene(database)
    async with Receiver(then=answer(200)) as receiver:
        await scene.subscriber("one", receiver.url)
        await scene.event()
        assert await _switch(scene, paused=True)
        assert not await _switch(scene, paused=True)  # the first reason stays
        dispatcher = scene.dispatcher()
        assert await dispatcher.once() == 0
        assert await dispatcher.seconds_to_next() > dispatch.MIN_REST_SECONDS  # nobody spins meanwhile
        [view] = await scene.views("one")
        assert view.held_by is HeldBy.DISPATCH_PAUSED

        assert await _switch(scene, paused=False)
        assert not await _switch(scene, paused=False)
        await scene.drain(dispatcher)
        assert len(receiver.requests) == 1


async def test_a_resumed_backlog_begins_with_one_and_doubles(database: Database, what: str) -> None:
    scene = Scene(database)
    async with Receiver(then=answer(200)) as receiver:
        await scene.subscriber("strict", receiver.url, max_concurrency=16)
        await _pause(scene, what)
        for n in range(40):
            await scene.event(f"e{n}")
        await _resume(scene, what)
        dispatcher = scene.dispatcher()
        assert [await dispatcher.once() for _ in range(6)] == [1, 2, 4, 8, 16, 9]


async def test_bulk_replays_wait_behind_first_attempts_and_leave_a_quarter_of_the_lane_to_others(
    database: Database,
) -> None:
    scene = Scene(database)
    async with Receiver(then=answer(200)) as receiver:
        await scene.subscriber("one", receiver.url, max_concurrency=8)
        for n in range(20):
            await scene.event(f"bulk{n}")
        await scene.execute("UPDATE tocsin.deliveries SET queue = :bulk, generation = 2", bulk=int(Queue.BULK))
        for n in range(10):
            await scene.event(f"first{n}")
        dispatcher = scene.dispatcher()
        rounds = []
        for _ in range(3):
            before = len(receiver.requests)
            assert await dispatcher.once()
            rounds.append(sorted(_subject(request).rstrip("0123456789") for request in receiver.requests[before:]))
        assert rounds == [["first"] * 8, ["bulk"] * 6 + ["first"] * 2, ["bulk"] * 6]
        lanes = await scene.execute("SELECT leased, leased_late FROM tocsin.lanes")
        assert [tuple(lane) for lane in lanes] == [(0, 0)]
