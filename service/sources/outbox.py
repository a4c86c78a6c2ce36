"""Source `outbox`: events that were published ahead of time and are due at the cutoff."""

from service.domain.job import JobConfig
from service.domain.model import Found, LeasedRun
from service.store import events
from service.store.database import Tx


class OutboxSource:
    """Adopts stored events whose `dueAt` is at or before the run's cutoff and that belong to no run yet."""

    def __init__(self, job: JobConfig) -> None:
        """Take any job: the outbox has no options."""

    async def discover(self, tx: Tx, run: LeasedRun, limit: int) -> list[Found]:
        """Adopt the next due events, oldest due first."""
        return [
            Found(event.type, event.subject, event.version, data="", tenant_id=event.tenant_id, event_id=event.id)
            for event in await events.adopt(tx, run.id, run.cutoff, limit)
        ]
