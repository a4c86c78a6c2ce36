"""Why a delivery waits, or why it ended, in a sentence that names what a person does about it."""

from collections.abc import Mapping
from types import MappingProxyType

from service.domain.model import HeldBy

HELD: Mapping[HeldBy, str] = MappingProxyType(
    {
        HeldBy.SUBSCRIBER_PAUSED: "An operator paused the subscriber: `tocsin resume subscriber {slug}` lets it go on.",
        HeldBy.SUBSCRIBER_DISABLED: (
            "The subscriber is disabled, because its receiver said 410 or did not answer for days: mend the receiver, "
            "then `tocsin resume subscriber {slug}`."
        ),
        HeldBy.DISPATCH_PAUSED: "All dispatch is paused: `tocsin resume dispatch` lets it go on.",
        HeldBy.PREDECESSOR: (
            "The lane is ordered, and a delivery before it has not ended or blocks it: find that one with `tocsin "
            "deliveries --subscriber {slug}`, and replay or resolve it where it is a dead letter."
        ),
        HeldBy.CIRCUIT_OPEN: (
            "The receiver failed ten times in a row and is only probed: mend the receiver, and it goes on by itself."
        ),
        HeldBy.THROTTLED: "The receiver asked for quiet (429, or 503 with Retry-After): it goes on by itself.",
        HeldBy.LANE_FULL: (
            "As many requests as its maxConcurrency allows are in flight: it goes on by itself, sooner where the "
            "receiver answers faster or maxConcurrency is raised."
        ),
    }
)
"""For what holds a pending delivery; `{slug}` is the subscriber's id."""

_ASK = "ask the receiver's owner whether it was applied, then `tocsin replay {id}` or `tocsin resolve {id}`."
_MAY_HAVE = "and the receiver cannot tell repeats: " + _ASK
_AGAIN = "then `tocsin replay {id}`."

ENDED: Mapping[str, str] = MappingProxyType(
    {
        "attempts": "Its attempts are used up: mend the receiver or give the subscriber more maxAttempts, " + _AGAIN,
        "deadline": "Its deadline passed: remove what held it, or give it more deadlineSeconds, " + _AGAIN,
        "rejected-by-receiver": "The receiver said no for good: mend the receiver or the subscriber's url, " + _AGAIN,
        "blocked-by-policy": (
            "Its address may not be called: mend the subscriber's url, or allow it with TOCSIN_EGRESS_ALLOW, " + _AGAIN
        ),
        "payload-purged": "Retention had deleted what was to be sent: publish the subject's next version.",
        "timeout-may-have-been-applied": "No answer came in time, " + _MAY_HAVE,
        "disconnected-may-have-been-applied": "The connection was lost, " + _MAY_HAVE,
        "in_doubt-may-have-been-applied": "The worker that sent it died, " + _MAY_HAVE,
        "shadow": (
            "Nothing was sent, because the subscriber or the worker was a shadow: set its mode to live with `tocsin "
            "subscribers put`, " + _AGAIN
        ),
        "resolved-by-operator": "A person said so, and nothing was sent by that: `tocsin replay {id}` sends it again.",
        "cancelled-by-operator": "A person called it off: `tocsin replay {id}` sends it again.",
        "subscriber-deleted": "Its subscriber was deleted before it had ended: put the subscriber again, " + _AGAIN,
    }
)
"""For the reason of a delivery that ended; `{id}` is the delivery's."""

PURGED = "Retention has deleted its payload since: it cannot be sent again, publish the subject's next version."
"""Behind any of these, in place of a replay."""
