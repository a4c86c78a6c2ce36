"""Discovery: takes a leased run from its source to events to deliveries, page by page, and can resume anywhere."""

import asyncio
import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import TYPE_CHECKING, Any

import structlog
from uuid_utils.compat import uuid7

from service.domain.errors import Contended, DiscoveryFailed, Unavailable
from service.domain.eventbody import compose, found_fault
from service.domain.excerpts import excerpt
from service.domain.job import JobConfig
from service.domain.model import EventId, Found, LeasedRun, NewEvent, RunState
from service.flow import operational
from service.flow.counters import Counters
from service.flow.doorbell import Doorbell
from service.sources import Source, Worked
from service.store import events, runs
from service.store.database import Database, Tx
from service.store.fan_out import fan_out

if TYPE_CHECKING:
    from service.flow.tracing import Tracing

log = structlog.get_logger()

CONTENTION_PAUSE_SECONDS = 1.0
SOURCE_MARGIN_SECONDS = 30.0
"""Beyond its statement's time limit: a source that takes longer for a page hangs."""
ERROR_BYTES = 1_000
PROGRESS_BYTES = 16_384
REST_FACTOR = 2.0
"""After a page that only did work of its own, such as retention's, the database has twice as long for others."""
SHORTEST_REST_SECONDS, LONGEST_REST_SECONDS = 0.05, 1.0


class LeaseLost(Exception):
    """Another worker has taken the run over; this one lets go of it."""


@dataclass(frozen=True, slots=True)
class Discovery:
    """Advances the runs of the jobs that this worker knows."""

    db: Database
    doorbell: Doorbell
    jobs: Mapping[str, JobConfig]
    sources: Mapping[str, Source]
    worker: str
    lease_seconds: float
    counters: Counters = field(default_factory=Counters)
    tracing: "Tracing | None" = None

    async def once(self) -> bool:
        """Lease one open run and take it to its end; False when there is none."""
        async with self.db.begin() as tx:
            run = await runs.lease(tx, jobs=list(self.sources), worker=self.worker, seconds=self.lease_seconds)
        if run is None:
            return False
        with contextlib.nullcontext() if self.tracing is None else self.tracing.run(run):
            await self._advance(run)
        return True

    async def _advance(self, run: LeasedRun) -> None:
        try:
            run = await self._discover(run)
            if not run.discovered:
                return
            sent = await self._fan_out(run)
            await self._complete(run)
        except LeaseLost:
            log.warning("run.lease_lost", run=str(run.id), job=run.job)
        except DiscoveryFailed as error:
            await self._fail(run, error.detail)
        except Contended:
            await self._give_back(run, CONTENTION_PAUSE_SECONDS)
        except Unavailable:
            raise  # the lease ends by itself; whoever reaches the database first goes on
        except Exception as error:
            log.exception("run.broken", run=str(run.id), job=run.job)
            await self._fail(run, f"the source failed with {type(error).__name__}; the worker's log has the details")
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and not _is_stopping():
                await self._fail(run, f"the source ended with {type(error).__name__}")
                return
            with contextlib.suppress(Unavailable):  # the lease ends by itself
                await asyncio.shield(self._give_back(run, 0.0))
            raise
        else:
            log.info("run.completed", run=str(run.id), job=run.job, events=run.events, deliveries=sent)

    async def _discover(self, run: LeasedRun) -> LeasedRun:
        """Find all that is due; a run that is not `discovered` afterwards was given back, for others to go first."""
        while not run.discovered:
            began, before, known = monotonic(), run.progress, run.events
            with contextlib.nullcontext() if self.tracing is None else self.tracing.page():
                async with self.db.begin() as tx:
                    run = await self._page(tx, run)
            self.counters.discovered(run.job, run.events - known)
            if run.progress is not before and await self._makes_way(run, monotonic() - began):
                break
        return run

    async def _makes_way(self, run: LeasedRun, seconds: float) -> bool:
        """Rest after a page that took so long; True where the run was given back instead, because another waits."""
        rest = min(max(seconds * REST_FACTOR, SHORTEST_REST_SECONDS), LONGEST_REST_SECONDS)
        async with self.db.begin() as tx:
            if await runs.others_wait(tx, run, jobs=list(self.sources)):
                await runs.give_back(tx, run, seconds=rest)
                return True
        await asyncio.sleep(rest)
        return False

    async def _page(self, tx: Tx, run: LeasedRun) -> LeasedRun:
        """One page in one transaction: the lease is checked first, so that only one worker can be in here."""
        if not await runs.renew(tx, run, seconds=self.lease_seconds):
            raise LeaseLost
        found = await self._ask(tx, run)
        if isinstance(found, Worked):
            if not await runs.renew(tx, run, seconds=self.lease_seconds, progress=_spelled(found.progress)):
                raise LeaseLost
            return replace(run, progress=dict(found.progress))
        new = await _store(tx, run, found) if found else 0
        if not await runs.renew(tx, run, seconds=self.lease_seconds, events=new, discovered=not found):
            raise LeaseLost
        return replace(run, events=run.events + new, discovered=not found)

    async def _ask(self, tx: Tx, run: LeasedRun) -> list[Found] | Worked:
        """One page of the source, within its time; a fault of the source's own is told apart from a lost database."""
        job = self.jobs[run.job]
        seconds = job.statement_timeout_seconds + SOURCE_MARGIN_SECONDS
        try:
            async with asyncio.timeout(seconds):
                found: object = await self.sources[run.job].discover(tx, run, job.page_size)
        except TimeoutError:
            message = f"the source did not end a page within {seconds:g} s"
            raise DiscoveryFailed(message) from None
        except OSError as error:
            message = f"the source failed with {type(error).__name__}"
            raise DiscoveryFailed(message) from error
        if not isinstance(found, list | Worked):
            message = "the source returned no list of facts"
            raise DiscoveryFailed(message)
        return found

    async def _fan_out(self, run: LeasedRun) -> int:
        total = 0
        while True:
            async with self.db.begin() as tx:
                if not await runs.renew(tx, run, seconds=self.lease_seconds):
                    raise LeaseLost
                chunk = await fan_out(tx, run.id)
            if not chunk.events:
                return total
            total += chunk.deliveries
            self.counters.arrived(chunk.deliveries)
            await self.doorbell.ring()

    async def _complete(self, run: LeasedRun) -> None:
        async with self.db.begin() as tx:
            if not await runs.complete(tx, run):
                raise LeaseLost
        self._ended(run, RunState.COMPLETED)
        # In a transaction of its own, as after every settle: whoever comes second sees that all is terminal.
        async with self.db.begin() as tx:
            await operational.settle_runs(tx, [run.id])

    async def _fail(self, run: LeasedRun, reason: str) -> None:
        reason = excerpt(reason.encode(errors="replace")[:ERROR_BYTES]) or "no reason given"
        async with self.db.begin() as tx:
            if failed := await runs.fail(tx, run, reason):
                await operational.run_failed(tx, run)
        if failed:
            self._ended(run, RunState.FAILED)
        log.error("run.failed", run=str(run.id), job=run.job, error=reason)

    def _ended(self, run: LeasedRun, state: RunState) -> None:
        self.counters.run(run.job, state)
        if self.tracing is not None:
            self.tracing.ended(state)

    async def _give_back(self, run: LeasedRun, seconds: float) -> None:
        async with self.db.begin() as tx:
            await runs.give_back(tx, run, seconds=seconds)


async def _store(tx: Tx, run: LeasedRun, found: list[Found]) -> int:
    """Store what a page found; returns how many events it gave the run.

    Raises:
        DiscoveryFailed: the page would lose a fact or go round in circles; it is rolled back with its state change.

    """
    for item in found:
        if fault := found_fault(item):
            raise DiscoveryFailed(fault)
    fresh = [compose(item, _new_id(), tx.now) for item in found if item.event_id is None]
    stored = await events.add(tx, fresh, run_id=run.id) if fresh else []
    for event, known in zip(fresh, stored, strict=True):
        if not known.same_data:
            raise DiscoveryFailed(_taken(event, known.id, here=any(known.id == other.id for other in fresh)))
    new = len(found) - len(fresh) + sum(item.added for item in stored)
    if not new:
        message = (
            "the statement makes no progress: all rows of a page were discovered before. "
            "It must change the rows that it returns so that it does not find them again"
        )
        raise DiscoveryFailed(message)
    return new


def _taken(event: NewEvent, by: EventId, *, here: bool) -> str:
    """Why a row cannot be an event; `here`: for another row of its page. What is named was checked to be safe."""
    row = f"tenant_id {event.tenant_id}, type {event.type}, subject {event.subject} and version {event.version}"
    if here:
        return f"two rows with {row} have different data: raise version with every change"
    return (
        f"the row with {row} is the event {by}, which was stored with other data: raise version with every change. "
        f"Where that event was published by hand, raise this row's version above {event.version}, then retry the run"
    )


def _spelled(progress: Mapping[str, Any]) -> str:
    """The progress as JSON.

    Raises:
        DiscoveryFailed: it is none that can be kept.

    """
    try:
        spelled = json.dumps(progress, ensure_ascii=False, allow_nan=False)
        if len(spelled.encode()) <= PROGRESS_BYTES and "\\u0000" not in spelled:
            return spelled
    except (TypeError, ValueError, RecursionError):
        pass
    message = f"the source's progress is no JSON of at most {PROGRESS_BYTES} bytes without NUL"
    raise DiscoveryFailed(message)


def _new_id() -> EventId:
    return EventId(uuid7())


def _is_stopping() -> bool:
    """Whether somebody wants this task to end, rather than the source having raised a cancellation of its own."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
