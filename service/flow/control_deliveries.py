"""What operators do to single deliveries: replay, resolve, cancel; each and its audit line are one transaction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from service.domain.errors import Conflict, NotFound, PayloadPurged
from service.domain.model import DeliveryState, Queue
from service.domain.states import DEAD_LETTERS
from service.flow import operational
from service.flow.doorbell import Doorbell
from service.store import audit, evidence, generations, pulse, verdicts, views_delivery
from service.store.database import Database, Tx
from service.store.evidence import Evidence
from service.store.generations import Opened, Refusal
from service.store.views_delivery import DeliveryView

SUBSCRIBER_DELETED = (
    "Its subscriber was deleted, so that there is nobody to send it to. Bring the subscriber back with PUT first."
)
TENANT_CHANGED = "Its event is of another tenant than its subscriber, which must not get it. Publish it to its tenant."


@dataclass(frozen=True, slots=True)
class Named:
    """A delivery by what its id holds: the event and the subscriber's row."""

    event_id: UUID
    subscriber_row: int


async def replay_delivery(db: Database, doorbell: Doorbell, named: Named, *, actor: str, reason: str) -> Evidence:
    """Send a finished delivery again, as its next generation: the same key and bytes, the history untouched.

    It goes out with the retries of its lane; a pause holds it. Of two replays at once one does it.

    Raises:
        NotFound: there is no such delivery.
        Conflict: it is not finished, its subscriber was deleted, or is of another tenant by now.
        PayloadPurged: retention has deleted what would be sent.

    """
    async with db.begin() as tx:
        before = await _found(tx, named)
        told = await generations.open_generations(
            tx, [before.row], requested_by=actor, reason=reason, replay_id=None, queue=Queue.RETRY
        )
        opened = _granted(told)
        detail = {"generation": opened.generation, "wasState": opened.state.value, "wasReason": opened.reason}
        await _note(tx, named, "replayed", actor=actor, reason=reason, detail=detail)
        shown = await _whole(tx, named)
        await pulse.add(tx, {pulse.ARRIVED: 1})
    await doorbell.ring()
    return shown


def _granted(told: Sequence[Opened]) -> Opened:
    """The one that was asked for, if it was opened."""
    if not told:
        raise NotFound  # retention was faster
    [opened] = told
    if opened.refused is Refusal.CHANGED:
        raise Conflict(f"It is {opened.state.value}: a delivery is replayed when it has ended, not before.")
    if opened.refused is Refusal.SUBSCRIBER_DELETED:
        raise Conflict(SUBSCRIBER_DELETED)
    if opened.refused is Refusal.TENANT_CHANGED:
        raise Conflict(TENANT_CHANGED)
    if opened.refused is Refusal.PAYLOAD_PURGED:
        raise PayloadPurged
    return opened


async def resolve_delivery(
    db: Database, doorbell: Doorbell, named: Named, *, resolution: DeliveryState, actor: str, reason: str
) -> Evidence:
    """Put a dead letter into the state that a person found to be true; what it blocked goes on. Nothing is sent.

    Raises:
        NotFound: there is no such delivery.
        Conflict: it is no dead letter.

    """
    async with db.begin() as tx:
        before = await _found(tx, named)
        if not await verdicts.resolve(tx, before.row, resolution):
            now = await _found(tx, named)
            letters = ", ".join(sorted(DEAD_LETTERS))
            raise Conflict(f"It is {now.state.value}: only a dead letter ({letters}) can be resolved.")
        detail = {"resolution": resolution.value, "wasState": before.state.value, "wasReason": before.reason}
        await _note(tx, named, "resolved", actor=actor, reason=reason, detail=detail)
        shown = await _whole(tx, named)
    await doorbell.ring()
    return shown


async def cancel_delivery(db: Database, doorbell: Doorbell, named: Named, *, actor: str, reason: str) -> Evidence:
    """Call off a delivery that has not ended. A request in flight is not taken back: its answer is kept as evidence.

    Cancelling a cancelled one changes nothing.

    Raises:
        NotFound: there is no such delivery.
        Conflict: it has ended in another way.

    """
    async with db.begin() as tx:
        before = await _found(tx, named)
        called = await verdicts.call_off(tx, before.row)
        if called is not None:
            await _note(tx, named, "cancelled", actor=actor, reason=reason, detail={"inFlight": called.leased})
        shown = await _whole(tx, named)
        if called is None:
            return _already(shown)
        await pulse.add(tx, {pulse.ENDED + DeliveryState.CANCELLED: 1})
    if called.run_id is not None:
        async with db.begin() as tx:
            await operational.settle_runs(tx, [called.run_id])
    await doorbell.ring()
    return shown


def _already(shown: Evidence) -> Evidence:
    state = shown.delivery.state
    if state in DEAD_LETTERS:
        raise Conflict(f"It is {state.value}, which has ended already: resolve it, or replay it.")
    if state is not DeliveryState.CANCELLED:
        raise Conflict(f"It is {state.value}: only what has not ended can be cancelled.")
    return shown


async def _found(tx: Tx, named: Named) -> DeliveryView:
    view = await views_delivery.delivery(tx, named.event_id, named.subscriber_row)
    if view is None:
        raise NotFound
    return view


async def _whole(tx: Tx, named: Named) -> Evidence:
    shown = await evidence.whole(tx, named.event_id, named.subscriber_row)
    if shown is None:
        raise NotFound
    return shown


async def _note(tx: Tx, named: Named, verb: str, *, actor: str, reason: str, detail: Mapping[str, object]) -> None:
    """Add the line to the audit trail."""
    about = evidence.audited(named.event_id, named.subscriber_row)
    await audit.write(tx, actor=actor, action=f"delivery.{verb}", object=about, reason=reason, detail=detail)
