"""Runs: the claim that makes a tick idempotent, and the lease under which a worker advances one."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Text, bindparam, text

from service.domain.model import LeasedRun, RunId, RunSource
from service.store.arrays import Flat
from service.store.database import Tx

_CLAIM = text("""
    INSERT INTO tocsin.runs (id, job, run_id, cutoff, source, state, traceparent)
    SELECT :id, :job, :run_id, :cutoff, :source,
           CASE WHEN EXISTS (SELECT FROM tocsin.jobs WHERE name = :job AND paused) THEN 'held' ELSE 'claimed' END,
           :traceparent
    ON CONFLICT (job, run_id) DO NOTHING
""").bindparams(bindparam("traceparent", type_=Text))


async def claim(
    tx: Tx,
    *,
    id: UUID,  # noqa: A002 - the column's name
    job: str,
    run_id: str,
    cutoff: datetime,
    source: RunSource,
    traceparent: str | None = None,
) -> bool:
    """Claim (job, run_id) for `id`; False when it was claimed before. Of a paused job the run is held."""
    params = {"id": id, "job": job, "run_id": run_id, "cutoff": cutoff, "source": source.value}
    return (await tx.conn.execute(_CLAIM, {**params, "traceparent": traceparent})).rowcount == 1


class Known(NamedTuple):
    """What a tick has to know of the run that it has."""

    id: RunId
    cutoff: datetime
    claimed_at: datetime


_FIND = text("SELECT id, cutoff, claimed_at FROM tocsin.runs WHERE job = :job AND run_id = :run_id")


async def find(tx: Tx, job: str, run_id: str) -> Known:
    """A run that is known to exist."""
    row = (await tx.conn.execute(_FIND, {"job": job, "run_id": run_id})).one()
    return Known(RunId(row.id), row.cutoff, row.claimed_at)


_RECALL = text("SELECT id FROM tocsin.runs WHERE job = :job AND run_id = :run_id")


async def recall(tx: Tx, job: str, run_id: str) -> RunId | None:
    """The run of this name; None where nobody has claimed it."""
    found = (await tx.conn.execute(_RECALL, {"job": job, "run_id": run_id})).scalar_one_or_none()
    return None if found is None else RunId(found)


_LEASE = text("""
    WITH next AS (
        SELECT r.id, r.state FROM tocsin.runs r
         WHERE r.state IN ('claimed', 'running') AND r.job = ANY(:jobs)
           AND (r.lease_expires_at IS NULL OR r.lease_expires_at < now())
           AND (r.state = 'running' OR NOT EXISTS (SELECT FROM tocsin.jobs j WHERE j.name = r.job AND j.paused))
         ORDER BY r.cutoff, r.id LIMIT 1 FOR UPDATE OF r SKIP LOCKED)
    UPDATE tocsin.runs r
       SET state = 'running', started_at = coalesce(r.started_at, now()), lease_owner = :worker,
           lease_expires_at = now() + make_interval(secs => :seconds), lease_seq = r.lease_seq + 1
      FROM next WHERE r.id = next.id
    RETURNING r.id, r.job, r.run_id, r.cutoff, r.lease_seq, r.discovered, r.events, r.progress::text, r.traceparent
""").bindparams(bindparam("jobs", type_=Flat("text")))


async def lease(tx: Tx, *, jobs: Sequence[str], worker: str, seconds: float) -> LeasedRun | None:
    """Lease the oldest open run of the jobs that this worker knows; a run whose lease ran out counts as open."""
    params = {"jobs": list(jobs), "worker": worker, "seconds": float(seconds)}
    row = (await tx.conn.execute(_LEASE, params)).one_or_none()
    if row is None:
        return None
    progress = None if row.progress is None else json.loads(row.progress)
    return replace(LeasedRun(RunId(row.id), *row[1:-2]), progress=progress, traceparent=row.traceparent)


_WAITING = text("""
    SELECT EXISTS (
        SELECT FROM tocsin.runs r
         WHERE r.state IN ('claimed', 'running') AND r.job = ANY(:jobs) AND r.id <> :id
           AND (r.lease_expires_at IS NULL OR r.lease_expires_at < now())
           AND (r.state = 'running' OR NOT EXISTS (SELECT FROM tocsin.jobs j WHERE j.name = r.job AND j.paused)))
""").bindparams(bindparam("jobs", type_=Flat("text")))


async def others_wait(tx: Tx, run: LeasedRun, *, jobs: Sequence[str]) -> bool:
    """Whether `lease` would find another run than this one."""
    waits: bool = (await tx.conn.execute(_WAITING, {"id": run.id, "jobs": list(jobs)})).scalar_one()
    return waits


_RENEW = text("""
    UPDATE tocsin.runs
       SET lease_expires_at = clock_timestamp() + make_interval(secs => :seconds),
           events = events + :events, discovered = discovered OR :discovered,
           progress = coalesce(CAST(:progress AS jsonb), progress)
     WHERE id = :id AND lease_seq = :seq AND state = 'running'
""").bindparams(bindparam("progress", type_=Text))


async def renew(
    tx: Tx, run: LeasedRun, *, seconds: float, events: int = 0, discovered: bool = False, progress: str | None = None
) -> bool:
    """Extend the lease and record how far it is; False when another worker has taken the run over.

    `progress` is JSON, the source's own; None leaves it as it was.
    """
    params = {
        "id": run.id,
        "seq": run.lease_seq,
        "seconds": float(seconds),
        "events": events,
        "discovered": discovered,
        "progress": progress,
    }
    return (await tx.conn.execute(_RENEW, params)).rowcount == 1


_FINISH = text("""
    UPDATE tocsin.runs
       SET state = :state, error = :error, completed_at = CASE WHEN :state = 'completed' THEN clock_timestamp() END,
           lease_owner = NULL, lease_expires_at = NULL
     WHERE id = :id AND lease_seq = :seq AND state = 'running'
""").bindparams(bindparam("state", type_=Text), bindparam("error", type_=Text))


async def complete(tx: Tx, run: LeasedRun) -> bool:
    """Every event is found and fanned out; False when another worker has taken the run over."""
    params = {"id": run.id, "seq": run.lease_seq, "state": "completed", "error": None}
    return (await tx.conn.execute(_FINISH, params)).rowcount == 1


async def fail(tx: Tx, run: LeasedRun, error: str) -> bool:
    """The source cannot be read; `error` is bounded and says what to mend. An operator may retry the run."""
    params = {"id": run.id, "seq": run.lease_seq, "state": "failed", "error": error}
    return (await tx.conn.execute(_FINISH, params)).rowcount == 1


_GIVE_BACK = text("""
    UPDATE tocsin.runs SET lease_owner = NULL, lease_expires_at = clock_timestamp() + make_interval(secs => :seconds)
     WHERE id = :id AND lease_seq = :seq AND state = 'running'
""")


async def give_back(tx: Tx, run: LeasedRun, *, seconds: float) -> None:
    """End the lease early: any worker may go on with the run after `seconds` (0 when this one is stopping)."""
    await tx.conn.execute(_GIVE_BACK, {"id": run.id, "seq": run.lease_seq, "seconds": float(seconds)})


# A replay writes to its runs in the transaction that makes deliveries pending again (`generations.open_generations`).
# One that commits while this statement runs is not in its snapshot, but has given the run another `xmin`.
_SETTLE = text("""
    UPDATE tocsin.runs r SET settled_at = clock_timestamp(), settlements = r.settlements + 1
      FROM tocsin.runs seen
     WHERE r.id = ANY(:ids) AND seen.id = r.id AND seen.xmin = r.xmin
       AND r.state = 'completed' AND r.settled_at IS NULL
       AND NOT EXISTS (SELECT FROM tocsin.deliveries d WHERE d.run_id = r.id AND d.state = 'pending')
    RETURNING r.id, r.settlements
""").bindparams(bindparam("ids", type_=Flat("uuid")))


class SettledRun(NamedTuple):
    """A run that became settled just now, for the first time or, after a replay, once more."""

    id: RunId
    number: int
    """How often it has been settled, from 1."""


async def settle(tx: Tx, ids: Sequence[RunId]) -> list[SettledRun]:
    """Note the moment at which the last delivery of these runs became terminal; returns those of which it is now.

    Called after the commit that ended a delivery, so that of two workers ending the last two, the later sees both.
    `operational.settle_runs` calls it, and tells of it.
    """
    return [SettledRun(*row) for row in await tx.conn.execute(_SETTLE, {"ids": list(ids)})]


_SETTLE_ALL = text(_SETTLE.text.replace("r.id = ANY(:ids) AND ", ""))


async def settle_all(tx: Tx) -> list[SettledRun]:
    """The same for every run that is not settled: mends what a crash between a settle and its note left."""
    return [SettledRun(*row) for row in await tx.conn.execute(_SETTLE_ALL)]


_HOLD = text("UPDATE tocsin.runs SET state = 'held' WHERE job = :job AND state = 'claimed'")
# `lease_expires_at` of a run without an owner says since when any worker may take it.
_RELEASE = text("""
    UPDATE tocsin.runs SET state = 'claimed', lease_expires_at = now() WHERE job = :job AND state = 'held'
""")
_RETRY = text("""
    UPDATE tocsin.runs SET state = 'claimed', error = NULL, lease_expires_at = now()
     WHERE id = :id AND state = 'failed'
""")


async def hold(tx: Tx, job: str) -> int:
    """Hold the runs of a job that no worker has started; returns how many."""
    return (await tx.conn.execute(_HOLD, {"job": job})).rowcount


async def release(tx: Tx, job: str) -> int:
    """Let the held runs of a job start, oldest cutoff first; returns how many."""
    return (await tx.conn.execute(_RELEASE, {"job": job})).rowcount


async def retry(tx: Tx, id: RunId) -> bool:  # noqa: A002 - the column's name
    """Open a failed run again; it goes on from where it stopped. False when it is not failed."""
    return (await tx.conn.execute(_RETRY, {"id": id})).rowcount == 1
