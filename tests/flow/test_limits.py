"""What the limits of a lane promise: exact concurrency and rate, a breaker, and room for those that answer."""

import asyncio
from itertools import pairwise

from service.domain.breaker import FAILURES_TO_OPEN
from service.flow import upkeep
from service.flow.dispatch import Dispatcher, Limits
from service.store.database import Database
from service.store.vault import Vault, new_key
from tests.polling import eventually
from tests.receivers import HANG, Answer, Receiver, Request, answer
from tests.scenes import Scene


async def _events(scene: Scene, count: int) -> None:
    for n in range(count):
        await scene.event(f"e{n}")


async def test_a_rate_is_kept_across_workers_and_waiting_for_it_is_no_attempt(database: Database) -> None:
    scene = Scene(database)
    async with Receiver(then=answer(200)) as receiver:
        await scene.subscriber("slow", receiver.url, rate_per_second=1 / 60)
        await _events(scene, 5)
        for _ in range(3):
            await asyncio.gather(*(scene.dispatcher(f"w{n}").once() for n in range(4)))
        assert len(receiver.requests) == 1
        rows = await scene.execute("SELECT attempt_count, state FROM tocsin.deliveries ORDER BY row")
        assert [tuple(row) for row in rows] == [(1, "delivered"), *[(0, "pending")] * 4]
        await scene.execute("UPDATE tocsin.lanes SET tokens_at = tokens_at - interval '1 minute', next_due_at = now()")
        await scene.dispatcher().once()
        assert len(receiver.requests) == 2


async def test_a_lane_opens_after_failures_in_a_row_and_probes_one_at_a_time(database: Database) -> None:
    scene = Scene(database)
    async with Receiver(then=answer(503)) as receiver:
        await scene.subscriber("down", receiver.url, max_concurrency=5, backoff_cap_seconds=0.02)
        await _events(scene, 40)
        dispatcher = scene.dispatcher()
        while await dispatcher.once():
            pass
        assert FAILURES_TO_OPEN <= len(receiver.requests) < FAILURES_TO_OPEN + 5
        burnt = len(receiver.requests)
        assert {view.held_by for view in await scene.views("down")} == {"circuit-open"}
        for probes in (1, 2, 3):
            await scene.execute("UPDATE tocsin.lanes SET open_until = now(), next_due_at = now()")
            await dispatcher.once()
            assert len(receiver.requests) == burnt + probes


async def test_probes_come_at_growing_intervals(database: Database) -> None:
    scene = Scene(database)
    async with Receiver(then=answer(500)) as receiver:
        await scene.subscriber("down", receiver.url, backoff_cap_seconds=0.02)
        await _events(scene, 30)
        dispatcher = scene.dispatcher()
        pauses = []
        for _ in range(4):
            await dispatcher.once()
            [lane] = await scene.execute(
                "SELECT extract(epoch FROM open_until - now())::float8 AS pause FROM tocsin.lanes"
            )
            pauses.append(lane.pause)
            await scene.execute("UPDATE tocsin.lanes SET open_until = now(), next_due_at = now()")
        assert all(2 * before * 0.45 < after for before, after in pairwise(pauses))
        assert pauses[-1] > 15


async def _asked(scene: Scene, dispatcher: Dispatcher, receiver: Receiver, *, turns: int) -> list[int]:
    """How many requests the receiver got in each of these turns."""
    asked = []
    for _ in range(turns):
        before = len(receiver.requests)
        await scene.make_due()
        await dispatcher.once()
        asked.append(len(receiver.requests) - before)
    return asked


async def test_a_recovered_lane_ramps_up(database: Database) -> None:
    scene = Scene(database)
    async with Receiver(*[answer(500)] * 20, then=answer(200)) as receiver:
        await scene.subscriber("back", receiver.url, max_concurrency=16, backoff_cap_seconds=0.02, max_attempts=50)
        await _events(scene, 60)
        dispatcher = scene.dispatcher()
        while len(receiver.requests) < 20:
            await dispatcher.once()
            await scene.make_due()
        assert await _asked(scene, dispatcher, receiver, turns=4) == [1, 2, 4, 8]


async def test_five_days_without_a_success_disable_a_subscriber_and_lose_nothing(database: Database) -> None:
    scene = Scene(database)
    async with Receiver(then=answer(500)) as receiver:
        await scene.subscriber("down", receiver.url, max_attempts=100)
        for n in range(4):
            await scene.subscriber(f"well{n}", receiver.url, event_types=("other.*",))
        await _events(scene, 12)
        await scene.dispatcher().once()
    await upkeep.disable_failing(database)
    assert await _state(scene, "down") == "active"
    await scene.execute("UPDATE tocsin.lanes SET failing_since = failing_since - interval '5 days 1 minute'")
    await upkeep.disable_failing(database)
    assert await _state(scene, "down") == "disabled"
    assert await scene.states() == {"pending": 12}
    [line] = await scene.execute("SELECT actor, reason FROM tocsin.audit WHERE action = 'subscriber.disabled'")
    assert tuple(line) == ("tocsin", "no success for 5 days")


async def test_one_success_begins_the_five_days_anew(database: Database) -> None:
    scene = Scene(database)
    async with Receiver(answer(200), then=answer(500)) as receiver:
        await scene.subscriber("flaky", receiver.url, max_attempts=100)
        for n in range(4):
            await scene.subscriber(f"well{n}", receiver.url, event_types=("other.*",))
        await scene.execute(
            "UPDATE tocsin.lanes SET failures = 1, failing_since = now() - interval '6 days' FROM tocsin.subscribers s "
            "WHERE s.row = subscriber AND s.id = 'flaky'"
        )
        for count in (1, 12):
            await _events(scene, count)
            await scene.dispatcher().once()
    await upkeep.disable_failing(database)
    assert await _state(scene, "flaky") == "active"


async def test_nobody_is_disabled_while_most_of_all_fail(database: Database) -> None:
    scene = Scene(database)
    async with Receiver(then=answer(500)) as receiver:
        for n in range(4):
            await scene.subscriber(f"down{n}", receiver.url, max_attempts=100)
        await _events(scene, 12)
        for _ in range(4):
            await scene.dispatcher().once()
    await scene.execute("UPDATE tocsin.lanes SET failing_since = now() - interval '6 days'")
    await upkeep.disable_failing(database)
    assert {await _state(scene, f"down{n}") for n in range(4)} == {"active"}


async def test_one_hanging_lane_leaves_room_for_the_others(database: Database) -> None:
    scene = Scene(database, Limits(concurrency=10, claim_batch=10))
    async with Receiver(then=HANG) as dead, Receiver(then=answer(200)) as well:
        await scene.subscriber("dead", dead.url, max_concurrency=100, timeout_seconds=20)
        await _events(scene, 50)
        stop = asyncio.Event()
        worker = asyncio.create_task(scene.worker().run(stop))
        await eventually(lambda: dead.inflight)
        for n in range(20):
            await scene.subscriber(f"well{n}", well.url, event_types=("other.*",))
        for n in range(3):
            await scene.event(f"o{n}", type_="other.kind")
        await eventually(lambda: len(well.requests) == 60, seconds=10)
        assert dead.inflight <= 5
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)


async def test_one_origin_gets_at_most_half_of_a_worker(database: Database) -> None:
    scene = Scene(database, Limits(concurrency=8, claim_batch=8))
    async with Receiver(then=answer(200, delay=0.02)) as receiver:
        for n in range(12):
            await scene.subscriber(f"s{n}", f"{receiver.url}?{n}")
        await _events(scene, 3)
        dispatcher = scene.dispatcher()
        while await dispatcher.once():
            pass
        assert receiver.peak == 4
        assert len(receiver.requests) == 36


async def test_retries_leave_a_quarter_of_a_lane_to_first_attempts(database: Database) -> None:
    scene = Scene(database)

    def poison(request: Request) -> Answer:
        return answer(500) if b'"subject":"poison' in request.body else answer(200)

    async with Receiver(*[poison] * 500) as receiver:
        await scene.subscriber("mixed", receiver.url, max_concurrency=8, max_attempts=100)
        for n in range(8):
            await scene.event(f"poison{n}")
        dispatcher = scene.dispatcher()
        await dispatcher.once()
        await scene.make_due()
        for n in range(8):
            await scene.event(f"good{n}")
        before = len(receiver.requests)
        await dispatcher.once()
        batch = [b'"subject":"good' in request.body for request in receiver.requests[before:]]
        assert (batch.count(True), batch.count(False)) == (2, 6)


async def test_retries_leave_a_quarter_of_a_batch_to_first_attempts(database: Database) -> None:
    scene = Scene(database, Limits(claim_batch=16))
    async with Receiver(then=answer(200)) as behind, Receiver(then=answer(200)) as calm:
        for n in range(4):
            await scene.subscriber(f"behind{n}", behind.url, event_types=("shipment.*",))
        await _events(scene, 16)
        await scene.execute("UPDATE tocsin.deliveries SET queue = 1")
        await scene.subscriber("calm", calm.url, event_types=("other.*",))
        for n in range(4):
            await scene.event(f"o{n}", type_="other.kind")
        await scene.dispatcher().once()
        assert (len(behind.requests), len(calm.requests)) == (12, 4)


_ROTATION = 5
"""Claims in which ten lanes have a turn each, if a batch is two turns."""


async def test_a_nearly_idle_lane_need_not_wait_for_the_turns_of_those_with_a_backlog(database: Database) -> None:
    scene = Scene(database, Limits(claim_batch=2 * 16))
    async with Receiver(then=answer(200)) as behind, Receiver(then=answer(200)) as calm:
        for n in range(10):
            await scene.subscriber(f"behind{n}", behind.url, event_types=("shipment.*",))
        await _events(scene, 100)
        await scene.subscriber("calm", calm.url, event_types=("other.*",))
        dispatcher = scene.dispatcher()
        for _ in range(_ROTATION):
            await dispatcher.once()
        claims = []
        for n in range(20):
            await scene.event(f"o{n}", type_="other.kind")
            claims.append(await _claims_until(dispatcher, calm, n + 1))
        assert max(claims) <= 2
        assert len(behind.requests) >= (_ROTATION + len(claims)) * 31  # and no room is lost


async def _claims_until(dispatcher: Dispatcher, receiver: Receiver, requests: int) -> int:
    """How many claims it takes until the receiver has had so many requests."""
    claims = 0
    while len(receiver.requests) < requests:
        await dispatcher.once()
        claims += 1
    return claims


async def test_many_nearly_idle_lanes_leave_one_with_a_backlog_its_part(database: Database) -> None:
    scene = Scene(database, Limits(claim_batch=8))
    async with Receiver(then=answer(200)) as behind, Receiver(then=answer(200)) as calm:
        await scene.subscriber("behind", behind.url, event_types=("shipment.*",))
        await _events(scene, 100)
        for n in range(10):
            await scene.subscriber(f"calm{n}", calm.url, event_types=("other.*",))
        await scene.execute("UPDATE tocsin.lanes SET claimed_at = now()")
        dispatcher = scene.dispatcher()
        for n in range(66):  # each of the ten is due for one a claim, and eleven share the eight there are
            await scene.event(f"o{n}", type_="other.kind")
            await dispatcher.once()
        assert len(behind.requests) + len(calm.requests) == 66 * 8
        assert abs(len(behind.requests) - 66 * 8 / 11) <= 16  # a turn


async def test_a_receiver_that_cannot_deduplicate_gets_one_at_a_time(database: Database) -> None:
    scene = Scene(database)
    async with Receiver(then=answer(200, delay=0.005)) as receiver:
        await scene.subscriber("once", receiver.url, idempotent=False, max_concurrency=16)
        await _events(scene, 6)
        dispatchers = [scene.dispatcher("w1"), scene.dispatcher("w2")]
        while (await scene.states()).get("pending"):
            await asyncio.gather(*(dispatcher.once() for dispatcher in dispatchers))
        assert receiver.peak == 1


async def test_a_deadline_passes_also_while_a_subscriber_is_paused(database: Database) -> None:
    scene = Scene(database)
    await scene.subscriber("paused", "http://127.0.0.1:9/")
    await scene.execute("UPDATE tocsin.lanes SET state = 'paused'")
    await _events(scene, 3)
    await scene.execute("UPDATE tocsin.deliveries SET deadline_at = now() WHERE row % 3 <> 0")
    await upkeep.expire_overdue(database)
    rows = await scene.execute("SELECT state, reason, count(*) FROM tocsin.deliveries GROUP BY 1, 2 ORDER BY 1")
    assert [tuple(row) for row in rows] == [("exhausted", "deadline", 2), ("pending", None, 1)]


async def _state(scene: Scene, slug: str) -> str:
    [row] = await scene.execute(
        "SELECT l.state FROM tocsin.lanes l JOIN tocsin.subscribers s ON s.row = l.subscriber WHERE s.id = :slug",
        slug=slug,
    )
    return str(row.state)


async def test_behind_a_throttle_a_lane_starts_again_with_one(database: Database) -> None:
    scene = Scene(database)
    async with Receiver(*[answer(429, headers={"retry-after": "1"})] * 16, then=answer(200)) as receiver:
        await scene.subscriber("busy", receiver.url)
        await _events(scene, 40)
        dispatcher = scene.dispatcher()
        await dispatcher.once()
        assert len(receiver.requests) == 16
        assert {view.held_by for view in await scene.views("busy")} == {"throttled"}
        assert await _asked(scene, dispatcher, receiver, turns=4) == [1, 2, 4, 8]


async def test_what_waits_for_a_full_lane_says_so(database: Database) -> None:
    scene = Scene(database)
    release = asyncio.Event()
    async with Receiver(then=answer(200, hold=release)) as receiver:
        await scene.subscriber("full", receiver.url, max_concurrency=2)
        await _events(scene, 3)
        sending = asyncio.create_task(scene.dispatcher().once())
        await eventually(lambda: receiver.inflight == 2)
        held = {(view.state.value, view.held_by) for view in await scene.views("full")}
        assert held == {("leased", None), ("pending", "lane-full")}
        release.set()
        await sending


async def test_an_unreadable_secret_holds_the_lane_and_counts_no_attempt(database: Database) -> None:
    scene = Scene(database)
    async with Receiver() as receiver:
        await scene.subscriber("sealed", receiver.url)
        await _events(scene, 20)
        right, scene.vault = scene.vault, Vault([new_key()])
        dispatcher = scene.dispatcher()
        while await dispatcher.once():
            pass
        assert not receiver.requests
        evidence = await scene.evidence("sealed")
        assert {(row.outcome, row.detail, row.counted) for row in evidence} == {
            ("internal", "secret-unreadable", False)
        }
        assert len(evidence) <= 16
        scene.vault = right
        await scene.drain(scene.dispatcher())
        assert len(receiver.requests) == 20


async def test_a_410_of_a_url_that_was_changed_meanwhile_disables_nobody(database: Database) -> None:
    scene = Scene(database)
    release = asyncio.Event()
    async with Receiver(then=answer(410, hold=release)) as receiver:
        await scene.subscriber("moved", receiver.url)
        await _events(scene, 1)
        sending = asyncio.create_task(scene.dispatcher().once())
        await eventually(lambda: receiver.inflight == 1)
        await scene.execute("UPDATE tocsin.subscribers SET revision = revision + 1")
        release.set()
        await sending
    assert await _state(scene, "moved") == "active"


async def test_a_lane_that_fell_asleep_over_due_work_is_roused(database: Database) -> None:
    scene = Scene(database)
    async with Receiver() as receiver:
        await scene.subscriber("asleep", receiver.url)
        await _events(scene, 1)
        await scene.execute("UPDATE tocsin.lanes SET next_due_at = 'infinity'")
        await scene.execute("UPDATE tocsin.deliveries SET next_attempt_at = now() - interval '1 minute'")
        dispatcher = scene.dispatcher()
        assert await dispatcher.once() == 0
        await upkeep.mend_lanes(database)
        assert await dispatcher.once() == 1
