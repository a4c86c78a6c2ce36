"""What happens when a worker is killed: a real process, SIGKILL, at the three windows that diagrams leave out.

The windows are held open with a lock in the database, so no timing decides: the worker waits for the lock at a known
place and is killed there.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import text

from service.domain.model import RunState
from service.flow.dispatch import Limits
from service.store.database import Database
from service.store.vault import Vault, new_key
from tests.polling import eventually
from tests.receivers import Receiver, answer
from tests.scenes import SHIPMENTS, Scene, shipments_job
from tests.workers import WorkerProcess


@pytest.fixture
def key() -> str:
    return new_key()


@pytest.fixture
def scene(database: Database, key: str) -> Scene:
    return Scene(database, Limits(), vault=Vault([key]))


@asynccontextmanager
async def locked(scene: Scene, statement: str) -> AsyncIterator[None]:
    """Hold a lock of the database while the context lasts."""
    async with scene.db.engine.begin() as conn:
        await conn.execute(text(statement))
        yield


async def _someone_waits(scene: Scene) -> bool:
    [row] = await scene.execute("SELECT count(*) AS n FROM pg_locks WHERE NOT granted")
    return bool(row.n)


async def _delivered(scene: Scene) -> bool:
    return await scene.states() == {"delivered": 1}


async def _leased(scene: Scene) -> bool:
    [row] = await scene.execute("SELECT count(*) AS n FROM tocsin.deliveries WHERE lease_owner IS NOT NULL")
    return bool(row.n)


async def test_a_worker_killed_before_the_request_leaves_an_in_doubt_attempt_and_the_next_delivers(
    scene: Scene, database_url: str, key: str, tmp_path: Path
) -> None:
    async with Receiver() as receiver:
        await scene.subscriber("one", receiver.url)
        await scene.event("first")
        async with WorkerProcess(database_url, key, tmp_path).running() as worker:
            await eventually(lambda: _delivered(scene), seconds=40)
            await scene.execute("UPDATE tocsin.lanes SET state = 'paused'")
            await scene.event("second")
            # It claims, and waits for the body that it would send.
            async with locked(scene, "LOCK TABLE tocsin.events IN ACCESS EXCLUSIVE MODE"):
                await scene.execute("UPDATE tocsin.lanes SET state = 'active', next_due_at = now()")
                await eventually(lambda: _leased(scene), seconds=40)
                await worker.kill()
        assert len(receiver.requests) == 1
        await _finish(scene)
        assert len(receiver.requests) == 2
    assert [(row.outcome, row.counted) for row in await scene.evidence("one")] == [
        ("delivered", True),
        ("in_doubt", True),
        ("delivered", True),
    ]


async def test_a_worker_killed_after_the_200_and_before_the_settle_commits_repeats_under_the_same_key(
    scene: Scene, database_url: str, key: str, tmp_path: Path
) -> None:
    held = asyncio.Event()
    async with Receiver(answer(200, hold=held), then=answer(200)) as receiver:
        await scene.subscriber("one", receiver.url)
        event = await scene.event()
        async with WorkerProcess(database_url, key, tmp_path).running() as worker:
            await eventually(lambda: receiver.requests, seconds=40)
            async with locked(scene, "SELECT FROM tocsin.deliveries FOR UPDATE"):
                held.set()
                await eventually(lambda: _someone_waits(scene))
                await worker.kill()
                # A server does not notice by itself that the client of a statement that waits is gone.
                await scene.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                )
        await _finish(scene)
        assert {request.header("webhook-id") for request in receiver.requests} == {f"{event}:one"}
        assert len({request.body for request in receiver.requests}) == 1
        assert len(receiver.requests) == 2
    assert [row.outcome for row in await scene.evidence("one")] == ["in_doubt", "delivered"]


async def test_a_worker_killed_in_flight_makes_a_receiver_that_cannot_deduplicate_ambiguous(
    scene: Scene, database_url: str, key: str, tmp_path: Path
) -> None:
    async with Receiver(then=answer(200, hold=asyncio.Event())) as receiver:
        await scene.subscriber("one", receiver.url, idempotent=False)
        await scene.event()
        async with WorkerProcess(database_url, key, tmp_path).running() as worker:
            await eventually(lambda: receiver.requests, seconds=40)
            await worker.kill()
        await _finish(scene)
        assert len(receiver.requests) == 1
    [attempt] = await scene.evidence("one")
    assert (attempt.outcome, attempt.state) == ("in_doubt", "ambiguous")


async def test_a_worker_killed_in_the_middle_of_discovering_5000_events_is_succeeded_without_a_gap_or_a_double(
    scene: Scene, database_url: str, key: str, tmp_path: Path
) -> None:
    config = tmp_path / "tocsin.toml"
    config.write_text(
        '[jobs."shipments.expire"]\nsource = "sql"\nsecrets = ["env:SHIPMENTS_TICK_SECRET"]\n'
        f'event_type = "shipment.expired"\npage_size = 100\nstatement = """{SHIPMENTS}"""\n'
    )
    await scene.shipments(5_000)
    await scene.subscriber("one", "http://127.0.0.1:9/")
    await scene.execute("UPDATE tocsin.lanes SET state = 'paused'")
    run = await scene.tick(shipments_job())
    async with WorkerProcess(database_url, key, tmp_path, config).running() as worker:
        await eventually(lambda: _found(scene, at_least=1), seconds=40)
        await worker.kill()
    assert not await _found(scene, at_least=5_000)
    await scene.expire_leases()
    assert await scene.discovery(shipments_job(page_size=100), worker="successor").once()
    view = await scene.run(run)
    assert (view.state, view.events, view.deliveries["total"]) == (RunState.COMPLETED, 5_000, 5_000)
    [row] = await scene.execute("SELECT count(*) AS n, count(DISTINCT subject) AS subjects FROM tocsin.events")
    assert (row.n, row.subjects) == (5_000, 5_000)


async def _found(scene: Scene, *, at_least: int) -> bool:
    [row] = await scene.execute("SELECT count(*) AS n FROM tocsin.events")
    return bool(row.n >= at_least)


async def _finish(scene: Scene) -> None:
    """A successor takes over what the dead worker left, and delivers it."""
    await scene.expire_leases()
    await scene.drain(scene.dispatcher("successor"))
    [row] = await scene.execute("SELECT count(*) AS n FROM tocsin.lanes WHERE leased <> 0")
    assert row.n == 0
