"""A small Tocsin on a test's database: subscribers, runs, and a worker's parts that a test turns by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import ip_network
from typing import Any

from sqlalchemy import text
from uuid_utils.compat import uuid7

from service.domain.eventbody import compose
from service.domain.job import JobConfig
from service.domain.knocks import Knock
from service.domain.model import EventId, Found, RunId, RunSource
from service.domain.subscriber import Wanted
from service.flow import control_subscribers, intake
from service.flow.attempt import Attempts
from service.flow.discovery import Discovery
from service.flow.dispatch import Dispatcher, Limits
from service.flow.doorbell import Doorbell
from service.flow.egress import Egress
from service.flow.outbound import Loader
from service.flow.settler import Settler
from service.flow.vetting import Vetting
from service.flow.worker import Worker
from service.sources import load
from service.store import events, views, views_deliveries
from service.store.database import Database
from service.store.fan_out import fan_out
from service.store.vault import Vault, new_key
from service.store.views import Page, RunView
from service.store.views_deliveries import Sought
from service.store.views_delivery import DeliveryView

LOOPBACK = (ip_network("127.0.0.0/8"), ip_network("::1/128"))

SHIPMENTS = """
  UPDATE shipments SET status = 'expired', version = version + 1
   WHERE id IN (SELECT id FROM shipments WHERE status = 'active' AND expires_at <= :cutoff
                 ORDER BY expires_at LIMIT :limit FOR UPDATE SKIP LOCKED)
  RETURNING tenant_id, id AS subject, version, jsonb_build_object('shipmentId', id, 'status', status) AS data
"""


def shipments_job(**changes: Any) -> JobConfig:
    """The job of the examples, with changes."""
    values: dict[str, Any] = {
        "name": "shipments.expire",
        "source": "sql",
        "secrets": (b"a-tick-secret-of-tests",),
        "event_type": "shipment.expired",
        "statement": SHIPMENTS,
        "page_size": 500,
    }
    return JobConfig(**(values | changes))


@dataclass
class Scene:
    """One database with everything that a test needs around it; `limits` are those of the workers it makes."""

    db: Database
    limits: Limits = field(default_factory=Limits)
    vault: Vault = field(default_factory=lambda: Vault([new_key()]))
    egress: Egress = field(default_factory=lambda: Egress(LOOPBACK, ()))

    def __post_init__(self) -> None:
        """Hang up the doorbell."""
        self.doorbell = Doorbell(self.db)

    async def subscriber(self, slug: str, url: str, **wanted: Any) -> str:
        """Create a subscriber; returns its secret."""
        settings: dict[str, Any] = {"event_types": ("*",), "backoff_base_seconds": 0.01, "backoff_cap_seconds": 0.02}
        shown = await control_subscribers.put_subscriber(
            self.db,
            Wanted(id=slug, url=url, **(settings | wanted)),
            actor="test",
            vault=self.vault,
            vetting=Vetting(self.egress, self.limits.lease_seconds),
        )
        assert shown.secret is not None
        return shown.secret

    async def shipments(self, count: int, *, status: str = "active") -> None:
        """Make the shipments table with `count` rows that expired an hour ago."""
        await self.execute(
            "CREATE TABLE IF NOT EXISTS shipments (id text PRIMARY KEY, tenant_id text NOT NULL DEFAULT 'default', "
            "status text NOT NULL, version bigint NOT NULL DEFAULT 1, expires_at timestamptz NOT NULL)"
        )
        await self.execute(
            "INSERT INTO shipments (id, status, expires_at) SELECT 'ship-' || n, :status, now() - interval '1 hour' "
            "FROM generate_series(1, :count) n",
            status=status,
            count=count,
        )

    async def execute(self, statement: str, **values: object) -> Sequence[Any]:
        """Run one statement and commit; returns its rows."""
        async with self.db.begin() as tx:
            result = await tx.conn.execute(text(statement), values)
            return result.all() if result.returns_rows else []

    async def tick(self, job: JobConfig, run_id: str = "r1", cutoff: datetime | None = None) -> RunId:
        """Claim a run as an accepted tick does."""
        if cutoff is None:
            async with self.db.begin() as tx:
                cutoff = tx.now
        accepted = await intake.claim(self.db, self.doorbell, job, Knock(run_id, cutoff), RunSource.HMAC)
        return accepted.run.id

    def discovery(self, *jobs: JobConfig, worker: str = "w1") -> Discovery:
        """A worker's discovery of these jobs."""
        configured: Mapping[str, JobConfig] = {job.name: job for job in jobs}
        return Discovery(
            self.db, self.doorbell, configured, load(jobs), worker, lease_seconds=self.limits.lease_seconds
        )

    def dispatcher(self, worker: str = "w1") -> Dispatcher:
        """A worker's dispatcher; without jitter, so that a retry is due after the whole backoff."""
        return Dispatcher(
            self.db,
            Loader(self.db, self.vault),
            Attempts(self.egress, worker, draw=lambda: 0.999),
            Settler(self.db),
            worker=worker,
            limits=self.limits,
        )

    def worker(self, *jobs: JobConfig, name: str = "w1") -> Worker:
        """A whole worker."""
        return Worker(self.db, self.doorbell, self.discovery(*jobs, worker=name), self.dispatcher(name))

    async def event(self, subject: str = "ship-1", type_: str = "shipment.expired", version: int = 1) -> EventId:
        """Store an event and fan it out to the subscribers there are."""
        found = Found(type=type_, subject=subject, version=version, data='{"n":1.0}')
        async with self.db.begin() as tx:
            event = compose(found, EventId(uuid7()), tx.now)
            await events.add(tx, [event])
            while (await fan_out(tx, None)).events:
                pass
        return event.id

    async def make_due(self) -> None:
        """Turn the clock: whatever waits for a retry, behind a throttle or behind an open lane is due now.

        What waits for its predecessor still waits.
        """
        await self.execute(
            "UPDATE tocsin.deliveries SET next_attempt_at = now() "
            "WHERE finished_at IS NULL AND lease_owner IS NULL AND next_attempt_at < 'infinity'"
        )
        await self.execute("UPDATE tocsin.lanes SET next_due_at = now(), throttled_until = now(), open_until = now()")

    async def expire_leases(self) -> None:
        """Turn the clock: every lease ran out a second ago."""
        await self.execute(
            "UPDATE tocsin.deliveries SET lease_expires_at = now() - interval '1 second' WHERE lease_owner IS NOT NULL"
        )
        await self.execute("UPDATE tocsin.lanes SET lapse_at = now() - interval '1 second' WHERE leased > 0")
        await self.execute(
            "UPDATE tocsin.runs SET lease_expires_at = now() - interval '1 second' WHERE state = 'running'"
        )

    async def run(self, run: RunId) -> RunView:
        """A run as the API shows it."""
        async with self.db.begin() as tx:
            view = await views.run(tx, run)
        assert view is not None
        return view

    async def evidence(self, slug: str) -> list[Any]:
        """The attempts at a subscriber's deliveries, in the order in which they were written."""
        return list(
            await self.execute(
                "SELECT a.*, d.state, d.lease_seq AS fence FROM tocsin.attempts a "
                "JOIN tocsin.deliveries d ON d.row = a.delivery JOIN tocsin.subscribers s ON s.row = d.subscriber "
                "WHERE s.id = :slug ORDER BY a.id",
                slug=slug,
            )
        )

    async def views(self, slug: str) -> list[DeliveryView]:
        """A subscriber's deliveries as the API shows them, oldest first."""
        async with self.db.begin() as tx:
            page = await views_deliveries.page_of(tx, Sought(subscriber_id=slug), Page(100))
        return page[::-1]

    async def states(self) -> dict[str, int]:
        """How many deliveries are in each stored state."""
        rows = await self.execute("SELECT state, count(*) AS n FROM tocsin.deliveries GROUP BY state")
        return {row.state: row.n for row in rows}

    async def drain(self, dispatcher: Dispatcher, *, turns: int = 50) -> None:
        """Turn the dispatcher and the clock until nothing is pending."""
        for _ in range(turns):
            await dispatcher.once()
            if not (await self.states()).get("pending"):
                return
            await self.make_due()
        raise AssertionError(await self.states())
