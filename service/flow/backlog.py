"""The backlog and its pace together: what waits, how fast it moves, and whether it will ever be gone."""

from dataclasses import dataclass

from service.domain.pace import Pace, Stalled
from service.store import backlog, pulse
from service.store.backlog import Backlog
from service.store.database import Database

SECONDS = 2.0
"""No look takes longer."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """How the backlog stands and moves."""

    stands: Backlog
    pace: Pace

    @property
    def drain_seconds(self) -> float | None:
        """When what is due will be gone at this pace; 0 where nothing is due, None for never."""
        return self.pace.drain_seconds(self.stands.remaining, paused=self.stands.dispatch_paused)

    @property
    def stalled(self) -> Stalled | None:
        """Why it will never be gone."""
        return self.pace.stalled(self.stands.remaining, paused=self.stands.dispatch_paused)


async def outlook(db: Database) -> Outlook:
    """How the backlog stands and moves now, in a bounded transaction of its own.

    Raises:
        Unavailable: the database is away, or has no answer within SECONDS.

    """
    async with db.bounded(seconds=SECONDS).begin() as tx:
        await backlog.plan(tx, SECONDS)
        stands = await backlog.read(tx)
        beat = await pulse.lately(tx)
    return Outlook(stands, Pace.of(beat.minutes, beat.arrived, beat.ended, beat.attempts))
