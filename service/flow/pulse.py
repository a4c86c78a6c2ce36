"""Writes down what this process has counted since the last time, in the minute in which it does."""

from service.flow.counters import Counters
from service.store import pulse
from service.store.database import Database


class Pulse:
    """One process's part of the pulse. What could not be written is written the next time; a crash loses seconds."""

    def __init__(self, counters: Counters) -> None:
        """Write what `counters` hold; what they held before counts as written."""
        self._counters = counters
        self._written = counters.totals()

    async def write(self, db: Database) -> bool:
        """Add what is new; always False, because there is nothing to be gone on with.

        Raises:
            Unavailable: nothing was written.

        """
        totals = self._counters.totals()
        fresh = {what: n - self._written[what] for what, n in totals.items() if n > self._written[what]}
        if fresh:
            async with db.begin(timed=False) as tx:
                await pulse.add(tx, fresh)
            self._written = totals
        return False
