"""How a person ends a delivery: called off before its end, or resolved as what a look at the receiver has shown."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from sqlalchemy import text

from service.domain.model import DeliveryRow, DeliveryState, RunId, SubscriberRow
from service.domain.states import RESOLVABLE
from service.store import chains
from service.store.database import Tx
from service.store.lanes import Wake, wake

RESOLVED: Final = "resolved-by-operator"
CANCELLED: Final = "cancelled-by-operator"
"""The reasons of such deliveries."""


@dataclass(frozen=True, slots=True)
class Called:
    """A delivery that was called off; `leased` when its request was in flight, whose answer is then late evidence."""

    run_id: RunId | None
    leased: bool


def _quoted(states: Collection[DeliveryState]) -> str:
    return ", ".join(f"'{state}'" for state in sorted(states))


_CALL_OFF = text(f"""
    WITH gone AS (
        SELECT row, subscriber, run_id, order_key, lease_owner, queue FROM tocsin.deliveries
         WHERE row = :row AND finished_at IS NULL FOR NO KEY UPDATE),
    cancelled AS (
        UPDATE tocsin.deliveries d
           SET state = 'cancelled', reason = '{CANCELLED}', finished_at = clock_timestamp(), lease_owner = NULL,
               leased_at = NULL, lease_expires_at = NULL
          FROM gone WHERE d.row = gone.row)
    SELECT subscriber, run_id, order_key, lease_owner IS NOT NULL AS leased,
           (lease_owner IS NOT NULL)::int AS released, (lease_owner IS NOT NULL AND queue > 0)::int AS released_late
      FROM gone
""")


async def call_off(tx: Tx, row: DeliveryRow) -> Called | None:
    """Cancel an unfinished delivery, also in flight: its lane has that room again. None where it is terminal."""
    gone = (await tx.conn.execute(_CALL_OFF, {"row": row})).one_or_none()
    if gone is None:
        return None
    await _go_on(tx, gone.subscriber, gone.order_key, Wake(gone.released, gone.released_late))
    return Called(gone.run_id, gone.leased)


_RESOLVE = text(f"""
    UPDATE tocsin.deliveries SET state = :state, reason = '{RESOLVED}', finished_at = clock_timestamp()
     WHERE row = :row AND state IN ({_quoted(RESOLVABLE)})
    RETURNING subscriber, order_key
""")


async def resolve(tx: Tx, row: DeliveryRow, state: DeliveryState) -> bool:
    """Put a dead letter into the state that a person found to be true; False where it is none.

    A chain that it blocked goes on behind it.
    """
    resolved = (await tx.conn.execute(_RESOLVE, {"row": row, "state": state.value})).one_or_none()
    if resolved is None:
        return False
    await _go_on(tx, resolved.subscriber, resolved.order_key, Wake())
    return True


async def _go_on(tx: Tx, subscriber: SubscriberRow, order_key: int | None, woken: Wake) -> None:
    """Tell the lane of the room it has again, and let go of the next in the chain."""
    await wake(tx, {subscriber: woken})
    if order_key is not None:
        await chains.promote(tx, [(subscriber, order_key)])
