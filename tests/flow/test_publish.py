"""What publishing promises: one event a logical key, its data byte for byte, sent at once or when it is due."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from service.domain.errors import EventConflict, Invalid, TooLarge
from service.domain.eventbody import MAX_DATA_BYTES
from service.domain.model import Found
from service.flow.publish import Published, publish
from service.store import fan_out
from service.store.database import Database
from tests.scenes import Scene

DATA = '{"b":1, "a":1.0,"n":12345678901234567890123,  "e":1E2,"s":"\\u00e9é"}'
FOUND = Found(type="order.paid", subject="order-1", version=1, data=DATA)
DUE = datetime(2026, 12, 1, tzinfo=UTC)


@pytest.fixture
def scene(database: Database) -> Scene:
    return Scene(database)


async def _publish(scene: Scene, found: Found = FOUND, due_at: datetime | None = None) -> Published:
    return await publish(scene.db, scene.doorbell, found, due_at, actor="test")


async def _events(scene: Scene) -> int:
    [row] = await scene.execute("SELECT count(*) AS n FROM tocsin.events")
    return int(row.n)


async def test_the_data_stands_in_the_body_byte_for_byte(scene: Scene) -> None:
    published = await _publish(scene)
    assert published.created
    assert published.body is not None
    assert published.body.endswith(f',"data":{DATA}}}'.encode())


async def test_the_same_event_again_is_the_stored_one_with_the_same_bytes(scene: Scene) -> None:
    first = await _publish(scene)
    again = await _publish(scene)
    assert not again.created
    assert (again.event.id, again.body) == (first.event.id, first.body)


async def test_many_at_once_store_one_event_and_all_learn_its_id(scene: Scene) -> None:
    answers = await asyncio.gather(*(_publish(scene) for _ in range(10)))
    assert len({answer.event.id for answer in answers}) == 1
    assert [answer.created for answer in answers].count(True) == 1
    assert await _events(scene) == 1


async def test_other_data_under_the_same_key_is_a_conflict_and_changes_nothing(scene: Scene) -> None:
    first = await _publish(scene)
    for data in ("{}", DATA + " ", DATA.replace("1.0", "1"), "null"):
        with pytest.raises(EventConflict):
            await _publish(scene, replace(FOUND, data=data))
    assert (await _publish(scene)).body == first.body


async def test_every_part_of_the_logical_key_tells_events_apart(scene: Scene) -> None:
    await _publish(scene)
    changes: tuple[dict[str, Any], ...] = (
        {"type": "order.sent"},
        {"subject": "order-2"},
        {"version": 2},
        {"tenant_id": "north"},
    )
    for change in changes:
        assert (await _publish(scene, replace(FOUND, **change))).created, change


async def test_another_due_time_is_a_conflict_because_it_would_be_ignored(scene: Scene) -> None:
    await _publish(scene, due_at=DUE)
    assert not (await _publish(scene, due_at=DUE)).created
    with pytest.raises(EventConflict, match="dueAt"):
        await _publish(scene, due_at=None)


async def test_a_due_time_that_the_database_would_keep_as_infinity_writes_nothing(scene: Scene) -> None:
    for extreme in (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)):
        with pytest.raises(EventConflict):
            await _publish(scene, due_at=extreme)
    assert await _events(scene) == 0


async def test_without_a_due_time_the_workers_are_rung_and_the_event_is_fanned_out(scene: Scene) -> None:
    await scene.subscriber("acme", "http://127.0.0.1:9/")
    async with scene.doorbell.bell() as bell:
        await _publish(scene)
        await bell.wait(0)
    async with scene.db.begin() as tx:
        assert (await fan_out.fan_out(tx, None)).deliveries == 1


async def test_with_a_due_time_the_event_waits_for_a_run(scene: Scene) -> None:
    await scene.subscriber("acme", "http://127.0.0.1:9/")
    published = await _publish(scene, due_at=DUE)
    assert published.event.due_at == DUE
    async with scene.db.begin() as tx:
        assert (await fan_out.fan_out(tx, None)).events == 0


REFUSED: dict[str, tuple[str, tuple[Any, ...]]] = {
    "type": ("/type", ("", "a b", "a..b", ".a", "*", "a\x00", "é", "x" * 129)),
    "subject": ("/subject", ("", "a\x00", "a\n", "\ud800", "é" * 200)),
    "version": ("/version", (-1, 2**63, 10**100)),
    "tenant_id": ("/tenantId", ("", "a b", "a\x00", "x" * 101)),
}


async def test_an_event_that_cannot_be_kept_is_refused_by_its_pointer(scene: Scene) -> None:
    for name, (pointer, values) in REFUSED.items():
        for value in values:
            with pytest.raises(Invalid) as refusal:
                await _publish(scene, replace(FOUND, **{name: value}))
            assert [problem.pointer for problem in refusal.value.problems] == [pointer], (name, value)
    assert await _events(scene) == 0


async def test_versions_pass_at_their_bounds(scene: Scene) -> None:
    for version in (0, 2**63 - 1):
        assert (await _publish(scene, replace(FOUND, version=version))).event.version == version


async def test_data_may_have_256_kib_and_not_a_byte_more(scene: Scene) -> None:
    largest = '"' + "x" * (MAX_DATA_BYTES - 2) + '"'
    assert (await _publish(scene, replace(FOUND, data=largest))).created
    with pytest.raises(TooLarge):
        await _publish(scene, replace(FOUND, version=2, data=largest[:-1] + 'x"'))
