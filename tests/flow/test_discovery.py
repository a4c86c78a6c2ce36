"""What discovery promises: nothing missing, nothing doubled, and a clear end where the source cannot be read."""

import asyncio
import json
import re
from datetime import timedelta

import pytest
from sqlalchemy import text

from service.domain.errors import DiscoveryFailed
from service.domain.job import JobConfig
from service.domain.model import Found, RunId, RunState
from service.flow import control, discovery
from service.store import fan_out, runs
from service.store.database import Database, Tx
from service.store.fan_out import FannedOut
from tests.scenes import SHIPMENTS, Scene, shipments_job

NOWHERE = "http://127.0.0.1:9/"


async def test_a_page_commits_its_state_change_and_its_events_together(database: Database) -> None:
    scene, job = Scene(database), shipments_job(page_size=50)
    await scene.shipments(120)
    await scene.subscriber("a", NOWHERE)
    await scene.subscriber("b", NOWHERE, event_types=("shipment.*",))
    await scene.subscriber("c", NOWHERE, event_types=("order.*",))
    await scene.subscriber("d", NOWHERE, tenant_id="other")
    run = await scene.tick(job)
    assert await scene.discovery(job).once()
    view = await scene.run(run)
    assert (view.state, view.events, view.deliveries["total"], view.settled) == (RunState.COMPLETED, 120, 240, False)
    pages = await scene.execute("SELECT xmin::text, count(*) AS n FROM tocsin.events GROUP BY 1 ORDER BY n")
    assert len(pages) <= 3  # `fanned_out_at` rewrote them all: the pages are seen in the shipments
    written = await scene.execute("SELECT count(*) AS n FROM shipments WHERE status = 'expired' GROUP BY xmin::text")
    assert sorted(row.n for row in written) == [20, 50, 50]


async def test_the_body_of_an_event_is_the_data_as_the_statement_wrote_it(database: Database) -> None:
    statement = SHIPMENTS.replace(
        "jsonb_build_object('shipmentId', id, 'status', status)", """'{"b": 1.0, "a": 12345678901234567890123}'::json"""
    )
    scene, job = Scene(database), shipments_job(statement=statement)
    await scene.shipments(1)
    await scene.tick(job)
    await scene.discovery(job).once()
    [row] = await scene.execute("SELECT id, body, body_sha256 = sha256(body) AS hashed FROM tocsin.events")
    assert row.hashed
    assert row.body.endswith(b'"data":{"b": 1.0, "a": 12345678901234567890123}}')
    body = json.loads(row.body)
    assert list(body) == ["id", "type", "timestamp", "tenantId", "subject", "version", "data"]
    assert (body["id"], body["type"], body["subject"]) == (str(row.id), "shipment.expired", "ship-1")


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        (
            "SELECT id AS subject, version, '1'::jsonb AS data FROM shipments WHERE expires_at <= :cutoff LIMIT :limit",
            "makes no progress",
        ),
        (SHIPMENTS.replace("id AS subject, ", ""), "lacks subject"),
        (SHIPMENTS.replace("AS data", "AS payload"), "lacks data; has an unknown column payload"),
        (SHIPMENTS.replace("id AS subject", "NULL AS subject"), "column subject must not be empty"),
        (SHIPMENTS.replace("version, jsonb", "'x' AS version, jsonb"), "column version must be a whole number"),
        (SHIPMENTS.replace("jsonb_build_object('shipmentId', id, 'status', status)", "id"), "data is not JSON"),
        (SHIPMENTS.replace("jsonb_build_object('shipmentId', id, 'status', status)", "7"), "column data must be json"),
        (SHIPMENTS.replace("tenant_id,", "'no such tenant' AS tenant_id,"), "tenant_id is not a tenant"),
        (SHIPMENTS.replace("RETURNING", "-- RETURNING").split("-- RETURNING")[0], "returns no rows"),
        (SHIPMENTS.replace("LIMIT :limit", "LIMIT :limit + 1"), "more rows than :limit"),
        (SHIPMENTS.replace("shipments SET", "nowhere SET"), "SQLSTATE 42P01"),
        (SHIPMENTS.replace("version + 1", "version / 0"), "SQLSTATE 22012"),
        (SHIPMENTS.replace("RETURNING", "AND pg_sleep(5) IS NOT NULL RETURNING"), "ran longer than"),
    ],
)
async def test_a_statement_that_cannot_work_fails_the_run_and_changes_nothing(
    database: Database, statement: str, reason: str
) -> None:
    scene, job = Scene(database), shipments_job(statement=statement, statement_timeout_seconds=0.2, page_size=10)
    await scene.shipments(12)
    run = await scene.tick(job)
    assert await scene.discovery(job).once()
    view = await scene.run(run)
    assert view.state is RunState.FAILED
    assert view.error is not None
    assert reason in view.error
    assert [tuple(row) for row in await scene.execute("SELECT status, count(*) FROM shipments GROUP BY 1")] == [
        ("active", 12)
    ]


async def test_a_change_that_does_not_raise_its_version_fails_rather_than_being_swallowed(database: Database) -> None:
    scene, job = Scene(database), shipments_job()
    await scene.shipments(3)
    await scene.tick(job, "r1")
    await scene.discovery(job).once()
    await scene.execute("UPDATE shipments SET status = 'active', version = version - 1 WHERE id = 'ship-2'")
    silent = shipments_job(statement=SHIPMENTS.replace("'status', status", "'status', 'again'"))
    run = await scene.tick(silent, "r2")
    await scene.discovery(silent).once()
    view = await scene.run(run)
    assert view.state is RunState.FAILED
    assert "raise version with every change" in (view.error or "")
    [known] = await scene.execute("SELECT id FROM tocsin.events WHERE subject = 'ship-2'")
    named = "tenant_id default, type shipment.expired, subject ship-2 and version 2 is the event"
    assert f"{named} {known.id}" in (view.error or "")
    [row] = await scene.execute("SELECT status FROM shipments WHERE id = 'ship-2'")
    assert row.status == "active"


async def test_a_version_that_was_published_by_hand_fails_the_run_until_the_row_is_raised_above_it(
    database: Database,
) -> None:
    scene, job = Scene(database), shipments_job()
    await scene.shipments(1)
    taken = await scene.event("ship-1", version=2)
    run = await scene.tick(job)
    await scene.discovery(job).once()
    error = (await scene.run(run)).error or ""
    assert (f"is the event {taken}" in error, "raise this row's version above 2" in error) == (True, True)
    await scene.execute("UPDATE shipments SET version = 3")
    await control.retry_run(database, scene.doorbell, run, actor="test", reason="raised")
    await scene.discovery(job).once()
    assert (await scene.run(run)).state is RunState.COMPLETED


async def test_a_failed_run_goes_on_from_where_it_stopped_when_retried(database: Database) -> None:
    scene, broken = (
        Scene(database),
        shipments_job(statement=SHIPMENTS.replace("version, jsonb", "NULL AS version, jsonb")),
    )
    await scene.shipments(7)
    run = await scene.tick(broken)
    await scene.discovery(broken).once()
    await control.retry_run(database, scene.doorbell, run, actor="test", reason="mended")
    await scene.discovery(shipments_job()).once()
    view = await scene.run(run)
    assert (view.state, view.events, view.settled) == (RunState.COMPLETED, 7, True)


async def test_a_run_whose_worker_died_between_pages_is_finished_by_another(database: Database) -> None:
    scene, job = Scene(database), shipments_job(page_size=10)
    await scene.shipments(35)
    await scene.subscriber("a", NOWHERE)
    run = await scene.tick(job)
    first = scene.discovery(job, worker="w1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(first), "_fan_out", _die)
        with pytest.raises(KeyboardInterrupt):
            await first.once()
    await scene.expire_leases()
    await scene.discovery(job, worker="w2").once()
    view = await scene.run(run)
    assert (view.state, view.events, view.deliveries["total"]) == (RunState.COMPLETED, 35, 35)


async def _die(*_: object) -> int:
    raise KeyboardInterrupt


async def test_a_worker_that_lost_its_run_lets_go_of_it(database: Database) -> None:
    scene, job = Scene(database), shipments_job(page_size=10)
    await scene.shipments(15)
    run = await scene.tick(job)
    slow = scene.discovery(job, worker="w1")
    source = slow.sources[job.name]
    taken: list[bool] = []

    class Overtaken:
        async def discover(self, tx: object, leased: object, limit: int) -> list[object]:
            if not taken:
                taken.append(True)
                await scene.execute("SELECT 1")
            return await source.discover(tx, leased, limit)  # type: ignore[arg-type,return-value]

    object.__setattr__(slow, "sources", {job.name: Overtaken()})
    await slow.once()
    assert (await scene.run(run)).events == 15


async def test_a_fan_out_renews_the_lease_with_every_chunk_and_ends_where_it_was_lost(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, job = Scene(database), shipments_job()
    monkeypatch.setattr(fan_out, "MAX_ROWS", 2)
    await scene.shipments(5)
    await scene.subscriber("a", NOWHERE)
    run = await scene.tick(job)
    renewed: list[bool] = []

    async def slow(tx: Tx, leased: RunId | None) -> FannedOut:
        lives = text("SELECT lease_expires_at > clock_timestamp() FROM tocsin.runs")
        renewed.append((await tx.conn.execute(lives)).scalar_one())
        chunk = await fan_out.fan_out(tx, leased)
        taken = ", lease_seq = lease_seq + 1" if len(renewed) == 3 else ""
        await tx.conn.execute(text(f"UPDATE tocsin.runs SET lease_expires_at = now(){taken}"))
        return chunk

    monkeypatch.setattr(discovery, "fan_out", slow)
    await scene.discovery(job).once()
    view = await scene.run(run)
    assert (renewed, view.state, view.deliveries["total"]) == ([True] * 3, RunState.RUNNING, 3)


async def test_the_lease_of_a_run_counts_from_the_end_of_a_page_and_not_from_its_beginning(database: Database) -> None:
    scene, job = Scene(database), shipments_job()
    await scene.tick(job)
    async with database.begin() as tx:
        run = await runs.lease(tx, jobs=[job.name], worker="w1", seconds=60)
        assert run is not None
        assert await runs.renew(tx, run, seconds=60)
        longer = text("SELECT lease_expires_at > now() + interval '60 seconds' FROM tocsin.runs")
        assert (await tx.conn.execute(longer)).scalar_one()


async def test_fan_out_of_50_000_deliveries_keeps_its_transactions_small(database: Database) -> None:
    scene, job = Scene(database), shipments_job()
    await scene.shipments(100)
    await scene.execute(
        "INSERT INTO tocsin.subscribers (id, tenant_id, url, event_types, mode, idempotent, ordering, on_dead_letter, "
        "max_concurrency, timeout_seconds, max_attempts, backoff_base_seconds, backoff_cap_seconds, deadline_seconds, "
        "headers) SELECT 's' || n, 'default', 'http://127.0.0.1:9/', '{*}', 'live', true, 'none', 'skip', 16, 15, 8, "
        "1, 900, 259200, '{}' FROM generate_series(1, 500) n"
    )
    await scene.execute("INSERT INTO tocsin.lanes (subscriber, max_concurrency) SELECT row, 16 FROM tocsin.subscribers")
    run = await scene.tick(job)
    assert (await scene.run(run)).state is RunState.CLAIMED  # the tick only claims
    await scene.discovery(job).once()
    assert (await scene.run(run)).deliveries["total"] == 50_000
    chunks = await scene.execute("SELECT count(*) AS n FROM tocsin.deliveries GROUP BY xmin::text")
    assert max(row.n for row in chunks) <= fan_out.MAX_ROWS
    [pairs] = await scene.execute("SELECT count(DISTINCT (event_id, subscriber)) AS n FROM tocsin.deliveries")
    assert pairs.n == 50_000


async def test_an_event_with_more_subscribers_than_a_transaction_holds_is_fanned_out_in_steps(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, job = Scene(database), shipments_job()
    monkeypatch.setattr(fan_out, "MAX_ROWS", 4)
    await scene.shipments(3)
    for n in range(10):
        await scene.subscriber(f"s{n}", NOWHERE)
    run = await scene.tick(job)
    await scene.discovery(job).once()
    assert (await scene.run(run)).deliveries["total"] == 30
    chunks = await scene.execute("SELECT count(*) AS n FROM tocsin.deliveries GROUP BY xmin::text")
    assert max(row.n for row in chunks) <= 4


async def test_the_outbox_finds_what_is_due_at_the_cutoff_and_nothing_later(database: Database) -> None:
    scene, job = Scene(database), JobConfig(name="outbox", source="outbox", secrets=(b"a-secret-of-the-outbox",))
    await scene.subscriber("a", NOWHERE)
    for n in (1, 2, 3):
        await scene.event(f"due-{n}")
    async with database.begin() as tx:
        now = tx.now
    await scene.execute("DELETE FROM tocsin.deliveries")
    await scene.execute(
        "UPDATE tocsin.events SET fanned_out_at = NULL, "
        "due_at = CAST(:now AS timestamptz) + (substr(subject, 5)::int - 2) * interval '1 microsecond'",
        now=now,
    )
    run = await scene.tick(job, "now", now)
    await scene.discovery(job).once()
    assert (await scene.run(run)).events == 2
    [late] = await scene.execute("SELECT subject FROM tocsin.events WHERE run_id IS NULL")
    assert late.subject == "due-3"


async def test_a_tick_source_makes_one_event_per_run(database: Database) -> None:
    scene = Scene(database)
    job = JobConfig(name="bell", source="tick", secrets=(b"a-secret-of-the-bell",), event_type="bell.rung")
    await scene.subscriber("a", NOWHERE)
    first = await scene.tick(job, "one")
    second = await scene.tick(job, "two")
    discovery = scene.discovery(job)
    while await discovery.once():
        pass
    assert [(await scene.run(run)).events for run in (first, second)] == [1, 1]


async def test_the_runs_of_a_paused_job_are_held_and_start_oldest_first_when_it_resumes(database: Database) -> None:
    scene = Scene(database)
    job = JobConfig(name="bell", source="tick", secrets=(b"a-secret-of-the-bell",), event_type="bell.rung")
    await control.pause_job(database, job.name, actor="test", reason="maintenance")
    async with database.begin() as tx:
        now = tx.now
    later = await scene.tick(job, "later", now)
    older = await scene.tick(job, "older", now - timedelta(hours=1))
    assert (await scene.run(later)).state is RunState.HELD
    discovery = scene.discovery(job)
    assert not await discovery.once()
    await control.resume_job(database, scene.doorbell, job.name, actor="test", reason=None)
    await discovery.once()
    assert (await scene.run(older)).state is RunState.COMPLETED
    assert (await scene.run(later)).state is RunState.CLAIMED


class _Misbehaving:
    """A source of somebody's own that does what it should not."""

    def __init__(self, what: object) -> None:
        self._what = what

    async def discover(self, tx: object, run: object, limit: int) -> object:  # noqa: ARG002 - the protocol's shape
        if isinstance(self._what, BaseException):
            raise self._what
        return self._what


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        (asyncio.CancelledError(), "ended with CancelledError"),
        (FileNotFoundError("secret.txt"), "failed with FileNotFoundError"),
        (DiscoveryFailed("bad\x00text " + "x" * 5_000), "bad"),
        (ValueError("oops"), "failed with ValueError"),
        (None, "returned no list"),
        ([Found(type="no good", subject="s", version=1, data="{}")], "event type is missing or malformed"),
        ([Found(type="a.b", subject="s", version=1, data="this is not json")], "not JSON"),
    ],
    ids=["cancelled", "oserror", "text", "error", "none", "type", "data"],
)
async def test_a_source_that_misbehaves_fails_its_run_and_nothing_else(
    database: Database, what: object, reason: str
) -> None:
    scene, job = Scene(database), shipments_job()
    run = await scene.tick(job)
    discovery = scene.discovery(job)
    object.__setattr__(discovery, "sources", {job.name: _Misbehaving(what)})
    assert await discovery.once()
    view = await scene.run(run)
    assert view.state is RunState.FAILED
    assert reason in (view.error or "")
    assert len(view.error or "") <= 1_000
    # What an exception says may hold a row, a path or a secret; a run's error is read by all who may read.
    assert not {"oops", "secret.txt"} & {*re.findall(r"[\w.]+", view.error or "")}
