"""Plan guards: at a million finished rows every hot statement walks index ranges and touches rows by the batch.

The plans are those of the very statements that the product runs, caught by `auto_explain` as they are executed.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from service.domain.model import Answer, Claimed, DeliveryState, EventId, Outcome, RunId, Settlement, SubscriberRow
from service.domain.states import DEAD_LETTERS
from service.store import (
    backlog,
    chains,
    deliveries,
    endings,
    gauges,
    lanes,
    retention,
    runs,
    selections,
    settlements,
    views,
    views_deliveries,
    views_lanes,
)
from service.store.database import Database, Tx
from service.store.deliveries import Appetite
from service.store.settlements import Settled
from service.store.views import Page
from service.store.views_deliveries import Sought

BATCH = 100
LANES = [SubscriberRow(row) for row in range(1201, 1251)]
BIG = ("deliveries", "attempts")

# Every delivery is of one of 1,000 events: subscribers 1-1000 are through with them, 1001-1200 get them tomorrow,
# 1201-1400 are paused, 1401 is a strict lane, and 50 more are due.
_FILL = [
    """
    INSERT INTO tocsin.subscribers (id, tenant_id, url, event_types, mode, idempotent, ordering, on_dead_letter,
        max_concurrency, timeout_seconds, max_attempts, backoff_base_seconds, backoff_cap_seconds, deadline_seconds,
        headers)
    SELECT 's' || n, 'default', 'http://127.0.0.1:9/', '{other.*}', 'live', true,
           CASE WHEN n = 1401 THEN 'strict' ELSE 'none' END, 'block', 16, 15, 8, 1, 900, 259200, '{}'
      FROM generate_series(1, 1451) n
    """,
    """
    INSERT INTO tocsin.lanes (subscriber, max_concurrency, state, next_due_at, origin, ordering)
    SELECT row, 16, CASE WHEN row BETWEEN 1201 AND 1400 THEN 'paused' ELSE 'active' END,
           CASE WHEN row <= 1000 THEN 'infinity' WHEN row <= 1200 THEN now() + interval '1 day' ELSE now() END,
           'o' || row, ordering
      FROM tocsin.subscribers
    """,
    """
    INSERT INTO tocsin.runs (id, job, run_id, cutoff, source, state)
    SELECT lpad(to_hex(n), 32, '0')::uuid, 'j', n::text, now(), 'hmac', 'completed' FROM generate_series(1, 2000) n
    """,
    """
    INSERT INTO tocsin.events (id, tenant_id, type, subject, version, topics, body, body_sha256, data_sha256,
        fanned_out_at)
    SELECT lpad(to_hex(n), 32, '0')::uuid, 'default', 'a.b', 's' || n, 1, '{*}', '{}', '', '', now()
      FROM generate_series(1, 1000) n
    """,
    """
    INSERT INTO tocsin.deliveries (event_id, subscriber, run_id, state, next_attempt_at, deadline_at, finished_at,
        order_key)
    SELECT lpad(to_hex(n), 32, '0')::uuid, s, lpad(to_hex((n + s) % 2000 + 1), 32, '0')::uuid, k.state,
           CASE WHEN k.order_key = 0 AND n > 1 THEN 'infinity' ELSE now() + k.due * interval '1 second' END,
           now() + interval '3 days',
           CASE WHEN k.state <> 'pending' THEN now() END, k.order_key
      FROM (VALUES (1, 1000, 'delivered', 0, NULL::bigint), (1001, 1200, 'pending', 86400, NULL),
                   (1201, 1400, 'pending', 0, NULL), (1401, 1401, 'pending', 0, 0), (1402, 1451, 'pending', 0, NULL))
           AS k (first, last, state, due, order_key)
     CROSS JOIN LATERAL generate_series(k.first, k.last) s CROSS JOIN generate_series(1, 1000) n
    """,
    # A type and a reason that few have, and a type that many have, none of them in the newer half.
    "UPDATE tocsin.events SET type = 'rare' WHERE subject = 's7'",
    "UPDATE tocsin.events SET type = 'over' WHERE subject IN (SELECT 's' || n FROM generate_series(21, 60) n)",
    "UPDATE tocsin.deliveries SET reason = 'shadow' WHERE row IN (5, 50000, 500000)",
    """
    DELETE FROM tocsin.deliveries d USING tocsin.events e
     WHERE e.id = d.event_id AND e.type = 'over' AND d.row > (SELECT max(row) / 2 FROM tocsin.deliveries)
    """,
    """
    INSERT INTO tocsin.attempts (delivery, number, generation, lease_seq, outcome, counted, status, started_at,
        duration_ms, worker)
    SELECT row, 1, 1, 1, 'delivered', true, 200, now(), 1, 'w' FROM tocsin.deliveries WHERE state = 'delivered'
    """,
]

RUN = RunId(UUID(int=77))


@dataclass
class Plans:
    """The plans that were caught, by the step during which their statement ran."""

    caught: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    step: str = ""

    async def begin(self, tx: Tx, step: str) -> None:
        """Let the plans of the last step come in, which the driver hands over behind its answer; then begin another."""
        await tx.conn.execute(text("SELECT 1"))
        self.step = step

    def heard(self, _connection: object, message: Any) -> None:
        """Keep a plan that the server reports."""
        _, _, plan = str(message.message).partition("plan:")
        if plan:
            self.caught.append((self.step, json.loads(plan)["Plan"]))


@asynccontextmanager
async def explained(database: Database, plans: Plans) -> AsyncIterator[Tx]:
    """A transaction that is rolled back, in which every statement's plan is caught with the rows it really touched."""
    async with database.engine.connect() as conn:
        driver: Any = (await conn.get_raw_connection()).driver_connection
        for setting in ("log_min_duration = 0", "log_analyze = on", "log_timing = off", "log_format = json"):
            await conn.execute(text("LOAD 'auto_explain'"))
            await conn.execute(text(f"SET auto_explain.{setting}"))
        await conn.execute(text("SET client_min_messages = log"))
        driver.add_log_listener(plans.heard)
        now = (await conn.execute(text("SELECT now()"))).scalar_one()
        yield Tx(conn, now)
        driver.remove_log_listener(plans.heard)
        await conn.rollback()
        await conn.invalidate()  # its settings must not meet anybody else


def touched(plan: dict[str, Any]) -> dict[str, int]:
    """How many rows of the big tables a plan read, found or not; a sequential scan counts as the whole table."""
    rows: dict[str, int] = {}
    for node in _nodes(plan):
        table = node.get("Relation Name")
        if table not in BIG or node["Node Type"] == "ModifyTable":
            continue
        removed = sum(value for name, value in node.items() if name.startswith("Rows Removed"))
        if node["Node Type"] == "Seq Scan":
            removed = 10**9
        rows[table] = rows.get(table, 0) + int((node["Actual Rows"] + removed) * node["Actual Loops"])
    return rows


def _nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for child in plan.get("Plans", []) for node in _nodes(child))]


async def _fill(database: Database) -> None:
    """Fill the tables with their indexes put aside, which is several times as fast."""
    async with database.begin() as tx:
        aside = (
            await tx.conn.execute(
                text(
                    "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'tocsin' "
                    "AND tablename IN ('deliveries', 'attempts') AND indexname LIKE 'ix%'"
                )
            )
        ).all()
        for index in aside:
            await tx.conn.execute(text(f"DROP INDEX tocsin.{index.indexname}"))
        for statement in _FILL:
            await tx.conn.execute(text(statement))
        for index in aside:
            await tx.conn.execute(text(index.indexdef))
    async with database.engine.connect() as conn:
        await conn.execution_options(isolation_level="AUTOCOMMIT")
        for table in ("deliveries", "attempts", "events", "lanes", "subscribers", "runs"):
            await conn.execute(text(f"VACUUM ANALYZE tocsin.{table}"))


def _delivered(claimed: list[Claimed], tx: Tx) -> list[Settled]:
    answer, decision = Answer(Outcome.DELIVERED, 200), Settlement(DeliveryState.DELIVERED, counted=True)
    return [Settled(each, decision, answer, "w", tx.now.timestamp()) for each in claimed]


_FILTERED = [
    ("list of a rare type", Sought(event_type="rare"), 50),
    ("list of a rare type's dead letters", Sought(event_type="rare", states=tuple(sorted(DEAD_LETTERS))), 0),
    ("list of a rare reason", Sought(reason="shadow"), 3),
    ("list of a rare reason, of a subscriber", Sought(reason="shadow", subscriber_id="s900"), 0),
    ("list of a type that is over", Sought(event_type="over"), 0),
]


async def _everything_hot(tx: Tx, plans: Plans) -> None:
    """Each statement of the hot path once, on a batch."""
    blocks = "UPDATE tocsin.lanes SET on_dead_letter = 'block' WHERE subscriber = 1401 RETURNING (%s)"
    last = await tx.conn.scalar(text(blocks % "SELECT max(row) FROM tocsin.deliveries WHERE subscriber = 1401"))
    await plans.begin(tx, "claim")
    claimed = await deliveries.claim(tx, Appetite(batch=BATCH, share=BATCH), worker="w", lease_seconds=60)
    assert len(claimed) == 99 + 250  # a batch, of which one head has its chain behind it
    await plans.begin(tx, "settle")
    assert len(await settlements.settle(tx, _delivered(claimed[: BATCH // 2], tx))) == BATCH // 2
    await tx.conn.execute(text("UPDATE tocsin.lanes SET lapse_at = now() WHERE leased > 0"))
    await plans.begin(tx, "lapse")
    await deliveries.lapse(tx, worker="w2", lease_seconds=60, lanes=64)
    await plans.begin(tx, "promote")
    await chains.promote(tx, [(SubscriberRow(1401), 0)])
    await plans.begin(tx, "ahead")
    assert await chains.ahead(tx, last) is not None
    await plans.begin(tx, "expire")
    await endings.expire(tx, BATCH)
    await plans.begin(tx, "next")
    await lanes.seconds_to_next(tx, [], [])
    await plans.begin(tx, "settle run")
    await runs.settle(tx, [RUN])
    await plans.begin(tx, "run")
    await views.run(tx, RUN)
    await _every_list(tx, plans)
    await plans.begin(tx, "lanes")
    assert all(each.is_capped for each in (await views_lanes.standings(tx, LANES)).values())
    await plans.begin(tx, "picked")
    names = [(UUID(int=1), row) for row in range(1, BATCH + 1)]
    assert len(await selections.picked(tx, names)) == BATCH
    page = retention.Page(tx.now, [0], BATCH)
    await plans.begin(tx, "sweep deliveries")
    assert (await retention.delete_deliveries(tx, page)).done > 0
    await plans.begin(tx, "sweep a subscriber's")
    assert (await retention.delete_deliveries_of(tx, SubscriberRow(900), page)).done == BATCH
    await plans.begin(tx, "sweep payloads")
    nil, end = retention.Page(tx.now, [str(UUID(int=0))], 2), UUID(int=2**128 - 1)
    found = await retention.payloads(tx, nil, end)
    await retention.purge_payloads(tx, [EventId(UUID(int=1)), EventId(UUID(int=2))], tx.now)
    assert found.seen == 2
    await plans.begin(tx, "sweep events")
    await retention.delete_events(tx, nil, end)
    await plans.begin(tx, "sweep runs")
    await retention.delete_runs(tx, nil, end)
    await plans.begin(tx, "gauges")  # the last, because it forbids plans to the rest of its transaction
    assert (await gauges.read(tx, 10)).backlog.capped
    await plans.begin(tx, "")


async def _every_list(tx: Tx, plans: Plans) -> None:
    """Pages of deliveries, sought by this and that."""
    await plans.begin(tx, "list")
    [*_, last] = await views_deliveries.page_of(tx, Sought(), Page(50))
    await plans.begin(tx, "list on")
    await views_deliveries.page_of(tx, Sought(), Page(50, last.row - 500_000))
    await plans.begin(tx, "list of a subscriber")
    await views_deliveries.page_of(tx, Sought(subscriber_id="s900"), Page(50))
    await plans.begin(tx, "list of a run")
    await views_deliveries.page_of(tx, Sought(run=RUN), Page(50))
    for step, sought, count in _FILTERED:
        await plans.begin(tx, step)
        leaf = await views_deliveries.page_of(tx, sought, Page(50))
        assert (len(leaf), leaf.looked_to is None) == (count, "over" not in step)


ROOM = {
    # A claim passes over what is leased in each of its 50 lanes, looks once for what comes next, and updates.
    "claim": 5 * BATCH + 2 * 250,
    "settle": 2 * BATCH,
    "lapse": 6 * BATCH,
    **dict.fromkeys(("promote", "ahead", "expire", "settle run", "sweep events", "sweep runs"), 10),
    "next": 0,
    # 700 deliveries of this run, counted in an index.
    "run": 2_000,
    "list": 200,
    "list on": 200,
    "list of a subscriber": 200,
    "list of a run": 200,
    # The walk, once more for its end, then each of the type twice.
    "list of a rare type": 2 * views_deliveries.MOST + 2 * 1451 + 200,
    "list of a rare type's dead letters": 200,
    "list of a rare reason": 200,
    "list of a rare reason, of a subscriber": 200,
    # The walk, once more for its end, and what there is of the type up to where it is frequent.
    "list of a type that is over": 3 * views_deliveries.MOST + 200,
    # What waits for each of 50 is counted up to a cap; and of each of three queues the head is looked at.
    "lanes": len(LANES) * (views_lanes.MAX_COUNTED + 3),
    # Each delivery is found twice, once with its last attempt.
    "picked": 4 * BATCH,
    # Looked at, locked, deleted, each with one attempt.
    "sweep deliveries": 6 * BATCH,
    "sweep a subscriber's": 6 * BATCH,
    # Two events with all of their deliveries, twice.
    "sweep payloads": 4 * 1451,
    # Its cap, what is near its deadline, the heads of all queues, and a look whether the table is small.
    "gauges": backlog.MOST + gauges.SMALL + 10_000,
}


@pytest.mark.timeout(300)
async def test_at_a_million_finished_rows_every_hot_statement_touches_rows_by_the_batch(database: Database) -> None:
    await _fill(database)
    plans = Plans()
    async with explained(database, plans) as tx:
        await _everything_hot(tx, plans)
    assert {step for step, _ in plans.caught} >= set(ROOM)
    read = {step: sum(sum(touched(plan).values()) for at, plan in plans.caught if at == step) for step in ROOM}
    assert {step: rows for step, rows in read.items() if rows > ROOM[step]} == {}
