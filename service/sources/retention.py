"""Source `retention`: deletes what has had its time, page by page; it finds no facts."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias
from uuid import UUID

import structlog

from service.domain.errors import DiscoveryFailed
from service.domain.job import JobConfig
from service.domain.model import Found, LeasedRun, SubscriberRow
from service.domain.retention import SHARE_FROM, Boundaries, Rules, boundaries, first_id, rules_of
from service.sources import Worked
from service.store import retention as store
from service.store.database import Tx
from service.store.retention import Page, Swept

log = structlog.get_logger()

DONE: Final = "done"
_KINDS: Final = ("deliveries", "payloads", "events", "runs", "replays")
_NIL: Final = str(UUID(int=0))
_BEFORE_ALL_KEYS: Final = ["", "", -1]
_GENTLE: Final = 10
"""The first page of payloads is this part of a page: nobody knows yet how many deliveries an event has."""
_LOOKED_AT: Final = 10
"""Deliveries that a page of payloads looks at, for each row that it may have: reading one costs less than deleting."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come, as it is kept with the run and shown; `after` is a position within the phase."""

    phase: str
    after: Sequence[Any]
    counts: Mapping[str, Mapping[str, int]]
    dry_run: bool

    @classmethod
    def start(cls, rules: Rules) -> "Progress":
        """Where a run begins; it stays a dry run, or a real one, to its end."""
        phase = _ORDER[0] if rules.erase_tenants else "deliveries"
        nothing = {kind: {"seen": 0, "eligible": 0, "done": 0} for kind in _KINDS}
        return cls(phase, _PHASES[phase].start, nothing, rules.dry_run)

    @classmethod
    def read(cls, kept: Mapping[str, Any]) -> "Progress":
        """What `written` wrote."""
        return cls(kept["phase"], kept["after"], {kind: kept[kind] for kind in _KINDS}, kept["dryRun"])

    def written(self) -> dict[str, Any]:
        """As JSON."""
        return {"phase": self.phase, "after": self.after, **self.counts, "dryRun": self.dry_run}

    def plus(self, swept: Swept) -> "Progress":
        """One page further; at the end of a phase the next one begins."""
        kind = _PHASES[self.phase].kind
        page = {"seen": swept.seen, "eligible": swept.eligible, "done": swept.done}
        counts = {**self.counts, kind: {name: n + page[name] for name, n in self.counts[kind].items()}}
        if swept.after is not None:
            return replace(self, counts=counts, after=swept.after)
        following = [*_ORDER, DONE][_ORDER.index(self.phase) + 1]
        start = _PHASES[following].start if following != DONE else []
        return replace(self, counts=counts, phase=following, after=start)

    @property
    def idle(self) -> list[str]:
        """The kinds of which much could have gone and nothing did."""
        return [kind for kind, n in self.counts.items() if n["eligible"] and not n["done"] and not self.dry_run]


class RetentionSource:
    """Walks deliveries, payloads, events, runs and replays, oldest first, and deletes those past their ages."""

    def __init__(self, job: JobConfig) -> None:
        """Raise `ConfigurationError` when an option cannot be meant."""
        self._rules = rules_of(job)

    async def discover(self, tx: Tx, run: LeasedRun, limit: int) -> list[Found] | Worked:
        """Sweep one page; raises `DiscoveryFailed` at the start of a run that would delete more than it may."""
        since = boundaries(self._rules, run.cutoff, tx.now)
        if run.progress is None:
            await self._check_share(tx, since)
            return Worked(Progress.start(self._rules).written())
        progress = Progress.read(run.progress)
        if progress.phase == DONE:
            _tell(run, progress)
            return []
        sweep = Sweep(self._rules, since, progress.after, limit, progress.dry_run)
        return Worked(progress.plus(await _PHASES[progress.phase].page(tx, sweep)).written())

    async def _check_share(self, tx: Tx, since: Boundaries) -> None:
        """A clock that jumped, or an age that was meant otherwise, must not delete nearly everything."""
        if self._rules.dry_run or self._rules.max_share >= 1:
            return
        old, everything = await store.old_deliveries(tx, first_id(since.deliveries))
        if everything >= SHARE_FROM and old > everything * self._rules.max_share:
            message = (
                f"{old} of {everything} deliveries are older than deliveries_after, more than max_share "
                f"({self._rules.max_share:g}) allows in one run: look at a run with dry_run = true, then raise "
                "max_share for one run or lengthen deliveries_after, and retry this one"
            )
            raise DiscoveryFailed(message)


def _tell(run: LeasedRun, progress: Progress) -> None:
    fields = {"run": str(run.id), "job": run.job, "dry_run": progress.dry_run, **progress.counts}
    if progress.idle:
        log.warning("retention.nothing_deleted", **fields, kinds=progress.idle, mend="see docs/retention.md")
    else:
        log.info("retention.swept", **fields)


@dataclass(frozen=True, slots=True)
class Sweep:
    """What a phase has to know for its next page."""

    rules: Rules
    since: Boundaries
    after: Sequence[Any]
    limit: int
    dry_run: bool


async def _erase_deliveries(tx: Tx, sweep: Sweep) -> Swept:
    """The terminal deliveries of the tenants to be erased, one subscriber after another, however young."""
    row, after = sweep.after
    swept = Swept(None)
    if row:
        page = Page(tx.now, [after], sweep.limit, sweep.dry_run)
        swept = await store.delete_deliveries_of(tx, SubscriberRow(row), page)
    if swept.after is not None:
        return replace(swept, after=[row, *swept.after])
    following = await store.next_subscriber(tx, sweep.rules.erase_tenants, SubscriberRow(row))
    return replace(swept, after=None if following is None else [following, 0])


async def _erase_events(tx: Tx, sweep: Sweep) -> Swept:
    """Their events that have no deliveries left, payload and all."""
    at, *after = sweep.after
    tenants = sweep.rules.erase_tenants
    if at >= len(tenants):
        return Swept(None)
    swept = await store.delete_events_of(tx, tenants[at], Page(tx.now, after, sweep.limit, sweep.dry_run))
    return replace(swept, after=[at + 1, *_BEFORE_ALL_KEYS] if swept.after is None else [at, *swept.after])


async def _deliveries(tx: Tx, sweep: Sweep) -> Swept:
    return await store.delete_deliveries(tx, Page(sweep.since.deliveries, sweep.after, sweep.limit, sweep.dry_run))


async def _payloads(tx: Tx, sweep: Sweep) -> Swept:
    """Empty events; a page has as many as have ten times `limit` deliveries together, told from the page before."""
    after, size = sweep.after
    size = size or max(sweep.limit // _GENTLE, 1)
    boundary = sweep.since.payloads
    found = await store.payloads(tx, Page(boundary, [after], size), first_id(boundary))
    done = 0
    if found.events and not sweep.dry_run:
        done = await store.purge_payloads(tx, await store.lock_payloads(tx, found.events), boundary)
    more = found.last is not None and found.seen == size
    fitting = size * sweep.limit * _LOOKED_AT // max(found.deliveries, 1)
    fitting = max(min(fitting, size * 2, sweep.limit), 1)
    return Swept([str(found.last), fitting] if more else None, found.seen, len(found.events), done)


async def _events(tx: Tx, sweep: Sweep) -> Swept:
    return await store.delete_events(tx, _of_keys(sweep), first_id(sweep.since.keys))


async def _runs(tx: Tx, sweep: Sweep) -> Swept:
    return await store.delete_runs(tx, _of_keys(sweep), first_id(sweep.since.keys))


async def _replays(tx: Tx, sweep: Sweep) -> Swept:
    return await store.delete_replays(tx, _of_keys(sweep), first_id(sweep.since.keys))


def _of_keys(sweep: Sweep) -> Page:
    return Page(sweep.since.keys, sweep.after, sweep.limit, sweep.dry_run)


_Sweeper: TypeAlias = Callable[[Tx, Sweep], Awaitable[Swept]]


@dataclass(frozen=True, slots=True)
class _Phase:
    """One walk: where it begins, what it deletes, and the counter that it adds to."""

    kind: str
    start: Sequence[Any]
    page: _Sweeper


# Children before parents: an event has had its time when its deliveries are gone, a run when its events are.
_PHASES: Final[Mapping[str, _Phase]] = {
    "erase-deliveries": _Phase("deliveries", [0, 0], _erase_deliveries),
    "erase-events": _Phase("events", [0, *_BEFORE_ALL_KEYS], _erase_events),
    "deliveries": _Phase("deliveries", [0], _deliveries),
    "payloads": _Phase("payloads", [_NIL, 0], _payloads),
    "events": _Phase("events", [_NIL], _events),
    "runs": _Phase("runs", [_NIL], _runs),
    "replays": _Phase("replays", [_NIL], _replays),
}
_ORDER: Final = tuple(_PHASES)
