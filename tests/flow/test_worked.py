"""A source that does work of its own: its progress is kept with its run, and it makes way for runs that find facts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from service.domain.job import JobConfig
from service.domain.model import DeliveryState, LeasedRun, RunState
from service.flow.discovery import Discovery
from service.sources import Worked, load
from service.store.database import Database, Tx
from tests.receivers import Receiver
from tests.scenes import Scene, shipments_job

JOB = JobConfig(name="work", source="its.own")


@dataclass
class Working:
    """Hands out the pages that it was given, and notes what it was told."""

    pages: Sequence[Mapping[str, Any]]
    told: list[Mapping[str, Any] | None] = field(default_factory=list)

    async def discover(self, _tx: Tx, run: LeasedRun, _limit: int) -> list[Any] | Worked:
        """Hand out the next page."""
        self.told.append(run.progress)
        at = len(self.told) - 1
        return Worked(self.pages[at]) if at < len(self.pages) else []


def working(scene: Scene, source: Working, *others: JobConfig) -> Discovery:
    jobs = {job.name: job for job in (JOB, *others)}
    sources: dict[str, Any] = {JOB.name: source, **load(others)}
    return Discovery(scene.db, scene.doorbell, jobs, sources, "w1", 60)


async def test_each_page_is_told_what_the_one_before_said_and_the_run_shows_the_last(database: Database) -> None:
    scene, source = Scene(database), Working([{"at": 1}, {"at": 2, "é": [None, 1.5]}])
    run = await scene.tick(JOB)
    await working(scene, source).once()
    assert source.told == [None, {"at": 1}, {"at": 2, "é": [None, 1.5]}]
    view = await scene.run(run)
    assert (view.state, view.settled, view.progress) == (RunState.COMPLETED, True, {"at": 2, "é": [None, 1.5]})


async def test_a_run_that_finds_facts_goes_before_the_next_page_of_one_that_works(database: Database) -> None:
    scene, source, shipments = Scene(database), Working([{"at": 1}, {"at": 2}]), shipments_job()
    discovery = working(scene, source, shipments)
    await scene.shipments(3)
    run = await scene.tick(JOB)
    urgent = await scene.tick(shipments)
    await discovery.once()
    assert (len(source.told), (await scene.run(run)).state) == (1, RunState.RUNNING)
    assert (await scene.run(run)).progress == {"at": 1}
    # It rests for as long as its page took, twice: on a slow machine that is over soon, on this one not before it may.
    await scene.execute("UPDATE tocsin.runs SET lease_expires_at = now() + interval '1 hour' WHERE id = :id", id=run)
    await discovery.once()
    assert ((await scene.run(urgent)).state, len(source.told)) == (RunState.COMPLETED, 1)
    await scene.expire_leases()
    await discovery.once()
    assert (source.told, (await scene.run(run)).state) == ([None, {"at": 1}, {"at": 2}], RunState.COMPLETED)


@pytest.mark.parametrize(
    "progress", [{"a": object()}, {"a": float("nan")}, {"a": "\0"}, {"a": "\ud800"}, {"a": "x" * 20_000}]
)
async def test_progress_that_cannot_be_kept_fails_the_run(database: Database, progress: dict[str, Any]) -> None:
    scene = Scene(database)
    run = await scene.tick(JOB)
    await working(scene, Working([progress])).once()
    view = await scene.run(run)
    assert view.state is RunState.FAILED
    assert "the source's progress is no JSON of at most 16384 bytes without NUL" in (view.error or "")


async def test_nothing_is_sent_of_a_delivery_whose_payload_is_gone(database: Database) -> None:
    scene = Scene(database)
    async with Receiver() as receiver:
        await scene.subscriber("one", receiver.url)
        await scene.event()
        await scene.execute("UPDATE tocsin.events SET body = NULL, purged_at = now()")
        await scene.drain(scene.dispatcher())
        assert receiver.requests == []
    [view] = await scene.views("one")
    assert (view.state, view.reason, view.attempt_count) == (DeliveryState.REJECTED, "payload-purged", 0)
