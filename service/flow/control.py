"""What operators do to jobs, runs, dispatch and API keys; each change and its audit line are one transaction."""

import base64
import secrets
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from uuid_utils.compat import uuid7

from service.domain.errors import Conflict, Invalid, NotFound, Problem
from service.domain.job import JobConfig
from service.domain.knocks import Knock
from service.domain.model import RunId, RunSource, Scope
from service.domain.timestamps import format_rfc3339
from service.domain.unseen import is_clear
from service.flow import intake
from service.flow.doorbell import Doorbell
from service.flow.intake import Accepted
from service.store import audit, dispatching, jobs, keys, runs, views
from service.store.database import Database
from service.store.dispatching import Standing
from service.store.jobs import JobRow
from service.store.keys import KeyRecord
from service.store.views import RunView

KEY_PREFIX = "tsk_"
MAX_KEY_LIFE = timedelta(days=3650)
_KEY_BYTES = 32
_MAX_NAME = 64
_RESERVED_NAMES = frozenset({"bootstrap", "cli", "tocsin"})
"""Actors of the audit trail that are no stored keys."""


async def pause_job(db: Database, job: str, *, actor: str, reason: str | None) -> JobRow:
    """Hold the job's runs: ticks are accepted as usual, nothing starts; a run that is being worked on finishes.

    Pausing a paused job changes nothing.
    """
    async with db.begin() as tx:
        if await jobs.pause(tx, job, reason):
            detail = {"held": await runs.hold(tx, job)}
            await audit.write(tx, actor=actor, action="job.paused", object=f"job:{job}", reason=reason, detail=detail)
        return await jobs.read(tx, job)


async def resume_job(db: Database, doorbell: Doorbell, job: str, *, actor: str, reason: str | None) -> JobRow:
    """Let the job's held runs start, oldest cutoff first. Resuming one that is not paused changes nothing."""
    async with db.begin() as tx:
        if await jobs.resume(tx, job):
            detail = {"released": await runs.release(tx, job)}
            await audit.write(tx, actor=actor, action="job.resumed", object=f"job:{job}", reason=reason, detail=detail)
        standing = await jobs.read(tx, job)
    await doorbell.ring()
    return standing


async def pause_dispatch(db: Database, *, actor: str, reason: str | None) -> Standing:
    """Have nothing claimed any more, anywhere; what is in flight finishes, runs go on being discovered.

    Pausing paused dispatch changes nothing: the first reason stays.
    """
    async with db.begin() as tx:
        if await dispatching.pause(tx, reason=reason, by=actor):
            await audit.write(tx, actor=actor, action="dispatch.paused", object="dispatch", reason=reason)
        return await dispatching.standing(tx)


async def resume_dispatch(db: Database, doorbell: Doorbell, *, actor: str, reason: str | None) -> Standing:
    """Have deliveries claimed again, each waiting lane slowly at first. Resuming running dispatch changes nothing."""
    async with db.begin() as tx:
        if await dispatching.resume(tx):
            await audit.write(tx, actor=actor, action="dispatch.resumed", object="dispatch", reason=reason)
        standing = await dispatching.standing(tx)
    await doorbell.ring()
    return standing


async def start_run(
    db: Database, doorbell: Doorbell, job: JobConfig, *, run_id: str, cutoff: datetime, actor: str, reason: str | None
) -> Accepted:
    """Start a run by hand: what a tick would do, in an operator's name.

    Raises:
        CutoffOutOfRange, RunConflict, Unavailable: as `intake.claim`.

    """
    by, knock = intake.Operator(actor, reason), Knock(run_id, cutoff)
    return await intake.claim(db, doorbell, job, knock, RunSource.OPERATOR, operator=by)


async def retry_run(db: Database, doorbell: Doorbell, run: RunId, *, actor: str, reason: str | None) -> RunView:
    """Open a failed run again; it goes on from where it stopped, nothing is found or sent twice.

    Raises:
        NotFound: there is no such run.
        Conflict: it has not failed.

    """
    async with db.begin() as tx:
        opened = await runs.retry(tx, run)
        view = await views.run(tx, run)
        if view is None:
            raise NotFound
        if not opened:
            raise Conflict(f"Only a failed run can be retried; this one is {view.state.value}.")
        await audit.write(tx, actor=actor, action="run.retried", object=f"run:{run}", reason=reason)
    await doorbell.ring()
    return view


@dataclass(frozen=True, slots=True)
class NewKey:
    """An API key at its birth: the only moment at which `key` is known here."""

    record: KeyRecord
    key: str = field(repr=False)


async def create_key(
    db: Database, *, name: str, scope: Scope, actor: str, expires_in: timedelta | None = None
) -> NewKey:
    """Make an API key of 32 random bytes; its name becomes the actor of what is done with it.

    With `expires_in` it ends by itself. The name of a key that has expired is free.

    Raises:
        Invalid: the name is not 1 to 64 visible characters, or reserved; or the key would end too late or at once.
        Conflict: a live key has this name.

    """
    if not (1 <= len(name) <= _MAX_NAME and is_clear(name) and " " not in name):
        raise Invalid(Problem("/name", f"must be 1 to {_MAX_NAME} visible characters, without spaces"))
    if name in _RESERVED_NAMES:
        raise Invalid(Problem("/name", "is reserved: the audit trail uses it for something else"))
    if expires_in is not None and not timedelta(0) < expires_in <= MAX_KEY_LIFE:
        raise Invalid(Problem("/expiresIn", f"must be more than 0 and at most {MAX_KEY_LIFE.days} days"))
    key = KEY_PREFIX + base64.urlsafe_b64encode(secrets.token_bytes(_KEY_BYTES)).rstrip(b"=").decode()
    async with db.begin() as tx:
        await keys.retire_expired(tx, name)
        expires_at = None if expires_in is None else tx.now + expires_in
        record = await keys.add(
            tx, id=uuid7(), name=name, scope=scope, key_hash=keys.digest(key), expires_at=expires_at
        )
        if record is None:
            raise Conflict("A live API key has this name already; revoke it first or choose another name.")
        detail = {"scope": scope.value} | ({"expiresAt": format_rfc3339(expires_at)} if expires_at else {})
        await audit.write(tx, actor=actor, action="key.created", object=f"key:{name}", detail=detail)
    return NewKey(record, key)


async def revoke_key(db: Database, name: str, *, actor: str) -> None:
    """End an API key at once.

    Raises:
        NotFound: no live key has this name.

    """
    async with db.begin() as tx:
        if not await keys.revoke(tx, name):
            raise NotFound("No live API key has this name.")
        await audit.write(tx, actor=actor, action="key.revoked", object=f"key:{name}")
