"""The worker: discovery, dispatch and upkeep side by side, until it is told to stop."""

import asyncio
import contextlib
import gc
from collections.abc import Awaitable, Callable
from functools import partial
from time import monotonic
from typing import TypeVar

import structlog

from service.domain.errors import Unavailable
from service.flow import replaying, upkeep
from service.flow.discovery import Discovery
from service.flow.dispatch import POLL_SECONDS, Dispatcher
from service.flow.doorbell import Bell, Doorbell
from service.flow.pulse import Pulse
from service.store.database import Database

log = structlog.get_logger()

T = TypeVar("T")

TIDYING = (
    upkeep.note_settled,
    upkeep.purge_idempotency,
    upkeep.purge_pulse,
    upkeep.cancel_deleted,
    upkeep.disable_failing,
    upkeep.mend_lanes,
)
BROKEN_SECONDS = 1.0

GATHER_SECONDS = 0.02
"""A worker that has claimed claims again after this, or when the results of a quarter of its requests are written."""
GC_THRESHOLD = 50_000
"""New objects between two looks for cycles, of which deliveries make none; CPython looks every 700."""
TIDY_SECONDS = 5.0
"""The pace of upkeep that nobody waits for, and of the pulse."""
LAST_BEAT_SECONDS = 1.0


class Worker:
    """One process's share of the work; any number of workers may run on one database."""

    def __init__(self, db: Database, doorbell: Doorbell, discovery: Discovery, dispatcher: Dispatcher) -> None:
        """Wire the parts of one worker; each of them is its own."""
        self._db = db
        self._doorbell = doorbell
        self._discovery = discovery
        self._dispatcher = dispatcher
        self._away = False
        self._counters = dispatcher.settler.counters
        self._pulse = Pulse(self._counters)

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set; then claim nothing more, let what is in flight finish, and give back the rest."""
        # What is loaded by now stays: the collector need not walk it again and again.
        gc.freeze()
        gc.set_threshold(GC_THRESHOLD)
        published = partial(upkeep.fan_out_published, self._db, self._doorbell, self._counters)
        replayed = partial(replaying.once, self._db, self._doorbell, self._counters)
        expired = partial(upkeep.expire_overdue, counters=self._counters)
        async with asyncio.TaskGroup() as group:
            settling = group.create_task(self._dispatcher.settler.run())
            beside = [
                group.create_task(self._doorbell.listen()),
                group.create_task(self._repeat(self._discovery.once, POLL_SECONDS, stop)),
                group.create_task(self._repeat(published, POLL_SECONDS, stop)),
                group.create_task(self._repeat(replayed, POLL_SECONDS, stop)),
                *(group.create_task(self._tidy(once, stop)) for once in (*TIDYING, expired, self._pulse.write)),
            ]
            await self._dispatch(stop)
            for task in beside:
                task.cancel()
            await self._dispatcher.land()  # what lands meanwhile is still settled, so that its lanes have room
            settling.cancel()
        await self._dispatcher.settle_the_rest()
        await self._last_beat()

    async def _last_beat(self) -> None:
        """Write the last seconds of the pulse, unless the database keeps us waiting."""
        with contextlib.suppress(Unavailable):
            await self._pulse.write(self._db.bounded(seconds=LAST_BEAT_SECONDS))

    async def _repeat(self, once: Callable[[], Awaitable[bool]], rest_seconds: float, stop: asyncio.Event) -> None:
        """Call `once` as long as it finds something; then rest until rung."""
        async with self._doorbell.bell() as bell:
            while not stop.is_set():
                if not await self._reachable(once, default=False):
                    await bell.wait(rest_seconds)

    async def _tidy(self, once: Callable[[Database], Awaitable[bool]], stop: asyncio.Event) -> None:
        """The same at a slow pace, for what no bell is rung for."""
        unrung = Bell()
        while not stop.is_set():
            if not await self._reachable(partial(once, self._db), default=False):
                await unrung.wait(TIDY_SECONDS)

    async def _gather(self, bell: Bell) -> None:
        """Let enough results be written for the next claim to be a batch; the settler rings with each of its own."""
        patience = monotonic() + GATHER_SECONDS
        enough = self._dispatcher.flights // 4
        while self._dispatcher.settler.freed < enough and (left := patience - monotonic()) > 0:
            await bell.wait(left)

    async def _reachable(self, call: Callable[[], Awaitable[T]], default: T) -> T:
        """What the call returns; `default` while the database is away: the worker waits and goes on by itself."""
        try:
            result = await call()
        except Unavailable as error:
            if not self._away:
                log.warning("database.away", detail=error.detail)
            self._away = True
            return default
        except Exception:
            # Nothing that goes wrong once may end the worker: what is left behind lapses, and is tried again.
            log.exception("worker.broken")
            await asyncio.sleep(BROKEN_SECONDS)
            return default
        if self._away:
            log.info("database.back")
        self._away = False
        return result

    async def _dispatch(self, stop: asyncio.Event) -> None:
        async with self._doorbell.bell() as bell:
            self._dispatcher.settler.flushed = bell.ring
            ringer = asyncio.create_task(_ring_when_set(stop, bell))
            while not stop.is_set():
                await self._turn(bell)
            ringer.cancel()

    async def _turn(self, bell: Bell) -> None:
        room = min(self._dispatcher.room, self._dispatcher.limits.claim_batch)
        taken = await self._reachable(partial(self._dispatcher.take, room), default=0) if room > 0 else 0
        if taken:
            await self._gather(bell)
        else:
            await bell.wait(await self._reachable(self._dispatcher.seconds_to_next, default=POLL_SECONDS))


async def _ring_when_set(stop: asyncio.Event, bell: Bell) -> None:
    await stop.wait()
    bell.ring()
