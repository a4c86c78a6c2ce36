"""A database that goes away: workers wait and go on by themselves, and nothing is lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncEngine

from service.domain.errors import Unavailable
from service.flow.dispatch import Limits
from service.store.database import Database
from tests.polling import eventually
from tests.receivers import Receiver, answer
from tests.scenes import Scene, shipments_job


@asynccontextmanager
async def away(admin: AsyncEngine, database_url: str) -> AsyncIterator[None]:
    """Every connection is cut and no new one is let in, as in a failover; afterwards the database is back."""
    name = make_url(database_url).database
    async with admin.connect() as conn:
        await conn.execute(text(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false"))
        await conn.execute(
            text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name"), {"name": name}
        )
        try:
            yield
        finally:
            await conn.execute(text(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true"))


async def test_a_lost_database_is_unavailable_and_comes_back_by_itself(
    database: Database, database_url: str, admin: AsyncEngine
) -> None:
    scene = Scene(database)
    await scene.execute("SELECT 1")
    async with away(admin, database_url):
        for _ in range(3):
            with pytest.raises(Unavailable):
                await scene.execute("SELECT 1")
    assert await scene.execute("SELECT 1")


async def test_workers_go_on_after_an_outage_and_lose_nothing(
    database: Database, database_url: str, admin: AsyncEngine
) -> None:
    scene, job = Scene(database, Limits(concurrency=16, claim_batch=8)), shipments_job(page_size=20)
    release = asyncio.Event()
    async with Receiver(*[answer(200)] * 20, *[answer(200, hold=release)] * 8, then=answer(200)) as receiver:
        await scene.shipments(60)
        await scene.subscriber("one", receiver.url)
        run = await scene.tick(job)
        stop = asyncio.Event()
        worker = asyncio.create_task(scene.worker(job).run(stop))
        await eventually(lambda: receiver.inflight >= 8, seconds=30)
        async with away(admin, database_url):
            release.set()  # the answers come in while there is nowhere to write them
            await eventually(lambda: receiver.inflight == 0, seconds=30)
        await eventually(lambda: _settled(scene), seconds=30)
        stop.set()
        await worker
    view = await scene.run(run)
    assert view.settled
    assert view.deliveries["delivered"] == 60
    assert {row.outcome for row in await scene.evidence("one")} == {"delivered"}
    assert len({request.header("webhook-id") for request in receiver.requests}) == len(receiver.requests) == 60


async def _settled(scene: Scene) -> bool:
    try:
        return (await scene.states()).get("delivered") == 60
    except Unavailable:
        return False  # a connection of the pool that the outage cut, and that nobody has used since


async def test_no_time_limit_that_the_database_sets_for_others_cuts_off_a_statement(
    database: Database, database_url: str, admin: AsyncEngine
) -> None:
    async with admin.connect() as conn:
        await conn.execute(text(f"ALTER DATABASE {make_url(database_url).database} SET statement_timeout = '1ms'"))
    assert await Scene(database).execute("SELECT pg_sleep(0.05)")
