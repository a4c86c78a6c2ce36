"""What the model is made of: deliveries, lanes and leases as plain records, and what an answer makes of an attempt.

All times are minutes of the test's own clock; every duration in it is whole minutes, so that the moments that a run
really takes never matter.
"""

import math
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

NEVER: Final = math.inf
LEASE: Final = 2
DEADLINE: Final = 60
BACKOFF: Final = 1
"""Minutes before the second attempt; it doubles with each further one, to the cap."""
BACKOFF_CAP: Final = 8
MAX_ATTEMPTS: Final = 3
OPENS_AT: Final = 10
"""Failures in a row after which a lane is probed by one delivery at a time."""

DEAD: Final = frozenset({"exhausted", "rejected", "ambiguous"})
MAYBE: Final = frozenset({"timeout", "disconnected", "in_doubt"})
ALIVE: Final = frozenset({"delivered", "rejected", "throttled"})
FAILED: Final = frozenset({"server_error", "unreachable", "timeout", "disconnected"})


@dataclass
class Lane:
    """A subscriber and the state of its lane."""

    slug: str
    port: int
    idempotent: bool = True
    ordering: str = "none"
    block: bool = False
    concurrency: int = 4
    rate: float | None = None
    """Deliveries a minute; its bucket holds one."""
    deleted: bool = False
    revision: int = 0
    state: str = "active"
    leased: int = 0
    leased_late: int = 0
    failures: int = 0
    ramp: int | None = None
    throttled: float = -NEVER
    opens: float = -NEVER
    tokens: float = 1.0
    tokens_at: float = 0.0

    def turn(self, state: str) -> None:
        """An operator, or Tocsin, puts it into another state: its failures are forgotten, it starts slowly."""
        self.ramp = 1 if state == "active" and self.state != "active" else None
        self.state, self.failures, self.opens = state, 0, -NEVER

    def tokens_now(self, now: float) -> float:
        """How many deliveries its rate allows just now."""
        return NEVER if self.rate is None else min(1.0, self.tokens + self.rate * (now - self.tokens_at))

    def slots(self) -> int:
        """How many more requests it lets out, by its concurrency alone."""
        if self.failures >= OPENS_AT or self.ordering == "strict":
            return 0 if self.leased else 1
        return max(min(self.concurrency, self.ramp or self.concurrency) - self.leased, 0)

    def wake(self) -> None:
        """Something of it ended or became due without a word of the receiver."""
        if self.failures >= OPENS_AT:
            self.ramp = 1
        else:
            self.opens = -NEVER

    def hear(self, outcomes: list[str | None], throttle: float | None, now: float) -> bool:
        """What a batch of results says of the receiver; True where the lane opens, or opens anew."""
        alive = [at for at, outcome in enumerate(outcomes) if outcome in ALIVE]
        failed = sum(outcome in FAILED for outcome in outcomes[alive[-1] + 1 if alive else 0 :])
        was_open, self.failures = self.failures >= OPENS_AT, (0 if alive else self.failures) + failed
        self.throttled = max(self.throttled, now + throttle if throttle is not None else -NEVER)
        if self.failures >= OPENS_AT or throttle is not None:
            self.ramp = 1
        elif alive and was_open:
            self.ramp = 2
        elif alive and self.ramp is not None:
            self.ramp = None if self.ramp * 2 >= self.concurrency else self.ramp * 2
        if self.failures < OPENS_AT:
            self.opens = -NEVER
        return self.failures >= OPENS_AT and failed > 0


@dataclass
class Delivery:
    """One delivery; `since` and `ended` are the numbers of the steps at which it became due and ended."""

    row: int
    event: int
    slug: str
    key: str | None
    created: float
    deadline: float
    due: float
    since: int
    state: str = "pending"
    reason: str | None = None
    generation: int = 1
    attempts: int = 0
    tries: int = 0
    queue: int = 0
    seq: int = 0
    owner: str | None = None
    until: float = 0.0
    finished: float = NEVER
    ended: int = 0

    @property
    def open(self) -> bool:
        """Whether it has not ended."""
        return self.state == "pending"

    def end(self, state: str, reason: str | None, now: float, step: int) -> None:
        """Put it into a terminal state."""
        self.state, self.reason, self.owner = state, reason, None
        self.finished, self.ended = now, step


class Attempt(NamedTuple):
    """One row of evidence."""

    row: int
    number: int
    generation: int
    seq: int
    outcome: str
    counted: bool
    late: bool
    worker: str


class Verdict(NamedTuple):
    """What an attempt makes of its delivery; `delay` None parks it behind its predecessor."""

    state: str
    counted: bool
    delay: float | None = None
    reason: str | None = None
    throttle: float | None = None


class Told(NamedTuple):
    """A result that a worker hands over: the lease that it ran under, and what is to be written of it."""

    row: int
    seq: int
    verdict: Verdict
    outcome: str | None
    number: int
    generation: int
    evidence_seq: int
    worker: str
    revision: int = 0
    gone: bool = False


@dataclass
class Bulk:
    """A bulk replay, which releases one delivery a minute; `made` is the number of the step that made it."""

    id: UUID
    states: frozenset[str]
    last: int
    made: int
    next_at: float
    running: bool
    after: int = 0
    replayed: int = 0


_LAST: Final = {
    "delivered": Verdict("delivered", counted=True),
    "shadow": Verdict("delivered", counted=False, reason="shadow"),
    "rejected": Verdict("rejected", counted=True, reason="rejected-by-receiver"),
    "blocked": Verdict("rejected", counted=True, reason="blocked-by-policy"),
}


def verdict(outcome: str, *, idempotent: bool, tries: int, left: float, retry_after: float | None) -> Verdict:
    """The contract's table of outcomes; `tries` counts this generation's attempts before, `left` is until the deadline.

    The draw of the jitter is one half throughout.
    """
    if outcome in _LAST:
        return _LAST[outcome]
    if outcome in MAYBE and not idempotent:
        return Verdict("ambiguous", counted=True, reason=f"{outcome}-may-have-been-applied")
    if outcome in {"interrupted", "internal"}:
        return Verdict("pending", counted=False, delay=retry_after or 0, throttle=retry_after)
    delay = max(min(BACKOFF_CAP, BACKOFF * 2**tries), retry_after or 0)
    throttle = delay if outcome == "throttled" else None
    if tries + 1 >= MAX_ATTEMPTS:
        return Verdict("exhausted", counted=True, reason="attempts", throttle=throttle)
    if delay >= left:
        return Verdict("exhausted", counted=True, reason="deadline", throttle=throttle)
    return Verdict("pending", counted=True, delay=delay, throttle=throttle)
