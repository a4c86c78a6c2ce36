"""When a lane opens, how often it is probed, and what counts: the numbers that `lanes.wake` works with."""

from typing import Final

from service.domain.model import Outcome

FAILURES_TO_OPEN: Final = 10
"""Transient failures in a row after which a lane opens: one probe at a time from then on."""
PROBE_BASE_SECONDS: Final = 5.0
"""The first pause before a probe; it doubles with each that fails, and is jittered between half and all of it."""
PROBE_CAP_SECONDS: Final = 300.0

DISABLE_AFTER_SECONDS: Final = 5 * 86_400.0
"""A subscriber that failed for so long without one success is disabled: held, not lost."""

TRANSIENT: Final = frozenset({Outcome.SERVER_ERROR, Outcome.UNREACHABLE, Outcome.TIMEOUT, Outcome.DISCONNECTED})
"""Failures that say the receiver is down. A throttle is not one, and neither is a worker's death."""
ALIVE: Final = frozenset({Outcome.DELIVERED, Outcome.REJECTED, Outcome.THROTTLED})
"""Outcomes in which the receiver decided something: it is up."""
