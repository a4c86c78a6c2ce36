"""The settler: collects ended attempts and writes them in batches, as long as it takes."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, TypeAlias

import structlog

from service.domain.errors import Unavailable
from service.domain.identifiers import delivery_id
from service.domain.model import DeliveryRow, DeliveryState, RunId, SubscriberRow
from service.domain.states import DEAD_LETTERS
from service.flow import disabling, operational
from service.flow.counters import Counters
from service.store import lanes, settlements
from service.store.database import Database, Tx, is_refused
from service.store.settlements import Settled

if TYPE_CHECKING:
    from service.flow.tracing import Tracing

log = structlog.get_logger()

BATCH = 500
FEW = 128
LINGER_SECONDS = 0.004
"""Few results wait this long for more of them, so that load makes batches; nobody waits for their being written."""
CHAIN_SECONDS = 0.05
"""How long the results inside of a chain wait for those behind them: its lane has no room before its end."""
RETRY_SECONDS = 1.0
"""How long to wait before writing again when the database is away; the results wait in memory."""

RUNS_SECONDS = 0.25
"""At most how long after its last delivery a run is noted as settled."""

Tell: TypeAlias = Callable[[Sequence[dict[str, object]]], None]


def tell_each(lines: Sequence[dict[str, object]]) -> None:
    """Log these lines, one by one."""
    for line in lines:
        log.info(**line)


GONE_REASON = "the receiver answered 410 Gone"


class Settler:
    """Writes settlements; whatever ended is kept in memory until the database has it."""

    def __init__(
        self,
        db: Database,
        tell: Tell = tell_each,
        counters: Counters | None = None,
        tracing: "Tracing | None" = None,
    ) -> None:
        """Write through `db`; `tell` logs what was settled, a whole batch at once."""
        self._db = db
        self._tell = tell
        self.counters = counters or Counters()
        self._tracing = tracing
        self._touched: set[RunId] = set()
        self._runs_due = 0.0
        self.freed = 0
        """Results written since the last claim: so much room is new, here and in the lanes."""
        self.flushed: Callable[[], None] = lambda: None
        """Called after each batch that has freed room in lanes: the worker hangs its bell here."""
        self._waiting: deque[Settled] = deque()
        self._arrived = asyncio.Event()
        self._awaited = asyncio.Event()

    def put(self, ended: Settled) -> None:
        """Hand over an ended attempt; never waits."""
        self._waiting.append(ended)
        self._arrived.set()
        if ended.last:
            self._awaited.set()

    @property
    def backlog(self) -> int:
        """How many ended attempts the database has not heard of."""
        return len(self._waiting)

    async def run(self) -> None:
        """Write batches as attempts end, until cancelled; while one is written, the next gathers."""
        while True:
            await self._some_arrived()
            await self._gather()
            self._arrived.clear()
            await self.flush()

    async def _some_arrived(self) -> None:
        """Wait for results; when they stop coming, note which runs the last ones settled."""
        while not self._arrived.is_set():
            try:
                async with asyncio.timeout(RUNS_SECONDS if self._touched else None):
                    await self._arrived.wait()
            except TimeoutError:
                await self._note_runs()

    async def _gather(self) -> None:
        """Let few results become more: briefly where room in a lane waits for them, longer inside of chains."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CHAIN_SECONDS):
                await self._awaited.wait()
        self._awaited.clear()
        if len(self._waiting) < FEW:
            await asyncio.sleep(LINGER_SECONDS)

    async def flush(self) -> None:
        """Write everything that waits now. Survives a database that is away; loses nothing."""
        while self._waiting:
            batch = self._next_batch()
            try:
                await self._write(batch)
            except Unavailable:
                self._waiting.extendleft(reversed(batch))
                log.warning("settle.waiting", attempts=len(self._waiting))
                await asyncio.sleep(RETRY_SECONDS)
            except BaseException:
                # Cancelled: whoever flushes next writes it, perhaps a second time, which adds nothing.
                self._waiting.extendleft(reversed(batch))
                raise
            else:
                if freed := sum(item.last for item in batch):
                    self.freed += freed
                    self.flushed()

    def _next_batch(self) -> list[Settled]:
        """The oldest results, each delivery once: a second one of the same delivery waits for the next batch."""
        batch: dict[DeliveryRow, Settled] = {}
        again: list[Settled] = []
        while self._waiting and len(batch) < BATCH:
            item = self._waiting.popleft()
            if item.claimed.row in batch:
                again.append(item)
            else:
                batch[item.claimed.row] = item
        self._waiting.extendleft(reversed(again))
        return list(batch.values())

    async def _write(self, batch: Sequence[Settled]) -> None:
        """Write a batch; one result that the database refuses for what it says must not hold up the others.

        Raises:
            Unavailable: nothing was written, for whatever other reason; the results are kept and written later.

        """
        try:
            with contextlib.nullcontext() if self._tracing is None else self._tracing.settle(batch):
                await self._settle(batch)
        except Unavailable:
            raise
        except Exception as error:
            if not is_refused(error):
                log.exception("settle.broken")
                raise Unavailable from error
            if len(batch) > 1:
                for item in batch:
                    await self._write([item])
            else:
                # Its lease runs out, and the delivery goes on with an in_doubt attempt as evidence.
                claimed = batch[0].claimed
                log.exception("attempt.unsettled", delivery=delivery_id(claimed.event_id, claimed.subscriber))

    async def _settle(self, batch: Sequence[Settled]) -> None:
        gone = [item.claimed for item in batch if item.answer and item.answer.disable]
        dead = [item.claimed.row for item in batch if item.settlement.state in DEAD_LETTERS]
        told = bool(gone or dead)
        async with self._db.begin(timed=told) if told or settlements.chained(batch) else self._db.ask() as tx:
            settled = await settlements.settle(tx, batch)
            await _disable(tx, {claimed.subscriber: claimed.revision for claimed in gone if claimed.row in settled})
            await operational.deliveries_dead(tx, [row for row in dead if row in settled])
        ended = [item for item in batch if item.settlement.state is not DeliveryState.PENDING]
        self._touched |= {item.claimed.run_id for item in ended if item.claimed.run_id}
        self.counters.settled(batch, settled)
        self._tell([_told(item, late=item.claimed.row not in settled) for item in batch])
        if monotonic() >= self._runs_due:
            await self._note_runs()

    async def _note_runs(self) -> None:
        """Note the moment at which runs became settled; not with every batch, since a run ends only once."""
        self._runs_due = monotonic() + RUNS_SECONDS
        touched, self._touched = self._touched, set()
        if not touched:
            return
        try:
            async with self._db.begin() as tx:
                await operational.settle_runs(tx, list(touched))
        except Unavailable:
            self._touched |= touched


async def _disable(tx: Tx, gone: Mapping[SubscriberRow, int]) -> None:
    if gone:
        await disabling.note(tx, await lanes.disable(tx, gone, GONE_REASON), GONE_REASON)


def _told(item: Settled, *, late: bool) -> dict[str, object]:
    """The log line of one ended attempt."""
    claimed, answer = item.claimed, item.answer
    return {
        "event": "delivery.attempted" if answer else "delivery.untried",
        "delivery": delivery_id(claimed.event_id, claimed.subscriber),
        "subscriber": item.slug,
        "run": str(claimed.run_id) if claimed.run_id else None,
        "generation": claimed.generation,
        "attempt": claimed.attempt_count + 1,
        "outcome": answer.outcome if answer else None,
        "status": answer.status if answer else None,
        "duration_ms": item.duration_ms if answer else None,
        "state": item.settlement.state,
        "reason": item.settlement.reason,
        "late": late,
    }
