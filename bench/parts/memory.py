"""What a worker needs in RAM with a million deliveries due, beside a thousand."""

import asyncio

from bench import history
from bench.house import House
from bench.machine import resident_mb
from bench.sizes import Sizes
from bench.stage import SHIPPED, Stage


async def measure(stage: Stage, sizes: Sizes) -> None:
    """Take turns. The long backlog goes down by a few per cent over the rounds."""
    await history.backlog(stage, "backlog_short", sizes.short_backlog)
    await history.backlog(stage, "backlog_long", sizes.backlog)
    async with stage.house("backlog_long") as long:
        for _ in range(sizes.rounds):
            async with stage.copy("backlog_short") as short:
                stage.note("memory-short", await _worked(stage, short, sizes.work_seconds))
            stage.note("memory-long", await _worked(stage, long, sizes.work_seconds))
            await long.hold("s-")


async def _worked(stage: Stage, house: House, seconds: float) -> float:
    """The worker's memory after so many seconds of work, with the settings as shipped."""
    async with stage.workers(house, 1, **SHIPPED) as [pid]:
        await house.release("s-")
        await asyncio.sleep(seconds)
        return resident_mb(pid)
