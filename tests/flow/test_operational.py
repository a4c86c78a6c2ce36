"""What Tocsin tells of itself: once, to whoever asks for it, through the whole pipeline, and never about itself."""

import asyncio
import json
from typing import Any

import pytest
from pydantic import BaseModel

from service.domain.errors import Invalid
from service.domain.model import Found, LeasedRun, RunId
from service.domain.operational import PATTERNS, Operational
from service.flow import operational, publish, upkeep
from service.store import audience, runs
from service.store.database import Database, Tx
from service.web.operational import BODIES
from tests.operating import only, replay
from tests.receivers import Receiver, answer
from tests.scenes import Scene, shipments_job
from tests.steering import send_test

NOWHERE = "http://127.0.0.1:9/"


@pytest.fixture
def scene(database: Database) -> Scene:
    return Scene(database)


async def told(scene: Scene) -> list[dict[str, Any]]:
    """The bodies of all operational events, oldest first; each is what the OpenAPI document says of it."""
    rows = await scene.execute("SELECT body FROM tocsin.events WHERE type LIKE 'tocsin.%' ORDER BY id")
    bodies: list[dict[str, Any]] = [json.loads(row.body) for row in rows]
    for body in bodies:
        if body["type"] in set(Operational):
            shape = BODIES[Operational(body["type"])][0]
            assert _fields(shape.model_validate_json(json.dumps(body))) == _keys(body)
    return bodies


def _fields(model: BaseModel) -> set[str]:
    return _keys(model.model_dump(mode="json", by_alias=True))


def _keys(value: Any, path: str = "") -> set[str]:
    if not isinstance(value, dict):
        return {path}
    return {each for name, inner in value.items() for each in _keys(inner, f"{path}/{name}")}


async def settled_run(scene: Scene, events: int = 2) -> RunId:
    await scene.shipments(events)
    run = await scene.tick(shipments_job())
    await scene.discovery(shipments_job()).once()
    await scene.drain(scene.dispatcher())
    await upkeep.note_settled(scene.db)
    return run


async def test_a_settled_run_is_told_to_who_asks_for_it_and_reaches_the_receiver(scene: Scene) -> None:
    async with Receiver() as work, Receiver() as ops:
        await scene.subscriber("work", work.url, event_types=("shipment.*",))
        await scene.subscriber("ops", ops.url, event_types=("tocsin.run.*",))
        run = await settled_run(scene)
        while await upkeep.fan_out_published(scene.db, scene.doorbell):
            pass
        await scene.drain(scene.dispatcher())
        [request] = ops.requests
    [body] = await told(scene)
    assert json.loads(request.body) == body
    assert (body["type"], body["subject"], body["version"]) == ("tocsin.run.settled", str(run), 1)
    assert body["data"]["deliveries"] == {
        "total": 2, "delivered": 2, "exhausted": 0, "rejected": 0, "ambiguous": 0, "cancelled": 0,
    }  # fmt: skip


async def test_many_who_note_at_once_that_a_run_is_settled_tell_it_once_and_once_more_when_it_was_opened_again(
    scene: Scene,
) -> None:
    await scene.subscriber("ops", NOWHERE, event_types=("tocsin.*",))
    await scene.shipments(0)
    run = await scene.tick(shipments_job())
    await scene.discovery(shipments_job()).once()
    await scene.execute("UPDATE tocsin.runs SET settled_at = NULL")

    async def note() -> None:
        async with scene.db.begin() as tx:
            await operational.settle_runs(tx, [run])

    await asyncio.gather(*(note() for _ in range(4)), upkeep.note_settled(scene.db))
    assert [(body["subject"], body["version"]) for body in await told(scene)] == [(str(run), 1), (str(run), 2)]


async def test_a_failed_run_is_told_with_its_reason_each_time_it_fails(scene: Scene) -> None:
    await scene.subscriber("ops", NOWHERE, event_types=("tocsin.run.failed",))
    job = shipments_job(statement="SELECT 1 AS wrong WHERE :cutoff > now() - interval '1 day' LIMIT :limit")
    run = await scene.tick(job)
    await scene.discovery(job).once()
    async with scene.db.begin() as tx:
        assert await runs.retry(tx, run)
    await scene.discovery(job).once()
    first, second = await told(scene)
    assert (first["data"]["runId"], first["version"], second["version"]) == ("r1", 1, 2)
    assert "lacks subject" in first["data"]["error"]


async def test_dead_letters_are_told_by_attempts_and_by_deadlines_but_only_to_their_own_tenant(scene: Scene) -> None:
    async with Receiver(then=answer(404)) as receiver:
        await scene.subscriber("refuses", receiver.url, event_types=("shipment.*",))
        await scene.subscriber("late", receiver.url, event_types=("order.*",))
        await scene.subscriber("ops", NOWHERE, event_types=("tocsin.delivery.dead",))
        await scene.subscriber("foreign", NOWHERE, event_types=("tocsin.*",), tenant_id="other")
        await scene.event("ship-1")
        await scene.dispatcher().once()
        await scene.event("order-1", "order.paid")
        await scene.execute("UPDATE tocsin.deliveries SET deadline_at = now() WHERE finished_at IS NULL")
        await upkeep.expire_overdue(scene.db)
    rejected, expired = await told(scene)
    assert {rejected["tenantId"], expired["tenantId"]} == {"default"}
    assert rejected["data"] | {"subscriberId": "refuses", "state": "rejected", "attemptCount": 1} == rejected["data"]
    assert rejected["data"]["lastOutcome"] == {"class": "rejected", "status": 404, "detail": None}
    assert (rejected["subject"], rejected["version"]) == (rejected["data"]["deliveryId"], 1)
    assert (expired["data"]["subscriberId"], expired["data"]["reason"]) == ("late", "deadline")
    assert expired["data"]["lastOutcome"] is None


async def test_a_dead_letter_is_told_of_again_when_it_was_replayed_and_died_again(scene: Scene) -> None:
    async with Receiver(then=answer(404)) as receiver:
        await scene.subscriber("acme", receiver.url, event_types=("shipment.*",))
        await scene.subscriber("ops", NOWHERE, event_types=("tocsin.delivery.dead",))
        await scene.event()
        await scene.dispatcher().once()
        await replay(scene, await only(scene))
        await scene.dispatcher().once()
    first, second = await told(scene)
    assert first["subject"] == second["subject"]
    assert [(body["version"], body["data"]["generation"]) for body in (first, second)] == [(1, 1), (2, 2)]


async def test_nothing_is_told_of_deliveries_of_what_was_told_or_of_tests(scene: Scene) -> None:
    async with Receiver(then=answer(404)) as receiver:
        await scene.subscriber("acme", receiver.url, event_types=("tocsin.*", "shipment.*"))
        await scene.event()
        await send_test(scene)
        await scene.drain(scene.dispatcher())
        while await upkeep.fan_out_published(scene.db, scene.doorbell):
            pass
        await scene.drain(scene.dispatcher())
        assert len(receiver.requests) == 3
    assert sorted(body["type"] for body in await told(scene)) == ["tocsin.delivery.dead", "tocsin.test"]
    assert await scene.states() == {"rejected": 3}


async def test_a_subscriber_that_answered_410_is_told_of_and_a_listener_to_everything_else_hears_nothing(
    scene: Scene,
) -> None:
    async with Receiver(then=answer(410)) as receiver:
        await scene.subscriber("gone", receiver.url, event_types=("shipment.*",))
        await scene.subscriber("everything", NOWHERE, event_types=("*",), mode="shadow")
        await scene.subscriber("ops", NOWHERE, event_types=("tocsin.subscriber.*",))
        await scene.event()
        await scene.dispatcher().once()
        while await upkeep.fan_out_published(scene.db, scene.doorbell):
            pass
    [body] = await told(scene)
    assert body["data"] == {"subscriberId": "gone", "reason": "the receiver answered 410 Gone"}
    assert [view.event_type for view in await scene.views("everything")] == ["shipment.expired"]
    assert [view.event_type for view in await scene.views("ops")] == ["tocsin.subscriber.disabled"]


async def test_what_nobody_asks_for_is_not_stored(scene: Scene) -> None:
    async with Receiver(then=answer(410)) as receiver:
        await scene.subscriber("gone", receiver.url)
        await settled_run(scene, events=1)
    assert await told(scene) == []


async def test_what_cannot_be_written_down_as_told_is_not_done_either(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(_tx: Tx, run: LeasedRun) -> None:
        raise RuntimeError(run.id)

    await scene.shipments(0)
    await scene.subscriber("ops", NOWHERE, event_types=("tocsin.*",))
    job = shipments_job(statement="SELECT 1 AS wrong WHERE :cutoff > now() - interval '1 day' LIMIT :limit")
    run = await scene.tick(job)
    monkeypatch.setattr(operational, "run_failed", fails)
    with pytest.raises(RuntimeError):
        await scene.discovery(job).once()
    assert (await scene.run(run)).state == "running"


@pytest.mark.parametrize("kind", Operational)
async def test_listeners_are_found_by_each_of_their_patterns(scene: Scene, kind: Operational) -> None:
    async with scene.db.begin() as tx:
        assert await audience.tenants(tx, kind) == frozenset()
    for n, pattern in enumerate(PATTERNS):
        await scene.subscriber(f"s{n}", NOWHERE, event_types=(pattern,), tenant_id=f"t{n}")
    async with scene.db.begin() as tx:
        found = await audience.tenants(tx, kind)
    matching = {n for n, each in enumerate(PATTERNS) if each == kind or kind.startswith(each.removesuffix("*"))}
    assert found == {f"t{n}" for n in matching}


async def test_tocsins_own_types_are_reserved_at_the_door_and_in_sources(scene: Scene) -> None:
    with pytest.raises(Invalid) as refused:
        await publish.publish(scene.db, scene.doorbell, Found("tocsin.run.settled", "s", 1, "{}"), actor="alice")
    assert [each.pointer for each in refused.value.problems] == ["/type"]
    job = shipments_job(source="tick", event_type="tocsin.delivery.dead", statement=None)
    run = await scene.tick(job)
    await scene.discovery(job).once()
    view = await scene.run(run)
    assert (view.state, view.events) == ("failed", 0)
    assert "Tocsin's own" in str(view.error)
