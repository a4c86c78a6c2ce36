"""The real thing that is held against the model: a database, the house's own functions, and a clock that is turned."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import DateTime, text
from uuid_utils.compat import uuid7

from service.domain.eventbody import compose
from service.domain.model import Answer, Claimed, EventId, Found, OnDeadLetter, Ordering, RunId, RunSource
from service.domain.subscriber import Wanted
from service.flow import control_replays, control_subscribers, replaying
from service.flow.attempt import Attempts, Clock
from service.flow.dispatch import _chains
from service.flow.outbound import Outbound
from service.flow.settler import Settler
from service.flow.vetting import Vetting
from service.store import deliveries, events, retention, runs
from service.store.database import Tx
from service.store.deliveries import Appetite
from service.store.fan_out import fan_out
from service.store.retention import Page
from service.store.settlements import Settled
from service.store.tables import metadata
from tests.model.parts import BACKOFF, BACKOFF_CAP, DEADLINE, LEASE, MAX_ATTEMPTS, Attempt, Lane
from tests.scenes import Scene

_FIRST_ID, _LAST_ID = UUID(int=0), UUID(int=2**128 - 1)
_TABLES = ("deliveries", "lanes", "events", "replays", "runs", "subscriber_secrets", "subscribers")
_EMPTIED = ("attempts", "generations", *_TABLES)


class Held(NamedTuple):
    """A chain of deliveries that one worker has leased and not settled, and the minute at which it did."""

    worker: str
    chain: Sequence[Outbound]
    at: float


class Row(NamedTuple):
    """A delivery as the database has it; times are in minutes from now, never earlier than now."""

    row: int
    slug: str
    state: str
    reason: str | None
    generation: int
    attempts: int
    tries: int
    queue: int
    chained: bool
    seq: int
    owner: str | None
    due: float | None
    """None where it has ended."""
    deadline: float | None


class Seen(NamedTuple):
    """All that is compared; `early` counts what is pending in runs that are said to be settled."""

    rows: dict[int, Row]
    lanes: dict[str, tuple[Any, ...]]
    attempts: list[Attempt]
    generations: dict[int, int]
    early: int


_MINUTES = "greatest(round((extract(epoch FROM {} - now()) / 60)::numeric), 0)::float8"
_ROWS = f"""
    SELECT d.row, s.id, d.state, d.reason, d.generation, d.attempt_count, d.generation_attempts, d.queue,
           d.order_key IS NOT NULL, d.lease_seq, d.lease_owner,
           CASE WHEN d.finished_at IS NOT NULL THEN NULL WHEN d.next_attempt_at = 'infinity' THEN 'Infinity'
                ELSE {_MINUTES.format("d.next_attempt_at")} END,
           CASE WHEN d.finished_at IS NULL THEN {_MINUTES.format("d.deadline_at")} END
      FROM tocsin.deliveries d JOIN tocsin.subscribers s ON s.row = d.subscriber ORDER BY d.row
"""
_LANES = f"""
    SELECT s.id, l.state, l.leased, l.leased_late, l.failures, l.ramp,
           CASE WHEN l.throttled_until > now() THEN {_MINUTES.format("l.throttled_until")} ELSE 0 END,
           CASE WHEN l.open_until > now() THEN {_MINUTES.format("l.open_until")} ELSE 0 END
      FROM tocsin.lanes l JOIN tocsin.subscribers s ON s.row = l.subscriber
"""
_ATTEMPTS = "SELECT delivery, number, generation, lease_seq, outcome, counted, late, worker FROM tocsin.attempts"

_GENERATIONS = "SELECT delivery, count(*) FROM tocsin.generations GROUP BY delivery"
_EARLY = (
    "SELECT d.row FROM tocsin.runs r JOIN tocsin.deliveries d ON d.run_id = r.id "
    "WHERE r.settled_at IS NOT NULL AND d.finished_at IS NULL"
)
_UNNOTED = (
    "SELECT r.id FROM tocsin.runs r WHERE r.settled_at IS NULL AND NOT EXISTS ("
    "SELECT FROM tocsin.deliveries d WHERE d.run_id = r.id AND d.finished_at IS NULL)"
)
_QUESTIONS = (_ROWS, _LANES, _ATTEMPTS, _GENERATIONS, _EARLY)

# The same choices have to lead to the same sequence each time: nothing may depend on which of equals comes first.
_AT_ONCE = """
    UPDATE tocsin.deliveries
       SET next_attempt_at = now() + make_interval(mins => round(extract(epoch FROM next_attempt_at - now()) / 60)::int)
     WHERE row = ANY(:rows) AND finished_at IS NULL AND lease_owner IS NULL AND next_attempt_at < 'infinity'
       AND next_attempt_at > now() - interval '30 seconds'
"""
_IN_LINE = "UPDATE tocsin.lanes SET claimed_at = timestamptz '2000-01-01' + make_interval(secs => subscriber)"


def _shift(minutes: int) -> list[str]:
    found = []
    for name in _TABLES:
        table = metadata.tables[f"tocsin.{name}"]
        columns = [column.name for column in table.columns if isinstance(column.type, DateTime)]
        changes = ", ".join(f"{column} = {column} - interval '{minutes} minutes'" for column in columns)
        found.append(f"UPDATE tocsin.{name} SET {changes}")
    return found


@dataclass
class Stage:
    """One scene, and what a worker does in it, taken apart into steps."""

    scene: Scene

    async def clear(self) -> None:
        """Forget the example before."""
        async with self.scene.db.begin() as tx:
            for table in _EMPTIED:
                await tx.conn.execute(text(f"DELETE FROM tocsin.{table}"))
            await tx.conn.execute(text("UPDATE tocsin.dispatch SET paused = false, reason = NULL, paused_by = NULL"))
        self.settler = Settler(self.scene.db, tell=lambda _: None)
        self.loader = self.scene.dispatcher()._loader

    async def put(self, lane: Lane) -> int:
        """Create or change a subscriber; returns its revision."""
        wanted = Wanted(
            id=lane.slug,
            url=f"http://127.0.0.1:{lane.port}/hook",
            event_types=("*",),
            idempotent=lane.idempotent,
            ordering=Ordering(lane.ordering),
            on_dead_letter=OnDeadLetter.BLOCK if lane.block else OnDeadLetter.SKIP,
            max_concurrency=lane.concurrency,
            rate_per_second=None if lane.rate is None else lane.rate / 60,
            max_attempts=MAX_ATTEMPTS,
            backoff_base_seconds=BACKOFF * 120,
            backoff_cap_seconds=BACKOFF_CAP * 120,
            deadline_seconds=DEADLINE * 60,
        )
        vetting = Vetting(self.scene.egress, LEASE * 60)
        shown = await control_subscribers.put_subscriber(
            self.scene.db, wanted, actor="model", vault=self.scene.vault, vetting=vetting
        )
        return shown.record.revision

    async def publish(self, subject: str, version: int) -> dict[str, int]:
        """Store an event, of a run where its subject is `a`, and fan it out; returns its deliveries by subscriber."""
        found = Found(type="shipment.expired", subject=subject, version=version, data='{"n":1.0}')
        async with self.scene.db.begin() as tx:
            event = compose(found, EventId(uuid7()), tx.now)
            run = await self._run(tx) if subject == "a" else None
            await events.add(tx, [event], run_id=run)
            while (await fan_out(tx, run)).events:
                pass
        rows = await self.scene.execute(
            "SELECT d.row, s.id FROM tocsin.deliveries d JOIN tocsin.subscribers s ON s.row = d.subscriber "
            "WHERE d.event_id = :event",
            event=event.id,
        )
        return {row.id: row.row for row in rows}

    async def _run(self, tx: Tx) -> RunId:
        run = RunId(uuid7())
        await runs.claim(tx, id=run, job="model", run_id=str(run), cutoff=tx.now, source=RunSource.HMAC)
        await tx.conn.execute(
            text("UPDATE tocsin.runs SET state = 'completed', completed_at = now() WHERE id = :run"), {"run": run}
        )
        return run

    async def pass_time(self, minutes: int) -> None:
        """Turn the clock: everything that was written down lies so much longer back."""
        async with self.scene.db.begin() as tx:
            for statement in _shift(minutes):
                await tx.conn.execute(text(statement))

    async def claim(self, worker: str, appetite: Appetite, at: float) -> list[Held]:
        """A worker leases what it can get."""
        async with self.scene.db.ask() as tx:
            await tx.conn.execute(text(_IN_LINE))
            claimed = await deliveries.claim(tx, appetite, worker=worker, lease_seconds=LEASE * 60)
        return await self._held(worker, claimed, at)

    async def lapse(self, worker: str, at: float) -> list[Held]:
        """A worker takes over whatever ran out."""
        async with self.scene.db.begin(timed=False) as tx:
            lapsed = await deliveries.lapse(tx, worker=worker, lease_seconds=LEASE * 60, lanes=64)
        return await self._held(worker, lapsed, at)

    async def _held(self, worker: str, claimed: Sequence[Claimed], at: float) -> list[Held]:
        return [Held(worker, chain, at) for chain in _chains(await self.loader.load(claimed))]

    async def attempt(self, held: Held, item: Outbound, answer: Answer | None, minutes: float) -> Settled:
        """What a worker settles after an answer that took so long; None puts it back unsent, as behind a failure."""
        claimed = item.claimed
        attempts = Attempts(self.scene.egress, held.worker, draw=lambda: 0.5)
        clock = Clock(claimed.leased_at, monotonic() - minutes * 60, LEASE * 60)
        if answer is None:
            return attempts.put_back(claimed, clock)
        if claimed.lapsed is not None or not item.body or claimed.seconds_left <= 0:
            return await attempts.make(item, clock)
        return attempts._settled(item, answer, clock, 0.0)

    async def settle(self, ended: Sequence[Settled]) -> None:
        """Hand results over and have them written; what then is due at the same time is so to the microsecond."""
        for each in ended:
            self.settler.put(each)
        await self.settler.flush()
        await self.scene.execute(_AT_ONCE, rows=[each.claimed.row for each in ended])

    async def chunk(self) -> None:
        """Release the next of a bulk replay, which is known to be due."""
        assert await replaying.once(self.scene.db, self.scene.doorbell)

    async def stop_replay(self, replay: UUID) -> None:
        """Cancel a bulk replay."""
        await control_replays.cancel_replay(self.scene.db, replay, actor="model", reason="enough")

    async def sweep(self, age: int, limit: int) -> None:
        """Retention's walk over deliveries, page by page."""
        after: Sequence[Any] | None = [0]
        while after is not None:
            async with self.scene.db.begin() as tx:
                page = Page(tx.now - timedelta(minutes=age), after, limit)
                after = (await retention.delete_deliveries(tx, page)).after

    async def purge(self, age: int) -> None:
        """Retention's walk over payloads, in one page."""
        async with self.scene.db.begin() as tx:
            page = Page(tx.now - timedelta(minutes=age), [str(_FIRST_ID)], 1000)
            found = await retention.payloads(tx, page, upto=_LAST_ID)
            await retention.purge_payloads(tx, await retention.lock_payloads(tx, found.events), page.boundary)

    async def still_probes(self, slugs: Collection[str]) -> None:
        """Take the jitter out of a probe's pause: it is a minute."""
        await self.scene.execute(
            "UPDATE tocsin.lanes SET open_until = now() + interval '1 minute' "
            "FROM tocsin.subscribers s WHERE s.row = subscriber AND s.id = ANY(:slugs)",
            slugs=list(slugs),
        )

    async def fail_nine_times(self, slug: str) -> None:
        """As if nine requests had failed in a row."""
        await self.scene.execute(
            "UPDATE tocsin.lanes SET failures = 9, failing_since = now() "
            "FROM tocsin.subscribers s WHERE s.row = subscriber AND s.id = :slug",
            slug=slug,
        )

    async def seen(self) -> Seen:
        """Everything as it stands."""
        async with self.scene.db.ask() as tx:
            rows, lanes, attempts, generations, early = [
                (await tx.conn.execute(text(question))).all() for question in _QUESTIONS
            ]
        return Seen(
            {row.row: Row(*row) for row in rows},
            {row[0]: tuple(row[1:]) for row in lanes},
            sorted(Attempt(*row) for row in attempts),
            {row[0]: row[1] for row in generations},
            len(early),
        )

    async def unnoted(self) -> int:
        """How many runs have ended in every delivery and are not said to be settled."""
        return len(await self.scene.execute(_UNNOTED))
