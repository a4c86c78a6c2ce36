"""A drain while retention sweeps half a million old deliveries, beside the same drain without a sweep."""

from typing import Any

from uuid_utils.compat import uuid7

from bench.house import RETENTION, House
from bench.parts.drains import MEASURED, backlog
from bench.sizes import Sizes
from bench.stage import Stage
from bench.waiting import Failed
from service.domain.model import RunId, RunSource
from service.flow.doorbell import Doorbell
from service.store import runs

_WORKERS = 2
_OLD_LANES = 50

_EVENTS = """
    INSERT INTO tocsin.events (id, tenant_id, type, subject, version, topics, body, body_sha256, data_sha256,
                               created_at, fanned_out_at)
    SELECT uuidv7(interval '-100 days'), 'default', 'long.ago', 'old-' || n, 1, '{*}',
           convert_to(repeat('x', 450), 'UTF8'), '', '', now() - interval '100 days', now() - interval '100 days'
      FROM generate_series(1, CAST(:count AS int)) n
"""
_DELIVERIES = """
    INSERT INTO tocsin.deliveries (event_id, subscriber, state, attempt_count, generation_attempts, deadline_at,
                                   created_at, finished_at)
    SELECT e.id, s.row, 'delivered', 1, 1, now(), now() - interval '100 days', now() - interval '100 days'
      FROM tocsin.events e JOIN tocsin.subscribers s ON starts_with(s.id, 'old-')
     WHERE e.type = 'long.ago' ORDER BY e.id, s.row
"""
_ATTEMPTS = """
    INSERT INTO tocsin.attempts (delivery, number, generation, lease_seq, outcome, counted, status, started_at,
                                 duration_ms, worker, excerpt)
    SELECT row, 1, 1, 1, 'delivered', true, 200, finished_at, 5, 'history', 'ok'
      FROM tocsin.deliveries WHERE state = 'delivered' ORDER BY row
"""
_BEGUN = "SELECT coalesce(CAST(progress -> 'deliveries' ->> 'done' AS int), 0) > 0 FROM tocsin.runs WHERE id = :run"
_HOW = """
    SELECT state, CAST(progress -> 'deliveries' ->> 'done' AS int) AS deleted,
           extract(epoch FROM clock_timestamp() - started_at)::float8 AS seconds
      FROM tocsin.runs WHERE id = :run
"""


async def measure(stage: Stage, sizes: Sizes) -> None:
    """Take turns."""
    drained = backlog(stage, sizes.swept)

    async def build(house: House) -> None:
        for number in range(_OLD_LANES):
            await house.subscribe(f"old-{number}", stage.receiver.url(number), event_types=("long.ago",))
        await house.execute(_EVENTS, count=sizes.old // _OLD_LANES)
        await house.execute(_DELIVERIES)
        await house.execute(_ATTEMPTS)
        await drained(house)

    await stage.template("swept", build)
    for _ in range(sizes.rounds):
        await _sample(stage, "drain-unswept", sweeps=False)
        await _sample(stage, "drain-swept", sweeps=True)


async def _sample(stage: Stage, figure: str, *, sweeps: bool) -> None:
    """One drain; a sweep is under way before it begins, and has not come to its end when it is over."""
    async with stage.copy("swept") as house, stage.workers(house, _WORKERS):
        run = await _sweeping(house) if sweeps else None
        stage.note(figure, (await stage.drained(house, MEASURED)).rate)
        if run is not None:
            now = await _how(house, run)
            if now.state != "running":
                raise Failed(f"the sweep was {now.state} before the drain was over")
            stage.note("sweep", now.deleted / now.seconds)


async def _sweeping(house: House) -> RunId:
    """Start a run of the retention job, as a tick does, and wait until it has deleted something."""
    run = RunId(uuid7())
    async with house.db.begin() as tx:
        await runs.claim(tx, id=run, job=RETENTION, run_id=str(run), cutoff=tx.now, source=RunSource.OPERATOR)
    await Doorbell(house.db).ring()
    await house.until(_BEGUN, run=run)
    return run


async def _how(house: House, run: RunId) -> Any:
    [row] = await house.execute(_HOW, run=run)
    return row
