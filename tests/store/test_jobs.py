"""What is remembered of jobs: the last tick, and a pause that is set and lifted once."""

from service.store import jobs
from service.store.database import Database
from service.store.jobs import JobRow

JOB = "shipments.expire"


async def test_a_job_that_nobody_touched_stands_unpaused_and_unticked(database: Database) -> None:
    async with database.begin() as tx:
        assert await jobs.read(tx, JOB) == JobRow(JOB)


async def test_the_last_tick_is_the_database_s_now(database: Database) -> None:
    async with database.begin() as tx:
        await jobs.touch(tx, JOB)
        first = tx.now
    async with database.begin() as tx:
        assert (await jobs.read(tx, JOB)).last_tick_at == first
        await jobs.touch(tx, JOB)
        assert (await jobs.read(tx, JOB)).last_tick_at == tx.now


async def test_a_pause_is_set_once_and_keeps_its_first_reason(database: Database) -> None:
    async with database.begin() as tx:
        assert await jobs.pause(tx, JOB, "audit")
        assert not await jobs.pause(tx, JOB, "later")
        assert await jobs.read(tx, JOB) == JobRow(JOB, paused=True, paused_reason="audit")


async def test_a_resumed_job_forgets_the_reason_and_keeps_its_last_tick(database: Database) -> None:
    async with database.begin() as tx:
        await jobs.touch(tx, JOB)
        await jobs.pause(tx, JOB, None)
        assert await jobs.resume(tx, JOB)
        assert not await jobs.resume(tx, JOB)
        assert await jobs.read(tx, JOB) == JobRow(JOB, last_tick_at=tx.now)


async def test_a_job_that_is_not_known_is_not_resumed(database: Database) -> None:
    async with database.begin() as tx:
        assert not await jobs.resume(tx, JOB)


async def test_a_frozen_job_stays_so_until_it_is_thawed_and_is_found_among_those_asked_for(database: Database) -> None:
    async with database.begin() as tx:
        assert await jobs.touch(tx, JOB) is None
        await jobs.touch(tx, "other")
        await jobs.freeze(tx, JOB, tx.now)
        assert await jobs.touch(tx, JOB) == tx.now
        assert await jobs.frozen(tx, [JOB, "other", "never"]) == {JOB: tx.now}
        assert await jobs.frozen(tx, ["other"]) == {}
        await jobs.freeze(tx, JOB, None)
        assert await jobs.frozen(tx, [JOB]) == {}


async def test_the_last_ticks_are_told_of_those_that_were_ticked(database: Database) -> None:
    async with database.begin() as tx:
        await jobs.touch(tx, JOB)
        await jobs.pause(tx, "never-ticked", None)
        assert await jobs.last_ticks(tx, [JOB, "never-ticked", "unknown"]) == {JOB: tx.now}
        assert await jobs.last_ticks(tx, []) == {}
