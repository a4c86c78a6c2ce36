"""What operators do to many deliveries at once: start a bulk replay, stop one; `replaying` does the work."""

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

from uuid_utils.compat import uuid7

from service.domain.errors import Conflict, Invalid, NotFound, PayloadPurged, Problem
from service.domain.states import REPLAYABLE
from service.flow.doorbell import Doorbell
from service.store import audit, replays
from service.store.database import Database, Tx
from service.store.generations import Refusal
from service.store.replays import DEFAULT_STATES, MAX_MATCHED, Matching, ReplayRecord, ReplayState
from service.store.views_deliveries import Sought

DEFAULT_RATE = 100.0
"""Deliveries a second that a bulk replay releases where nobody says otherwise."""
NO_FILTER = "must name at least one of state, reason, subscriberId, runId, eventType, since, until"
NO_SUBSCRIBER = "there is no subscriber of this id, and never was"


async def start_replay(
    db: Database, doorbell: Doorbell, sought: Sought, *, actor: str, reason: str, rate: float, dry_run: bool
) -> ReplayRecord:
    """Replay everything that ended and matches now, behind first attempts and retries, at most `rate` a second.

    What begins to match later is not replayed. A dry run only counts and stores nothing.

    Raises:
        Invalid: the filter names nothing, a state that cannot be replayed, a subscriber that never was, or too many
            deliveries.
        PayloadPurged: of everything that matches retention has deleted the payload.

    """
    _check(sought)
    sought = sought if sought.states else replace(sought, states=DEFAULT_STATES)
    async with db.begin() as tx:
        record = _record(await _matching(tx, sought), sought, actor=actor, reason=reason, rate=rate, dry_run=dry_run)
        if dry_run:
            return record
        await replays.add(tx, record)
        detail = {"filter": replays.document_of(sought), "matched": record.matched, "ratePerSecond": rate}
        await _note(tx, record, "created", actor=actor, reason=reason, detail=detail)
    await doorbell.ring()
    return record


def _check(sought: Sought) -> None:
    if sought == Sought():
        raise Invalid(Problem("/filter", NO_FILTER))
    if not REPLAYABLE.issuperset(sought.states):
        raise Invalid(Problem("/filter/state", f"must be one of {', '.join(sorted(REPLAYABLE))}"))


async def _matching(tx: Tx, sought: Sought) -> Matching:
    if sought.subscriber_id is not None and not await replays.is_subscriber(tx, sought.subscriber_id):
        raise Invalid(Problem("/filter/subscriberId", NO_SUBSCRIBER))
    found = await replays.matching(tx, sought)
    if found.matched > MAX_MATCHED:
        raise Invalid(Problem("/filter", f"matches more than {MAX_MATCHED:,} deliveries: narrow it"))
    if found.matched and found.skipped[Refusal.PAYLOAD_PURGED] == found.matched:
        raise PayloadPurged
    return found


def _record(found: Matching, sought: Sought, *, actor: str, reason: str, rate: float, dry_run: bool) -> ReplayRecord:
    running = ReplayState.RUNNING if found.matched else ReplayState.COMPLETED
    state = ReplayState.DRY_RUN if dry_run else running
    return ReplayRecord(
        id=uuid7(),
        sought=sought,
        reason=reason,
        requested_by=actor,
        state=state,
        matched=found.matched,
        replayed=0,
        skipped=found.skipped if dry_run else {},
        rate_per_second=rate,
        created_at=found.at,
        finished_at=found.at if state is ReplayState.COMPLETED else None,
        last_row=found.last_row,
    )


async def cancel_replay(db: Database, replay: UUID, *, actor: str, reason: str) -> ReplayRecord:
    """Stop a bulk replay; what it has released stays released. Cancelling a cancelled one changes nothing.

    Raises:
        NotFound: there is no such replay.
        Conflict: it is completed.

    """
    async with db.begin() as tx:
        stopped = await replays.cancel(tx, replay)
        record = await replays.read(tx, replay)
        if record is None:
            raise NotFound
        if record.state is ReplayState.COMPLETED:
            raise Conflict("It is completed: everything that matched is released. Cancel single deliveries instead.")
        if stopped:
            detail = {"matched": record.matched, "replayed": record.replayed}
            await _note(tx, record, "cancelled", actor=actor, reason=reason, detail=detail)
        return record


async def _note(
    tx: Tx, record: ReplayRecord, verb: str, *, actor: str, reason: str, detail: Mapping[str, object]
) -> None:
    """Add the line to the audit trail."""
    about = f"replay:{record.id}"
    await audit.write(tx, actor=actor, action=f"replay.{verb}", object=about, reason=reason, detail=detail)
