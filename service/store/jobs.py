"""What is remembered of a job beside its configuration: whether it is paused or frozen, when its last tick came."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select, update
from sqlalchemy.dialects import postgresql

from service.store.database import Tx
from service.store.tables import jobs


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job's standing; one that was never ticked nor paused has none stored and reads as this with defaults."""

    name: str
    paused: bool = False
    paused_reason: str | None = None
    last_tick_at: datetime | None = None
    frozen_since: datetime | None = None
    """Since then each tick that came has only repeated a run of long ago."""


async def read(tx: Tx, name: str) -> JobRow:
    """How the job stands; names that are not stored stand unpaused and unticked."""
    query = select(jobs.c.paused, jobs.c.paused_reason, jobs.c.last_tick_at, jobs.c.frozen_since).where(
        jobs.c.name == name
    )
    found = (await tx.conn.execute(query)).one_or_none()
    return JobRow(name) if found is None else JobRow(name, *found)


async def touch(tx: Tx, name: str) -> datetime | None:
    """Remember that a valid tick of this job came now; never moves backwards. Returns since when the job is frozen."""
    touched = postgresql.insert(jobs).values(name=name, last_tick_at=tx.now)
    touching = touched.on_conflict_do_update(
        index_elements=[jobs.c.name],
        set_={"last_tick_at": func.greatest(jobs.c.last_tick_at, touched.excluded.last_tick_at)},
    )
    frozen_since: datetime | None = (await tx.conn.execute(touching.returning(jobs.c.frozen_since))).scalar_one()
    return frozen_since


async def hold_still(tx: Tx, name: str) -> None:
    """Let nobody pause or resume this job while the transaction lasts; a tick does the same by `touch`."""
    held = postgresql.insert(jobs).values(name=name)
    unchanged = {"paused": jobs.c.paused}  # DO NOTHING would lock nothing
    await tx.conn.execute(held.on_conflict_do_update(index_elements=[jobs.c.name], set_=unchanged))


async def last_ticks(tx: Tx, names: Collection[str]) -> Mapping[str, datetime]:
    """When the last valid tick of each of these jobs came; those that were never ticked are missing."""
    query = select(jobs.c.name, jobs.c.last_tick_at).where(jobs.c.name.in_(names), jobs.c.last_tick_at.is_not(None))
    return {row.name: row.last_tick_at for row in await tx.conn.execute(query)}


async def freeze(tx: Tx, name: str, since: datetime | None) -> None:
    """Remember since when the job's ticks repeat a run of long ago; None when one has claimed a run again."""
    await tx.conn.execute(update(jobs).where(jobs.c.name == name).values(frozen_since=since))


async def frozen(tx: Tx, names: Collection[str]) -> Mapping[str, datetime]:
    """Those of these jobs that are frozen, by name, and since when."""
    query = select(jobs.c.name, jobs.c.frozen_since).where(jobs.c.name.in_(names), jobs.c.frozen_since.is_not(None))
    return {row.name: row.frozen_since for row in await tx.conn.execute(query.order_by(jobs.c.name))}


async def pause(tx: Tx, name: str, reason: str | None) -> bool:
    """Pause the job; False where it already was, whose reason then stays."""
    paused = (
        postgresql.insert(jobs)
        .values(name=name, paused=True, paused_reason=reason)
        .on_conflict_do_update(
            index_elements=[jobs.c.name],
            set_={"paused": True, "paused_reason": reason},
            where=jobs.c.paused.is_(False),
        )
        .returning(jobs.c.name)
    )
    return (await tx.conn.execute(paused)).one_or_none() is not None


async def resume(tx: Tx, name: str) -> bool:
    """Let the job run again; False where it was not paused."""
    resumed = (
        update(jobs)
        .where(jobs.c.name == name, jobs.c.paused.is_(True))
        .values(paused=False, paused_reason=None)
        .returning(jobs.c.name)
    )
    return (await tx.conn.execute(resumed)).one_or_none() is not None
