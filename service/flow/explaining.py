"""Why a subscriber got an event, or did not: what is known of both, the first thing that explains it, and the mend."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from uuid import UUID

from service.domain.identifiers import topics
from service.domain.mends import BLOCKED_BY, ENDED, HELD, PURGED, WAITS_BEHIND, anew
from service.domain.model import DeliveryState, HeldBy, RunState
from service.domain.timestamps import format_rfc3339
from service.flow.control_subscribers import TEST_TYPE
from service.store import chains, subscribers, views, views_delivery, views_events
from service.store.database import Database, Tx
from service.store.subscribers import SubscriberRecord
from service.store.views_delivery import DeliveryView
from service.store.views_events import EventView


class Cause(StrEnum):
    """The first thing that explains it."""

    NO_EVENT = "no-event"
    NO_SUBSCRIBER = "no-subscriber"
    DELIVERED = "delivered"
    ENDED = "ended"
    LEASED = "leased"
    WAITING = "waiting"
    HELD = "held"
    OTHER_TENANT = "other-tenant"
    OTHER_TYPES = "other-types"
    OTHERS_TEST = "others-test"
    SUBSCRIBER_DELETED = "subscriber-deleted"
    NOT_FANNED_OUT = "not-fanned-out"
    CREATED_LATER = "created-later"
    CHANGED_LATER = "changed-later"
    NOT_ON_RECORD = "not-on-record"


@dataclass(frozen=True, slots=True)
class Known:
    """An event, a subscriber, deleted or not, and the delivery of the one to the other; None for what there is not."""

    event: EventView | None
    subscriber: SubscriberRecord | None
    delivery: DeliveryView | None = None
    predecessor: DeliveryView | None = None
    """In an ordered lane, the delivery that the delivery waits for."""

    @property
    def matching(self) -> Sequence[str]:
        """Those of the subscriber's patterns, as they are now, that ask for the event's type."""
        if self.event is None or self.subscriber is None:
            return ()
        asked = topics(self.event.type)
        return [pattern for pattern in self.subscriber.wanted.event_types if pattern in asked]


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is known, and a sentence or two that say why and name the mend."""

    known: Known
    cause: Cause
    verdict: str


async def explain(db: Database, event_id: UUID, slug: str) -> Explanation:
    """Why the subscriber of this id got this event, or did not. Anything may be asked for: nothing is refused."""
    async with db.begin() as tx:
        found, subscriber = await views_events.event(tx, event_id), await subscribers.read(tx, slug, deleted=True)
        event = None if found is None else found[0]
        if event is None:
            return Explanation(Known(event, subscriber), Cause.NO_EVENT, _NO_EVENT)
        if subscriber is None:
            return Explanation(Known(event, subscriber), Cause.NO_SUBSCRIBER, _NO_SUBSCRIBER)
        # The last to be read: what was not fanned out a moment ago may be now.
        delivery = await views_delivery.delivery(tx, event_id, subscriber.row)
        if delivery is not None:
            before = await _predecessor(tx, delivery)
            return Explanation(Known(event, subscriber, delivery, before), *_of_delivery(delivery, event, before))
        known = Known(event, subscriber)
        cause = _first(event, subscriber, known.matching)
        return Explanation(known, cause, await _verdict(tx, cause, event, subscriber))


_NO_EVENT = (
    "There is no event of this id: it was never stored here, or retention has deleted it. `tocsin events --subject "
    "SUBJECT` finds events."
)
_NO_SUBSCRIBER = (
    "There is no subscriber of this id and never was: `tocsin subscribers list` shows those that there are."
)


async def _predecessor(tx: Tx, delivery: DeliveryView) -> DeliveryView | None:
    """The delivery that this one waits for; None where it waits for none, or that one has just ended."""
    row = await chains.ahead(tx, delivery.row) if delivery.held_by is HeldBy.PREDECESSOR else None
    return None if row is None else next(iter(await views_delivery.of_rows(tx, [row])), None)


def _of_delivery(delivery: DeliveryView, event: EventView, before: DeliveryView | None) -> tuple[Cause, str]:
    """What explains a delivery that is there; `before` is the one that it waits for."""
    if delivery.finished_at is not None:
        return _ended(delivery, event)
    if delivery.state is DeliveryState.LEASED:
        return Cause.LEASED, f"The worker {delivery.lease_owner} is sending it now: wait for the answer."
    if before is not None:
        words = WAITS_BEHIND if before.finished_at is None else BLOCKED_BY
        return Cause.HELD, f"It waits. {words.format(id=before.id, state=before.state.value, key=before.key)}"
    if delivery.held_by is not None:
        words = HELD[delivery.held_by]
        return Cause.HELD, f"It waits. {words.format(slug=delivery.subscriber_id, key=delivery.key)}"
    tried = f"It was tried {delivery.attempt_count} times" if delivery.attempt_count else "It was not tried yet"
    at = f", and is due at {format_rfc3339(delivery.next_attempt_at)}" if delivery.next_attempt_at else ""
    mend = "A free worker claims it then; where that has passed, `tocsin backlog` says what keeps them busy."
    return Cause.WAITING, f"{tried}{at}. {mend}"


def _ended(delivery: DeliveryView, event: EventView) -> tuple[Cause, str]:
    again = _anew(event)
    if delivery.reason is None:
        status = delivery.last_outcome.status if delivery.last_outcome else None
        said = f"The receiver answered {status or '2xx'}: it has it. Look there for the webhook-id {delivery.key}."
        return Cause.DELIVERED, f"{said} {PURGED.format(anew=again)}" if event.purged_at else said
    mend = PURGED if event.purged_at else ENDED.get(delivery.reason, "`tocsin deliveries show {id}` has what happened.")
    told = mend.format(id=delivery.id, slug=delivery.subscriber_id, anew=again)
    return Cause.ENDED, f"It ended as {delivery.state.value} ({delivery.reason}). {told}"


def _anew(event: EventView) -> str:
    """How its subject is told of again."""
    return anew(event.type, event.version, found=event.run is not None and event.published_by is None)


def _first(event: EventView, subscriber: SubscriberRecord, matching: Sequence[str]) -> Cause:
    """What explains first that there is no delivery, in the order in which fan-out decides."""
    fanned, deleted = event.fanned_out_at, subscriber.deleted_at
    holds = {
        Cause.OTHER_TENANT: subscriber.wanted.tenant_id != event.tenant_id,
        Cause.OTHERS_TEST: event.type == TEST_TYPE,
        Cause.OTHER_TYPES: not matching,
        Cause.SUBSCRIBER_DELETED: deleted is not None and (fanned is None or deleted <= fanned),
        Cause.NOT_FANNED_OUT: fanned is None,
        Cause.CREATED_LATER: fanned is not None and subscriber.created_at > fanned,
        Cause.CHANGED_LATER: fanned is not None and subscriber.updated_at > fanned,
    }
    return next((cause for cause, held in holds.items() if held), Cause.NOT_ON_RECORD)


_WITHOUT: Mapping[Cause, str] = MappingProxyType(
    {
        Cause.OTHER_TENANT: (
            "The event is of the tenant {event.tenant_id}, and the subscriber of {wanted.tenant_id}: register the "
            "receiver under the event's as well, or have such events made under the subscriber's."
        ),
        Cause.OTHERS_TEST: (
            "It is a test that was sent to {event.subject} alone: `tocsin subscribers test {wanted.id}` sends another."
        ),
        Cause.OTHER_TYPES: "None of its eventTypes asks for {event.type}: add one of {topics}.",
        Cause.SUBSCRIBER_DELETED: "The subscriber was deleted before the event was fanned out.",
        Cause.NOT_FANNED_OUT: "It matches, and the event is not fanned out to all of its subscribers yet. {waits_for}",
        Cause.CREATED_LATER: (
            "The subscriber was created after the event had been fanned out, and an event is fanned out once."
        ),
        Cause.CHANGED_LATER: (
            "The subscriber's tenant and eventTypes match now, and it was changed after the event had been fanned out, "
            "which is done once: `tocsin audit --object subscriber:{wanted.id}` has what it asked for before. Where "
            "that matched as well, a delivery is gone: retention deletes those that ended long ago, and `tocsin "
            "reconcile` looks for what is missing."
        ),
        Cause.NOT_ON_RECORD: (
            "It matches and was there, and no delivery is on record: retention deletes those that ended long ago. "
            "Where no such job runs, `tocsin reconcile` looks for what is missing."
        ),
    }
)
"""What is said where there is no delivery."""
_COMPLETE = frozenset({Cause.OTHERS_TEST, Cause.NOT_FANNED_OUT})
"""Of these, all that there is to do."""
_IN_TIME = "It is not fanned out yet: mend that before it is, and nothing else is needed. {waits_for}"
_PUT_AGAIN = "It is deleted: put it again with `tocsin subscribers put {wanted.id} FILE`."


async def _verdict(tx: Tx, cause: Cause, event: EventView, subscriber: SubscriberRecord) -> str:
    parts = [_WITHOUT[cause]]
    if cause not in _COMPLETE:
        parts += [_PUT_AGAIN] * (subscriber.deleted_at is not None)
        parts.append(_anew(event) if event.fanned_out_at else _IN_TIME)
    waits_for = "" if event.fanned_out_at else await _waits_for(tx, event)
    asked = ", ".join(topics(event.type))
    return " ".join(parts).format(event=event, wanted=subscriber.wanted, topics=asked, waits_for=waits_for)


async def _waits_for(tx: Tx, event: EventView) -> str:
    """What has to happen before the event is fanned out."""
    run = None if event.run is None else await views.run(tx, event.run)
    if run is not None and run.state is RunState.HELD:
        return f"Its run is held because the job is paused: `tocsin resume job {run.job}`."
    if run is not None and run.state is RunState.FAILED:
        return f"Its run failed: mend what `tocsin run show {run.id}` says, then `tocsin run retry {run.id}`."
    if run is None and event.due_at is not None:
        at = format_rfc3339(event.due_at)
        return f"It waits for a run of an outbox job whose cutoff is not before {at}: `tocsin tick JOB` rings one."
    return (
        "A worker does that, one published event after another: `tocsin backlog` says how many are still to come, and "
        "where that does not change, `tocsin doctor` whether a worker runs."
    )
