"""Dead letters by what became of them: how many there are of each kind, since when, and one of them as an example."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Boolean, Integer, Row, Text, bindparam, text

from service.domain.identifiers import delivery_id
from service.domain.model import DeliveryState, Outcome
from service.domain.states import DEAD_LETTERS
from service.store.database import Tx

MAX_READ: Final = 20_000
"""So many dead letters are looked at, the newest."""
MAX_KINDS: Final = 200


@dataclass(frozen=True, slots=True)
class DeadKind:
    """Dead letters of one state, reason, last outcome and status, of all subscribers or of one.

    `detail` is what is known of the failure of the newest of them, or what its receiver said, both made safe when they
    were stored; `example` is the id of that delivery.
    """

    state: DeliveryState
    reason: str | None
    outcome: Outcome | None
    status: int | None
    subscriber_id: str | None
    subscribers: int
    count: int
    oldest: datetime
    newest: datetime
    detail: str | None
    example: str


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """The kinds, the most frequent first; `truncated` where there are more dead letters or kinds than were read."""

    kinds: Sequence[DeadKind]
    read: int
    truncated: bool


# Each state by itself, because the index has the state before the row.
_NEWEST = " UNION ALL ".join(
    "(SELECT row, event_id, subscriber, state, reason, finished_at FROM tocsin.deliveries "
    f"WHERE state = '{state}' AND (:subscriber IS NULL OR subscriber = "
    "(SELECT s.row FROM tocsin.subscribers s WHERE s.id = :subscriber)) ORDER BY row DESC LIMIT :most)"
    for state in sorted(DEAD_LETTERS)
)
_KINDS = text(f"""
    WITH dead AS MATERIALIZED (SELECT * FROM ({_NEWEST}) d ORDER BY row DESC LIMIT :most),
    told AS MATERIALIZED (
        SELECT d.*, a.outcome, a.status, coalesce(a.detail, a.excerpt) AS detail,
               CASE WHEN :by_subscriber THEN d.subscriber END AS one
          FROM (SELECT * FROM dead ORDER BY row DESC LIMIT :most - 1) d LEFT JOIN LATERAL (
            SELECT a.outcome, a.status, a.detail, a.excerpt FROM tocsin.attempts a WHERE a.delivery = d.row
             ORDER BY a.late, a.id DESC LIMIT 1) a ON true),
    kind AS (
        SELECT state, reason, outcome, status, one, count(*) AS n, count(DISTINCT subscriber) AS subscribers,
               min(finished_at) AS oldest, max(finished_at) AS newest, max(row) AS last
          FROM told GROUP BY state, reason, outcome, status, one)
    SELECT k.state, k.reason, k.outcome, k.status, s.id AS slug, k.subscribers, k.n, k.oldest, k.newest, t.detail,
           t.event_id, t.subscriber, (SELECT count(*) FROM dead) AS read
      FROM kind k JOIN told t ON t.row = k.last LEFT JOIN tocsin.subscribers s ON s.row = k.one
     ORDER BY k.n DESC, k.last DESC LIMIT :kinds
""").bindparams(
    bindparam("subscriber", type_=Text),
    bindparam("by_subscriber", type_=Boolean),
    bindparam("most", type_=Integer),
    bindparam("kinds", type_=Integer),
)


async def dead_letters(tx: Tx, *, subscriber_id: str | None, by_subscriber: bool, most: int = MAX_READ) -> DeadLetters:
    """The newest `most` dead letters by kind; with `subscriber_id` those of one subscriber."""
    params = {
        "subscriber": subscriber_id,
        "by_subscriber": by_subscriber,
        "most": most + 1,
        "kinds": MAX_KINDS + 1,
    }
    rows = (await tx.conn.execute(_KINDS, params)).all()
    read = rows[0].read if rows else 0
    return DeadLetters(
        kinds=[_kind(row) for row in rows[:MAX_KINDS]],
        read=min(read, most),
        truncated=read > most or len(rows) > MAX_KINDS,
    )


def _kind(row: Row[Any]) -> DeadKind:
    return DeadKind(
        state=DeliveryState(row.state),
        reason=row.reason,
        outcome=None if row.outcome is None else Outcome(row.outcome),
        status=row.status,
        subscriber_id=row.slug,
        subscribers=row.subscribers,
        count=row.n,
        oldest=row.oldest,
        newest=row.newest,
        detail=row.detail,
        example=delivery_id(row.event_id, row.subscriber),
    )
