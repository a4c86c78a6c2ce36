"""What dispatch promises of one delivery: the ugly sequences, each ending in a state with its whole evidence."""

import asyncio
from time import monotonic

from service.domain.leases import latest_end
from service.domain.model import DeliveryState, HeldBy, Mode, Outcome
from service.flow.attempt import Attempts, Clock
from service.flow.dispatch import Limits
from service.flow.outbound import Loader
from service.store import deliveries
from service.store.database import Database
from service.store.deliveries import Appetite
from tests.polling import eventually
from tests.receivers import DISCONNECT, HANG, Receiver, answer
from tests.scenes import Scene


async def test_429_then_timeout_then_success_carry_one_unchanged_key(database: Database) -> None:
    scene = Scene(database)
    async with Receiver(answer(429, headers={"retry-after": "1"}), HANG, answer(200)) as receiver:
        await scene.subscriber("guild-7", receiver.url, timeout_seconds=0.5)
        event = await scene.event()
        await scene.drain(scene.dispatcher())
        keys = {request.header("webhook-id") for request in receiver.requests}
        bodies = {request.body for request in receiver.requests}
        assert keys == {f"{event}:guild-7"}
        assert len(bodies) == 1
        assert [request.header("tocsin-attempt") for request in receiver.requests] == ["1", "2", "3"]
    evidence = await scene.evidence("guild-7")
    assert [(row.number, row.outcome, row.status) for row in evidence] == [
        (1, "throttled", 429),
        (2, "timeout", None),
        (3, "delivered", 200),
    ]
    assert await scene.states() == {"delivered": 1}


async def test_a_permanent_rejection_stops_at_once(database: Database) -> None:
    scene = Scene(database)
    async with Receiver(then=answer(422, body=b"unknown shipment")) as receiver:
        await scene.subscriber("strict", receiver.url)
        await scene.event()
        await scene.drain(scene.dispatcher())
        assert len(receiver.requests) == 1
    [attempt] = await scene.evidence("strict")
    assert (attempt.outcome, attempt.status, attempt.state) == ("rejected", 422, "rejected")
    assert attempt.excerpt == "unknown shipment"


async def test_two_workers_on_one_row_send_once(database: Database) -> None:
    scene = Scene(database)
    async with Receiver(then=answer(200, delay=0.1)) as receiver:
        await scene.subscriber("one", receiver.url)
        await scene.event()
        await asyncio.gather(*(scene.dispatcher(f"w{n}").once() for n in range(8)))
        assert len(receiver.requests) == 1
    assert [row.outcome for row in await scene.evidence("one")] == ["delivered"]


async def test_a_lease_that_ends_during_a_slow_request_leaves_both_attempts_as_evidence(database: Database) -> None:
    scene = Scene(database)
    release = asyncio.Event()
    async with Receiver(answer(200, hold=release), then=answer(200)) as receiver:
        await scene.subscriber("slow", receiver.url)
        await scene.event()
        late, second = scene.dispatcher("w1"), scene.dispatcher("w2")
        first = asyncio.create_task(late.once())
        await eventually(lambda: receiver.requests)
        await scene.expire_leases()
        assert await second.once() == 1  # the lapse: w1's attempt becomes in_doubt
        await scene.make_due()
        assert await second.once() == 1
        release.set()
        await first
    evidence = await scene.evidence("slow")
    assert [(row.number, row.outcome, row.worker, row.late, row.counted) for row in evidence] == [
        (1, "in_doubt", "w1", False, True),
        (2, "delivered", "w2", False, True),
        (1, "delivered", "w1", True, False),
    ]
    assert await scene.states() == {"delivered": 1}
    assert b"\ntocsin_attempts_late_total 1.0\n" in late.settler.counters.text()
    assert b"\ntocsin_leases_expired_total 1.0\n" in second.settler.counters.text()


async def test_a_receiver_that_cannot_deduplicate_is_not_asked_twice(database: Database) -> None:
    scene = Scene(database)
    async with Receiver(then=DISCONNECT) as receiver:
        await scene.subscriber("once", receiver.url, idempotent=False)
        await scene.event()
        await scene.drain(scene.dispatcher())
        assert len(receiver.requests) == 1
    [attempt] = await scene.evidence("once")
    assert (attempt.outcome, attempt.state) == ("disconnected", "ambiguous")


async def test_attempts_end_in_exhausted_and_keep_the_reason(database: Database) -> None:
    scene = Scene(database)
    async with Receiver(then=answer(500)) as receiver:
        await scene.subscriber("down", receiver.url, max_attempts=3)
        await scene.event()
        await scene.drain(scene.dispatcher())
        assert len(receiver.requests) == 3
    rows = await scene.execute("SELECT state, reason, attempt_count FROM tocsin.deliveries")
    assert [tuple(row) for row in rows] == [("exhausted", "attempts", 3)]


async def test_410_disables_the_subscriber_and_holds_what_waits(database: Database) -> None:
    scene = Scene(database)
    async with Receiver(then=answer(410)) as receiver:
        await scene.subscriber("gone", receiver.url, max_concurrency=1)
        await scene.event("a")
        await scene.event("b")
        dispatcher = scene.dispatcher()
        while await dispatcher.once():
            await scene.make_due()
        assert len(receiver.requests) == 1
    assert await scene.states() == {"pending": 1, "rejected": 1}
    [line] = await scene.execute("SELECT actor, action, object FROM tocsin.audit WHERE action = 'subscriber.disabled'")
    assert tuple(line) == ("tocsin", "subscriber.disabled", "subscriber:gone")


async def test_shadow_records_without_sending(database: Database) -> None:
    scene = Scene(database)
    async with Receiver() as receiver:
        await scene.subscriber("shadow", receiver.url, mode=Mode.SHADOW)
        await scene.event()
        await scene.drain(scene.dispatcher())
        assert not receiver.requests
    [attempt] = await scene.evidence("shadow")
    assert (attempt.outcome, attempt.counted, attempt.state) == ("shadow", False, "delivered")


async def test_a_throttled_lane_waits_as_a_whole(database: Database) -> None:
    scene = Scene(database)
    async with Receiver(then=answer(429, headers={"retry-after": "60"})) as receiver:
        await scene.subscriber("busy", receiver.url, max_concurrency=1)
        for n in range(5):
            await scene.event(f"ship-{n}")
        dispatcher = scene.dispatcher()
        await dispatcher.once()
        assert await dispatcher.once() == 0
        assert len(receiver.requests) == 1


async def test_the_last_attempt_of_a_delivery_throttles_its_lane_too(database: Database) -> None:
    scene = Scene(database)
    async with Receiver(then=answer(429, headers={"retry-after": "60"})) as receiver:
        await scene.subscriber("busy", receiver.url, max_concurrency=1, max_attempts=1)
        for n in range(2):
            await scene.event(f"ship-{n}")
        dispatcher = scene.dispatcher()
        while await dispatcher.once():
            pass
        assert len(receiver.requests) == 1
    assert [(view.state, view.held_by) for view in await scene.views("busy")] == [
        (DeliveryState.EXHAUSTED, None),
        (DeliveryState.PENDING, HeldBy.THROTTLED),
    ]


async def test_a_later_and_shorter_retry_after_does_not_shorten_the_wait_of_a_lane(database: Database) -> None:
    scene, release = Scene(database), asyncio.Event()
    shorter = answer(429, headers={"retry-after": "1"}, hold=release)
    async with Receiver(shorter, answer(429, headers={"retry-after": "600"})) as receiver:
        await scene.subscriber("busy", receiver.url)
        for n in range(2):
            await scene.event(f"ship-{n}")
        dispatcher = scene.dispatcher()
        await dispatcher.take(2)
        for _ in range(2):
            await eventually(lambda: dispatcher.settler.backlog)
            await dispatcher.settler.flush()
            release.set()
    [lane] = await scene.execute("SELECT throttled_until > now() + interval '500 seconds' AS waits FROM tocsin.lanes")
    assert (lane.waits, await scene.states()) == (True, {"pending": 2})


async def test_the_limit_of_a_lane_holds_across_workers(database: Database) -> None:
    scene = Scene(database, Limits(claim_batch=50))
    async with Receiver(then=answer(200, delay=0.01)) as receiver:
        await scene.subscriber("narrow", receiver.url, max_concurrency=3)
        for n in range(40):
            await scene.event(f"ship-{n}")
        dispatchers = [scene.dispatcher(f"w{n}") for n in range(4)]
        while (await scene.states()).get("pending"):
            await asyncio.gather(*(dispatcher.once() for dispatcher in dispatchers))
        assert receiver.peak == 3
        assert len(receiver.requests) == 40


async def test_a_stopping_worker_gives_back_what_did_not_finish_uncounted(database: Database) -> None:
    scene = Scene(database, Limits(drain_seconds=0.2))
    release = asyncio.Event()
    async with Receiver(answer(200, hold=release), then=answer(200)) as receiver:
        await scene.subscriber("hung", receiver.url)
        await scene.event()
        stop = asyncio.Event()
        worker = asyncio.create_task(scene.worker().run(stop))
        await eventually(lambda: receiver.requests)
        stop.set()
        await worker
        [attempt] = await scene.evidence("hung")
        assert (attempt.outcome, attempt.counted, attempt.state) == ("interrupted", False, "pending")
        release.set()
        await scene.dispatcher("w2").once()
    [row] = await scene.execute("SELECT state, attempt_count FROM tocsin.deliveries")
    assert tuple(row) == ("delivered", 1)


async def test_a_stopping_worker_leaves_to_a_person_what_a_receiver_that_cannot_deduplicate_may_have(
    database: Database,
) -> None:
    scene = Scene(database, Limits(drain_seconds=0.05))
    async with Receiver(then=answer(200, hold=asyncio.Event())) as receiver:
        await scene.subscriber("once", receiver.url, idempotent=False)
        await scene.event()
        dispatcher = scene.dispatcher()
        await dispatcher.take(1)
        await eventually(lambda: receiver.requests)
        await dispatcher.land()
        await dispatcher.settle_the_rest()
        await scene.make_due()
        assert await scene.dispatcher("w2").once() == 0
        assert len(receiver.requests) == 1
    [attempt] = await scene.evidence("once")
    assert (attempt.outcome, attempt.counted, attempt.state) == ("disconnected", True, "ambiguous")


async def test_a_delivery_whose_deadline_passed_is_exhausted_without_being_sent(database: Database) -> None:
    scene = Scene(database)
    async with Receiver() as receiver:
        await scene.subscriber("late", receiver.url)
        await scene.event()
        await scene.execute("UPDATE tocsin.deliveries SET deadline_at = now() - interval '1 second'")
        dispatcher = scene.dispatcher()
        await dispatcher.once()
        assert not receiver.requests
    [row] = await scene.execute("SELECT state, reason, attempt_count FROM tocsin.deliveries")
    assert tuple(row) == ("exhausted", "deadline", 0)
    assert b"\ntocsin_deadline_breaches_total 1.0\n" in dispatcher.settler.counters.text()


async def test_no_request_begins_that_its_lease_might_not_outlive(database: Database) -> None:
    scene, lease = Scene(database), 60.0
    async with Receiver(then=answer(200)) as receiver:
        await scene.subscriber("slow", receiver.url, timeout_seconds=15.0)
        await scene.event()
        async with scene.db.begin() as tx:
            [claimed] = await deliveries.claim(tx, Appetite(1, 1), worker="w1", lease_seconds=lease)
        [item] = await Loader(scene.db, scene.vault).load([claimed])
        too_late = latest_end(lease) - 15.0
        for since_the_claim, outcome in ((too_late, Outcome.INTERRUPTED), (too_late - 10.0, Outcome.DELIVERED)):
            clock = Clock(claimed.leased_at, monotonic() - since_the_claim, lease)
            settled = await Attempts(scene.egress, "w1").make(item, clock)
            assert settled.answer is not None
            assert settled.answer.outcome is outcome
            assert settled.settlement.counted is (outcome is Outcome.DELIVERED)
        assert len(receiver.requests) == 1
