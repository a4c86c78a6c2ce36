"""API keys: only the SHA-256 of a key is stored, its name becomes the actor of the audit line."""

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Row, func, or_, select, text, update
from sqlalchemy.dialects import postgresql

from service.domain.model import Scope
from service.store.database import Tx
from service.store.tables import api_keys


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """What is known of one API key; the key itself is known to its holder only."""

    id: UUID
    name: str
    scope: Scope
    created_at: datetime
    revoked_at: datetime | None
    expires_at: datetime | None
    last_used_at: datetime | None
    """Give or take NOTE_SECONDS."""


NOTE_SECONDS = 60
"""The use of a key is noted at most once in so many seconds."""

_FIELDS = (
    api_keys.c.id,
    api_keys.c.name,
    api_keys.c.scope,
    api_keys.c.created_at,
    api_keys.c.revoked_at,
    api_keys.c.expires_at,
    api_keys.c.last_used_at,
)


def digest(key: str) -> bytes:
    """What is stored and looked up in place of the key (32 random bytes need no slow hash)."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


async def find(tx: Tx, key_hash: bytes) -> KeyRecord | None:
    """The live key with this digest; a revoked or expired one is as unknown as one that never was."""
    unexpired = or_(api_keys.c.expires_at.is_(None), api_keys.c.expires_at > func.now())
    query = select(*_FIELDS).where(api_keys.c.hash == key_hash, api_keys.c.revoked_at.is_(None), unexpired)
    found = (await tx.conn.execute(query)).one_or_none()
    return None if found is None else _record(found)


_NOTE_USE = text(f"""
    UPDATE tocsin.api_keys SET last_used_at = now() FROM (
        SELECT id FROM tocsin.api_keys
         WHERE id = :id AND (last_used_at IS NULL OR last_used_at < now() - interval '{NOTE_SECONDS} seconds')
           FOR NO KEY UPDATE SKIP LOCKED) stale
     WHERE api_keys.id = stale.id
""")


async def note_use(tx: Tx, id: UUID) -> None:  # noqa: A002 - the column's name
    """Note that the key is used now, unless that was done a moment ago or somebody else is about to; waits for none."""
    await tx.conn.execute(_NOTE_USE, {"id": id})


async def add(
    tx: Tx,
    *,
    id: UUID,  # noqa: A002 - the column's name
    name: str,
    scope: Scope,
    key_hash: bytes,
    expires_at: datetime | None = None,
) -> KeyRecord | None:
    """Store a key, or answer None where a live key already has this name."""
    added = (
        postgresql.insert(api_keys)
        .values(id=id, name=name, scope=scope.value, hash=key_hash, expires_at=expires_at)
        .on_conflict_do_nothing(index_elements=[api_keys.c.name], index_where=api_keys.c.revoked_at.is_(None))
        .returning(*_FIELDS)
    )
    found = (await tx.conn.execute(added)).one_or_none()
    return None if found is None else _record(found)


async def all(tx: Tx) -> list[KeyRecord]:  # noqa: A001 - reads as keys.all
    """Every key that ever was, revoked ones too, oldest first."""
    rows = await tx.conn.execute(select(*_FIELDS).order_by(api_keys.c.created_at, api_keys.c.id))
    return [_record(row) for row in rows]


async def revoke(tx: Tx, name: str) -> bool:
    """End the live key with this name at once; False where there is none."""
    ended = (
        update(api_keys)
        .where(api_keys.c.name == name, api_keys.c.revoked_at.is_(None))
        .values(revoked_at=tx.now)
        .returning(api_keys.c.id)
    )
    return (await tx.conn.execute(ended)).one_or_none() is not None


async def retire_expired(tx: Tx, name: str) -> None:
    """Free the name of a key whose time is over; it counts as revoked from the moment at which it expired."""
    over = (
        update(api_keys)
        .where(api_keys.c.name == name, api_keys.c.revoked_at.is_(None), api_keys.c.expires_at <= func.now())
        .values(revoked_at=api_keys.c.expires_at)
    )
    await tx.conn.execute(over)


def _record(row: Row[*tuple[Any, ...]]) -> KeyRecord:
    return KeyRecord(
        row.id, row.name, Scope(row.scope), row.created_at, row.revoked_at, row.expires_at, row.last_used_at
    )
