"""What a bulk replay promises: all that matched and nothing else, once, at its rate, behind the rest, over a crash."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from service.domain.errors import Conflict, Invalid, PayloadPurged
from service.domain.model import DeliveryState, Queue
from service.flow import control_replays, replaying
from service.flow.dispatch import Limits
from service.store import replays
from service.store.database import Database
from service.store.generations import Refusal, open_generations
from service.store.replays import ReplayState
from service.store.vault import Vault, new_key
from tests import steering
from tests.operating import clock, named, progress, replay, replay_all, run_replays
from tests.polling import eventually
from tests.receivers import Receiver, answer
from tests.scenes import Scene
from tests.workers import WorkerProcess


async def fill(
    scene: Scene, count: int, *, state: str = "exhausted", reason: str = "attempts", slug: str = "acme"
) -> None:
    """So many deliveries that ended alike, each of an event of its own."""
    await scene.execute(
        """
        WITH made AS (
            INSERT INTO tocsin.events (id, tenant_id, type, subject, version, topics, body, body_sha256, data_sha256,
                fanned_out_at)
            SELECT gen_random_uuid(), 'default', 'a.' || :state, gen_random_uuid()::text, 1, '{*}', '{}', '', '', now()
              FROM generate_series(1, :count) RETURNING id)
        INSERT INTO tocsin.deliveries (event_id, subscriber, state, reason, deadline_at, finished_at, attempt_count)
        SELECT made.id, s.row, :state, :reason, now(), now(), 8 FROM made, tocsin.subscribers s WHERE s.id = :slug
        """,
        count=count,
        state=state,
        reason=reason,
        slug=slug,
    )


async def replayed(scene: Scene) -> int:
    [row] = await scene.execute("SELECT count(*) AS n FROM tocsin.generations")
    return int(row.n)


@pytest.fixture
async def scene(database: Database) -> Scene:
    scene = Scene(database)
    await scene.subscriber("acme", "http://127.0.0.1:9/")
    return scene


async def test_what_ended_once_more_after_a_bulk_replay_was_asked_for_is_left_alone(scene: Scene) -> None:
    asked = await clock(scene)
    await fill(scene, 1)
    [(row,)] = await scene.execute("SELECT row FROM tocsin.deliveries")
    async with scene.db.begin() as tx:
        [told] = await open_generations(
            tx, [row], requested_by="alice", reason="r", replay_id=None, queue=Queue.BULK, ended_by=asked
        )
    assert (told.refused, await replayed(scene)) == (Refusal.CHANGED, 0)


async def test_a_bulk_replay_releases_what_matched_and_says_of_the_rest_why_not(scene: Scene) -> None:
    await fill(scene, 5)
    await fill(scene, 2, reason="deadline")
    await fill(scene, 1, state="ambiguous", reason="timeout-may-have-been-applied")
    await fill(scene, 1, state="delivered")
    await scene.subscriber("gone", "http://127.0.0.1:9/")
    await fill(scene, 1, slug="gone")
    await scene.execute("UPDATE tocsin.subscribers SET deleted_at = now() WHERE id = 'gone'")
    await scene.subscriber("moved", "http://127.0.0.1:9/")
    await fill(scene, 1, slug="moved")
    await scene.execute("UPDATE tocsin.subscribers SET tenant_id = 'rival' WHERE id = 'moved'")
    await scene.execute(
        "UPDATE tocsin.events SET body = NULL WHERE id = (SELECT event_id FROM tocsin.deliveries LIMIT 1)"
    )
    would = await replay_all(scene, dry_run=True, until=await clock(scene) + timedelta(hours=1))
    assert (would.state, would.matched) == (ReplayState.DRY_RUN, 9)
    barred = {Refusal.PAYLOAD_PURGED: 1, Refusal.SUBSCRIBER_DELETED: 1, Refusal.TENANT_CHANGED: 1}
    assert would.skipped == barred
    assert await scene.execute("TABLE tocsin.replays") == []
    running = await replay_all(scene, reason="attempts")
    assert (running.state, running.matched) == (ReplayState.RUNNING, 7)
    changing = (await scene.views("acme"))[1]
    await replay(scene, named(changing.id))
    await fill(scene, 3)  # ends after the replay was made
    await run_replays(scene)
    done = await progress(scene, running)
    assert (done.state, done.replayed) == (ReplayState.COMPLETED, 3)
    assert done.skipped == barred | {Refusal.CHANGED: 1}
    rows = await scene.execute(
        "SELECT d.queue, d.generation, d.attempt_count, g.requested_by, g.reason FROM tocsin.deliveries d "
        "JOIN tocsin.generations g ON g.delivery = d.row WHERE g.replay_id = :id",
        id=running.id,
    )
    assert [tuple(row) for row in rows] == [(Queue.BULK, 2, 8, "alice", "mended")] * 3
    actions = [each.action for each in await steering.trail(scene) if each.object == f"replay:{running.id}"]
    assert actions == ["replay.created"]


@pytest.mark.parametrize("state", [DeliveryState.AMBIGUOUS, DeliveryState.DELIVERED, DeliveryState.CANCELLED])
async def test_what_may_have_arrived_has_to_be_named(scene: Scene, state: DeliveryState) -> None:
    await fill(scene, 2, state=state.value)
    assert (await replay_all(scene, subscriber_id="acme")).state is ReplayState.COMPLETED
    assert (await replay_all(scene, state, subscriber_id="acme")).matched == 2
    assert (await replay_all(scene, state, event_type="never.was", dry_run=True)).matched == 0
    await run_replays(scene)
    assert await scene.states() == {"pending": 2}


async def test_filters_that_say_nothing_too_much_or_what_is_not_over_are_refused(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Invalid):
        await replay_all(scene)
    with pytest.raises(Invalid):
        await replay_all(scene, DeliveryState.LEASED)
    await fill(scene, 3)
    monkeypatch.setattr(replays, "MAX_MATCHED", 2)
    monkeypatch.setattr(control_replays, "MAX_MATCHED", 2)
    with pytest.raises(Invalid):
        await replay_all(scene, DeliveryState.EXHAUSTED)
    await fill(scene, 2, state="rejected")
    await scene.execute("UPDATE tocsin.events SET body = NULL")
    with pytest.raises(PayloadPurged):
        await replay_all(scene, DeliveryState.REJECTED, event_type="a.rejected", reason="attempts")
    assert await scene.execute("TABLE tocsin.replays") == []


async def test_a_chunk_waits_for_its_time_and_a_standstill_is_not_made_good(scene: Scene) -> None:
    await fill(scene, 100)
    running = await replay_all(scene, subscriber_id="acme", rate=40)
    assert await replaying.once(scene.db, scene.doorbell)
    assert (await progress(scene, running)).replayed == 10
    await scene.execute("UPDATE tocsin.replays SET next_at = now() + interval '1 hour'")
    assert await replaying.once(scene.db, scene.doorbell)
    assert (await progress(scene, running)).replayed == 10
    await scene.execute("UPDATE tocsin.replays SET next_at = now() - interval '1 hour'")
    assert await replaying.once(scene.db, scene.doorbell)
    [row] = await scene.execute(
        "SELECT next_at = (SELECT max(at) FROM tocsin.generations) + interval '0.25 s' AS paced FROM tocsin.replays"
    )
    assert row.paced  # ten of them at 40 a second


async def test_a_replay_that_is_stopped_keeps_what_it_released_and_releases_no_more(scene: Scene) -> None:
    await fill(scene, 40)
    running = await replay_all(scene, subscriber_id="acme", rate=40)
    await replaying.once(scene.db, scene.doorbell)
    for _ in range(2):
        stopped = await control_replays.cancel_replay(scene.db, running.id, actor="bob", reason="down again")
        assert (stopped.state, stopped.replayed) == (ReplayState.CANCELLED, 10)
    assert not await replaying.once(scene.db, scene.doorbell)
    assert await scene.states() == {"exhausted": 30, "pending": 10}
    lines = [(each.action, each.actor) for each in await steering.trail(scene) if each.object.startswith("replay:")]
    assert lines == [("replay.created", "alice"), ("replay.cancelled", "bob")]
    finished = await replay_all(scene, event_type="never.was")
    with pytest.raises(Conflict):
        await control_replays.cancel_replay(scene.db, finished.id, actor="bob", reason="late")


async def test_first_attempts_go_before_a_bulk_replay(database: Database) -> None:
    scene = Scene(database)
    async with Receiver(then=answer(200)) as receiver:
        await scene.subscriber("acme", receiver.url, max_concurrency=1)
        await fill(scene, 3)
        await replay_all(scene, subscriber_id="acme")
        await run_replays(scene)
        live = [str(await scene.event(f"live-{n}")) for n in range(3)]
        await scene.drain(scene.dispatcher())
        keys = [(request.header("webhook-id") or "").partition(":")[0] for request in receiver.requests]
        assert keys[:3] == live
        assert len(keys) == 6


_HURRY = """
    UPDATE tocsin.replays SET next_at = now()
     WHERE id IN (SELECT id FROM tocsin.replays WHERE state = 'running' ORDER BY id FOR UPDATE)
"""


async def test_two_replays_of_the_same_at_once_replay_each_delivery_once(scene: Scene) -> None:
    await fill(scene, 60)
    both = [await replay_all(scene, subscriber_id="acme", rate=80) for _ in range(2)]

    async def work() -> None:
        while await replaying.once(scene.db, scene.doorbell):
            await scene.execute(_HURRY)

    await asyncio.gather(work(), work(), work())
    done = [await progress(scene, each) for each in both]
    assert sum(each.replayed for each in done) == await replayed(scene) == 60
    assert [each.done for each in done] == [60, 60]


async def test_a_bulk_replay_survives_the_killing_of_its_worker_without_a_loss_or_a_double(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    key = new_key()
    scene = Scene(database, Limits(), vault=Vault([key]))
    await scene.subscriber("acme", "http://127.0.0.1:9/")
    await scene.execute("UPDATE tocsin.lanes SET state = 'paused'")
    await fill(scene, 3_000)
    running = await replay_all(scene, subscriber_id="acme", rate=800)

    async def released() -> int:
        return (await progress(scene, running)).replayed

    async with WorkerProcess(database_url, key, tmp_path).running() as worker:
        await eventually(released, seconds=40)
        await worker.kill()
    halfway = await released()
    assert 0 < halfway < 3_000
    assert await replayed(scene) == halfway
    async with WorkerProcess(database_url, key, tmp_path).running():
        await eventually(lambda: _completed(scene, running.id), seconds=40)
    done = await progress(scene, running)
    assert (done.matched, done.replayed, done.skipped) == (3_000, 3_000, {Refusal.CHANGED: 0})
    [row] = await scene.execute(
        "SELECT min(generation) AS least, max(generation) AS most, count(*) AS n FROM tocsin.deliveries "
        "WHERE state = 'pending'"
    )
    assert tuple(row) == (2, 2, 3_000)
    # In no second were more released than the rate allows, and the chunk with which it began.
    [row] = await scene.execute(
        "SELECT max(n) AS most FROM (SELECT count(*) OVER (ORDER BY at RANGE BETWEEN CURRENT ROW AND '1 s' FOLLOWING) "
        "AS n FROM tocsin.generations) x"
    )
    assert row.most <= 800 + 200


async def _completed(scene: Scene, replay_: object) -> bool:
    [row] = await scene.execute("SELECT state FROM tocsin.replays WHERE id = :id", id=replay_)
    return bool(row.state == "completed")
