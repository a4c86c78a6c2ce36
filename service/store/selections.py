"""Deliveries that a person has picked out: how each stands, and what a replay of it would come to."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import bindparam, text

from service.domain.model import DeliveryRow
from service.domain.states import REPLAYABLE
from service.store import views_delivery
from service.store.arrays import Flat
from service.store.database import Tx
from service.store.generations import BARRED, Refusal
from service.store.views_delivery import DeliveryView


@dataclass(frozen=True, slots=True)
class Picked:
    """One delivery, and why it would get no further generation just now; None where it would."""

    delivery: DeliveryView
    refused: Refusal | None


# Looked up one by one: for a list of pairs the planner may read the whole table.
_BARRED = text(f"""
    SELECT d.row, {BARRED} AS refused
      FROM unnest(:events, :subscribers) AS n (event_id, subscriber)
     CROSS JOIN LATERAL (
        SELECT d.row, d.event_id, d.subscriber FROM tocsin.deliveries d
         WHERE d.event_id = n.event_id AND d.subscriber = n.subscriber LIMIT 1) d
      JOIN tocsin.subscribers s ON s.row = d.subscriber
      JOIN tocsin.events e ON e.id = d.event_id
""").bindparams(bindparam("events", type_=Flat("uuid")), bindparam("subscribers", type_=Flat("integer")))


async def picked(tx: Tx, named: Sequence[tuple[UUID, int]]) -> list[Picked]:
    """Those of the named deliveries (event, subscriber's row) that there are, newest first."""
    params = {"events": [event for event, _ in named], "subscribers": [row for _, row in named]}
    barred = {DeliveryRow(row.row): row.refused for row in await tx.conn.execute(_BARRED, params)}
    views = await views_delivery.of_rows(tx, list(barred))
    return [Picked(view, _refusal(view, barred[view.row])) for view in views]


def _refusal(view: DeliveryView, barred: str | None) -> Refusal | None:
    if view.state not in REPLAYABLE:
        return Refusal.CHANGED
    return None if barred is None else Refusal(barred)
