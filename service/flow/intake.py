"""Accept a tick: claim its run once, however often it arrives, and leave the work to the workers."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from uuid_utils.compat import uuid7

from service.domain.errors import Contended, CutoffOutOfRange, Problem, RunConflict
from service.domain.job import JobConfig
from service.domain.knocks import Knock
from service.domain.model import RunId, RunSource
from service.domain.timestamps import format_rfc3339
from service.flow.doorbell import Doorbell
from service.flow.flights import Flights
from service.store import audit, jobs, runs, views
from service.store.database import Database, Tx
from service.store.runs import Known
from service.store.views import RunView

FROZEN_AFTER: Final = timedelta(minutes=30)
"""A scheduler tries one slot again for minutes; a tick that repeats an older run has a body that never changes."""


TOLD: Final = timedelta(seconds=1)
"""`lastTickAt` is as exact as this while a tick is repeated: each write of it holds up all other ticks of the job."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The run that a tick has, whether it had been claimed before, and when the tick came by the database's clock."""

    run: RunView
    duplicate: bool
    at: datetime
    frozen_since: datetime | None = None
    """Set where this tick repeats a run of long ago: since when all ticks of the job have done so."""


@dataclass(frozen=True, slots=True)
class Operator:
    """Who starts a run by hand, and why: the audit line that is written along with the claim."""

    actor: str
    reason: str | None


class Intake:
    """Where the ticks of a process come in. A scheduler gone wild may repeat one a thousand times a second.

    Ticks of one run that come at once are answered by one claim, or by one look where the run was claimed before. Such
    a repeat writes nothing but, once in TOLD, that the job was ticked.
    """

    def __init__(self, db: Database, doorbell: Doorbell) -> None:
        """Runs are claimed in this database, and its workers are rung."""
        self._db = db
        self._doorbell = doorbell
        self._looks: Flights[tuple[str, str], Accepted | None] = Flights()
        self._claims: Flights[tuple[str, Knock, RunSource], Accepted] = Flights()
        self._told: dict[str, datetime] = {}

    async def accept(
        self, job: JobConfig, knock: Knock, source: RunSource, *, traceparent: str | None = None
    ) -> Accepted:
        """The run of a tick that was let in: what `claim` gives, and raises."""
        found = await self._looks.join((job.name, knock.run_id), lambda: self._look(job.name, knock.run_id))
        if found is None or not _is_plain(found, knock.cutoff):
            return await self._claim(job, knock, source, traceparent)
        _check_range(job, knock.cutoff, found.at)
        await self._tell(job.name, found.at)
        return found

    async def _claim(self, job: JobConfig, knock: Knock, source: RunSource, traceparent: str | None) -> Accepted:
        """Claim the run, or wait for another who does."""
        offered = uuid7()
        claimed = await self._claims.join(
            (job.name, knock, source),
            lambda: claim(self._db, self._doorbell, job, knock, source, offered=offered, traceparent=traceparent),
        )
        return replace(claimed, duplicate=claimed.run.id != offered)

    async def _look(self, job: str, run_id: str) -> Accepted | None:
        """The run of this name as it stands; None where it was not claimed yet."""
        async with self._db.begin() as tx:
            known = await runs.recall(tx, job, run_id)
            view = None if known is None else await views.run(tx, known)
        return None if view is None else Accepted(view, duplicate=True, at=tx.now)

    async def _tell(self, job: str, at: datetime) -> None:
        """Remember the tick, unless one of a moment ago is."""
        last = self._told.get(job)
        if last is None or at - last >= TOLD:
            self._told[job] = at
            async with self._db.begin() as tx:
                await jobs.touch(tx, job)


async def claim(
    db: Database,
    doorbell: Doorbell,
    job: JobConfig,
    knock: Knock,
    source: RunSource,
    *,
    offered: UUID | None = None,
    operator: Operator | None = None,
    traceparent: str | None = None,
) -> Accepted:
    """Claim (job, runId) or find the run that has it; the uniqueness of the two decides, also between processes.

    Without a cutoff a new run gets the database's now, and one that was claimed before is taken as it is. A new run
    gets the `offered` id, else one that is made here, and keeps the `traceparent` of the tick that claimed it.

    Raises:
        CutoffOutOfRange: by the database's clock the cutoff is too far ahead or too old.
        RunConflict: the runId was claimed with another cutoff.
        Unavailable: the database is away; nothing was written.

    """
    offered = offered or uuid7()
    async with db.begin() as tx:
        _check_range(job, knock.cutoff, tx.now)
        frozen_since = await _hold_still(tx, job.name, source)
        known = await _claimed(tx, offered, job.name, knock, source=source, traceparent=traceparent)
        is_new = known.id == offered
        if source is not RunSource.OPERATOR:
            frozen_since = await _thawed_or_frozen(tx, job.name, frozen_since, None if is_new else known.claimed_at)
        if is_new and operator is not None:
            await _note(tx, operator, job.name, knock.run_id, known.id)
        view = await views.run(tx, known.id)
        if view is None:  # retention deleted it between two statements
            raise Contended
    if is_new:
        await doorbell.ring()
    return Accepted(view, not is_new, tx.now, frozen_since)


def _is_plain(repeat: Accepted, cutoff: datetime | None) -> bool:
    """Whether nothing is to be said or written of the repeat: it names the cutoff of a run that is not long gone."""
    return cutoff in (None, repeat.run.cutoff) and repeat.at - repeat.run.claimed_at <= FROZEN_AFTER


async def _hold_still(tx: Tx, job: str, source: RunSource) -> datetime | None:
    """Keep the job from being paused or resumed until its run is on record; a tick is remembered by the same write."""
    if source is not RunSource.OPERATOR:
        return await jobs.touch(tx, job)
    await jobs.hold_still(tx, job)
    return None


async def _claimed(
    tx: Tx, offered: UUID, job: str, knock: Knock, *, source: RunSource, traceparent: str | None
) -> Known:
    wanted, named = knock.cutoff or tx.now, {"job": job, "run_id": knock.run_id}
    if await runs.claim(tx, id=offered, cutoff=wanted, source=source, traceparent=traceparent, **named):
        return Known(RunId(offered), wanted, tx.now)
    known = await runs.find(tx, **named)
    if knock.cutoff is not None and knock.cutoff != known.cutoff:
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
