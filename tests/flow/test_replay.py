"""What a replay, a resolution and a cancellation of one delivery promise, also where they meet each other."""

import asyncio

import pytest

from service.domain.errors import Conflict, NotFound, PayloadPurged
from service.domain.identifiers import delivery_key
from service.domain.model import DeliveryState, OnDeadLetter, Ordering, Outcome
from service.domain.states import CANCELLABLE, DELIVERY_TRANSITIONS, REPLAYABLE, RESOLVABLE
from service.store.database import Database
from tests import steering
from tests.operating import cancel, named, only, read, replay, resolve
from tests.polling import eventually
from tests.receivers import Receiver, answer
from tests.scenes import Scene, shipments_job

LEASED = "UPDATE tocsin.deliveries SET lease_owner = 'w', lease_expires_at = now() + interval '1 minute'"


async def put_into(scene: Scene, state: DeliveryState) -> None:
    """The only delivery as it stands in this state, its lane as it is then."""
    if state is DeliveryState.LEASED:
        await scene.execute(LEASED)
        await scene.execute("UPDATE tocsin.lanes SET leased = 1")
    elif state is not DeliveryState.PENDING:
        await scene.execute("UPDATE tocsin.deliveries SET state = :s, finished_at = now(), reason = 'r'", s=state.value)


async def test_a_dead_letter_replayed_twice_shows_three_generations_every_attempt_and_who_asked_why(
    database: Database,
) -> None:
    scene = Scene(database)
    async with Receiver(answer(404), answer(500), answer(404), then=answer(200)) as receiver:
        await scene.subscriber("acme", receiver.url)
        event = await scene.event()
        await scene.drain(scene.dispatcher())
        letter = await only(scene)
        for actor, reason in (("alice", "mended"), ("bob", "mended now, really")):
            shown = await replay(scene, letter, actor=actor, reason=reason)
            assert (shown.delivery.state, shown.delivery.generation_attempts) == (DeliveryState.PENDING, 0)
            assert (shown.delivery.reason, shown.delivery.finished_at) == (None, None)
            await scene.drain(scene.dispatcher())
        assert {request.header("webhook-id") for request in receiver.requests} == {delivery_key(event, "acme")}
        assert len({request.body for request in receiver.requests}) == 1
        assert [request.header("tocsin-generation") for request in receiver.requests] == ["1", "2", "2", "3"]
    shown = await read(scene, letter)
    assert (shown.delivery.state, shown.delivery.generation) == (DeliveryState.DELIVERED, 3)
    assert (shown.delivery.attempt_count, shown.delivery.generation_attempts) == (4, 1)
    assert [(a.number, a.generation, a.outcome) for a in shown.attempts] == [
        (1, 1, Outcome.REJECTED),
        (2, 2, Outcome.SERVER_ERROR),
        (3, 2, Outcome.REJECTED),
        (4, 3, Outcome.DELIVERED),
    ]
    assert [(r.generation, r.requested_by, r.reason, r.was_state, r.was_reason) for r in shown.replays] == [
        (2, "alice", "mended", DeliveryState.REJECTED, "rejected-by-receiver"),
        (3, "bob", "mended now, really", DeliveryState.REJECTED, "rejected-by-receiver"),
    ]
    assert [(line.action, line.actor) for line in shown.actions] == [
        ("delivery.replayed", "alice"),
        ("delivery.replayed", "bob"),
    ]


@pytest.mark.parametrize("state", DeliveryState)
async def test_what_may_be_done_to_a_delivery_is_what_the_table_says(database: Database, state: DeliveryState) -> None:
    scene = Scene(database)
    await scene.subscriber("acme", "http://127.0.0.1:9/")
    for verb, allowed, then in (
        (replay, REPLAYABLE, DeliveryState.PENDING),
        (resolve, RESOLVABLE, DeliveryState.DELIVERED),
        (cancel, CANCELLABLE, DeliveryState.CANCELLED),
    ):
        await scene.execute("TRUNCATE tocsin.deliveries")
        await scene.event(verb.__name__)
        await put_into(scene, state)
        one, lines = await only(scene), len(await steering.trail(scene))
        if state in allowed:
            assert then in DELIVERY_TRANSITIONS[state]
            assert (await verb(scene, one)).delivery.state is then
            assert len(await steering.trail(scene)) == lines + 1
        elif (verb, state) == (cancel, DeliveryState.CANCELLED):
            assert (await cancel(scene, one)).delivery.reason == "r"
            assert len(await steering.trail(scene)) == lines
        else:
            with pytest.raises(Conflict, match=f"It is {state.value}"):
                await verb(scene, one)
            assert (await read(scene, one)).delivery.state is state
            assert len(await steering.trail(scene)) == lines
    [lane] = await scene.execute("SELECT leased FROM tocsin.lanes")
    assert lane.leased == (state is DeliveryState.LEASED and 0)


async def test_of_many_replays_at_once_one_opens_the_generation(database: Database) -> None:
    scene = Scene(database)
    await scene.subscriber("acme", "http://127.0.0.1:9/")
    await scene.event()
    await put_into(scene, DeliveryState.REJECTED)
    one = await only(scene)
    told = await asyncio.gather(*(replay(scene, one) for _ in range(8)), return_exceptions=True)
    assert sum(not isinstance(each, BaseException) for each in told) == 1
    assert sum(isinstance(each, Conflict) for each in told) == 7
    shown = await read(scene, one)
    assert (shown.delivery.generation, len(shown.replays), len(shown.actions)) == (2, 1, 1)


async def test_replays_beside_claims_send_each_generation_once(database: Database) -> None:
    scene = Scene(database)
    async with Receiver(then=answer(200)) as receiver:
        await scene.subscriber("acme", receiver.url)
        for n in range(20):
            await scene.event(f"e{n}")
        await put_into(scene, DeliveryState.EXHAUSTED)
        ids = [view.id for view in await scene.views("acme")]
        dispatchers = [scene.dispatcher("w1"), scene.dispatcher("w2")]

        async def claims() -> None:
            while (await scene.states()).get("delivered", 0) < 20:
                await asyncio.gather(*(dispatcher.once() for dispatcher in dispatchers))

        async with asyncio.timeout(30):
            await asyncio.gather(claims(), *(replay(scene, named(each)) for each in ids))
        assert len(receiver.requests) == 20
    rows = await scene.execute("SELECT generation, attempt_count FROM tocsin.deliveries")
    assert {tuple(row) for row in rows} == {(2, 1)}
    [lane] = await scene.execute("SELECT leased, leased_late FROM tocsin.lanes")
    assert tuple(lane) == (0, 0)


async def test_no_replay_survives_the_deletion_of_its_subscriber(database: Database) -> None:
    scene = Scene(database)
    await steering.put(scene)
    for n in range(10):
        await scene.event(f"e{n}")
    await put_into(scene, DeliveryState.REJECTED)
    ids = [named(view.id) for view in await scene.views("acme")]
    told = await asyncio.gather(*(replay(scene, each) for each in ids), steering.delete(scene), return_exceptions=True)
    assert all(not isinstance(each, BaseException) or isinstance(each, Conflict) for each in told)
    assert set(await scene.states()) <= {"cancelled", "rejected"}
    with pytest.raises(Conflict, match="subscriber was deleted"):
        await replay(scene, ids[0])


async def test_what_was_meant_for_one_tenant_is_not_replayed_to_another(database: Database) -> None:
    scene = Scene(database)
    await scene.subscriber("acme", "http://127.0.0.1:9/")
    await scene.event()
    await put_into(scene, DeliveryState.REJECTED)
    await scene.execute("UPDATE tocsin.subscribers SET tenant_id = 'rival'")  # which no PUT would do
    one = await only(scene)
    with pytest.raises(Conflict, match="another tenant"):
        await replay(scene, one)
    assert (await read(scene, one)).delivery.state is DeliveryState.REJECTED


async def test_a_purged_payload_cannot_be_replayed_and_what_is_nowhere_is_not_found(database: Database) -> None:
    scene = Scene(database)
    await scene.subscriber("acme", "http://127.0.0.1:9/")
    await scene.event()
    await put_into(scene, DeliveryState.DELIVERED)
    await scene.execute("UPDATE tocsin.events SET body = NULL, purged_at = now()")
    one = await only(scene)
    with pytest.raises(PayloadPurged):
        await replay(scene, one)
    await scene.execute("TRUNCATE tocsin.deliveries")
    for verb in (replay, resolve, cancel):
        with pytest.raises(NotFound):
            await verb(scene, one)


async def test_a_replay_unsettles_its_run_until_all_is_terminal_again(database: Database) -> None:
    scene, job = Scene(database), shipments_job()
    async with Receiver(answer(404), then=answer(200)) as receiver:
        await scene.shipments(1)
        await scene.subscriber("acme", receiver.url)
        run = await scene.tick(job)
        await scene.discovery(job).once()
        dispatcher = scene.dispatcher()
        for settled, deliveries in ((True, "rejected"), (False, "pending"), (True, "delivered")):
            if not settled:
                await replay(scene, await only(scene))
            else:
                await scene.drain(dispatcher)
                await dispatcher.settler._note_runs()
            view = await scene.run(run)
            assert (view.settled, view.deliveries[deliveries]) == (settled, 1)


async def test_what_is_cancelled_in_flight_keeps_its_answer_as_late_evidence(database: Database) -> None:
    scene, held = Scene(database), asyncio.Event()
    async with Receiver(answer(200, hold=held), then=answer(200)) as receiver:
        await scene.subscriber("acme", receiver.url, max_concurrency=1)
        await scene.event("in-flight")
        await scene.event("behind")
        sending = asyncio.create_task(scene.dispatcher("w1").once())
        await eventually(lambda: receiver.requests)
        first, second = await scene.views("acme")
        assert (await cancel(scene, named(first.id))).delivery.reason == "cancelled-by-operator"
        await scene.drain(scene.dispatcher("w2"))  # the lane has its room again
        held.set()
        await sending
    shown = await read(scene, named(first.id))
    assert (shown.delivery.state, shown.delivery.attempt_count) == (DeliveryState.CANCELLED, 0)
    assert [(a.outcome, a.late) for a in shown.attempts] == [(Outcome.DELIVERED, True)]
    assert (await read(scene, named(second.id))).delivery.state is DeliveryState.DELIVERED
    [lane] = await scene.execute("SELECT leased FROM tocsin.lanes")
    assert lane.leased == 0


@pytest.mark.parametrize("verb", [replay, resolve])
async def test_a_blocked_lane_goes_on_in_order_once_its_dead_letter_is_replayed_or_resolved(
    database: Database, verb: type
) -> None:
    scene = Scene(database)
    async with Receiver(answer(200), answer(404), then=answer(200)) as receiver:
        await scene.subscriber("acme", receiver.url, ordering=Ordering.STRICT, on_dead_letter=OnDeadLetter.BLOCK)
        for n in range(4):
            await scene.event(f"e{n}")
        dispatcher = scene.dispatcher()
        for _ in range(3):
            await dispatcher.once()
        assert await scene.states() == {"delivered": 1, "rejected": 1, "pending": 2}
        await verb(scene, named((await scene.views("acme"))[1].id))
        await scene.drain(dispatcher)
        sent = [request.body.split(b'"subject":"')[1][:2].decode() for request in receiver.requests]
        assert sent == ["e0", "e1", *(["e1"] if verb is replay else []), "e2", "e3"]
    assert await scene.states() == {"delivered": 4}


async def test_where_nothing_waits_for_it_a_replay_leaves_the_order(database: Database) -> None:
    scene = Scene(database)
    async with Receiver(answer(404), then=answer(200)) as receiver:
        await scene.subscriber("acme", receiver.url, ordering=Ordering.STRICT)
        for n in range(3):
            await scene.event(f"e{n}")
        await scene.drain(scene.dispatcher())
        first, second, _ = await scene.views("acme")
        await replay(scene, named(first.id))
        await replay(scene, named(second.id))
        assert {view.held_by for view in await scene.views("acme")} == {None}
        await scene.drain(scene.dispatcher())
        assert len(receiver.requests) == 5
    assert await scene.states() == {"delivered": 3}
