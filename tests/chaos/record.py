"""What the three sides of a chaos run say at its end: the database, the receivers, and the metrics."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, TypeVar
from uuid import UUID

from service.domain.identifiers import parse_delivery_id
from tests.chaos.house import Trouble
from tests.chaos.operators import Pause
from tests.chaos.plan import EventName, Span
from tests.chaos.receivers import Request
from tests.chaos.server import Server

Item = TypeVar("Item")
Key = TypeVar("Key")
Name = tuple[str, int, int]
"""An attempt as both sides name it: key, generation, number."""


class Event(NamedTuple):
    """A stored event."""

    id: UUID
    type: str
    subject: str
    version: int
    run: UUID | None
    fanned_out: bool
    sha256: bytes

    @property
    def name(self) -> EventName:
        """What the plan calls it."""
        return self.type, self.subject, self.version


class Delivery(NamedTuple):
    """A stored delivery; `replays` is how many generations are on record behind its first.

    The fan-out that made it `began` and was `committed` then, in seconds since 1970; None where that is not known.
    """

    row: int
    key: str
    event: UUID
    subscriber: str
    order_key: int | None
    state: str
    reason: str | None
    generation: int
    attempt_count: int
    generation_attempts: int
    leased: bool
    replays: int
    began: float
    committed: float | None


class Attempt(NamedTuple):
    """A stored attempt, in the order of being written; `started` is seconds since 1970."""

    key: str
    id: int
    number: int
    generation: int
    lease: int
    outcome: str
    counted: bool
    late: bool
    status: int | None
    started: float
    worker: str

    @property
    def name(self) -> Name:
        """What the receiver calls it."""
        return self.key, self.generation, self.number

    @property
    def lost(self) -> bool:
        """Whether its lease was lost before it ended."""
        return self.late or self.outcome == "in_doubt"

    @property
    def pid(self) -> int:
        """The process that made it."""
        return int(self.worker.split(":")[1])


class Run(NamedTuple):
    """A stored run; `events` is what it says of itself, `found` what there is."""

    id: UUID
    state: str
    settled: bool
    events: int
    found: int


class Lane(NamedTuple):
    """How a subscriber's lane stands."""

    subscriber: str
    leased: int
    leased_late: int


@dataclass(frozen=True)
class Record:
    """Everything that is judged."""

    planned: Collection[EventName]
    """The events that were to be, by their names."""
    events: Sequence[Event]
    deliveries: Sequence[Delivery]
    attempts: Sequence[Attempt]
    runs: Sequence[Run]
    lanes: Sequence[Lane]
    called_off: Collection[str]
    """The keys of what operators called off while a request was under way."""
    requests: Sequence[Request]
    applied: Collection[str]
    published: Mapping[EventName, Span] = field(default_factory=dict[EventName, Span])
    """When each published event was first offered, and when it was confirmed."""
    pauses: Sequence[Pause] = ()
    troubles: Sequence[Trouble] = ()
    gauges: Mapping[str, float] = field(default_factory=dict[str, float])
    """What the API says at the end, by metric and label."""
    counted: Mapping[int, Mapping[str, float]] = field(default_factory=dict[int, Mapping[str, float]])
    """What each living worker counted of attempts, by process and outcome."""
    reconciled: Sequence[str] = ()
    """What the house itself finds wrong."""
    unsettled: Sequence[str] = ()
    """What had not come to its end when patience had."""

    @cached_property
    def published_as(self) -> Mapping[UUID, Span]:
        """The same by what the house calls the event."""
        return {event.id: self.published[event.name] for event in self.events if event.name in self.published}

    @cached_property
    def attempts_at(self) -> Mapping[Name, Sequence[Attempt]]:
        """The attempts by the name that the receiver saw."""
        return _grouped(self.attempts, lambda each: each.name)

    @cached_property
    def attempts_of(self) -> Mapping[str, Sequence[Attempt]]:
        """The attempts by their delivery's key."""
        return _grouped(self.attempts, lambda each: each.key)

    @cached_property
    def requests_of(self) -> Mapping[str, Sequence[Request]]:
        """The requests by their key, in the order of their coming."""
        return _grouped(sorted(self.requests, key=lambda each: each.arrived), lambda each: each.key)

    @cached_property
    def requests_at(self) -> Mapping[Name, Sequence[Request]]:
        """The requests by their attempt's name."""
        return _grouped(self.requests, lambda each: each.name)

    @property
    def lost_leases(self) -> Counter[str]:
        """How many leases were lost, by what was done to whoever held them."""
        return Counter(self._cause(attempt) for attempt in self.attempts if attempt.lost)

    def _cause(self, attempt: Attempt) -> str:
        mine = [trouble.what for trouble in self.troubles if trouble.pid == attempt.pid]
        if mine:
            return mine[-1]
        near = [
            trouble.what
            for trouble in self.troubles
            if trouble.pid is None and trouble.began - 3 <= attempt.started <= trouble.ended + 3
        ]
        return near[-1] if near else "called off, or no blow near"


def _grouped(found: Iterable[Item], key: Callable[[Item], Key]) -> Mapping[Key, Sequence[Item]]:
    groups: defaultdict[Key, list[Item]] = defaultdict(list)
    for each in found:
        groups[key(each)].append(each)
    return groups


_EVENTS = """
    SELECT id, type, subject, version, run_id, fanned_out_at IS NOT NULL, body_sha256 FROM tocsin.events ORDER BY id
"""
_DELIVERIES = """
    SELECT d.row, d.event_id || ':' || s.id, d.event_id, s.id, d.order_key, d.state, d.reason, d.generation,
           d.attempt_count, d.generation_attempts, d.lease_owner IS NOT NULL,
           (SELECT count(*) FROM tocsin.generations g WHERE g.delivery = d.row),
           extract(epoch FROM d.created_at)::float8, extract(epoch FROM pg_xact_commit_timestamp(e.xmin))::float8
      FROM tocsin.deliveries d JOIN tocsin.subscribers s ON s.row = d.subscriber
      JOIN tocsin.events e ON e.id = d.event_id ORDER BY d.row
"""
_ATTEMPTS = """
    SELECT d.event_id || ':' || s.id, a.id, a.number, a.generation, a.lease_seq, a.outcome, a.counted, a.late, a.status,
           extract(epoch FROM a.started_at)::float8, a.worker
      FROM tocsin.attempts a JOIN tocsin.deliveries d ON d.row = a.delivery
      JOIN tocsin.subscribers s ON s.row = d.subscriber ORDER BY a.id
"""
_RUNS = """
    SELECT id, state, settled_at IS NOT NULL, events, (SELECT count(*) FROM tocsin.events e WHERE e.run_id = r.id)
      FROM tocsin.runs r ORDER BY id
"""
_LANES = "SELECT s.id, l.leased, l.leased_late FROM tocsin.lanes l JOIN tocsin.subscribers s ON s.row = l.subscriber"
_CALLED_OFF = """
    SELECT object FROM tocsin.audit WHERE action = 'delivery.cancelled' AND (detail ->> 'inFlight')::boolean
"""
_SLUGS = "SELECT row, id FROM tocsin.subscribers"


@dataclass(frozen=True, slots=True)
class Books:
    """The database's side of the record."""

    events: Sequence[Event]
    deliveries: Sequence[Delivery]
    attempts: Sequence[Attempt]
    runs: Sequence[Run]
    lanes: Sequence[Lane]
    called_off: Collection[str]

    @classmethod
    async def read(cls, server: Server) -> "Books":
        """All of it as it stands."""
        slugs = {row[0]: row[1] for row in await server.ask(_SLUGS)}
        return cls(
            [Event(*row) for row in await server.ask(_EVENTS)],
            [Delivery(*row) for row in await server.ask(_DELIVERIES)],
            [Attempt(*row) for row in await server.ask(_ATTEMPTS)],
            [Run(*row) for row in await server.ask(_RUNS)],
            [Lane(*row) for row in await server.ask(_LANES)],
            {_key(row[0], slugs) for row in await server.ask(_CALLED_OFF)},
        )


def _key(audited: str, slugs: Mapping[int, str]) -> str:
    """The delivery key behind the `object` of an audit line."""
    found = parse_delivery_id(audited.removeprefix("delivery:"))
    assert found is not None, audited
    event, row = found
    return f"{event}:{slugs[row]}"
