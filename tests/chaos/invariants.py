"""What must hold at the end of a chaos run, each a pure question to the record whose answer names what breaks it."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from tests.chaos.cast import CAST
from tests.chaos.invariants_lanes import in_order, quiet_while_paused
from tests.chaos.receivers import Request
from tests.chaos.record import Attempt, Record

TERMINAL = frozenset({"delivered", "exhausted", "rejected", "ambiguous", "cancelled"})
_TOLD = frozenset({"delivered", "throttled", "server_error", "rejected"})
"""Outcomes that are a receiver's own word."""
_NO_WORD = frozenset({"in_doubt", "timeout", "disconnected", "interrupted", "internal"})
"""Outcomes that leave open whether the request was received."""
_SAME_MOMENT_SECONDS = 0.1
"""Two things that this process hears of within so little may have happened in either order."""
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Verdict:
    """One invariant, whether it held, how much was looked at, and some of what broke it."""

    promise: str
    looked_at: int
    broken: int
    examples: tuple[str, ...]

    @property
    def held(self) -> bool:
        """Whether nothing broke it, of something that might have."""
        return not self.broken and self.looked_at > 0


Question = Callable[[Record], Iterator[str]]


def verdicts(record: Record) -> list[Verdict]:
    """The verdict on each invariant."""
    return [_asked(promise, size(record), question(record)) for promise, (size, question) in _QUESTIONS.items()]


def _asked(promise: str, looked_at: int, found: Iterator[str]) -> Verdict:
    broken = list(found)
    return Verdict(promise, looked_at, len(broken), tuple(broken[:_SHOWN]))


def nothing_lost(record: Record) -> Iterator[str]:
    """Each event that was confirmed is there once, and has a delivery for each who wants it."""
    stored = Counter(event.name for event in record.events)
    planned = Counter(record.planned)
    yield from (f"event {name} is missing" for name in planned - stored)
    yield from (f"event {name} was never asked for" for name in stored - planned)
    made = Counter((delivery.event, delivery.subscriber) for delivery in record.deliveries)
    for event in record.events:
        for player in CAST:
            wanted = int(event.type in player.event_types)
            if made[event.id, player.id] != wanted:
                yield f"event {event.id}: {made[event.id, player.id]} deliveries to {player.id} instead of {wanted}"


def all_settled(record: Record) -> Iterator[str]:
    """Everything came to its end without a hand."""
    yield from record.unsettled
    yield from (f"event {each.id} is not fanned out" for each in record.events if not each.fanned_out)
    yield from (f"{each.key} is {each.state}" for each in record.deliveries if each.state not in TERMINAL)
    yield from (f"run {each.id} is {each.state}, not settled" for each in record.runs if not each.settled)


def delivered_was_received(record: Record) -> Iterator[str]:
    """What is delivered was answered 2xx by its receiver in that generation, and applied by it."""
    for delivery in record.deliveries:
        if delivery.state != "delivered":
            continue
        answered = [
            request
            for request in record.requests_of.get(delivery.key, ())
            if request.status == 200 and request.generation == delivery.generation
        ]
        if not answered or delivery.key not in record.applied:
            yield f"{delivery.key} is delivered, and its receiver never said so"


def answers_are_on_record(record: Record) -> Iterator[str]:
    """An attempt that ended with an answer got that answer."""
    for attempt in record.attempts:
        if attempt.outcome in _TOLD:
            got = [request.status for request in record.requests_at.get(attempt.name, ())]
            if attempt.status not in got:
                yield f"{attempt.name} is {attempt.outcome} ({attempt.status}); its receiver said {got}"


def requests_are_on_record(record: Record) -> Iterator[str]:
    """Each request has its attempt, unless an operator called it off under way and its worker was killed."""
    for name, requests in record.requests_at.items():
        attempts = record.attempts_at.get(name, ())
        if len(attempts) < len(requests) and name[0] not in record.called_off:
            yield f"{name}: {len(requests)} requests, {len(attempts)} attempts on record"


def leases_end_once(record: Record) -> Iterator[str]:
    """Of each lease one attempt decided; later leases decide later."""
    for key, attempts in record.attempts_of.items():
        leases = [attempt.lease for attempt in attempts if not attempt.late]
        if any(later <= earlier for earlier, later in pairwise(leases)):
            yield f"{key}: its leases ended in the order {leases}"


def one_at_a_time(record: Record) -> Iterator[str]:
    """No two requests of one key are open at once, but for a lost lease or what was called off under way."""
    for key, requests in record.requests_of.items():
        for earlier, later in pairwise(requests):
            overlap = earlier.ended - later.arrived
            if overlap > _SAME_MOMENT_SECONDS and not _excused(record, earlier, later):
                yield f"{key}: {earlier.name[1:]} and {later.name[1:]} were open together for {overlap:.3f} s"


def _excused(record: Record, *requests: Request) -> bool:
    """Whether one of these lost its lease, or was called off."""
    return any(
        request.key in record.called_off or any(each.lost for each in record.attempts_at.get(request.name, ()))
        for request in requests
    )


def repeats_are_explained(record: Record) -> Iterator[str]:
    """A key comes again only by a replay, or where the attempt before left something open."""
    for key, requests in record.requests_of.items():
        for earlier, later in pairwise(requests):
            if earlier.generation != later.generation or key in record.called_off:
                continue
            before = record.attempts_at.get(earlier.name, ())
            if not any(_leaves_open(attempt, earlier) for attempt in before):
                yield f"{key}: {later.name[1:]} came after {earlier.name[1:]}, {[a.outcome for a in before]}"


def _leaves_open(attempt: Attempt, request: Request) -> bool:
    if attempt.late or attempt.outcome in _NO_WORD:
        return True
    return attempt.outcome in {"throttled", "server_error"} and attempt.status == request.status


def careful_got_it_once(record: Record) -> Iterator[str]:
    """Who cannot deduplicate is never sent again, in one generation, what it may have applied."""
    for player in CAST:
        if player.wanted.get("idempotent", True):
            continue
        for key, requests in record.requests_of.items():
            if key.endswith(f":{player.id}") and key not in record.called_off:
                taken = Counter(each.generation for each in requests if each.manner.startswith("applied"))
                yield from (f"{key}: applied {n} times in generation {gen}" for gen, n in taken.items() if n > 1)


def counts_add_up(record: Record) -> Iterator[str]:
    """What is counted two ways is the same both ways."""
    for delivery in record.deliveries:
        counted = [each for each in record.attempts_of.get(delivery.key, ()) if each.counted]
        lately = sum(each.generation == delivery.generation for each in counted)
        says = delivery.attempt_count, delivery.generation_attempts, delivery.generation
        if says != (len(counted), lately, 1 + delivery.replays):
            yield f"{delivery.key} says {says}, on record are {(len(counted), lately, 1 + delivery.replays)}"
    yield from (f"run {run.id} says {run.events} events, found {run.found}" for run in record.runs if _off(run))
    yield from (f"lane {lane.subscriber} has {lane.leased} leased" for lane in record.lanes if lane[1:] != (0, 0))
    yield from (f"{each.key} is {each.state} and leased" for each in record.deliveries if each.leased)


def _off(run: object) -> bool:
    return getattr(run, "events", None) != getattr(run, "found", None)


def signed_and_the_same(record: Record) -> Iterator[str]:
    """Each request was signed right and had the stored bytes."""
    stored: Mapping[str, bytes] = {str(event.id): event.sha256 for event in record.events}
    for request in record.requests:
        if request.fault or stored.get(request.key.partition(":")[0]) != request.sha256:
            yield f"{request.name}: {request.fault or 'other bytes'}"


def metrics_agree(record: Record) -> Iterator[str]:
    """The gauges say what the tables do; no worker counted more attempts than are on record."""
    states = Counter(delivery.state for delivery in record.deliveries)
    expected = {
        **{f"tocsin_dead_letters/{state}": float(states[state]) for state in ("exhausted", "rejected", "ambiguous")},
        **dict.fromkeys(("tocsin_due", "tocsin_leases_overdue"), 0.0),
        "tocsin_database_up": 1.0,
    }
    for name, value in expected.items():
        if record.gauges.get(name) != value:
            yield f"{name} is {record.gauges.get(name)} instead of {value}"
    decided = Counter((each.pid, each.outcome) for each in record.attempts if not each.late)
    for pid, outcomes in record.counted.items():
        for outcome, n in outcomes.items():
            if outcome != "in_doubt" and n > decided[pid, outcome]:
                yield f"worker {pid} counted {n:.0f} {outcome}, on record are {decided[pid, outcome]}"


def the_house_agrees(record: Record) -> Iterator[str]:
    """`tocsin reconcile` finds nothing."""
    yield from record.reconciled


_QUESTIONS: Mapping[str, tuple[Callable[[Record], int], Question]] = {
    "no event and no delivery is lost": (lambda r: len(r.deliveries), nothing_lost),
    "everything is settled without a hand": (lambda r: len(r.deliveries), all_settled),
    "what is delivered was received and applied": (lambda r: len(r.deliveries), delivered_was_received),
    "each answer on record was given": (lambda r: len(r.attempts), answers_are_on_record),
    "each request has its attempt on record": (lambda r: len(r.requests), requests_are_on_record),
    "each lease ended once": (lambda r: len(r.attempts), leases_end_once),
    "no two attempts of a key at once outside lost leases": (lambda r: len(r.requests), one_at_a_time),
    "each repeated key is explained": (lambda r: len(r.requests), repeats_are_explained),
    "who cannot deduplicate gets nothing twice": (lambda r: len(r.requests), careful_got_it_once),
    "an order is kept": (lambda r: len(r.requests), in_order),
    "a pause is quiet": (lambda r: len(r.pauses), quiet_while_paused),
    "each request is signed and has the same bytes": (lambda r: len(r.requests), signed_and_the_same),
    "counts add up": (lambda r: len(r.deliveries), counts_add_up),
    "metrics agree with the rows": (lambda r: len(r.gauges), metrics_agree),
    "tocsin reconcile finds nothing": (lambda r: len(r.deliveries), the_house_agrees),
}
