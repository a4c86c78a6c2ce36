"""Fan-out beside the bare INSERT … SELECT of as many rows into the same table, with the same indexes."""

from time import monotonic

from bench.house import House
from bench.sizes import Sizes
from bench.stage import Stage
from bench.waiting import Failed
from service.domain.model import RunId
from service.store.fan_out import MAX_ROWS

_BARE = """
    INSERT INTO tocsin.deliveries (event_id, subscriber, run_id, deadline_at, next_attempt_at)
    SELECT e.id, s.row, e.run_id, now() + make_interval(secs => s.deadline_seconds), now()
      FROM (SELECT id, run_id FROM tocsin.events WHERE run_id = :run ORDER BY id LIMIT :limit OFFSET :offset) e
      JOIN tocsin.subscribers s ON starts_with(s.id, 's-')
"""


async def measure(stage: Stage, sizes: Sizes) -> None:
    """Take turns; each sample fills a table of its own."""
    subscribers, events = sizes.fan_out

    async def build(house: House) -> None:
        for number in range(subscribers):
            await house.subscribe(f"s-{number}", stage.receiver.url(number))
        await house.discovered(events)

    await stage.template("events", build)
    for _ in range(sizes.rounds):
        async with stage.copy("events") as house:
            stage.note("insert", subscribers * events / await _inserted(house, subscribers, events))
        async with stage.copy("events") as house:
            stage.note("fan-out", subscribers * events / await _fanned_out(house, subscribers * events))


async def _inserted(house: House, subscribers: int, events: int) -> float:
    """Seconds for the bare insert, in transactions of as many rows as fan-out writes at most."""
    run, chunk = await _run(house), MAX_ROWS // subscribers
    began = monotonic()
    for offset in range(0, events, chunk):
        await house.execute(_BARE, run=run, limit=chunk, offset=offset)
    return monotonic() - began


async def _fanned_out(house: House, expected: int) -> float:
    run = await _run(house)
    began = monotonic()
    made = await house.fan_out(run)
    seconds = monotonic() - began
    if made != expected:
        raise Failed(f"fan-out made {made} deliveries instead of {expected}")
    return seconds


async def _run(house: House) -> RunId:
    rows = await house.execute("SELECT DISTINCT run_id FROM tocsin.events WHERE fanned_out_at IS NULL")
    return RunId(rows[0][0])
