"""What an operator may ask of a subscriber, with its defaults and bounds."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from service.domain.errors import Problem
from service.domain.leases import shortest_lease
from service.domain.model import Mode, OnDeadLetter, Ordering

DAY_SECONDS = 86_400
MAX_EVENT_TYPES = 100
DEFAULT_GRACE_SECONDS = DAY_SECONDS
DEFAULT_TIMEOUT_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """A subscriber as its operator states it; the names are those of the stored columns. Durations are seconds.

    `id` is the operator's slug. `headers` may carry credentials, so they are kept out of the representation.
    """

    id: str
    url: str = field(repr=False)
    event_types: tuple[str, ...]
    tenant_id: str = "default"
    mode: Mode = Mode.LIVE
    idempotent: bool = True
    ordering: Ordering = Ordering.NONE
    on_dead_letter: OnDeadLetter = OnDeadLetter.SKIP
    max_concurrency: int = 16
    rate_per_second: float | None = None
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    max_attempts: int = 8
    backoff_base_seconds: float = 1.0
    backoff_cap_seconds: float = 900.0
    deadline_seconds: float = 3 * DAY_SECONDS
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


@dataclass(frozen=True, slots=True)
class Bound:
    """The least and the most that a number may be, and `why` where that can be changed."""

    least: float
    most: float
    why: str = ""

    def fault(self, value: float) -> str | None:
        """What is wrong with the value, without the value; NaN is outside every bound."""
        if self.least <= value <= self.most:
            return None
        return f"must be between {self.least:.10g} and {self.most:.10g}{self.why}"


MAX_CONCURRENCY = Bound(1, 1000)
RATE_PER_SECOND = Bound(0.001, 10_000)
MAX_ATTEMPTS = Bound(1, 100)
BACKOFF_BASE_SECONDS = Bound(0.01, 3600)
DEADLINE_SECONDS = Bound(1, 30 * DAY_SECONDS)
GRACE_SECONDS = Bound(0, 7 * DAY_SECONDS)
"""Of a rotation: how long the secrets before the new one go on signing."""


def timeout_bound(longest_attempt_seconds: float) -> Bound:
    """An attempt must end before its lease does, with time left to write its outcome down.

    Where not even the default fits, the fault says so: it may never have been sent.
    """
    lease = f"TOCSIN_LEASE_SECONDS={shortest_lease(longest_attempt_seconds):.10g}"
    default = f"the default of {DEFAULT_TIMEOUT_SECONDS:g} does not fit under {lease}"
    unfit = f": {default}: give timeoutSeconds, or raise the lease"
    return Bound(0.5, longest_attempt_seconds, unfit if longest_attempt_seconds < DEFAULT_TIMEOUT_SECONDS else "")


def backoff_cap_bound(base_seconds: float) -> Bound:
    """The cap of the backoff lies at or above its base; a base that is itself out of bounds does not count."""
    fits = BACKOFF_BASE_SECONDS.fault(base_seconds) is None
    return Bound(base_seconds if fits else BACKOFF_BASE_SECONDS.least, DAY_SECONDS)


def bound_faults(wanted: Wanted, longest_attempt_seconds: float) -> Iterator[Problem]:
    """Every number of `wanted` that is out of its bounds."""
    checks = {
        "/maxConcurrency": (MAX_CONCURRENCY, wanted.max_concurrency),
        "/ratePerSecond": (RATE_PER_SECOND, wanted.rate_per_second),
        "/timeoutSeconds": (timeout_bound(longest_attempt_seconds), wanted.timeout_seconds),
        "/maxAttempts": (MAX_ATTEMPTS, wanted.max_attempts),
        "/backoffBaseSeconds": (BACKOFF_BASE_SECONDS, wanted.backoff_base_seconds),
        "/backoffCapSeconds": (backoff_cap_bound(wanted.backoff_base_seconds), wanted.backoff_cap_seconds),
        "/deadlineSeconds": (DEADLINE_SECONDS, wanted.deadline_seconds),
    }
    for pointer, (bound, value) in checks.items():
        if value is not None and (fault := bound.fault(value)):
            yield Problem(pointer, fault)
