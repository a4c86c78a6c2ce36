"""Old things for the tests of retention: runs, events and deliveries that were made and finished days ago."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from service.domain.job import JobConfig
from service.domain.retention import first_id
from tests.scenes import Scene

_EVENT = """
    INSERT INTO tocsin.events (id, tenant_id, type, subject, version, topics, run_id, body, body_sha256, data_sha256,
        created_at, fanned_out_at)
    VALUES (:id, :tenant, 'a.b', :subject, 1, '{*}', :run, '{}', '', '', :made, :made)
"""
_DELIVERY = """
    INSERT INTO tocsin.deliveries (event_id, subscriber, run_id, state, order_key, deadline_at, created_at, finished_at)
    SELECT :event, s.row, :run, :state, :order_key, now() + interval '3 days', :made, :finished
      FROM tocsin.subscribers s WHERE s.id = :slug RETURNING row
"""
_EVIDENCE = """
    WITH tried AS (
        INSERT INTO tocsin.attempts (delivery, number, generation, lease_seq, outcome, counted, started_at, duration_ms,
            worker)
        SELECT :row, n, 1, n, 'delivered', true, now(), 1, 'w' FROM generate_series(1, 2) n)
    INSERT INTO tocsin.generations (delivery, generation, requested_by, reason, was_state)
    VALUES (:row, 2, 'ada', 'r', 'exhausted')
"""
_RUN = """
    INSERT INTO tocsin.runs (id, job, run_id, cutoff, source, state, discovered, claimed_at, completed_at)
    VALUES (:id, 'old', :run_id, :cutoff, 'hmac', :state, true, :made, :made)
"""


def retention_job(page_size: int = 500, **options: object) -> JobConfig:
    """A retention job; of the few things of a test any share may go."""
    return JobConfig(name="retain", source="retention", page_size=page_size, options={"max_share": 1, **options})


@dataclass(frozen=True, slots=True)
class Attic:
    """Puts old things into a scene; ages are days."""

    scene: Scene

    async def run(self, days: float, *, state: str = "completed", cutoff_days: float | None = None) -> UUID:
        """A run that ended so long ago."""
        made = _ago(days)
        cutoff = made if cutoff_days is None else _ago(cutoff_days)
        run = _id(made)
        await self.scene.execute(_RUN, id=run, run_id=str(run), cutoff=cutoff, state=state, made=made)
        return run

    async def event(
        self, subject: str, days: float, *, run: UUID | None = None, tenant: str = "default", **deliveries: str
    ) -> UUID:
        """An event made and finished so long ago, with a delivery in a state for each subscriber that is named."""
        made = _ago(days)
        event = _id(made)
        await self.scene.execute(_EVENT, id=event, tenant=tenant, subject=subject, run=run, made=made)
        for slug, state in deliveries.items():
            await self.delivery(event, slug, state, days, run=run)
        return event

    async def delivery(
        self,
        event: UUID,
        slug: str,
        state: str,
        days: float,
        *,
        finished_days: float | None = None,
        order_key: int | None = None,
        run: UUID | None = None,
    ) -> int:
        """A delivery with two attempts and a replay in its history; one that is pending has no end."""
        finished = None if state == "pending" else _ago(days if finished_days is None else finished_days)
        values = {"event": event, "slug": slug, "run": run, "state": state, "order_key": order_key}
        [(row,)] = await self.scene.execute(_DELIVERY, made=_ago(days), finished=finished, **values)
        await self.scene.execute(_EVIDENCE, row=row)
        return int(row)

    async def left(self) -> dict[str, int]:
        """How many rows each table has, and how many payloads there are."""
        tables = ("deliveries", "attempts", "generations", "events", "runs", "replays")
        counts = ", ".join(f"(SELECT count(*) FROM tocsin.{table}) AS {table}" for table in tables)
        [row] = await self.scene.execute(
            f"SELECT {counts}, (SELECT count(*) FROM tocsin.events WHERE body IS NOT NULL) AS payloads"
        )
        return dict(row._mapping)

    async def subjects(self, *, with_payload: bool = False) -> set[str]:
        """The subjects of the events that are left."""
        which = "WHERE body IS NOT NULL" if with_payload else ""
        return {row.subject for row in await self.scene.execute(f"SELECT subject FROM tocsin.events {which}")}


def _ago(days: float) -> datetime:
    return datetime.now(UTC) - timedelta(days=days)


def _id(moment: datetime) -> UUID:
    """A UUIDv7 of that time, as far as retention looks at it."""
    return UUID(int=first_id(moment).int | uuid4().int & (1 << 80) - 1)
