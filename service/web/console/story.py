"""What happened to one delivery, moment by moment, in sentences that a person can read to another."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

from markupsafe import Markup

from service.domain.model import DeliveryState, HeldBy, Outcome
from service.domain.states import DEAD_LETTERS
from service.store.audit import AuditLine
from service.store.evidence import AttemptView, Evidence, GenerationView
from service.store.views_delivery import DeliveryView
from service.web.console.words import duration, outside, tone

REASONS: Mapping[str, str] = MappingProxyType(
    {
        "attempts": "its attempts are used up",
        "deadline": "its deadline passed",
        "rejected-by-receiver": "the receiver said no for good",
        "blocked-by-policy": "the egress guard refused the address",
        "payload-purged": "retention had deleted what would be sent",
        "timeout-may-have-been-applied": "no answer came in time, and this receiver cannot tell repeats",
        "disconnected-may-have-been-applied": "the connection was lost, and this receiver cannot tell repeats",
        "in_doubt-may-have-been-applied": "a worker was lost over it, and this receiver cannot tell repeats",
        "shadow": "its subscriber is in shadow mode: nothing is sent",
        "subscriber-deleted": "its subscriber was deleted",
        "resolved-by-operator": "a person looked at it and said so",
        "cancelled-by-operator": "a person called it off",
    }
)
"""Why a delivery ended, in words."""

HELD: Mapping[HeldBy, str] = MappingProxyType(
    {
        HeldBy.SUBSCRIBER_PAUSED: "its subscriber is paused",
        HeldBy.SUBSCRIBER_DISABLED: "its subscriber is disabled",
        HeldBy.DISPATCH_PAUSED: "all dispatch is paused",
        HeldBy.PREDECESSOR: "it waits for the delivery before it, in order",
        HeldBy.CIRCUIT_OPEN: "its receiver has failed too often in a row and is only probed",
        HeldBy.THROTTLED: "its receiver asked for quiet",
        HeldBy.LANE_FULL: "as many requests as its subscriber allows are in flight",
    }
)
"""Why a delivery is not being sent, in words."""

_TITLES: Mapping[Outcome, str] = MappingProxyType(
    {
        Outcome.DELIVERED: "The receiver has it",
        Outcome.THROTTLED: "The receiver asked to wait",
        Outcome.SERVER_ERROR: "The receiver failed",
        Outcome.REJECTED: "The receiver said no",
        Outcome.UNREACHABLE: "The receiver was not reached",
        Outcome.TIMEOUT: "No answer in time",
        Outcome.DISCONNECTED: "The connection was lost",
        Outcome.IN_DOUBT: "The lease was lost",
        Outcome.INTERRUPTED: "Given back unsent",
        Outcome.BLOCKED: "The egress guard refused",
        Outcome.SHADOW: "Recorded, not sent",
        Outcome.INTERNAL: "A fault of our own",
    }
)
_SENTENCES: Mapping[Outcome, str] = MappingProxyType(
    {
        Outcome.DELIVERED: "It answered {status} after {took}.",
        Outcome.THROTTLED: "It answered {status} after {took}: not now. Everything for this subscriber waits with it.",
        Outcome.SERVER_ERROR: "It answered {status} after {took}, which may pass.",
        Outcome.REJECTED: "It answered {status} after {took}, which no further attempt would change.",
        Outcome.UNREACHABLE: "No connection came about within {took}, so that it surely has not arrived.",
        Outcome.TIMEOUT: "The request went out, and in {took} no whole answer came: it may have been applied.",
        Outcome.DISCONNECTED: "The request went out, and after {took} the connection broke: it may have been applied.",
        Outcome.IN_DOUBT: "The worker died or lost the database while it had the delivery: it may have been applied.",
        Outcome.INTERRUPTED: "The worker was stopping.",
        Outcome.BLOCKED: "The address is one that must not be called: nothing was sent.",
        Outcome.SHADOW: "Signed as if it were sent; the subscriber is in shadow mode.",
        Outcome.INTERNAL: "The receiver is not to blame.",
    }
)
_ACTIONS: Mapping[str, str] = MappingProxyType(
    {"delivery.resolved": "Resolved by", "delivery.cancelled": "Called off by"}
)
"""Replays are told by the generation that they opened."""

SHOWN: Final = 100
"""Moments, the newest, that are told where not all are asked for."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One thing that happened; `after` is the time since the one before it had ended.

    Title, text and label are sentences of ours, in which other people's text is set apart.
    `said` is what the receiver answered, and whatever it put into it.
    """

    at: datetime
    title: str
    text: str
    tone: str
    ended: datetime | None = None
    after: timedelta | None = None
    label: str | None = None
    why: str | None = None
    detail: str | None = None
    said: str | None = None
    href: str | None = None


def moments(found: Evidence, published_by: str | None) -> list[Moment]:
    """Everything in the order in which it began; how it stands now is the last.

    `published_by` is whose event it is, None where a run found it.
    """
    told = [
        _made(found.delivery, published_by),
        *(_attempt(each) for each in found.attempts),
        *(_opened(each) for each in found.replays),
        *(_action(each) for each in found.actions if each.action in _ACTIONS),
    ]
    told.sort(key=lambda moment: moment.at)
    return list(_spaced([*told, *_now(found)]))


def summary(delivery: DeliveryView) -> str:
    """How it stands, in a sentence or two."""
    count = delivery.attempt_count
    tried = "Not tried yet" if not count else "One attempt was made" if count == 1 else f"{count:,} attempts were made"
    if delivery.state is DeliveryState.LEASED:
        return f"Being sent just now. {tried} before."
    if delivery.state is DeliveryState.PENDING:
        held = f"Held: {HELD[delivery.held_by]}" if delivery.held_by else "Waiting for its next attempt"
        return f"{held}. {tried}."
    because = f": {_reason(delivery.reason)}" if delivery.reason else ""
    return f"{delivery.state.value.capitalize()}{because}. {tried if count else 'It was never tried'}."


def _made(delivery: DeliveryView, published_by: str | None) -> Moment:
    what = Markup("{} of {}, version {}, for {}.")
    text = what.format(delivery.event_type, outside(delivery.subject), delivery.version, delivery.subscriber_id)
    href = f"/console/runs/{delivery.run}" if delivery.run else None
    by = Markup("Published by {}").format(outside(published_by)) if published_by else "Made"
    title = "Found by a run" if href else by
    return Moment(delivery.created_at, title, text, "quiet", href=href)


def _attempt(attempt: AttemptView) -> Moment:
    took = timedelta(milliseconds=attempt.duration_ms)
    words = {"status": attempt.status or "something that is no answer", "took": duration(took.total_seconds())}
    return Moment(
        at=attempt.started_at,
        ended=attempt.started_at + took,
        title=_TITLES[attempt.outcome],
        text=" ".join([_SENTENCES[attempt.outcome].format_map(words), *_remarks(attempt)]),
        tone="quiet" if attempt.late else tone(attempt.outcome.value),
        label=Markup("Attempt {} · claimed by {}").format(attempt.number, outside(attempt.worker)),
        detail=attempt.detail,
        said=attempt.response_excerpt,
    )


def _remarks(attempt: AttemptView) -> Iterator[str]:
    if attempt.late:
        yield "By then its lease was lost: this is evidence, and decided nothing."
    elif not attempt.counted:
        yield "It used up none of the attempts."


def _opened(opened: GenerationView) -> Moment:
    because = f" ({opened.was_reason})" if opened.was_reason else ""
    text = f"It was {opened.was_state.value}{because}. Generation {opened.generation} begins: the same key and bytes."
    many = opened.replay_id is not None
    return Moment(
        at=opened.at,
        title=Markup("Replayed by {}{}").format(outside(opened.requested_by), ", with many others" if many else ""),
        text=text,
        tone="hand",
        label=f"Generation {opened.generation}",
        why=opened.reason,
        href=f"/console/replays/{opened.replay_id}" if many else None,
    )


def _action(line: AuditLine) -> Moment:
    was, resolution = line.detail.get("wasState"), line.detail.get("resolution")
    flying = " Its request was in flight: the answer is kept as evidence." if line.detail.get("inFlight") else ""
    text = f"It was {was}, and is {resolution} by a person's word; nothing was sent." if resolution else flying.strip()
    title = Markup("{} {}").format(_ACTIONS[line.action], outside(line.actor))
    return Moment(line.at, title, text, "hand", why=line.reason)


def _now(found: Evidence) -> Iterator[Moment]:
    delivery = found.delivery
    if delivery.finished_at is not None:
        yield _end(delivery, delivery.finished_at)
    elif delivery.state is DeliveryState.LEASED and delivery.lease_expires_at:
        sending = Markup("The worker {} has claimed it and is sending it.").format(outside(delivery.lease_owner))
        yield Moment(delivery.lease_expires_at, "Being sent now", sending, "busy", label="its lease ends")
    else:
        held = f"{HELD[delivery.held_by].capitalize()}." if delivery.held_by else None
        text = held or "Nothing holds it: the next free worker claims it when it is due."
        title, label = ("Held" if held else "Waiting"), ("due" if delivery.next_attempt_at else "its deadline")
        yield Moment(delivery.next_attempt_at or delivery.deadline_at, title, text, "wait", label=label)


def _end(delivery: DeliveryView, at: datetime) -> Moment:
    dead = " Nothing more is sent unless a person replays it." if delivery.state in DEAD_LETTERS else ""
    because = f"{_reason(delivery.reason).capitalize()}." if delivery.reason else ""
    return Moment(at, f"Ended: {delivery.state.value}", f"{because}{dead}".strip(), tone(delivery.state.value))


def _reason(reason: str | None) -> str:
    return REASONS.get(reason or "", reason or "")


def _spaced(told: Sequence[Moment]) -> Iterator[Moment]:
    """Each with the time between it and what came before."""
    ended: datetime | None = None
    for moment in told:
        yield moment if ended is None else replace(moment, after=moment.at - ended)
        ended = moment.ended or moment.at
