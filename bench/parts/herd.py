"""A hundred subscribers come back at once after an hour's outage: what those who were never away notice of it."""

import asyncio
from time import monotonic

from bench import bodies
from bench.figures import p95
from bench.house import House
from bench.processes import ORIGINS
from bench.sizes import Sizes
from bench.stage import SHIPPED, Stage
from bench.waiting import Failed
from service.domain.breaker import FAILURES_TO_OPEN
from service.flow.doorbell import Doorbell
from service.flow.publish import publish

_AWAY, _WELL = "away-", "well-"
_WELL_TYPE = "order.paid"
_WORKERS = 2
_EVERY_SECONDS = 0.05
"""An event for the well ones is published so often, on schedule."""
_TRIED = 4
"""So many deliveries of each lane were tried before its circuit opened, and as probes since then."""

# As `settlements.settle` leaves them: what was tried waits in the retry queue, all else was never tried, and became due
# one after another within the hour.
_MISSED = """
    UPDATE tocsin.deliveries d
       SET created_at = m.at, deadline_at = d.deadline_at - (now() - m.at),
           next_attempt_at = CASE WHEN m.n <= :tried THEN now() - interval '1 minute' ELSE m.at END,
           queue = CASE WHEN m.n <= :tried THEN 1 ELSE 0 END,
           attempt_count = CASE WHEN m.n <= :tried THEN 5 ELSE 0 END,
           generation_attempts = CASE WHEN m.n <= :tried THEN 5 ELSE 0 END
      FROM (SELECT o.row, o.n, now() - interval '1 hour' * (1 - o.n::float8 / o.last) AS at
              FROM (SELECT d.row, row_number() OVER lane AS n, count(*) OVER (PARTITION BY d.subscriber) AS last
                      FROM tocsin.deliveries d JOIN tocsin.subscribers s ON s.row = d.subscriber
                     WHERE starts_with(s.id, :away) WINDOW lane AS (PARTITION BY d.subscriber ORDER BY d.row)) o) m
     WHERE d.row = m.row
"""
# As `lanes.wake` leaves them: open, and with a ramp that begins anew. The next probe is not before the sample asks.
_OPENED = """
    UPDATE tocsin.lanes
       SET state = 'active', failures = :failures, probes = 20, ramp = 1, failing_since = now() - interval '1 hour',
           next_due_at = now(), open_until = now() + interval '1 day'
     WHERE subscriber IN (SELECT row FROM tocsin.subscribers WHERE starts_with(id, :away))
"""
_PROBED = """
    UPDATE tocsin.lanes SET open_until = now()
     WHERE subscriber IN (SELECT row FROM tocsin.subscribers WHERE starts_with(id, :away))
"""
_BEYOND = """
    SELECT count(*) FROM tocsin.lanes
     WHERE leased > CASE WHEN failures >= :open THEN 1 ELSE least(max_concurrency, coalesce(ramp, max_concurrency)) END
"""
_FANNED_OUT = """
    SELECT NOT EXISTS (SELECT FROM tocsin.events WHERE fanned_out_at IS NULL AND run_id IS NULL AND due_at IS NULL)
"""
_UNFINISHED = """
    SELECT EXISTS (SELECT FROM tocsin.deliveries d JOIN tocsin.subscribers s ON s.row = d.subscriber
                    WHERE starts_with(s.id, :away) AND d.finished_at IS NULL)
"""


async def measure(stage: Stage, sizes: Sizes) -> None:
    """Within a sample the same workers see both halves: first the others are away, then they all come back."""

    async def build(house: House) -> None:
        subscribers, events = sizes.away
        for number in range(subscribers):
            await house.subscribe(f"{_AWAY}{number}", stage.receiver.url(_elsewhere(number)))
        for number in range(sizes.well[0]):
            url = stage.receiver.timed_url(ORIGINS - 1)
            await house.subscribe(f"{_WELL}{number}", url, event_types=(_WELL_TYPE,))
        await house.backlog(events)
        await house.execute(_MISSED, away=_AWAY, tried=_TRIED)
        await house.execute(_OPENED, away=_AWAY, failures=3 * FAILURES_TO_OPEN)

    await stage.template("herd", build)
    for _ in range(sizes.rounds):
        await _sample(stage, sizes)


def _elsewhere(number: int) -> int:
    """A number whose origin is any but the last, which is that of the well ones."""
    return number + number // (ORIGINS - 1)


async def _sample(stage: Stage, sizes: Sizes) -> None:
    async with stage.copy("herd") as house, stage.workers(house, _WORKERS, **SHIPPED):
        await house.release(_WELL)
        stage.note("well-idle", p95(await _heard(stage, house, 0, sizes)))
        began = monotonic()
        await house.execute(_PROBED, away=_AWAY)
        await Doorbell(house.db).ring()
        stage.note("well-herd", p95(await _heard(stage, house, sizes.well[1], sizes)))
        if not (await house.execute(_UNFINISHED, away=_AWAY))[0][0]:
            raise Failed("those who came back had all they had missed before the events beside them were over")
        await house.settled(_AWAY)
        stage.note("herd", sizes.away[0] * sizes.away[1] / (monotonic() - began))
        await stage.receiver.check(await house.keys(_AWAY) | await house.keys(_WELL))


async def _heard(stage: Stage, house: House, first: int, sizes: Sizes) -> list[float]:
    """The milliseconds from the publishing of each of so many events until each of the well ones heard of it."""
    subscribers, events = sizes.well
    began = monotonic()
    publishing: list[asyncio.Task[tuple[str, float]]] = []
    async with asyncio.TaskGroup() as group:
        for number in range(events):
            await asyncio.sleep(max(began + number * _EVERY_SECONDS - monotonic(), 0.0))
            publishing.append(group.create_task(_published(house, first + number)))
    await house.until(_FANNED_OUT)
    await house.settled(_WELL)
    at = dict(task.result() for task in publishing)
    times = {name.partition(":")[0::2]: time for name, time in (await stage.receiver.times()).items()}
    waits = [(time - at[event]) * 1000 for (event, _), time in times.items() if event in at]
    if len(waits) != events * subscribers:
        raise Failed(f"{len(waits)} deliveries beside the herd were heard, instead of {events * subscribers}")
    return waits


async def _published(house: House, number: int) -> tuple[str, float]:
    """Publish one event, by the id that it gets; when that began. No lane may have out more than it is allowed."""
    began = monotonic()
    published = await publish(house.db, Doorbell(house.db), bodies.fact(number, _WELL_TYPE), actor="bench")
    beyond = (await house.execute(_BEYOND, open=FAILURES_TO_OPEN))[0][0]
    if beyond:
        raise Failed(f"{beyond} lanes had more out than they may")
    return str(published.event.id), began
