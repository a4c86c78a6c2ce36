"""The one switch over all dispatch: while it is paused no delivery is claimed anywhere."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Text, bindparam, text

from service.store.database import Tx


@dataclass(frozen=True, slots=True)
class Standing:
    """How dispatch stands; where it is paused, by whom, why and since when."""

    paused: bool
    reason: str | None
    paused_by: str | None
    since: datetime | None


_STANDING = text("SELECT paused, reason, paused_by, since FROM tocsin.dispatch")
_PAUSE = text("""
    UPDATE tocsin.dispatch SET paused = true, reason = :reason, paused_by = :by, since = now() WHERE NOT paused
""").bindparams(bindparam("reason", type_=Text))
_RESUME = text("""
    UPDATE tocsin.dispatch SET paused = false, reason = NULL, paused_by = NULL, since = NULL WHERE paused
""")
_RAMP = text("""
    UPDATE tocsin.lanes SET ramp = 1 FROM (
        SELECT subscriber FROM tocsin.lanes WHERE state = 'active' AND ramp IS NULL AND next_due_at <= now()
         ORDER BY subscriber FOR UPDATE) waiting
     WHERE lanes.subscriber = waiting.subscriber
""")
_LEASED = text("SELECT coalesce(sum(leased), 0)::bigint FROM tocsin.lanes WHERE leased > 0")


async def standing(tx: Tx) -> Standing:
    """How dispatch stands now."""
    return Standing(*(await tx.conn.execute(_STANDING)).one())


async def pause(tx: Tx, *, reason: str | None, by: str) -> bool:
    """Have nothing claimed any more; False where that was so already, whose reason then stays."""
    return (await tx.conn.execute(_PAUSE, {"reason": reason, "by": by})).rowcount == 1


async def resume(tx: Tx) -> bool:
    """Have deliveries claimed again; False where they were. Each lane that waited starts slowly, and doubles."""
    if (await tx.conn.execute(_RESUME)).rowcount == 0:
        return False
    await tx.conn.execute(_RAMP)
    return True


async def leased(tx: Tx) -> int:
    """How many deliveries are in flight, as the lanes count them."""
    count: int = (await tx.conn.execute(_LEASED)).scalar_one()
    return count
