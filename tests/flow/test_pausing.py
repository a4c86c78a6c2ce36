"""Dispatch paused as a whole: nothing is claimed from then on, nothing is lost, a resume sends all of it once."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from service.domain.model import HeldBy, RunState
from service.flow import control, upkeep
from service.store import deliveries, dispatching
from service.store.database import Database
from service.store.deliveries import Appetite
from service.store.dispatching import Standing
from service.store.vault import Vault, new_key
from tests.polling import eventually
from tests.receivers import Receiver, answer
from tests.scenes import Scene, shipments_job
from tests.steering import trail
from tests.workers import WorkerProcess

NOWHERE = "http://127.0.0.1:9/"


@pytest.fixture
def key() -> str:
    return new_key()


@pytest.fixture
def scene(database: Database, key: str) -> Scene:
    return Scene(database, vault=Vault([key]))


async def pause(scene: Scene, reason: str = "a bad release", actor: str = "alice") -> Standing:
    return await control.pause_dispatch(scene.db, actor=actor, reason=reason)


async def resume(scene: Scene) -> Standing:
    return await control.resume_dispatch(scene.db, scene.doorbell, actor="bob", reason="taken back")


async def in_flight(scene: Scene) -> int:
    async with scene.db.begin() as tx:
        return await dispatching.leased(tx)


async def test_no_claim_that_begins_after_a_pause_takes_anything_however_many_claim_at_once(scene: Scene) -> None:
    for slug in ("one", "two", "three"):
        await scene.subscriber(slug, NOWHERE, max_concurrency=400)
    for n in range(100):
        await scene.event(f"e{n}")
    paused = asyncio.Event()
    before, after = [0] * 4, [0] * 4

    async def claimer(n: int) -> None:
        begun_late = False
        while not begun_late:
            begun_late = paused.is_set()
            async with scene.db.ask() as tx:
                claimed = await deliveries.claim(tx, Appetite(batch=1, share=400), worker=f"w{n}", lease_seconds=60)
            (after if begun_late else before)[n] += len(claimed)

    async def pauser() -> None:
        await eventually(lambda: sum(before) >= 20)
        await pause(scene)
        paused.set()

    await asyncio.gather(pauser(), *(claimer(n) for n in range(4)))
    assert sum(before) >= 20
    assert after == [0] * 4
    assert await in_flight(scene) == sum(before)


async def test_a_pause_beside_real_workers_lets_what_is_out_finish_and_the_resume_sends_all_the_rest_once(
    scene: Scene, database_url: str, key: str, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        receiver = await stack.enter_async_context(Receiver(then=answer(200, delay=0.02)))
        await scene.subscriber("acme", receiver.url, max_concurrency=4)
        for n in range(150):
            await scene.event(f"e{n}")
        for _ in range(2):
            await stack.enter_async_context(WorkerProcess(database_url, key, tmp_path).running())
        await eventually(lambda: len(receiver.requests) > 20, seconds=40)
        await pause(scene)
        await eventually(lambda: _nothing_in_flight(scene))
        sent = len(receiver.requests)
        await _fanned_out_by_a_worker(scene)
        assert len(receiver.requests) == sent < 151
        assert await scene.states() == {"delivered": sent, "pending": 151 - sent}
        assert {view.held_by for view in await scene.views("acme") if view.finished_at is None} == {
            HeldBy.DISPATCH_PAUSED
        }
        await resume(scene)
        await eventually(lambda: _all_delivered(scene, 151), seconds=30)
        assert len(receiver.requests) == len({each.header("webhook-id") for each in receiver.requests}) == 151
    assert {attempt.outcome for attempt in await scene.evidence("acme")} == {"delivered"}


async def _nothing_in_flight(scene: Scene) -> bool:
    return await in_flight(scene) == 0


async def _all_delivered(scene: Scene, count: int) -> bool:
    return await scene.states() == {"delivered": count}


async def _fanned_out_by_a_worker(scene: Scene) -> None:
    """Publish an event more and see the workers take it as far as they may: the pause is not that they are away."""
    await scene.execute(
        "INSERT INTO tocsin.events (id, tenant_id, type, subject, version, topics, body, body_sha256, data_sha256) "
        "SELECT gen_random_uuid(), tenant_id, type, 'one-more', version, topics, body, body_sha256, data_sha256 "
        "FROM tocsin.events LIMIT 1"
    )
    await scene.doorbell.ring()
    await eventually(lambda: _none_unfanned(scene))


async def _none_unfanned(scene: Scene) -> bool:
    return not await scene.execute("SELECT 1 FROM tocsin.events WHERE fanned_out_at IS NULL")


async def test_runs_are_discovered_while_dispatch_is_paused_and_wait_unsettled(scene: Scene) -> None:
    await scene.shipments(3)
    await scene.subscriber("acme", NOWHERE)
    await pause(scene)
    run = await scene.tick(shipments_job())
    await scene.discovery(shipments_job()).once()
    view = await scene.run(run)
    assert (view.state, view.settled, view.deliveries["pending"]) == (RunState.COMPLETED, False, 3)
    assert await scene.dispatcher().once() == 0


async def test_deadlines_go_on_while_dispatch_is_paused(scene: Scene) -> None:
    await scene.subscriber("acme", NOWHERE)
    await scene.event()
    await pause(scene)
    await scene.execute("UPDATE tocsin.deliveries SET deadline_at = now()")
    await upkeep.expire_overdue(scene.db)
    [view] = await scene.views("acme")
    assert (view.state, view.reason, view.attempt_count) == ("exhausted", "deadline", 0)


async def test_pauses_and_resumes_sent_many_times_count_once_and_the_first_reason_stays(scene: Scene) -> None:
    await pause(scene, "first")
    standings = await asyncio.gather(*(pause(scene, "later", "carol") for _ in range(3)))
    assert {(each.paused, each.reason, each.paused_by) for each in standings} == {(True, "first", "alice")}
    standings = await asyncio.gather(*(resume(scene) for _ in range(3)))
    assert set(standings) == {Standing(paused=False, reason=None, paused_by=None, since=None)}
    assert [(line.actor, line.action, line.object, line.reason) for line in await trail(scene)] == [
        ("alice", "dispatch.paused", "dispatch", "first"),
        ("bob", "dispatch.resumed", "dispatch", "taken back"),
    ]


async def test_a_subscriber_that_waited_for_dispatch_starts_slowly_and_a_paused_one_stays_paused(scene: Scene) -> None:
    for slug in ("waits", "paused"):
        await scene.subscriber(slug, NOWHERE)
    for n in range(20):
        await scene.event(f"e{n}")
    await scene.execute(
        "UPDATE tocsin.lanes SET state = 'paused' WHERE subscriber = "
        "(SELECT row FROM tocsin.subscribers WHERE id = 'paused')"
    )
    await pause(scene)
    await resume(scene)
    async with scene.db.begin() as tx:
        claimed = await deliveries.claim(tx, Appetite(batch=100, share=100), worker="w", lease_seconds=60)
    assert len(claimed) == 1
