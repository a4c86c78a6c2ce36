"""What ordered lanes promise: one after another, in the order of the fan-out, with no gap in front of anybody."""

import asyncio
from dataclasses import replace

import pytest

from service.domain.model import OnDeadLetter, Ordering, RunState
from service.flow import control_subscribers
from service.flow.dispatch import Limits
from service.flow.vetting import Vetting
from service.store import subscribers
from service.store.database import Database
from tests.polling import eventually
from tests.receivers import DISCONNECT, HANG, Answer, Receiver, Request, answer
from tests.scenes import Scene, shipments_job


def subject_of(request: Request) -> str:
    return request.body.split(b'"subject":"')[1].split(b'"')[0].decode()


async def _publish(scene: Scene, count: int, *, subjects: int = 0) -> None:
    """Events n = 1 … count, each of its own subject, or of `subjects` subjects in turn with n as version."""
    for n in range(1, count + 1):
        await scene.event(f"s{n % subjects}" if subjects else f"e{n}", version=n)


async def test_a_strict_lane_is_sent_in_order_and_one_at_a_time(database: Database) -> None:
    scene = Scene(database)
    async with Receiver(then=answer(200)) as receiver:
        await scene.subscriber("strict", receiver.url, ordering=Ordering.STRICT)
        await _publish(scene, 30)
        await scene.drain(scene.dispatcher())
        assert [subject_of(request) for request in receiver.requests] == [f"e{n}" for n in range(1, 31)]
        assert receiver.peak == 1


async def test_a_chain_is_one_claim_and_several_workers_share_no_lane(database: Database) -> None:
    scene = Scene(database)
    async with Receiver(then=answer(200)) as receiver:
        await scene.subscriber("strict", receiver.url, ordering=Ordering.STRICT)
        await _publish(scene, 40)
        assert sorted(await asyncio.gather(*(scene.dispatcher(f"w{n}").once() for n in range(4)))) == [0, 0, 0, 40]
        assert receiver.peak == 1
    assert await scene.states() == {"delivered": 40}


async def test_successors_wait_uncounted_while_their_predecessor_is_retried(database: Database) -> None:
    scene = Scene(database)
    async with Receiver(*[answer(200)] * 2, *[answer(500)] * 3, then=answer(200)) as receiver:
        await scene.subscriber("strict", receiver.url, ordering=Ordering.STRICT)
        await _publish(scene, 6)
        dispatcher = scene.dispatcher()
        assert await dispatcher.once() == 6
        waiting = await scene.execute(
            "SELECT attempt_count, next_attempt_at = 'infinity' AS parked FROM tocsin.deliveries "
            "WHERE finished_at IS NULL ORDER BY row"
        )
        assert [tuple(row) for row in waiting] == [(1, False), (0, True), (0, True), (0, True)]
        while (await scene.states()).get("pending"):
            await scene.make_due()
            await dispatcher.once()
        assert [subject_of(request) for request in receiver.requests] == [
            *["e1", "e2"],
            *["e3"] * 4,
            *["e4", "e5", "e6"],
        ]
    counts = await scene.execute("SELECT attempt_count FROM tocsin.deliveries ORDER BY row")
    assert [row.attempt_count for row in counts] == [1, 1, 4, 1, 1, 1]


async def test_waiting_shows_as_held_by_its_predecessor(database: Database) -> None:
    scene = Scene(database)
    await scene.subscriber("strict", "http://127.0.0.1:9/", ordering=Ordering.STRICT)
    await _publish(scene, 2)
    head, waiting = await scene.views("strict")
    assert (head.held_by, head.next_attempt_at is None) == (None, False)
    assert (waiting.held_by, waiting.next_attempt_at) == ("predecessor", None)


async def test_a_dead_letter_is_skipped_or_blocks_as_the_subscriber_says(database: Database) -> None:
    scene = Scene(database)

    def poison(request: Request) -> Answer:
        return answer(422 if subject_of(request) == "e2" else 200)

    async with Receiver(*[poison] * 20) as receiver:
        await scene.subscriber("skips", receiver.url, ordering=Ordering.STRICT)
        await scene.subscriber("blocks", receiver.url, ordering=Ordering.STRICT, on_dead_letter=OnDeadLetter.BLOCK)
        await _publish(scene, 4)
        dispatcher = scene.dispatcher()
        while await dispatcher.once():
            await scene.make_due()
    rows = await scene.execute(
        "SELECT s.id, array_agg(d.state ORDER BY d.row) AS states FROM tocsin.deliveries d "
        "JOIN tocsin.subscribers s ON s.row = d.subscriber GROUP BY 1 ORDER BY 1"
    )
    assert {row.id: row.states for row in rows} == {
        "blocks": ["delivered", "rejected", "pending", "pending"],
        "skips": ["delivered", "rejected", "delivered", "delivered"],
    }
    assert {view.held_by for view in await scene.views("blocks") if view.finished_at is None} == {"predecessor"}


@pytest.mark.parametrize(
    ("ends", "state"), [(answer(500), "exhausted"), (answer(422), "rejected"), (DISCONNECT, "ambiguous")]
)
async def test_every_kind_of_dead_letter_blocks_until_the_subscriber_says_skip(
    database: Database, ends: Answer, state: str
) -> None:
    scene = Scene(database)
    wanted = {"ordering": Ordering.STRICT, "on_dead_letter": OnDeadLetter.BLOCK, "max_attempts": 1, "idempotent": False}
    async with Receiver(ends, then=answer(200)) as receiver:
        await scene.subscriber("acme", receiver.url, **wanted)
        await _publish(scene, 2)
        dispatcher = scene.dispatcher()
        while await dispatcher.once():
            await scene.make_due()
        assert await scene.states() == {state: 1, "pending": 1}
        async with database.begin() as tx:
            stands = await subscribers.read(tx, "acme")
        assert stands is not None
        skips = replace(stands.wanted, on_dead_letter=OnDeadLetter.SKIP)
        vetting = Vetting(scene.egress, scene.limits.lease_seconds)
        await control_subscribers.put_subscriber(database, skips, actor="ops", vault=scene.vault, vetting=vetting)
        assert await dispatcher.once() == 1
    assert await scene.states() == {state: 1, "delivered": 1}


async def test_subjects_go_side_by_side_and_each_in_order(database: Database) -> None:
    scene = Scene(database)
    async with Receiver(then=answer(200, delay=0.01)) as receiver:
        await scene.subscriber("subject", receiver.url, ordering=Ordering.SUBJECT, max_concurrency=4)
        await _publish(scene, 24, subjects=3)
        dispatchers = [scene.dispatcher("w1"), scene.dispatcher("w2")]
        while (await scene.states()).get("pending"):
            await asyncio.gather(*(dispatcher.once() for dispatcher in dispatchers))
        assert 1 < receiver.peak <= 3
        for subject in ("s0", "s1", "s2"):
            versions = [
                int(r.body.split(b'"version":')[1].split(b",")[0])
                for r in receiver.requests
                if subject_of(r) == subject
            ]
            assert versions == sorted(versions)
            assert len(versions) == 8


async def test_a_failing_subject_does_not_hold_up_the_others(database: Database) -> None:
    scene = Scene(database)

    def one_fails(request: Request) -> Answer:
        return DISCONNECT if subject_of(request) == "s1" else answer(200)

    async with Receiver(*[one_fails] * 40) as receiver:
        await scene.subscriber(
            "subject", receiver.url, ordering=Ordering.SUBJECT, backoff_base_seconds=900, backoff_cap_seconds=900
        )
        await _publish(scene, 12, subjects=3)
        dispatcher = scene.dispatcher()
        while await dispatcher.once():
            pass
        assert [subject_of(request) for request in receiver.requests].count("s1") == 1
    assert await scene.states() == {"delivered": 8, "pending": 4}


async def test_order_holds_over_a_dead_worker(database: Database) -> None:
    scene = Scene(database)
    async with Receiver(answer(200), HANG, then=answer(200)) as receiver:
        await scene.subscriber("strict", receiver.url, ordering=Ordering.STRICT)
        await _publish(scene, 5)
        dying = asyncio.create_task(scene.dispatcher("w1").once())
        await eventually(lambda: len(receiver.requests) == 2)
        await scene.expire_leases()
        successor = scene.dispatcher("w2")
        assert await successor.once() == 5  # all of the chain lapsed: nobody knows how far the dead worker came
        while (await scene.states()).get("pending"):
            await scene.make_due()
            await successor.once()
        dying.cancel()
        order = [subject_of(request) for request in receiver.requests]
        assert order[:2] == ["e1", "e2"]
        assert order[2:] == ["e1", "e2", "e3", "e4", "e5"]
    [row] = await scene.execute("SELECT max(attempt_count) AS most, min(attempt_count) AS least FROM tocsin.deliveries")
    assert (row.most, row.least) == (2, 1)


async def test_fan_out_and_settle_at_once_forget_no_head(database: Database) -> None:
    scene, job = Scene(database, Limits(lease_seconds=30)), shipments_job(page_size=7)
    async with Receiver(then=answer(200)) as receiver:
        await scene.shipments(60)
        for n in range(3):
            await scene.subscriber(f"strict{n}", receiver.url, ordering=Ordering.STRICT)
        run = await scene.tick(job)
        stop = asyncio.Event()
        workers = [asyncio.create_task(scene.worker(job, name=f"w{n}").run(stop)) for n in range(2)]
        for n in range(20):
            await scene.event(f"beside-{n}")
        await eventually(lambda: _all_delivered(scene, 3 * 80), seconds=30)
        stop.set()
        await asyncio.gather(*workers)
    assert (await scene.run(run)).state is RunState.COMPLETED


async def _all_delivered(scene: Scene, count: int) -> bool:
    return await scene.states() == {"delivered": count}
