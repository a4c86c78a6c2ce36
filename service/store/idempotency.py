"""Idempotency-Keys: the first request with a key works, later ones get its answer; a constraint says who is first.

The answer is sealed by the caller, because it may hold a secret that is shown once.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from sqlalchemy import ColumnElement, and_, delete, or_, select, update
from sqlalchemy.dialects import postgresql
from sqlalchemy.sql.dml import ReturningInsert

from service.store.database import Tx
from service.store.tables import idempotency

TAKEOVER_SECONDS = 60
"""A request that has not answered for so long is taken to have died; its key may be taken over by the same request."""


class Standing(StrEnum):
    """What a request finds under its Idempotency-Key."""

    FRESH = "fresh"
    IN_FLIGHT = "in_flight"
    MISMATCH = "mismatch"
    REPLAY = "replay"


@dataclass(frozen=True, slots=True)
class Begun:
    """Where the request stands.

    `began_at` is set when it is fresh: the fence that `finish` and `forget` ask for. `status` and `sealed_answer` are
    set when the answer is replayed.
    """

    standing: Standing
    began_at: datetime | None = None
    status: int | None = None
    sealed_answer: bytes | None = None


async def begin(tx: Tx, *, actor: str, key: str, request_sha256: bytes, ttl_seconds: float) -> Begun:
    """Take the key for this request, or say what stands under it. Two at once: exactly one is fresh.

    An expired entry, and the same request's entry that nobody answered for TAKEOVER_SECONDS, count as not there.
    """
    taken = (await tx.conn.execute(_take(tx, actor, key, request_sha256, ttl_seconds))).one_or_none()
    if taken is not None:
        return Begun(Standing.FRESH, began_at=taken.created_at)
    # The refused INSERT … ON CONFLICT holds the row's lock, so it cannot be gone.
    query = select(idempotency).where(idempotency.c.actor == actor, idempotency.c.key == key)
    stored = (await tx.conn.execute(query)).one()
    if stored.request_sha256 != request_sha256:
        return Begun(Standing.MISMATCH)
    if stored.status is None:
        return Begun(Standing.IN_FLIGHT)
    return Begun(Standing.REPLAY, status=stored.status, sealed_answer=stored.sealed_answer)


def _take(tx: Tx, actor: str, key: str, request_sha256: bytes, ttl_seconds: float) -> ReturningInsert[datetime]:
    fresh = {
        "request_sha256": request_sha256,
        "status": None,
        "sealed_answer": None,
        "created_at": tx.now,
        "expires_at": tx.now + timedelta(seconds=ttl_seconds),
    }
    abandoned = and_(
        idempotency.c.status.is_(None),
        idempotency.c.request_sha256 == request_sha256,
        idempotency.c.created_at < tx.now - timedelta(seconds=TAKEOVER_SECONDS),
    )
    return (
        postgresql.insert(idempotency)
        .values(actor=actor, key=key, **fresh)
        .on_conflict_do_update(
            index_elements=[idempotency.c.actor, idempotency.c.key],
            set_=fresh,
            where=or_(idempotency.c.expires_at <= tx.now, abandoned),
        )
        .returning(idempotency.c.created_at)
    )


async def finish(tx: Tx, *, actor: str, key: str, began_at: datetime, status: int, sealed_answer: bytes) -> bool:
    """Keep the answer for those who ask again; False where the key was taken over meanwhile (its answer stays)."""
    kept = (
        update(idempotency)
        .where(*_mine(actor, key, began_at))
        .values(status=status, sealed_answer=sealed_answer)
        .returning(idempotency.c.key)
    )
    return (await tx.conn.execute(kept)).one_or_none() is not None


async def forget(tx: Tx, *, actor: str, key: str, began_at: datetime) -> None:
    """Give the key back because nothing was done (our own fault): the request may be sent again at once."""
    await tx.conn.execute(delete(idempotency).where(*_mine(actor, key, began_at)))


def _mine(actor: str, key: str, began_at: datetime) -> tuple[ColumnElement[bool], ...]:
    """The entry that this very request took and has not answered."""
    return (
        idempotency.c.actor == actor,
        idempotency.c.key == key,
        idempotency.c.created_at == began_at,
        idempotency.c.status.is_(None),
    )


async def purge_expired(tx: Tx, limit: int) -> int:
    """Delete at most `limit` entries whose time is over, and say how many; those in use are left for the next time."""
    doomed = (
        select(idempotency.c.actor, idempotency.c.key)
        .where(idempotency.c.expires_at <= tx.now)
        .order_by(idempotency.c.expires_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
        .cte("doomed")
        .prefix_with("MATERIALIZED")
    )
    purge = delete(idempotency).where(idempotency.c.actor == doomed.c.actor, idempotency.c.key == doomed.c.key)
    return (await tx.conn.execute(purge)).rowcount
