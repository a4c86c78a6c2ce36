"""Each invariant of chaos notices what it is there for: a record of a healthy run, broken in one place at a time."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from tests.chaos.answers import Manner
from tests.chaos.cast import CAST, NARROW
from tests.chaos.invariants import verdicts
from tests.chaos.operators import Pause
from tests.chaos.receivers import Request
from tests.chaos.record import Attempt, Delivery, Event, Lane, Record, Run

RUN = UUID(int=99)
EVENTS = [Event(UUID(int=n), NARROW, "thing-1", n, RUN, fanned_out=True, sha256=b"sha") for n in (1, 2)]
GAUGES = {
    **{f"tocsin_dead_letters/{state}": 0.0 for state in ("exhausted", "rejected", "ambiguous")},
    "tocsin_due": 0.0,
    "tocsin_leases_overdue": 0.0,
    "tocsin_database_up": 1.0,
}


def healthy() -> Record:
    """Two events, delivered to all at the first attempt, one after the other."""
    pairs = [(event, player.id) for event in EVENTS for player in CAST]
    keys = [f"{event.id}:{slug}" for event, slug in pairs]
    return Record(
        planned=[event.name for event in EVENTS],
        events=EVENTS,
        deliveries=[made(row, event, slug) for row, (event, slug) in enumerate(pairs)],
        attempts=[attempt(key, number) for number, key in enumerate(keys)],
        runs=[Run(RUN, "completed", settled=True, events=2, found=2)],
        lanes=[Lane("plain", 0, 0)],
        called_off=(),
        requests=[request(key, at) for at, key in enumerate(keys)],
        applied=set(keys),
        pauses=[Pause("plain", 1000.0, 1002.5)],
        gauges=GAUGES,
        counted={42: {"delivered": float(len(keys)), "in_doubt": 3.0}},
    )


def made(row: int, event: Event, slug: str) -> Delivery:
    """The delivery of an event that was fanned out before the next one was."""
    return Delivery(
        row=row,
        key=f"{event.id}:{slug}",
        event=event.id,
        subscriber=slug,
        order_key=7,
        state="delivered",
        reason=None,
        generation=1,
        attempt_count=1,
        generation_attempts=1,
        leased=False,
        replays=0,
        began=event.version,
        committed=event.version,
    )


def attempt(key: str, id_: int, **changes: Any) -> Attempt:
    """A first attempt that was answered 200."""
    first = Attempt(
        key=key,
        id=id_,
        number=1,
        generation=1,
        lease=1,
        outcome="delivered",
        counted=True,
        late=False,
        status=200,
        started=1.0,
        worker="host:42:ab",
    )
    return first._replace(**changes)


def request(key: str, at: float, **changes: Any) -> Request:
    """The request of a first attempt, answered within half a second."""
    first = Request(
        subscriber=key.partition(":")[2],
        key=key,
        generation=1,
        attempt=1,
        arrived=at,
        sha256=b"sha",
        manner=Manner.APPLIED,
        fault=None,
        skewed=False,
        ended=at + 0.5,
        whole=True,
    )
    return replace(first, **changes)


PLAIN, CAREFUL = f"{EVENTS[0].id}:plain", f"{EVENTS[0].id}:careful"
LOST, SETTLED = "no event and no delivery is lost", "everything is settled without a hand"
RECEIVED, GIVEN = "what is delivered was received and applied", "each answer on record was given"
RECORDED, ONCE = "each request has its attempt on record", "each lease ended once"
SINGLE, EXPLAINED = "no two attempts of a key at once outside lost leases", "each repeated key is explained"
CAREFULLY, ORDER, QUIET = "who cannot deduplicate gets nothing twice", "an order is kept", "a pause is quiet"
SIGNED, COUNTS = "each request is signed and has the same bytes", "counts add up"
METRICS, RECONCILED = "metrics agree with the rows", "tocsin reconcile finds nothing"


def delivery(record: Record, key: str, **changes: Any) -> Record:
    """The same with that delivery changed."""
    changed = [each._replace(**changes) if each.key == key else each for each in record.deliveries]
    return replace(record, deliveries=changed)


def more(record: Record, *, attempts: tuple[Attempt, ...] = (), requests: tuple[Request, ...] = ()) -> Record:
    """The same with these behind."""
    return replace(record, attempts=[*record.attempts, *attempts], requests=[*record.requests, *requests])


def without(record: Record, key: str) -> Record:
    """The same without what the receiver saw of that key."""
    return replace(record, requests=[each for each in record.requests if each.key != key])


def at(record: Record, key: str, when: float) -> Record:
    """The same with the request of that key at another time."""
    return more(without(record, key), requests=(request(key, when),))


def published(record: Record) -> Record:
    """The same, of which no more is known than that its events were published one after the other."""
    unknown = [each._replace(committed=None) for each in record.deliveries]
    return replace(record, deliveries=unknown, published={each.name: (n, n + 0.5) for n, each in enumerate(EVENTS)})


BREAKS: dict[str, tuple[Callable[[Record], Record], set[str]]] = {
    "an event is missing": (lambda r: replace(r, planned=[*r.planned, ("a", "b", 9)]), {LOST}),
    "a delivery is missing": (lambda r: replace(r, deliveries=r.deliveries[1:]), {LOST}),
    "a delivery is not at its end": (lambda r: delivery(r, PLAIN, state="pending"), {SETTLED}),
    "a run is not settled": (lambda r: replace(r, runs=[r.runs[0]._replace(settled=False)]), {SETTLED}),
    "settled before it was sent": (lambda r: without(r, PLAIN), {RECEIVED, GIVEN}),
    "no in_doubt row": (
        lambda r: delivery(more(r, requests=(request(PLAIN, -5, attempt=0),)), PLAIN),
        {RECORDED, EXPLAINED},
    ),
    "sent twice under one attempt": (lambda r: more(r, requests=(request(PLAIN, 90),)), {RECORDED, EXPLAINED}),
    "two leases decided": (
        lambda r: delivery(more(r, attempts=(attempt(PLAIN, 90),)), PLAIN, attempt_count=2, generation_attempts=2),
        {ONCE},
    ),
    "two at once": (
        lambda r: delivery(
            more(
                r,
                attempts=(attempt(PLAIN, 90, number=2, lease=2, outcome="timeout", status=None),),
                requests=(request(PLAIN, -0.3, attempt=2, manner=Manner.SILENT, whole=False, ended=0.4),),
            ),
            PLAIN,
            attempt_count=2,
            generation_attempts=2,
        ),
        {SINGLE},
    ),
    "applied twice without a key kept": (
        lambda r: delivery(
            more(
                r,
                attempts=(attempt(CAREFUL, 90, number=2, lease=2, outcome="timeout", status=None),),
                requests=(request(CAREFUL, -5, attempt=2, manner=Manner.CUT, whole=False),),
            ),
            CAREFUL,
            attempt_count=2,
            generation_attempts=2,
        ),
        {CAREFULLY},
    ),
    "out of order": (lambda r: at(r, f"{EVENTS[0].id}:strict", 200), {ORDER}),
    "out of the order of publishing": (lambda r: at(published(r), f"{EVENTS[0].id}:strict", 200), {ORDER}),
    "sent into a pause": (lambda r: at(r, PLAIN, 1002), {QUIET}),
    "other bytes": (lambda r: more(without(r, PLAIN), requests=(request(PLAIN, 0, sha256=b"no"),)), {SIGNED}),
    "badly signed": (lambda r: more(without(r, PLAIN), requests=(request(PLAIN, 0, fault="x"),)), {SIGNED}),
    "an attempt counted, and none on record": (lambda r: delivery(r, PLAIN, attempt_count=2), {COUNTS}),
    "a replay that forgot the attempts": (
        lambda r: delivery(r, PLAIN, attempt_count=0, generation_attempts=1),
        {COUNTS},
    ),
    "a lane that never got its room back": (lambda r: replace(r, lanes=[Lane("plain", 1, 0)]), {COUNTS}),
    "a run that miscounts": (lambda r: replace(r, runs=[r.runs[0]._replace(events=3)]), {COUNTS}),
    "a gauge that lies": (lambda r: replace(r, gauges={**GAUGES, "tocsin_due": 1.0}), {METRICS}),
    "a worker that counts too much": (lambda r: replace(r, counted={42: {"delivered": 99.0}}), {METRICS}),
    "the house finds fault": (lambda r: replace(r, reconciled=["lane-count: 1"]), {RECONCILED}),
}


def test_a_healthy_record_breaks_nothing() -> None:
    assert [verdict for verdict in verdicts(healthy()) if not verdict.held] == []


@pytest.mark.parametrize("broken", BREAKS)
def test_each_break_is_noticed_by_its_invariant(broken: str) -> None:
    change, promises = BREAKS[broken]
    assert {verdict.promise for verdict in verdicts(change(healthy())) if not verdict.held} == promises


def test_every_invariant_is_broken_by_something() -> None:
    assert {verdict.promise for verdict in verdicts(healthy())} == set().union(*(each for _, each in BREAKS.values()))


def test_what_lost_its_lease_may_overlap_and_repeat() -> None:
    """The same overlap as above, with an owner that was stopped: its answer came late."""
    late = attempt(PLAIN, 90, number=1, lease=0, outcome="delivered", late=True, counted=False)
    second = request(PLAIN, -0.3, ended=0.4)
    broken = [
        verdict for verdict in verdicts(more(healthy(), attempts=(late,), requests=(second,))) if not verdict.held
    ]
    assert broken == []


def test_nothing_looked_at_proves_nothing() -> None:
    assert not any(verdict.held for verdict in verdicts(replace(healthy(), pauses=())) if verdict.promise == QUIET)
