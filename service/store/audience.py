"""Who listens to operational events, and what is known of the dead letters that some of them tell of."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import bindparam, text

from service.domain.identifiers import topics
from service.domain.model import EventId, RunId, SubscriberRow
from service.domain.operational import Operational
from service.store.arrays import Flat
from service.store.database import Tx
from service.store.tables import LISTENS

_TENANTS = text(f"""
    SELECT DISTINCT tenant_id FROM tocsin.subscribers WHERE {LISTENS} AND event_types && :topics
""").bindparams(bindparam("topics", type_=Flat("text")))


async def tenants(tx: Tx, kind: Operational) -> frozenset[str]:
    """The tenants of which a live subscriber asks for events of this type; also one that is paused or disabled."""
    rows = await tx.conn.execute(_TENANTS, {"topics": list(topics(kind.value))})
    return frozenset(row.tenant_id for row in rows)


class DeadLetter(NamedTuple):
    """A delivery that has just become a dead letter. `outcome`, `status` and `detail` are its last attempt's."""

    event_id: EventId
    subscriber: SubscriberRow
    slug: str
    tenant_id: str
    event_type: str
    subject: str
    version: int
    run_id: RunId | None
    state: str
    reason: str | None
    generation: int
    attempt_count: int
    created_at: datetime
    finished_at: datetime
    outcome: str | None
    status: int | None
    detail: str | None


_DEAD_LETTERS = text("""
    SELECT d.event_id, d.subscriber, s.id, e.tenant_id, e.type, e.subject, e.version, d.run_id, d.state, d.reason,
           d.generation, d.attempt_count, d.created_at, d.finished_at, a.outcome, a.status, a.detail
      FROM tocsin.deliveries d
      JOIN tocsin.events e ON e.id = d.event_id
      JOIN tocsin.subscribers s ON s.row = d.subscriber
      LEFT JOIN LATERAL (
          SELECT outcome, status, detail FROM tocsin.attempts
           WHERE delivery = d.row ORDER BY late, id DESC LIMIT 1) a ON true
     WHERE d.row = ANY(:rows) AND d.state IN ('exhausted', 'rejected', 'ambiguous') AND e.tenant_id = ANY(:tenants)
       AND NOT starts_with(e.type, 'tocsin.')
     ORDER BY d.row
""").bindparams(bindparam("rows", type_=Flat("bigint")), bindparam("tenants", type_=Flat("text")))


async def dead_letters(tx: Tx, rows: Sequence[int], tenants: Collection[str]) -> list[DeadLetter]:
    """Those of these deliveries that are dead letters of these tenants, but none of an event of Tocsin's own."""
    found = await tx.conn.execute(_DEAD_LETTERS, {"rows": list(rows), "tenants": list(tenants)})
    return [DeadLetter(*row) for row in found]
