"""API keys: only the SHA-256 of a key is stored, its name becomes the actor of the audit line."""

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Row, select, update
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


_FIELDS = (api_keys.c.id, api_keys.c.name, api_keys.c.scope, api_keys.c.created_at, api_keys.c.revoked_at)


def digest(key: str) -> bytes:
    """What is stored and looked up in place of the key (32 random bytes need no slow hash)."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


async def find(tx: Tx, key_hash: bytes) -> KeyRecord | None:
    """The live key with this digest; a revoked one is as unknown as one that never was."""
    query = select(*_FIELDS).where(api_keys.c.hash == key_hash, api_keys.c.revoked_at.is_(None))
    found = (await tx.conn.execute(query)).one_or_none()
    return None if found is None else _record(found)


async def add(tx: Tx, *, id: UUID, name: str, scope: Scope, key_hash: bytes) -> KeyRecord | None:  # noqa: A002 - the column's name
    """Store a key, or answer None where a live key already has this name."""
    added = (
        postgresql.insert(api_keys)
        .values(id=id, name=name, scope=scope.value, hash=key_hash)
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


def _record(row: Row[*tuple[Any, ...]]) -> KeyRecord:
    return KeyRecord(row.id, row.name, Scope(row.scope), row.created_at, row.revoked_at)
