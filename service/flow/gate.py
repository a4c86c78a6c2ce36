"""The gate before each request that comes long after its claim: has the subscriber been paused meanwhile?"""

from time import monotonic

from service.domain.errors import Unavailable
from service.domain.model import SubscriberRow
from service.flow.flights import Flights
from service.store import lanes
from service.store.database import Database

NEWS_SECONDS = 0.25
"""What was read from the database is believed for so long; of a claim, that its lanes were open."""


class Gate:
    """One look at the database tells everyone who asks within the next moment."""

    def __init__(self, db: Database) -> None:
        """Nothing is known yet."""
        self._db = db
        self._looks: Flights[None, None] = Flights()
        self._held: frozenset[SubscriberRow] | None = None
        self._looked_at = float("-inf")

    async def is_open(self, subscriber: SubscriberRow) -> bool:
        """Whether something may be sent to it now; not while the database is away, since nobody knows then."""
        if monotonic() - self._looked_at > NEWS_SECONDS:
            try:
                await self._looks.join(None, self._look)
            except Unavailable:
                return False
        return self._held is not None and subscriber not in self._held

    async def _look(self) -> None:
        before = monotonic()
        async with self._db.ask() as tx:
            self._held = await lanes.held(tx)
        self._looked_at = before
