"""The gate before each request that comes long after its claim: is what was claimed still to be sent, and so?"""

from collections.abc import Sequence
from time import monotonic

from service.domain.errors import Unavailable
from service.domain.model import Claimed
from service.flow.flights import Flights
from service.store import deliveries
from service.store.database import Database

NEWS_SECONDS = 0.25
"""What was read from the database is believed for so long, and so is a claim."""


class Gate:
    """Stands before what was claimed together; one look at the database tells of all that waits behind it."""

    def __init__(self, db: Database, taken: Sequence[Claimed], claimed_at: float) -> None:
        """All of it may be sent, as of `claimed_at` by the monotonic clock."""
        self._db = db
        self._looks: Flights[None, None] = Flights()
        self._waiting = {claimed.row: claimed for claimed in taken}
        self._standing = set(self._waiting)
        self._looked_at = claimed_at

    async def lets(self, claimed: Claimed) -> bool:
        """Whether it may go out now, which is asked once of each; not while the database is away: nobody knows then."""
        if monotonic() - self._looked_at > NEWS_SECONDS:
            try:
                await self._looks.join(None, self._look)
            except Unavailable:
                return False
        del self._waiting[claimed.row]
        return claimed.row in self._standing

    async def _look(self) -> None:
        before = monotonic()
        async with self._db.ask() as tx:
            self._standing = await deliveries.standing(tx, list(self._waiting.values()))
        self._looked_at = before
