"""The nouns: frozen records that travel between the floors, and the ids they carry.

Those that are made for each delivery are named tuples: a frozen dataclass takes several times as long to make.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple, NewType, TypeAlias
from uuid import UUID

RunId = NewType("RunId", UUID)
EventId = NewType("EventId", UUID)
DeliveryRow = NewType("DeliveryRow", int)
"""The bigint of a delivery inside the house; outside it is `dlv_…` (see `identifiers`)."""
SubscriberRow = NewType("SubscriberRow", int)
"""The int of a subscriber inside the house; outside it is the operator's slug."""


class RunState(StrEnum):
    """Where a run stands; the arrows are in `states.RUN_TRANSITIONS`."""

    CLAIMED = "claimed"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    HELD = "held"


class DeliveryState(StrEnum):
    """Where a delivery stands; the arrows are in `states.DELIVERY_TRANSITIONS`.

    `leased` is never stored: a pending delivery with a lease owner reads as leased, so that a claim touches no
    indexed column.
    """

    __hash__ = str.__hash__  # in C; that of Enum is not

    PENDING = "pending"
    LEASED = "leased"
    DELIVERED = "delivered"
    EXHAUSTED = "exhausted"
    REJECTED = "rejected"
    AMBIGUOUS = "ambiguous"
    CANCELLED = "cancelled"


class Outcome(StrEnum):
    """How one attempt ended."""

    __hash__ = str.__hash__  # in C; that of Enum is not

    DELIVERED = "delivered"
    THROTTLED = "throttled"
    SERVER_ERROR = "server_error"
    REJECTED = "rejected"
    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    DISCONNECTED = "disconnected"
    IN_DOUBT = "in_doubt"
    INTERRUPTED = "interrupted"
    BLOCKED = "blocked"
    SHADOW = "shadow"
    INTERNAL = "internal"


class HeldBy(StrEnum):
    """Why a pending delivery is not being sent although it may be due."""

    SUBSCRIBER_PAUSED = "subscriber-paused"
    SUBSCRIBER_DISABLED = "subscriber-disabled"
    DISPATCH_PAUSED = "dispatch-paused"
    PREDECESSOR = "predecessor"
    CIRCUIT_OPEN = "circuit-open"
    THROTTLED = "throttled"
    LANE_FULL = "lane-full"
    """As many requests as the subscriber allows are in flight; not in the contract's list, and due all the same."""


class Queue(IntEnum):
    """In which of a lane's three queues a delivery waits; `deliveries.claim` says what each may have of the lane.

    It is FIRST for as long as no attempt of the first generation was counted, and at no other time.
    """

    FIRST = 0
    RETRY = 1
    """It was tried before, or a person replayed it by itself."""
    BULK = 2
    """One of many that were replayed together."""


class RunSource(StrEnum):
    """Who asked for a run."""

    HMAC = "hmac"
    OIDC = "oidc"
    BEARER = "bearer"
    OPERATOR = "operator"


class SubscriberState(StrEnum):
    """Whether a subscriber's deliveries may be claimed."""

    ACTIVE = "active"
    PAUSED = "paused"
    DISABLED = "disabled"


class Mode(StrEnum):
    """`shadow` claims, signs and records, but sends nothing."""

    LIVE = "live"
    SHADOW = "shadow"


class Ordering(StrEnum):
    """Which deliveries of a subscriber wait for one another."""

    NONE = "none"
    SUBJECT = "subject"
    STRICT = "strict"


class OnDeadLetter(StrEnum):
    """What an ordered lane does behind a dead-lettered delivery."""

    SKIP = "skip"
    BLOCK = "block"


class Scope(StrEnum):
    """What an API key may do; each scope includes the ones before it."""

    READ = "read"
    OPERATE = "operate"
    ADMIN = "admin"

    def includes(self, needed: "Scope") -> bool:
        """Whether a key of this scope may do what `needed` asks for."""
        order = list(Scope)
        return order.index(self) >= order.index(needed)


@dataclass(frozen=True, slots=True)
class Policy:
    """How one subscriber's failures are treated. Durations are seconds."""

    idempotent: bool = True
    max_attempts: int = 8
    backoff_base_seconds: float = 1.0
    backoff_cap_seconds: float = 900.0


class Answer(NamedTuple):
    """What came of one attempt, as `flow.send` saw it; the database has not heard of it yet.

    `retry_after` is in seconds, already clamped. `detail` and `excerpt` are bounded and safe to store.
    """

    outcome: Outcome
    status: int | None = None
    detail: str | None = None
    retry_after: float | None = None
    excerpt: str | None = None
    disable: bool = False
    """The receiver said 410 Gone: the subscriber is disabled as well."""


class Settlement(NamedTuple):
    """What becomes of a delivery after an attempt; decided by `retry.settle`, written by `deliveries.settle`.

    `delay` is in seconds from the database's now, for the next attempt of a delivery that stays pending; None parks it
    behind its predecessor until that is terminal.
    `counted` says whether the attempt uses up budget.
    """

    state: DeliveryState
    counted: bool
    delay: float | None = None
    reason: str | None = None
    throttle: float | None = None
    """Seconds for which the whole lane waits (Retry-After)."""


@dataclass(frozen=True, slots=True)
class Found:
    """One fact that a source discovered.

    `data` is the exact JSON text that will stand in the webhook body. `event_id` is set when the source adopted an
    event that is already stored (the outbox); then nothing is added.
    """

    type: str
    subject: str
    version: int
    data: str
    tenant_id: str = "default"
    event_id: EventId | None = None


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event that is about to be stored: its exact body bytes and their SHA-256."""

    id: EventId
    tenant_id: str
    type: str
    subject: str
    version: int
    body: bytes
    body_sha256: bytes
    data_sha256: bytes
    topics: tuple[str, ...]
    """The subscription patterns that match this type: `*`, `shipment.*`, `shipment.expired`."""


@dataclass(frozen=True, slots=True)
class LeasedRun:
    """A run that this worker may advance while its lease lives; `lease_seq` is the fence."""

    id: RunId
    job: str
    run_id: str
    cutoff: datetime
    lease_seq: int
    discovered: bool
    events: int
    progress: Mapping[str, Any] | None = None
    """What the source's last page said of how far it is; None before the first that said something."""
    traceparent: str | None = None
    """Of the tick that claimed it, where that was traced."""


class Lapsed(NamedTuple):
    """The lease that a dead owner left behind: what the in_doubt attempt is written from.

    `started_at` is in seconds since 1970 by the database's clock.
    """

    worker: str
    started_at: float
    lease_seq: int


Lease: TypeAlias = tuple[DeliveryRow, int]
"""A delivery, and the fence of one lease on it."""


class Claimed(NamedTuple):
    """A delivery that this worker has leased; `lease_seq` is the fence of the open attempt.

    The fields stand in the order in which `deliveries.claim` reads them.
    """

    row: DeliveryRow
    event_id: EventId
    subscriber: SubscriberRow
    revision: int
    """Of the subscriber's configuration at the claim: tells whether a cached `Destination` is still right."""
    origin: str
    """Where it goes: scheme, host and port."""
    run_id: RunId | None
    generation: int
    attempt_count: int
    generation_attempts: int
    lease_seq: int
    leased_at: float
    """By the database's clock, in seconds since 1970."""
    seconds_left: float
    """Until its deadline by the database's clock; at or below zero it is exhausted without being sent."""
    due_at: float
    """Since when it could have been claimed, by the database's clock, in seconds since 1970."""
    order_key: int | None = None
    """Deliveries of one subscriber with the same key are sent in the order of their rows."""
    lapsed: Lapsed | None = None

    @property
    def lease(self) -> Lease:
        """What tells this lease from any other, also from an earlier one on the same delivery."""
        return self.row, self.lease_seq


@dataclass(frozen=True, slots=True)
class Destination:
    """What is needed to send to one subscriber; secrets are in the clear, so it is never logged or printed."""

    row: SubscriberRow
    slug: str
    revision: int
    url: str = field(repr=False)
    mode: Mode
    timeout_seconds: float
    policy: Policy
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    secrets: tuple[bytes, ...] = field(default=(), repr=False)
    """Signing keys, newest first; older ones are inside their rotation grace."""
    unreadable: bool = False
    """The stored secret cannot be decrypted with TOCSIN_ENCRYPTION_KEYS."""
