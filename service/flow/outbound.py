"""What a claimed delivery needs before it can be sent: its destination and body, read in batches and kept briefly."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from time import monotonic
from typing import NamedTuple

from service.domain.model import Claimed, Destination, EventId, SubscriberRow
from service.store import events, subscribers
from service.store.database import Database, Tx
from service.store.vault import Vault

DESTINATION_SECONDS = 15.0
"""A cached destination is read again after this, so that a secret whose rotation grace ended stops signing."""

BODIES_BYTES = 8 * 1024 * 1024
"""Bodies kept in memory at most: a wide fan-out sends one body to many, a deep backlog must not fill the process."""
ENTRY_BYTES = 256
"""What a kept body takes beside its own length."""


class Outbound(NamedTuple):
    """A claimed delivery with all that its attempt needs; no destination when the subscriber is gone."""

    claimed: Claimed
    destination: Destination | None
    body: bytes
    """Empty where the payload was purged: then there is nothing to send."""


class Loader:
    """Completes claimed deliveries, with at most two statements a batch."""

    def __init__(self, db: Database, vault: Vault) -> None:
        """Read through `db`; open secrets with `vault`."""
        self._db = db
        self._vault = vault
        self._destinations: dict[SubscriberRow, tuple[Destination, float]] = {}
        self._bodies: OrderedDict[EventId, bytes] = OrderedDict()
        self._bodies_size = 0

    async def load(self, claimed: Sequence[Claimed]) -> list[Outbound]:
        """The deliveries in the same order, each with its destination and body."""
        stale = [row for row in {c.subscriber: c.revision for c in claimed}.items() if not self._is_fresh(*row)]
        missing = {c.event_id for c in claimed} - self._bodies.keys()
        bodies: dict[EventId, bytes] = {}
        if stale or missing:
            async with self._db.ask() as tx:
                await self._read_destinations(tx, [row for row, _ in stale])
                bodies = await events.bodies(tx, list(missing)) if missing else {}
        bodies |= {c.event_id: self._bodies[c.event_id] for c in claimed if c.event_id in self._bodies}
        self._keep(bodies.items())
        return [Outbound(c, self._destination(c.subscriber), bodies[c.event_id]) for c in claimed]

    def _is_fresh(self, row: SubscriberRow, revision: int) -> bool:
        known = self._destinations.get(row)
        return known is not None and known[0].revision == revision and monotonic() - known[1] < DESTINATION_SECONDS

    async def _read_destinations(self, tx: Tx, rows: Sequence[SubscriberRow]) -> None:
        if not rows:
            return
        read_at = monotonic()
        for destination in await subscribers.destinations(tx, rows, self._vault):
            self._destinations[destination.row] = (destination, read_at)

    def _destination(self, row: SubscriberRow) -> Destination | None:
        known = self._destinations.get(row)
        return known[0] if known else None

    def _keep(self, bodies: Iterable[tuple[EventId, bytes]]) -> None:
        for event_id, body in bodies:
            if event_id not in self._bodies:
                self._bodies_size += len(body) + ENTRY_BYTES
            self._bodies[event_id] = body
            self._bodies.move_to_end(event_id)
        while self._bodies_size > BODIES_BYTES:
            _, body = self._bodies.popitem(last=False)
            self._bodies_size -= len(body) + ENTRY_BYTES
