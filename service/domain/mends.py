"""Why a delivery waits, why it ended, and what is done where there is none: sentences that name the mend.

A command in them runs as it is printed, but for the reason, which is the person's own.
"""

from collections.abc import Mapping
from types import MappingProxyType

from service.domain.identifiers import is_reserved_type
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
            "The lane is ordered, and a delivery before it has not ended or blocks it: `tocsin explain {key}` names "
            "it and its mend."
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
"""For what holds a pending delivery; `{slug}` is the subscriber's id, `{key}` the delivery's webhook-id."""

_REPLAY = '`tocsin replay {id} --reason "…"`'
_RESOLVE = '`tocsin resolve {id} --as delivered --reason "…"` (or `--as cancelled`)'
_ASK = f"ask the receiver's owner whether it was applied, then {_REPLAY} or {_RESOLVE}."
_MAY_HAVE = "and the receiver cannot tell repeats: " + _ASK
_AGAIN = f"then {_REPLAY}."

ENDED: Mapping[str, str] = MappingProxyType(
    {
        "attempts": "Its attempts are used up: mend the receiver or give the subscriber more maxAttempts, " + _AGAIN,
        "deadline": "Its deadline passed: remove what held it, or give it more deadlineSeconds, " + _AGAIN,
        "rejected-by-receiver": "The receiver said no for good: mend the receiver or the subscriber's url, " + _AGAIN,
        "blocked-by-policy": (
            "Its address may not be called: mend the subscriber's url, or allow it with TOCSIN_EGRESS_ALLOW, " + _AGAIN
        ),
        "payload-purged": "Retention had deleted what was to be sent. {anew}",
        "timeout-may-have-been-applied": "No answer came in time, " + _MAY_HAVE,
        "disconnected-may-have-been-applied": "The connection was lost, " + _MAY_HAVE,
        "in_doubt-may-have-been-applied": "The worker that sent it died, " + _MAY_HAVE,
        "shadow": (
            "Nothing was sent, because the subscriber or the worker was a shadow: set its mode to live with `tocsin "
            "subscribers put {slug} FILE`, " + _AGAIN
        ),
        "resolved-by-operator": f"A person said so, and nothing was sent by that: {_REPLAY} sends it again.",
        "cancelled-by-operator": f"A person called it off: {_REPLAY} sends it again.",
        "subscriber-deleted": "Its subscriber was deleted before it had ended: put the subscriber again, " + _AGAIN,
    }
)
"""For every reason that a delivery ends for; `{id}` is the delivery's, `{slug}` the subscriber's, `{anew}` what `anew`
says."""

PURGED = "Retention has deleted its payload since, so it cannot be sent again. {anew}"
"""In place of any of these."""

WAITS_BEHIND = (
    "The lane is ordered, and {id} before it is {state}: it goes on when that one has ended, and `tocsin explain "
    "{key}` says why that has not."
)
BLOCKED_BY = (
    "The lane is ordered, and {id} before it is {state} and blocks it: mend what `tocsin explain {key}` says, then "
    f"{_REPLAY}; or let the lane go on without it by {_RESOLVE}."
)
"""In place of HELD, where the delivery before it is known; `{id}`, `{state}` and `{key}` are that one's."""


def anew(event_type: str, version: int, *, found: bool) -> str:
    """How a subject is told of again to whom its event did not come; `found`: by a run, and not published by anybody.

    A version that is published by hand takes the identity that the application's own row comes to later, and from then
    on every run that finds the row fails.
    """
    if is_reserved_type(event_type):
        return "Nobody can publish what Tocsin tells of itself: the next of its type comes to whoever asks for it then."
    if not found:
        return "To tell of it again, publish the subject's next version."
    return (
        "To tell of it again, have the application make its row due once more, as a version above "
        f"{version}: the job's next run finds it. Do not publish that version by hand: the row would come to the same "
        "identity later, and every run that finds it would fail."
    )
