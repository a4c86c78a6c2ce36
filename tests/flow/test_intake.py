"""A storm of ticks: many processes claim a run once, and whoever repeats it waits for nobody and writes nothing."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest
import pytest_asyncio
from sqlalchemy import text

from service.domain.errors import RunConflict
from service.domain.knocks import Knock
from service.domain.model import RunSource, RunState
from service.flow import intake
from service.flow.intake import Accepted, Intake
from service.store.database import Database
from tests.scenes import Scene, shipments_job

JOB = shipments_job()


@pytest_asyncio.fixture
async def scene(database: Database) -> AsyncIterator[Scene]:
    """A job that was never ticked."""
    yield Scene(database)


async def test_ticks_that_come_to_many_processes_at_once_are_one_run(scene: Scene) -> None:
    knock = Knock("r1", await _now(scene))
    doors = [Intake(scene.db, scene.doorbell) for _ in range(4)]
    accepted = await asyncio.gather(*(_accept(door, knock) for door in doors * 10))
    assert len({each.run.id for each in accepted}) == 1
    assert [each.duplicate for each in accepted].count(False) == 1
    [row] = await scene.execute("SELECT count(*) AS runs FROM tocsin.runs")
    assert row.runs == 1


async def test_a_repeat_waits_for_nobody_who_holds_the_job(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "TOLD", timedelta(hours=1))
    knock, door = Knock("r1", await _now(scene)), Intake(scene.db, scene.doorbell)
    assert not (await _accept(door, knock)).duplicate
    assert (await _accept(door, knock)).duplicate
    async with scene.db.begin() as holding:
        await holding.conn.execute(text("SELECT FROM tocsin.jobs FOR UPDATE"))
        repeated = await asyncio.gather(*(_accept(door, knock) for _ in range(50)))
    assert {(each.duplicate, each.run.state) for each in repeated} == {(True, RunState.CLAIMED)}


async def test_a_repeat_with_another_cutoff_is_a_conflict_beside_those_that_are_right(scene: Scene) -> None:
    now, door = await _now(scene), Intake(scene.db, scene.doorbell)
    knocks = [Knock("r1", now), Knock("r1", now - timedelta(minutes=1)), Knock("r1")]
    await _accept(door, knocks[0])
    right, wrong, open_ = await asyncio.gather(*(_accept(door, knock) for knock in knocks), return_exceptions=True)
    assert isinstance(wrong, RunConflict)
    assert isinstance(right, Accepted)
    assert isinstance(open_, Accepted)
    assert right.run == open_.run


async def test_a_repeated_tick_is_remembered(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "TOLD", timedelta(0))
    knock, door = Knock("r1", await _now(scene)), Intake(scene.db, scene.doorbell)
    await _accept(door, knock)
    await scene.execute("UPDATE tocsin.jobs SET last_tick_at = now() - interval '1 day'")
    repeated = await _accept(door, knock)
    [row] = await scene.execute("SELECT last_tick_at AS at FROM tocsin.jobs")
    assert row.at >= repeated.at


async def _accept(door: Intake, knock: Knock) -> Accepted:
    return await door.accept(JOB, knock, RunSource.HMAC)


async def _now(scene: Scene) -> datetime:
    async with scene.db.begin() as tx:
        return tx.now
