"""Drains in three shapes with one and two workers, and the floors beneath them: the same client without a database."""

import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack

from bench import cpu
from bench.house import House
from bench.processes import line_of, race, started
from bench.sizes import Sizes
from bench.stage import Build, Stage
from service.domain.model import Ordering

IN_FLIGHT = 64
"""Of each client process; a worker sends as many to one destination."""
MEASURED = "s-"
"""How the ids of the measured subscribers begin."""
_ACCOUNTED = ("wide", 2)
"""Of this drain it is told who used the processors."""


async def measure(stage: Stage, sizes: Sizes) -> None:
    """One round after another, so that whatever drifts reaches all of them."""
    await prepare(stage, sizes)
    for _ in range(sizes.drain_rounds):
        await floors(stage, sizes)
        for workers in sizes.workers:
            for shape in ("wide", "narrow", "strict"):
                await drain(stage, shape, workers)


async def prepare(stage: Stage, sizes: Sizes) -> None:
    """Make the backlogs."""
    await stage.template("wide", backlog(stage, sizes.wide))
    await stage.template("narrow", backlog(stage, sizes.narrow, max_concurrency=64))
    await stage.template("strict", backlog(stage, sizes.strict, ordering=Ordering.STRICT))


def backlog(stage: Stage, shape: tuple[int, int], **wanted: object) -> Build:
    """What makes so many subscribers, and so many events for all of them."""

    async def build(house: House) -> None:
        subscribers, events = shape
        for number in range(subscribers):
            await house.subscribe(f"{MEASURED}{number}", stage.receiver.url(number), **wanted)
        await house.backlog(events)

    return build


async def drain(stage: Stage, shape: str, workers: int) -> None:
    """Sample one drain, from the moment at which all of it is due until the last delivery is settled."""
    async with stage.copy(shape) as house, stage.workers(house, workers) as pids:
        before = _spent(stage, pids)
        done = await stage.drained(house, MEASURED)
        after = _spent(stage, pids)
    stage.note(f"drain-{shape}-{workers}", done.rate)
    if (shape, workers) == _ACCOUNTED:
        for who, used in after.items():
            stage.note(f"cpu-{who}", (used - before[who]) * 1e6 / done.deliveries)


def _spent(stage: Stage, workers: Sequence[int]) -> dict[str, float]:
    """Processor time used by those who take part, in seconds."""
    return {
        "workers": cpu.seconds(workers),
        "postgresql": cpu.seconds(cpu.family(stage.postmaster)),
        "receiver": cpu.seconds([stage.receiver.pid]),
    }


async def floors(stage: Stage, sizes: Sizes) -> None:
    """Sample what the client alone can do."""
    strict = sizes.strict[0] * sizes.strict[1]
    stage.note("floor-1", await _posted(stage, sizes.wide[0], sizes.posts, IN_FLIGHT, processes=1))
    stage.note("floor-2", await _posted(stage, sizes.wide[0], sizes.posts, IN_FLIGHT, processes=2))
    stage.note("floor-serial", await _posted(stage, 1, strict, 1, processes=1))


async def _posted(stage: Stage, subscribers: int, posts: int, in_flight: int, *, processes: int) -> float:
    """Posts a second of so many client processes together, warmed before."""
    urls = [stage.receiver.url(number) for number in range(subscribers)]
    async with AsyncExitStack() as stack:
        command = (sys.executable, "-m", "bench.client", *urls)
        clients = [await stack.enter_async_context(started(*command, pipes=True)) for _ in range(processes)]
        for client in clients:
            await line_of(client)
        return posts / await race(clients, f"{posts // processes} {in_flight}")
