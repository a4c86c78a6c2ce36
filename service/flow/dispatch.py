"""Dispatch: claim, send, settle, in batches; no connection is held while a request is out."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic

import structlog

from service.domain.errors import Unavailable
from service.domain.model import Claimed, DeliveryState
from service.flow.attempt import Attempts, Clock
from service.flow.gate import Gate
from service.flow.outbound import Loader, Outbound
from service.flow.settler import Settler
from service.flow.slots import Slots
from service.store import deliveries, lanes
from service.store.database import Database
from service.store.settlements import Settled

log = structlog.get_logger()

LANES_PER_LAPSE = 64
POLL_SECONDS = 1.0
"""A worker that was not rung looks again after this."""
MIN_REST_SECONDS = 0.02
FINAL_FLUSH_SECONDS = 5.0
"""A stopping worker waits this long for a database that is away before it leaves its last results behind."""
LAPSE_SECONDS = 1.0
"""How often a worker looks for leases that ran out."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one worker takes on, and for how long."""

    lease_seconds: float = 60.0
    concurrency: int = 128
    claim_batch: int = 200
    drain_seconds: float = 25.0


class Dispatcher:
    """Takes due deliveries through one attempt each."""

    def __init__(
        self, db: Database, loader: Loader, attempts: Attempts, settler: Settler, *, worker: str, limits: Limits
    ) -> None:
        """`worker` names this process in leases and evidence."""
        self._db = db
        self._loader = loader
        self._attempts = attempts
        self.settler = settler
        self._worker = worker
        self.limits = limits
        self._flights: set[asyncio.Task[None]] = set()
        self._slots = Slots(limits.concurrency)
        self._draining = False
        self._lapse_due = 0.0
        settler.counters.flights = lambda: (self.flights, self.saturation)

    @property
    def flights(self) -> int:
        """How many requests, or chains of them, are out."""
        return len(self._flights)

    @property
    def room(self) -> int:
        """How many more attempts this worker takes on now; results that wait for the database take room as well."""
        return self.limits.concurrency - len(self._flights) - self.settler.backlog

    @property
    def saturation(self) -> float:
        """The share of this worker's room that is taken, from 0 to 1."""
        return min(max(1 - self.room / self.limits.concurrency, 0.0), 1.0)

    async def once(self) -> int:
        """Claim one batch, see all of it through, and settle it; returns how many deliveries that were."""
        taken = await self.take(self.limits.claim_batch)
        if self._flights:
            await asyncio.wait(self._flights)
        await self.settler.flush()
        return taken

    async def take(self, room: int) -> int:
        """Claim up to `room` deliveries and start their attempts; returns how many were claimed or had lapsed."""
        self.settler.freed = 0
        taken = await self._lapsed() + await self._claimed(room)
        self.settler.counters.scanned()
        return taken

    async def _claimed(self, room: int) -> int:
        before = monotonic()
        async with self._db.ask() as tx:
            claimed = await deliveries.claim(
                tx, self._slots.appetite(room), worker=self._worker, lease_seconds=self.limits.lease_seconds
            )
        await self._start(claimed, before)
        return len(claimed)

    async def _lapsed(self) -> int:
        before = monotonic()
        if before < self._lapse_due:
            return 0
        async with self._db.begin(timed=False) as tx:
            lapsed = await deliveries.lapse(
                tx, worker=self._worker, lease_seconds=self.limits.lease_seconds, lanes=LANES_PER_LAPSE
            )
        if len({each.subscriber for each in lapsed}) < LANES_PER_LAPSE:
            self._lapse_due = monotonic() + LAPSE_SECONDS
        await self._start(lapsed, before)
        return len(lapsed)

    async def _start(self, taken: Sequence[Claimed], before: float) -> None:
        if not taken:
            return
        clock = Clock(taken[0].leased_at, before, self.limits.lease_seconds)
        try:
            outbound = await self._loader.load(taken)
        except Unavailable:
            # What had lapsed lapses again: its request may have been out, and how to treat that is not known now.
            for claimed in taken:
                if claimed.lapsed is None:
                    self.settler.put(self._attempts.given_back(claimed, clock))
            raise
        gate = Gate(self._db, taken, before)
        for chain in _chains(outbound):
            self._slots.depart(chain[0].claimed)
            flight = asyncio.create_task(self._fly(chain, clock, gate))
            self._flights.add(flight)
            flight.add_done_callback(self._flights.discard)

    async def _fly(self, chain: Sequence[Outbound], clock: Clock, gate: Gate) -> None:
        """Send what waits for one another, one after another; at the first that is not delivered the rest goes back."""
        head, going = chain[0].claimed, True
        try:
            for item in chain:
                if going:
                    self._slots.go_on(head)
                    ended = await self._attempt(item, clock, gate)
                    going = not self._draining and ended.settlement.state is DeliveryState.DELIVERED
                else:
                    ended = self._attempts.put_back(item.claimed, clock)
                self.settler.put(ended if item is chain[-1] else ended._replace(last=False))
        finally:
            self._slots.land(head)

    async def _attempt(self, item: Outbound, clock: Clock, gate: Gate) -> Settled:
        """One attempt, unless it is not to be sent any more, or not so."""
        claimed = item.claimed
        try:
            goes = claimed.lapsed is not None or await gate.lets(claimed)
        except asyncio.CancelledError:  # the drain is over: it was not sent
            goes = False
        return await self._attempts.make(item, clock) if goes else self._attempts.held(claimed, clock)

    async def seconds_to_next(self) -> float:
        """How long this worker may rest unless it is rung: until some lane has something due, at most a poll."""
        appetite = self._slots.appetite(0)
        async with self._db.ask() as tx:
            seconds = await lanes.seconds_to_next(tx, appetite.full, appetite.full_origins)
        self.settler.counters.scanned()
        return POLL_SECONDS if seconds is None else min(max(seconds, MIN_REST_SECONDS), POLL_SECONDS)

    async def land(self) -> None:
        """Start nothing more; what is in flight finishes within `drain_seconds`, the rest is given back."""
        self._draining = True
        if not self._flights:
            return
        _, late = await asyncio.wait(self._flights, timeout=self.limits.drain_seconds)
        for flight in late:
            flight.cancel()
        if late:
            await asyncio.wait(late)

    async def settle_the_rest(self) -> None:
        """Write the last results, if the database is there."""
        try:
            async with asyncio.timeout(FINAL_FLUSH_SECONDS):
                await self.settler.flush()
        except TimeoutError:
            # The leases run out, and the deliveries go on with in_doubt attempts as evidence.
            log.error("attempts.unsettled", attempts=self.settler.backlog)  # noqa: TRY400 - the trace says nothing


def _chains(outbound: Sequence[Outbound]) -> list[list[Outbound]]:
    """Deliveries that wait for one another together and in order; every other one alone."""
    chains: dict[object, list[Outbound]] = {}
    for item in outbound:
        claimed = item.claimed
        link = claimed.row if claimed.order_key is None else (claimed.subscriber, claimed.order_key)
        chains.setdefault(link, []).append(item)
    return list(chains.values())
