"""Accept a tick: claim its run once, however often it arrives, and leave the work to the workers."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from uuid_utils.compat import uuid7

from service.domain.errors import CutoffOutOfRange, Problem, RunConflict
from service.domain.job import JobConfig
from service.domain.model import RunId, RunSource
from service.domain.timestamps import format_rfc3339
from service.flow.doorbell import Doorbell
from service.store import audit, jobs, runs
from service.store.database import Database


@dataclass(frozen=True, slots=True)
class Accepted:
    """The run that a tick has, and whether it had been claimed before."""

    run: RunId
    duplicate: bool


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
    cutoff: datetime,
    source: RunSource,
    operator: Operator | None = None,
) -> Accepted:
    """Claim (job, runId) or find the run that has it; the uniqueness of the two decides, also between processes.

    Raises:
        CutoffOutOfRange: by the database's clock the cutoff is too far ahead or too old.
        RunConflict: the runId was claimed with another cutoff.
        Unavailable: the database is away; nothing was written.

    """
    offered = uuid7()
    async with db.begin() as tx:
        _check_range(job, cutoff, tx.now)
        if source is not RunSource.OPERATOR:
            await jobs.touch(tx, job.name)
        claimed = await runs.claim(tx, id=offered, job=job.name, run_id=run_id, cutoff=cutoff, source=source)
        known, stored = (RunId(offered), cutoff) if claimed else await runs.find(tx, job.name, run_id)
        if stored != cutoff:
            message = f"This runId was already claimed with the cutoff {format_rfc3339(stored)}."
            raise RunConflict(message)
        if claimed and operator is not None:
            detail = {"job": job.name, "runId": run_id}
            await audit.write(
                tx,
                actor=operator.actor,
                action="run.started",
                object=f"run:{known}",
                reason=operator.reason,
                detail=detail,
            )
    if claimed:
        await doorbell.ring()
    return Accepted(known, duplicate=not claimed)


def _check_range(job: JobConfig, cutoff: datetime, now: datetime) -> None:
    latest = now + timedelta(seconds=job.max_cutoff_ahead)
    earliest = now - timedelta(seconds=job.max_cutoff_age)
    if cutoff > latest:
        fault = f"is more than {job.max_cutoff_ahead} s ahead of the database's clock"
    elif cutoff < earliest:
        fault = f"is older than {job.max_cutoff_age} s"
    else:
        return
    raise CutoffOutOfRange(Problem("/cutoffIso", fault))
