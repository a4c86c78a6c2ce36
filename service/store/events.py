"""Events: immutable facts, stored once under their logical key with the exact bytes that will be sent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from sqlalchemy import DateTime, Text, Uuid, bindparam, text

from service.domain.model import EventId, NewEvent, RunId
from service.store.arrays import Flat
from service.store.database import Tx


@dataclass(frozen=True, slots=True)
class Stored:
    """What became of one event that was to be added."""

    id: EventId
    """Of the stored event: the one that was offered, or the one that held the logical key before."""
    added: bool
    same_data: bool
    """False when the logical key was taken by an event with other data."""


_Known: TypeAlias = Mapping[tuple[str, str, str, int], tuple[EventId, bytes]]

# Topics travel as one text each, since PostgreSQL unnests an array of arrays flat; a type has no space in it.
_ADD = text("""
    INSERT INTO tocsin.events
           (id, tenant_id, type, subject, version, topics, run_id, due_at, published_by, body, body_sha256, data_sha256)
    SELECT id, tenant_id, type, subject, version, string_to_array(topics, ' '), :run_id, :due_at, :published_by,
           body, body_sha256, data_sha256
      FROM unnest(:ids, :tenants, :types, :subjects, :versions, :topics, :bodies, :body_hashes, :data_hashes)
        AS t (id, tenant_id, type, subject, version, topics, body, body_sha256, data_sha256)
    ON CONFLICT (tenant_id, type, subject, version) DO NOTHING
    RETURNING id
""").bindparams(
    bindparam("run_id", type_=Uuid),
    bindparam("due_at", type_=DateTime(timezone=True)),
    bindparam("published_by", type_=Text),
    bindparam("ids", type_=Flat("uuid")),
    bindparam("tenants", type_=Flat("text")),
    bindparam("types", type_=Flat("text")),
    bindparam("subjects", type_=Flat("text")),
    bindparam("versions", type_=Flat("bigint")),
    bindparam("topics", type_=Flat("text")),
    bindparam("bodies", type_=Flat("bytea")),
    bindparam("body_hashes", type_=Flat("bytea")),
    bindparam("data_hashes", type_=Flat("bytea")),
)

_KNOWN = text("""
    SELECT t.position, e.id, e.data_sha256
      FROM unnest(:tenants, :types, :subjects, :versions) WITH ORDINALITY
        AS t (tenant_id, type, subject, version, position)
      JOIN tocsin.events e USING (tenant_id, type, subject, version)
""").bindparams(
    bindparam("tenants", type_=Flat("text")),
    bindparam("types", type_=Flat("text")),
    bindparam("subjects", type_=Flat("text")),
    bindparam("versions", type_=Flat("bigint")),
)


async def add(
    tx: Tx,
    events: Sequence[NewEvent],
    *,
    run_id: RunId | None = None,
    due_at: datetime | None = None,
    published_by: str | None = None,
) -> list[Stored]:
    """Store the events that are new, and tell for each, in order, what became of it.

    `published_by` is the API key's name behind an event that nobody discovered.
    """
    keys = _keys(events)
    added = {
        row.id
        for row in await tx.conn.execute(
            _ADD,
            keys
            | {
                "run_id": run_id,
                "due_at": due_at,
                "published_by": published_by,
                "ids": [e.id for e in events],
                "topics": [" ".join(e.topics) for e in events],
                "bodies": [e.body for e in events],
                "body_hashes": [e.body_sha256 for e in events],
                "data_hashes": [e.data_sha256 for e in events],
            },
        )
    }
    known = await _known(tx, [e for e in events if e.id not in added])
    return [Stored(e.id, added=True, same_data=True) if e.id in added else _stored(e, known) for e in events]


def _keys(events: Sequence[NewEvent]) -> dict[str, object]:
    return {
        "tenants": [e.tenant_id for e in events],
        "types": [e.type for e in events],
        "subjects": [e.subject for e in events],
        "versions": [e.version for e in events],
    }


def _stored(event: NewEvent, known: _Known) -> Stored:
    event_id, data_sha256 = known[_logical(event)]
    return Stored(event_id, added=False, same_data=data_sha256 == event.data_sha256)


def _logical(event: NewEvent) -> tuple[str, str, str, int]:
    return event.tenant_id, event.type, event.subject, event.version


async def _known(tx: Tx, events: Sequence[NewEvent]) -> _Known:
    if not events:
        return {}
    rows = await tx.conn.execute(_KNOWN, _keys(events))
    return {_logical(events[row.position - 1]): (EventId(row.id), row.data_sha256) for row in rows}


_ADOPT = text("""
    WITH due AS (
        SELECT id FROM tocsin.events
         WHERE fanned_out_at IS NULL AND run_id IS NULL AND due_at IS NOT NULL AND due_at <= :cutoff
         ORDER BY due_at, id LIMIT :limit FOR UPDATE SKIP LOCKED)
    UPDATE tocsin.events e SET run_id = :run_id FROM due WHERE e.id = due.id
    RETURNING e.id, e.tenant_id, e.type, e.subject, e.version
""")


@dataclass(frozen=True, slots=True)
class Adopted:
    """A due outbox event that now belongs to a run."""

    id: EventId
    tenant_id: str
    type: str
    subject: str
    version: int


async def adopt(tx: Tx, run_id: RunId, cutoff: datetime, limit: int) -> list[Adopted]:
    """Give up to `limit` due outbox events that belong to no run yet to this one."""
    rows = await tx.conn.execute(_ADOPT, {"run_id": run_id, "cutoff": cutoff, "limit": limit})
    return [Adopted(EventId(row.id), *row[1:]) for row in rows]


_BODIES = text("SELECT id, body FROM tocsin.events WHERE id = ANY(:ids)").bindparams(
    bindparam("ids", type_=Flat("uuid"))
)


async def bodies(tx: Tx, ids: Sequence[EventId]) -> dict[EventId, bytes]:
    """The exact bytes to send, by event; empty where they were purged."""
    return {EventId(row.id): row.body or b"" for row in await tx.conn.execute(_BODIES, {"ids": list(ids)})}
