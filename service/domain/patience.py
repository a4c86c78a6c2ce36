"""How long a delivery to a receiver that is down is tried before it is given up."""

from typing import Final

from service.domain.model import Policy
from service.domain.retry import backoff

FAR_BEFORE: Final = 0.1
"""Attempts that are used up in less than this part of the deadline leave most of it unused."""

_UNITS: Final = ((86_400.0, "day"), (3600.0, "hour"), (60.0, "minute"), (1.0, "second"))


def mean_seconds(policy: Policy) -> float:
    """From the first attempt to the last, on the average, where all of them fail at once.

    Half of the longest that full jitter allows. Retry-After, the attempts' own time and a lane that has opened come on
    top.
    """
    return sum(backoff(policy, attempts, 0.5) for attempts in range(policy.max_attempts - 1))


def ends_far_before(policy: Policy, deadline_seconds: float) -> bool:
    """Whether the attempts are used up long before the deadline, on the average."""
    return mean_seconds(policy) < deadline_seconds * FAR_BEFORE


def in_words(seconds: float) -> str:
    """A length of time as people say it: `64 seconds`, `16 minutes`, `11 hours`, `3 days`."""
    size, unit = next((size, unit) for size, unit in _UNITS if seconds >= 2 * size or unit == "second")
    count = round(seconds / size)
    return f"{count} {unit}" if count == 1 else f"{count} {unit}s"
