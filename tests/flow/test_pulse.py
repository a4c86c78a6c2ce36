"""The pulse: what happened is in its minute, once, whoever writes it; and rates are those of whole minutes."""

import asyncio

import pytest

from service.domain.errors import Unavailable
from service.domain.pace import Pace, Stalled
from service.flow import upkeep
from service.flow.pulse import Pulse
from service.store import pulse
from service.store.database import Database
from tests import operating
from tests.receivers import Receiver, answer
from tests.scenes import Scene


async def _counts(scene: Scene) -> dict[str, int]:
    async with scene.db.begin() as tx:
        minutes = await pulse.minutes(tx)
    assert len(minutes) == 60
    found: dict[str, int] = {}
    for minute in minutes:
        for what, n in minute.counts.items():
            found[what] = found.get(what, 0) + n
    return found


async def test_what_a_worker_did_and_what_people_asked_for_is_written_once(database: Database) -> None:
    scene = Scene(database)
    async with Receiver(answer(404), then=answer(200)) as receiver:
        await scene.subscriber("acme", receiver.url)
        await scene.event()
        worker = scene.dispatcher()
        beat = Pulse(worker.settler.counters)
        worker.settler.counters.arrived(1)
        await worker.once()
        await beat.write(database)
        await operating.replay(scene, await operating.only(scene))
        await worker.once()
        await beat.write(database)
        await beat.write(database)
    assert await _counts(scene) == {
        "arrived": 2,
        "attempt.rejected": 1,
        "attempt.delivered": 1,
        "ended.rejected": 1,
        "ended.delivered": 1,
        "scan": 2,
    }


async def test_what_could_not_be_written_is_written_later_and_many_may_write_at_once(database: Database) -> None:
    scene, away = Scene(database), Database("postgresql+asyncpg://nobody@127.0.0.1:1/nowhere")
    workers = [scene.dispatcher(str(number)) for number in range(5)]
    beats = [Pulse(worker.settler.counters) for worker in workers]
    for worker in workers:
        worker.settler.counters.arrived(2)
    with pytest.raises(Unavailable):
        await beats[0].write(away)
    await asyncio.gather(*(beat.write(database) for beat in beats))
    assert await _counts(scene) == {"arrived": 10}
    await away.close()


async def test_rates_are_those_of_the_last_five_whole_minutes_or_of_as_many_as_there_are(database: Database) -> None:
    scene = Scene(database)
    add = """
        INSERT INTO tocsin.pulse (minute, what, n)
        SELECT date_trunc('minute', now()) - make_interval(mins => m), what, 10
          FROM generate_series(CAST(:first AS int), :last) m,
               unnest(ARRAY['arrived', 'ended.delivered', 'ended.exhausted', 'attempt.delivered', 'scan']) AS what
    """
    async with database.begin() as tx:
        assert (await pulse.lately(tx)).minutes == 0
    await scene.execute(add, first=0, last=2)
    async with database.begin() as tx:
        assert await pulse.lately(tx) == pulse.Beat(2, arrived=20, ended=40, attempts=20)
    await scene.execute(add, first=3, last=1600)
    async with database.begin() as tx:
        assert await pulse.lately(tx) == pulse.Beat(5, arrived=50, ended=100, attempts=50)
    while await upkeep.purge_pulse(database):
        pass
    [row] = await scene.execute("SELECT count(DISTINCT minute) AS n FROM tocsin.pulse")
    assert 1500 <= row.n <= 1501


def test_a_backlog_drains_at_its_headroom_or_says_why_never() -> None:
    pace = Pace.of(5, arrived=50, ended=350, attempts=700)
    assert (pace.headroom_per_minute, pace.retry_amplification) == (60.0, 2.0)
    assert pace.drain_seconds(120, paused=False) == 120.0
    assert (pace.drain_seconds(0, paused=False), pace.stalled(0, paused=False)) == (0.0, None)
    assert (pace.drain_seconds(9, paused=True), pace.stalled(0, paused=True)) == (None, Stalled.DISPATCH_PAUSED)
    level, young = Pace.of(5, arrived=9, ended=9, attempts=9), Pace.of(0, arrived=0, ended=0, attempts=0)
    assert (level.drain_seconds(1, paused=False), level.stalled(1, paused=False)) == (None, Stalled.NO_HEADROOM)
    assert (young.drain_seconds(1, paused=False), young.stalled(1, paused=False)) == (None, Stalled.NO_DATA)
