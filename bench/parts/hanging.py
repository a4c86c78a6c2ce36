"""One subscriber of a hundred accepts and never answers: what the others notice of it."""

import asyncio

from bench.house import House
from bench.sizes import Sizes
from bench.stage import CONCURRENCY, Stage

_OTHERS, _HANGING = "s-", "hanging"
_TIMEOUT_SECONDS = 5.0
_HEADSTART_SECONDS = 1.5
"""By then the one that hangs has all the room that it gets, and counts as slow."""
_HELD = CONCURRENCY // 2
"""So many requests hang at once: half of the worker's, which is the most that it gives to one lane."""
_TYPE = "nobody.answers"


async def measure(stage: Stage, sizes: Sizes) -> None:
    """Take turns: with the hundredth paused, and with it hanging."""
    subscribers, events = sizes.others

    async def build(house: House) -> None:
        for number in range(subscribers):
            url = stage.receiver.url(number)
            await house.subscribe(f"{_OTHERS}{number}", url, timeout_seconds=_TIMEOUT_SECONDS)
        url = stage.receiver.silent_url
        await house.subscribe(
            _HANGING, url, timeout_seconds=_TIMEOUT_SECONDS, max_concurrency=_HELD, event_types=(_TYPE,)
        )
        await house.backlog(events)
        await house.backlog(2 * _HELD, _TYPE)

    await stage.template("hundred", build)
    for _ in range(sizes.rounds):
        await _sample(stage, "others-alone", hangs=False)
        await _sample(stage, "others-hanging", hangs=True)


async def _sample(stage: Stage, figure: str, *, hangs: bool) -> None:
    """One worker, in which the one that hangs may take the most room; it is stopped without waiting for that one."""
    async with stage.copy("hundred") as house, stage.workers(house, 1, TOCSIN_DRAIN_SECONDS="0"):
        if hangs:
            await house.release(_HANGING)
            await asyncio.sleep(_HEADSTART_SECONDS)
        stage.note(figure, (await stage.drained(house, _OTHERS)).rate)
