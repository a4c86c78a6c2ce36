"""The doorbell: wakes workers early when there is new work. It only hints; polling is the truth."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from service.domain.errors import Unavailable
from service.store.database import Database

log = structlog.get_logger()

RETRY_SECONDS = 2.0
"""How long to wait before listening again after the connection was lost."""

KEEPALIVE_SECONDS = 20.0

RING_SECONDS = 2.0
"""How long ringing may take: somebody waits for an answer, and the work is found without it."""


class Bell:
    """One listener's wake-up flag."""

    def __init__(self) -> None:
        """Start silent."""
        self._event = asyncio.Event()

    def ring(self) -> None:
        """Wake the listener now, or at its next wait."""
        self._event.set()

    async def wait(self, seconds: float) -> None:
        """Return when rung, at the latest after `seconds`; a ring that came meanwhile counts."""
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return
        finally:
            self._event.clear()


class Doorbell:
    """Rings every bell of every process on the same database."""

    def __init__(self, db: Database) -> None:
        """Use `db` to notify and to listen."""
        self._db = db
        self._ringer = db.bounded(seconds=RING_SECONDS)
        self._bells: set[Bell] = set()
        self.rings = 0
        """How often it rang for other processes."""

    @asynccontextmanager
    async def bell(self) -> AsyncIterator[Bell]:
        """A bell that rings along while the context lasts."""
        bell = Bell()
        self._bells.add(bell)
        try:
            yield bell
        finally:
            self._bells.discard(bell)

    async def ring(self) -> None:
        """Ring everywhere. Called after the commit of the work; a failure costs only the time to the next poll."""
        self._ring_here()
        try:
            await self._ringer.notify()
        except Unavailable:
            log.warning("doorbell.unreachable")
        else:
            self.rings += 1

    def _ring_here(self) -> None:
        for bell in self._bells:
            bell.ring()

    async def listen(self) -> None:
        """Pass rings of other processes on until cancelled; after a lost connection everyone looks once."""
        while True:
            try:
                await self._db.listen(self._ring_here, KEEPALIVE_SECONDS)
            except Unavailable:
                self._ring_here()
                await asyncio.sleep(RETRY_SECONDS)
