"""What retention promises: what has had its time goes, what anybody may still need stays, and a crash costs nothing."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import structlog
from sqlalchemy import text

from service.domain.model import EventId, OnDeadLetter, Ordering, RunState, SubscriberRow
from service.domain.states import DEAD_LETTERS
from service.flow import control_subscribers
from service.flow.discovery import Discovery
from service.store import retention
from service.store.database import Database
from service.store.vault import Vault, new_key
from tests import steering
from tests.attic import Attic, retention_job
from tests.operating import clock
from tests.polling import eventually
from tests.receivers import Receiver, answer
from tests.scenes import Scene
from tests.workers import WorkerProcess

NOWHERE = "http://127.0.0.1:9/"
ALL_GONE = dict.fromkeys(("deliveries", "attempts", "generations", "events", "runs", "replays", "payloads"), 0)


@pytest.fixture
async def scene(database: Database) -> Scene:
    scene = Scene(database)
    for slug in ("one", "two"):
        await scene.subscriber(slug, NOWHERE)
    return scene


@pytest.fixture
def attic(scene: Scene) -> Attic:
    return Attic(scene)


async def swept(scene: Scene, *, run_id: str = "r1", page_size: int = 500, **options: object) -> dict[str, Any]:
    """Let a retention run go to its end; returns its progress."""
    job = retention_job(page_size, **options)
    run = await scene.tick(job, run_id)
    await scene.discovery(job).once()
    view = await scene.run(run)
    assert view.state is RunState.COMPLETED, view.error
    assert view.progress is not None
    return dict(view.progress)


async def test_payloads_deliveries_and_keys_go_each_at_its_own_age(scene: Scene, attic: Attic) -> None:
    for days in (401, 91, 31, 29):
        run = await attic.run(days)
        await attic.event(f"d{days}", days, run=run, one="delivered", two="cancelled")
    progress = await swept(scene, page_size=3)
    left = await attic.left()
    assert await attic.subjects() == {"d29", "d31", "d91"}
    assert await attic.subjects(with_payload=True) == {"d29"}
    assert (left["deliveries"], left["attempts"], left["generations"]) == (4, 8, 4)
    assert left["runs"] == 4  # with the run of the sweep itself
    assert progress["deliveries"] == {"seen": 4, "eligible": 4, "done": 4}
    assert progress["payloads"] == {"seen": 3, "eligible": 3, "done": 3}
    assert (progress["events"]["done"], progress["runs"]["done"]) == (1, 1)
    assert (progress["phase"], progress["dryRun"]) == ("done", False)
    [row] = await scene.execute("SELECT purged_at IS NOT NULL AS told FROM tocsin.events WHERE subject = 'd91'")
    assert row.told


async def test_what_anybody_may_still_need_stays(scene: Scene, attic: Attic) -> None:
    old = 1_000
    retrying = await attic.event("retrying", old, one="delivered", two="pending")
    await scene.execute("UPDATE tocsin.deliveries SET lease_owner = 'w' WHERE finished_at IS NULL")
    late = await attic.event("replayed", old)
    await attic.delivery(late, "one", "delivered", old, finished_days=1)
    await attic.event("waiting", old)
    await scene.execute("UPDATE tocsin.events SET fanned_out_at = NULL, due_at = now() WHERE subject = 'waiting'")
    parent = await attic.run(old)
    await attic.event("child", 80, run=parent, one="delivered")
    await attic.run(old, cutoff_days=399)
    await attic.run(old, state="held")
    await swept(scene)
    assert await attic.subjects() == {"retrying", "replayed", "waiting", "child"}
    assert await attic.subjects(with_payload=True) == {"retrying", "replayed", "waiting"}
    rows = await scene.execute("SELECT event_id, state FROM tocsin.deliveries ORDER BY row")
    assert [tuple(row) for row in rows][:2] == [(retrying, "pending"), (late, "delivered")]
    assert (await attic.left())["runs"] == 4


@pytest.mark.parametrize("state", sorted(DEAD_LETTERS))
async def test_dead_letters_keep_their_payload_and_block_for_as_long_as_nobody_decides(
    scene: Scene, attic: Attic, state: str
) -> None:
    await scene.subscriber("strict", NOWHERE, ordering=Ordering.STRICT, on_dead_letter=OnDeadLetter.BLOCK)
    for days in (60, 500):
        await attic.event(f"d{days}", days, one=state)
    blocking = await attic.event("blocking", 500)
    await attic.delivery(blocking, "strict", state, 500, order_key=0)
    await swept(scene)
    assert await attic.subjects(with_payload=True) == {"d60", "blocking"}
    await scene.execute("UPDATE tocsin.subscribers SET deleted_at = now() WHERE id = 'strict'")
    await swept(scene, run_id="r2")
    assert await attic.subjects() == {"d60"}


async def test_a_running_bulk_replay_finds_everything_that_it_has_before_it(scene: Scene, attic: Attic) -> None:
    for at in range(3):
        await attic.event(f"d{at}", 500, one="delivered")
    [(first,)] = await scene.execute("SELECT min(row) FROM tocsin.deliveries")
    await scene.execute(
        "INSERT INTO tocsin.replays (id, filter, reason, requested_by, rate_per_second, state, matched, after_row, "
        "last_row) VALUES (gen_random_uuid(), '{}', 'r', 'ada', 1, 'running', 3, :first, :last)",
        first=first,
        last=first + 1,
    )
    await swept(scene)
    assert await attic.subjects() == await attic.subjects(with_payload=True) == {"d1"}
    await scene.execute(
        "UPDATE tocsin.replays SET state = 'completed', finished_at = now() - interval '2 years', "
        "id = '00000000-0000-7000-8000-000000000001'"
    )
    await swept(scene, run_id="r2")
    assert await attic.left() == ALL_GONE | {"runs": 2}


async def test_a_replay_and_a_purge_of_the_same_event_never_both_happen(scene: Scene, attic: Attic) -> None:
    event = EventId(await attic.event("wanted", 60, one="delivered"))
    async with scene.db.begin() as replay, scene.db.begin() as sweep:
        await replay.conn.execute(text("SELECT FROM tocsin.events FOR SHARE"))
        assert await retention.lock_payloads(sweep, [event]) == []
        await replay.conn.execute(text("UPDATE tocsin.deliveries SET state = 'pending', finished_at = NULL"))
    async with scene.db.begin() as tx:
        locked = await retention.lock_payloads(tx, [event])
        assert await retention.purge_payloads(tx, locked, tx.now) == 0


async def test_the_erasure_of_a_tenant_leaves_nothing_that_is_terminal(scene: Scene, attic: Attic) -> None:
    for slug in ("theirs", "also"):
        await scene.subscriber(slug, NOWHERE, tenant_id="acme")
    for at in range(5):
        await attic.event(f"theirs-{at}", 0.1, tenant="acme", theirs="delivered", also="exhausted")
    await attic.event("open", 0.1, tenant="acme", theirs="pending")
    await attic.event("ours", 0.1, one="delivered")
    progress = await swept(scene, page_size=2, erase_tenants=["acme", "nobody"])
    assert await attic.subjects() == {"open", "ours"}
    assert (await attic.left())["deliveries"] == 2
    assert (progress["deliveries"]["done"], progress["events"]["done"]) == (10, 5)


@pytest.mark.parametrize("beside", [False, True])
async def test_an_answer_to_what_was_erased_leaves_no_evidence(scene: Scene, *, beside: bool) -> None:
    held = asyncio.Event()
    async with Receiver(answer(200, hold=held, body=b"of the tenant")) as receiver:
        await scene.subscriber("theirs", receiver.url, event_types=("only.theirs",))
        await scene.execute("UPDATE tocsin.subscribers SET deleted_at = now() WHERE id IN ('one', 'two')")
        await scene.event("in-flight", "only.theirs")
        sending = asyncio.create_task(scene.dispatcher().once())
        await eventually(lambda: receiver.requests)
        await control_subscribers.delete_subscriber(scene.db, "theirs", actor="ada")
        if beside:
            async with scene.db.begin() as tx:
                [row] = await scene.execute("SELECT row FROM tocsin.subscribers WHERE id = 'theirs'")
                page = retention.Page(await clock(scene), [0], 10)
                assert (await retention.delete_deliveries_of(tx, SubscriberRow(row.row), page)).done == 1
                held.set()
                assert await eventually(lambda: steering.blocked(scene))
        await swept(scene, erase_tenants=["default"])
        held.set()
        await sending
    left = await Attic(scene).left()
    assert (left["deliveries"], left["attempts"], left["events"]) == (0, 0, 0)


async def test_a_dry_run_counts_and_changes_nothing(scene: Scene, attic: Attic) -> None:
    for at in range(5):
        await attic.event(f"d{at}", 500, one="delivered")
    await attic.event("unheard", 500)
    before = await attic.left()
    progress = await swept(scene, dry_run=True, page_size=2)
    assert await attic.left() == before | {"runs": 1}
    assert progress["dryRun"]
    assert progress["deliveries"] == {"seen": 5, "eligible": 5, "done": 0}
    assert progress["payloads"] == {"seen": 6, "eligible": 6, "done": 0}
    assert progress["events"]["eligible"] == 1


async def test_a_run_that_would_delete_nearly_everything_fails_with_the_mend(scene: Scene, attic: Attic) -> None:
    event = await attic.event("wide", 100)
    await scene.execute(
        "INSERT INTO tocsin.deliveries (event_id, subscriber, state, deadline_at, created_at, finished_at) "
        "SELECT :event, n, 'delivered', now(), now() - interval '100 days', now() - interval '100 days' "
        "FROM generate_series(1, 1000) n",
        event=event,
    )
    job = retention_job(max_share=0.9)
    run = await scene.tick(job)
    await scene.discovery(job).once()
    view = await scene.run(run)
    assert view.state is RunState.FAILED
    assert "1000 of 1000 deliveries are older than deliveries_after, more than max_share (0.9)" in (view.error or "")
    assert (await attic.left())["deliveries"] == 1_000


async def test_a_cutoff_in_the_future_makes_nothing_old(scene: Scene, attic: Attic) -> None:
    await attic.event("young", 1, one="delivered")
    job = retention_job(payloads_after="2d", deliveries_after="2d")
    await scene.execute(
        "INSERT INTO tocsin.runs (id, job, run_id, cutoff, source, state) "
        "VALUES (gen_random_uuid(), 'retain', 'jumped', now() + interval '10 years', 'hmac', 'claimed')"
    )
    await scene.discovery(job).once()
    assert await attic.subjects(with_payload=True) == {"young"}


async def test_two_sweeps_at_once_delete_everything_once(scene: Scene, attic: Attic) -> None:
    for at in range(40):
        await attic.event(f"d{at}", 500, one="delivered", two="cancelled")
    job = retention_job(page_size=7)
    first, second = [await scene.tick(job, name) for name in ("r1", "r2")]
    sweeps = [scene.discovery(job, worker=name) for name in ("w1", "w2")]

    async def turned(sweep: Discovery) -> bool:
        await sweep.once()
        return {(await scene.run(run)).state for run in (first, second)} == {RunState.COMPLETED}

    await asyncio.gather(*(eventually(partial(turned, sweep), seconds=30) for sweep in sweeps))
    views = [await scene.run(run) for run in (first, second)]
    done = {kind: sum((view.progress or {})[kind]["done"] for view in views) for kind in ("deliveries", "events")}
    assert done == {"deliveries": 80, "events": 40}
    assert await attic.left() == ALL_GONE | {"runs": 2}


async def test_a_sweep_whose_worker_is_killed_goes_on_where_it_was_and_counts_everything_once(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    key = new_key()
    scene = Scene(database, vault=Vault([key]))
    await scene.subscriber("one", NOWHERE)
    attic, job = Attic(scene), retention_job(page_size=1)
    for at in range(30):
        await attic.event(f"d{at}", 500, one="delivered")
    config = tmp_path / "tocsin.toml"
    config.write_text(
        '[jobs.retain]\nsource = "retention"\npage_size = 1\nsecrets = ["env:SHIPMENTS_TICK_SECRET"]\n'
        "options = { max_share = 1 }\n"
    )
    run = await scene.tick(job)

    async def half_way() -> bool:
        progress = (await scene.run(run)).progress
        return progress is not None and progress["deliveries"]["done"] >= 3

    async with WorkerProcess(database_url, key, tmp_path, config).running() as worker:
        await eventually(half_way, seconds=40)
        await worker.kill()
    view = await scene.run(run)
    assert view.state is RunState.RUNNING
    assert (view.progress or {})["deliveries"]["done"] == 30 - (await attic.left())["deliveries"]
    await scene.expire_leases()
    await scene.discovery(retention_job(), worker="w2").once()
    progress = (await scene.run(run)).progress or {}
    assert (progress["deliveries"]["done"], progress["events"]["done"]) == (30, 30)
    assert await attic.left() == ALL_GONE | {"runs": 1}


async def test_a_sweep_that_could_and_did_not_is_told(scene: Scene, attic: Attic) -> None:
    await attic.event("held", 500, one="delivered")
    async with scene.db.begin() as somebody:
        await somebody.conn.execute(text("SELECT FROM tocsin.deliveries FOR UPDATE"))
        with structlog.testing.capture_logs() as logs:
            progress = await swept(scene)
    assert progress["deliveries"] == {"seen": 1, "eligible": 1, "done": 0}
    [line] = [each for each in logs if each["event"].startswith("retention.")]
    assert (line["event"], line["log_level"], line["kinds"]) == (
        "retention.nothing_deleted",
        "warning",
        ["deliveries"],
    )
