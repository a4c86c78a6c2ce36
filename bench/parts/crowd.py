"""Two thousand subscribers, each with hundreds of events due: what their number and the depth cost."""

from time import monotonic

from bench.house import House
from bench.parts.drains import MEASURED
from bench.sizes import Sizes
from bench.stage import Stage
from bench.waiting import Failed

_WORKERS = 2
_PATIENCE_SECONDS = 600.0
"""A million deliveries take minutes; what takes longer than this has come to a stand."""


async def measure(stage: Stage, sizes: Sizes) -> None:
    """The long backlog once, between two short ones."""
    subscribers, events = sizes.crowd

    async def build(house: House) -> None:
        for number in range(subscribers):
            await house.subscribe(f"{MEASURED}{number}", stage.receiver.url(number))

    await stage.template("crowd", build)
    await _short(stage, subscribers, sizes.crowd_short)
    async with stage.copy("crowd") as house:
        stage.note("crowd-fan-out", await _fanned_out(house, subscribers, events))
        stage.note("crowd-long", await _drained(stage, house))
    await _short(stage, subscribers, sizes.crowd_short)


async def _short(stage: Stage, subscribers: int, events: int) -> None:
    async with stage.copy("crowd") as house:
        await _fanned_out(house, subscribers, events)
        stage.note("crowd-short", await _drained(stage, house))


async def _fanned_out(house: House, subscribers: int, events: int) -> float:
    """Deliveries that were made a second; their lanes are paused."""
    run = await house.discovered(events)
    began = monotonic()
    made = await house.fan_out(run)
    seconds = monotonic() - began
    if made != subscribers * events:
        raise Failed(f"fan-out made {made} deliveries instead of {subscribers * events}")
    await house.complete(run)
    await house.outside("VACUUM ANALYZE")  # as every other backlog is before its drain
    return made / seconds


async def _drained(stage: Stage, house: House) -> float:
    """Deliveries a second."""
    async with stage.workers(house, _WORKERS):
        return (await stage.drained(house, MEASURED, patience=_PATIENCE_SECONDS)).rate
