"""What receivers observe of three real worker processes at once: limits are exact, order holds, nobody starves."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from service.domain.model import Ordering
from service.store.database import Database
from service.store.vault import Vault, new_key
from tests.polling import eventually
from tests.receivers import HANG, Receiver, answer
from tests.scenes import Scene
from tests.workers import WorkerProcess

RATE = 20.0


async def test_three_processes_keep_every_limit_and_every_order(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    key = new_key()
    scene = Scene(database, vault=Vault([key]))
    async with AsyncExitStack() as stack:
        narrow, rated, strict, once = [
            await stack.enter_async_context(Receiver(then=answer(200, delay=0.005))) for _ in range(4)
        ]
        dead = await stack.enter_async_context(Receiver(then=HANG))
        await scene.subscriber("narrow", narrow.url, max_concurrency=3)
        await scene.subscriber("rated", rated.url, rate_per_second=RATE)
        await scene.subscriber("strict", strict.url, ordering=Ordering.STRICT)
        await scene.subscriber("once", once.url, idempotent=False)
        await scene.subscriber("dead", dead.url, timeout_seconds=30, max_concurrency=200)
        for n in range(60):
            await scene.event(f"e{n}", version=n)
        for _ in range(3):
            await stack.enter_async_context(WorkerProcess(database_url, key, tmp_path).running())
        wanted = dict.fromkeys((narrow, rated, strict, once), 60)
        await eventually(lambda: all(len(r.requests) == n for r, n in wanted.items()), seconds=50)
        assert narrow.peak <= 3
        assert once.peak == strict.peak == 1
        assert [r.body.split(b'"version":')[1].split(b",")[0] for r in strict.requests] == [
            str(n).encode() for n in range(60)
        ]
        arrivals = sorted(request.arrived for request in rated.requests)
        burst = max(1.0, RATE / 10)
        for first in range(len(arrivals)):
            for last in range(first, len(arrivals)):
                allowed = RATE * (arrivals[last] - arrivals[first]) + burst
                # A request may be late on its way, so that it comes closer to the next: by the loop's clock a little.
                assert last - first + 1 <= allowed + RATE * 0.25 + 1
        for receiver in wanted:
            assert len({request.header("webhook-id") for request in receiver.requests}) == 60


async def test_a_worker_told_to_stop_ends_in_time_and_gives_back_what_hangs(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    key = new_key()
    scene = Scene(database, vault=Vault([key]))
    async with Receiver(then=HANG) as receiver:
        await scene.subscriber("hangs", receiver.url, timeout_seconds=30)
        await scene.event()
        async with WorkerProcess(database_url, key, tmp_path, drain_seconds=1).running() as worker:
            await eventually(lambda: receiver.requests, seconds=40)
            assert await asyncio.wait_for(worker.stop(), 20) == 0
    [attempt] = await scene.evidence("hangs")
    assert (attempt.outcome, attempt.counted, attempt.state) == ("interrupted", False, "pending")
