"""One database with a small Tocsin in it: subscribers, runs, and a backlog that is let go all at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any

from sqlalchemy import text
from uuid_utils.compat import uuid7

from bench import bodies
from bench.waiting import PATIENCE_SECONDS, until
from service.domain.model import RunId, RunSource
from service.domain.subscriber import Wanted
from service.flow import control_subscribers
from service.flow.doorbell import Doorbell
from service.flow.egress import Egress
from service.flow.vetting import Vetting
from service.store import events, runs
from service.store.database import Database
from service.store.fan_out import fan_out
from service.store.vault import Vault

LOOPBACK = "127.0.0.0/8"
JOB = "bench.tick"
RETENTION = "bench.retention"
_PAGE = 500
_LEASE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class House:
    """A database, and what it takes to put something into it. `subscribers` are named by the beginning of their id."""

    db: Database
    vault: Vault

    async def execute(self, statement: str, **values: object) -> Sequence[Any]:
        """Run one statement and commit; returns its rows."""
        async with self.db.begin() as tx:
            result = await tx.conn.execute(text(statement), values)
            return result.all() if result.returns_rows else []

    async def outside(self, statement: str) -> None:
        """Run what may not stand in a transaction, such as a VACUUM."""
        async with self.db.engine.connect() as connection:
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            await connection.execute(text(statement))

    async def subscribe(self, slug: str, url: str, **wanted: Any) -> None:
        """Register a subscriber, paused."""
        vetting = Vetting(Egress((ip_network(LOOPBACK),)), _LEASE_SECONDS)
        settings = {"event_types": (bodies.MEASURED,)} | wanted
        await control_subscribers.put_subscriber(
            self.db, Wanted(id=slug, url=url, **settings), actor="bench", vault=self.vault, vetting=vetting
        )
        await control_subscribers.pause_subscriber(self.db, slug, actor="bench", reason=None)

    async def discovered(self, count: int, type_: str = bodies.MEASURED) -> RunId:
        """A run whose events were found and are not fanned out yet."""
        run = RunId(uuid7())
        async with self.db.begin() as tx:
            await runs.claim(tx, id=run, job="bench", run_id=str(run), cutoff=tx.now, source=RunSource.OPERATOR)
            await runs.lease(tx, jobs=["bench"], worker="bench", seconds=_LEASE_SECONDS)
        for first in range(0, count, _PAGE):
            found = [bodies.event(number, type_) for number in range(first, min(first + _PAGE, count))]
            async with self.db.begin() as tx:
                await events.add(tx, found, run_id=run)
        return run

    async def fan_out(self, run: RunId) -> int:
        """Fan out a run as discovery does, a chunk a transaction; returns the number of deliveries."""
        made = 0
        while True:
            async with self.db.begin() as tx:
                chunk = await fan_out(tx, run)
            if not chunk.events:
                return made
            made += chunk.deliveries

    async def backlog(self, count: int, type_: str = bodies.MEASURED) -> RunId:
        """Deliveries of so many events to all who want them, by the run that it gives; with paused lanes they wait."""
        run = await self.discovered(count, type_)
        await self.fan_out(run)
        await self.complete(run)
        return run

    async def complete(self, run: RunId) -> None:
        """Have it that all of the run is fanned out, so that no worker looks for more."""
        await self.execute("UPDATE tocsin.runs SET state = 'completed', completed_at = now() WHERE id = :run", run=run)

    async def release(self, subscribers: str) -> None:
        """Let the lanes go, all at once, and ring."""
        await self.execute(
            "UPDATE tocsin.lanes SET state = 'active', next_due_at = now() WHERE subscriber IN "
            "(SELECT row FROM tocsin.subscribers WHERE starts_with(id, :subscribers))",
            subscribers=subscribers,
        )
        await Doorbell(self.db).ring()

    async def hold(self, subscribers: str) -> None:
        """Pause the lanes and wait until nothing of theirs is out."""
        await self.execute(
            "UPDATE tocsin.lanes SET state = 'paused' WHERE subscriber IN "
            "(SELECT row FROM tocsin.subscribers WHERE starts_with(id, :subscribers))",
            subscribers=subscribers,
        )
        await self.until("SELECT NOT EXISTS (SELECT FROM tocsin.lanes WHERE leased > 0)")

    async def settled(self, subscribers: str, *, patience: float = PATIENCE_SECONDS) -> None:
        """Wait until the database has the end of everything for these subscribers, for at most `patience` seconds."""
        await self.until(
            "SELECT NOT EXISTS (SELECT FROM tocsin.subscribers s CROSS JOIN LATERAL (SELECT FROM tocsin.deliveries d "
            "WHERE d.subscriber = s.row AND d.finished_at IS NULL "
            "ORDER BY d.queue, d.next_attempt_at, d.row LIMIT 1) x "
            "WHERE starts_with(s.id, :subscribers))",
            patience=patience,
            subscribers=subscribers,
        )

    async def until(self, question: str, *, patience: float = PATIENCE_SECONDS, **values: object) -> None:
        """Wait until the answer, the one value of one row, is true, for at most `patience` seconds."""

        async def answered() -> bool:
            return bool((await self.execute(question, **values))[0][0])

        await until(answered, question, patience=patience)

    async def keys(self, subscribers: str) -> set[str]:
        """The webhook-ids of everything that is for these subscribers."""
        rows = await self.execute(
            "SELECT d.event_id || ':' || s.id FROM tocsin.deliveries d JOIN tocsin.subscribers s "
            "ON s.row = d.subscriber WHERE starts_with(s.id, :subscribers)",
            subscribers=subscribers,
        )
        return {row[0] for row in rows}
