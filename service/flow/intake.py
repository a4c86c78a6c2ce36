"""Accept a tick: claim its run once, however often it arrives, and leave the work to the workers."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from uuid_utils.compat import uuid7

from service.domain.errors import CutoffOutOfRange, Problem, RunConflict
from service.domain.job import JobConfig
from service.domain.model import RunId, RunSource
from service.domain.timestamps import format_rfc3339
from service.flow.doorbell import Doorbell
from service.store import audit, jobs, runs
from service.store.database import Database, Tx
from service.store.runs import Known

FROZEN_AFTER: Final = timedelta(minutes=30)
"""A scheduler tries one slot again for minutes; a tick that repeats an older run has a body that never changes."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The run that a tick has, whether it had been claimed before, and when the tick came by the database's clock."""

    run: RunId
    duplicate: bool
    at: datetime
    frozen_since: datetime | None = None
    """Set where this tick repeats a run of long ago: since when all ticks of the job have done so."""


@dataclass(frozen=True, slots=True)
class Operator:
    """Who starts a run by hand, and why: the audit line that is written along with the claim."""

    actor: str
    reason: str | None


async def accept(
    db: Database,
    doorbell: Doorbell,
    job: JobConfig,
    *,
    run_id: str,
    cutoff: datetime | None,
    source: RunSource,
    operator: Operator | None = None,
    traceparent: str | None = None,
) -> Accepted:
    """Claim (job, runId) or find the run that has it; the uniqueness of the two decides, also between processes.

    Without a cutoff a new run gets the database's now, and one that was claimed before is taken as it is. A new run
    keeps the `traceparent` of the tick that claimed it.

    Raises:
        CutoffOutOfRange: by the database's clock the cutoff is too far ahead or too old.
        RunConflict: the runId was claimed with another cutoff.
        Unavailable: the database is away; nothing was written.

    """
    offered = uuid7()
    async with db.begin() as tx:
        _check_range(job, cutoff, tx.now)
        frozen_since = await _hold_still(tx, job.name, source)
        known = await _claimed(tx, offered, job.name, run_id, cutoff=cutoff, source=source, traceparent=traceparent)
        is_new = known.id == offered
        if source is not RunSource.OPERATOR:
            frozen_since = await _thawed_or_frozen(tx, job.name, frozen_since, None if is_new else known.claimed_at)
        if is_new and operator is not None:
            await _note(tx, operator, job.name, run_id, known.id)
    if is_new:
        await doorbell.ring()
    return Accepted(known.id, not is_new, tx.now, frozen_since)


async def _hold_still(tx: Tx, job: str, source: RunSource) -> datetime | None:
    """Keep the job from being paused or resumed until its run is on record; a tick is remembered by the same write."""
    if source is not RunSource.OPERATOR:
        return await jobs.touch(tx, job)
    await jobs.hold_still(tx, job)
    return None


async def _claimed(
    tx: Tx,
    offered: UUID,
    job: str,
    run_id: str,
    *,
    cutoff: datetime | None,
    source: RunSource,
    traceparent: str | None,
) -> Known:
    wanted = cutoff or tx.now
    if await runs.claim(tx, id=offered, job=job, run_id=run_id, cutoff=wanted, source=source, traceparent=traceparent):
        return Known(RunId(offered), wanted, tx.now)
    known = await runs.find(tx, job, run_id)
    if cutoff is not None and cutoff != known.cutoff:
        message = f"This runId was already claimed with the cutoff {format_rfc3339(known.cutoff)}."
        raise RunConflict(message)
    return known


async def _thawed_or_frozen(tx: Tx, job: str, since: datetime | None, repeats: datetime | None) -> datetime | None:
    """Since when the job is frozen, where this tick `repeats` a run claimed long ago; the change of it is stored."""
    if repeats is None:
        if since is not None:
            await jobs.freeze(tx, job, None)
        return None
    if tx.now - repeats <= FROZEN_AFTER:
        return None
    if since is None:
        await jobs.freeze(tx, job, tx.now)
    return since or tx.now


async def _note(tx: Tx, operator: Operator, job: str, run_id: str, run: RunId) -> None:
    await audit.write(
        tx,
        actor=operator.actor,
        action="run.started",
        object=f"run:{run}",
        reason=operator.reason,
        detail={"job": job, "runId": run_id},
    )


def _check_range(job: JobConfig, cutoff: datetime | None, now: datetime) -> None:
    if cutoff is None:
        return
    if cutoff > now + timedelta(seconds=job.max_cutoff_ahead):
        fault = f"is more than {job.max_cutoff_ahead} s ahead of the database's clock"
        raise CutoffOutOfRange(Problem("/cutoffIso", fault))
    if cutoff < now - timedelta(seconds=job.max_cutoff_age):
        raise CutoffOutOfRange(Problem("/cutoffIso", f"is older than {job.max_cutoff_age} s"), too_old=True)
