"""How the receivers of a chaos run treat a request: drawn from the seed, the event, and how often its key has come."""

from dataclasses import dataclass
from enum import StrEnum

from tests.chaos.cast import Player
from tests.chaos.plan import chance


class Manner(StrEnum):
    """What a receiver does with a request; those under "applied" have taken it in, whatever they say then."""

    APPLIED = "applied, 200"
    SLOW = "applied, 200 after a while"
    LATE = "applied, 200 when nobody waits any more"
    SILENT = "applied, and never a word"
    CUT = "applied, connection reset"
    MIDWAY = "applied, connection reset in the middle of the answer"
    DRIP = "applied, an answer byte by byte beyond all patience"
    GARBAGE = "applied, an answer that is no HTTP"
    THROTTLED = "429"
    QUIET = "429 with Retry-After: 1"
    UNAVAILABLE = "503"
    BROKEN = "500"
    REJECTED = "404"


STATUS = {
    Manner.APPLIED: 200,
    Manner.SLOW: 200,
    Manner.LATE: 200,
    Manner.THROTTLED: 429,
    Manner.QUIET: 429,
    Manner.UNAVAILABLE: 503,
    Manner.BROKEN: 500,
    Manner.REJECTED: 404,
}
"""The manners that end in a whole answer, and its status."""
NOT_APPLIED = frozenset({Manner.THROTTLED, Manner.QUIET, Manner.UNAVAILABLE, Manner.BROKEN, Manner.REJECTED})

_TROUBLES = (
    (Manner.SLOW, 20),
    (Manner.LATE, 8),
    (Manner.SILENT, 6),
    (Manner.CUT, 8),
    (Manner.MIDWAY, 8),
    (Manner.DRIP, 5),
    (Manner.GARBAGE, 8),
    (Manner.THROTTLED, 8),
    (Manner.QUIET, 1),
    (Manner.UNAVAILABLE, 10),
    (Manner.BROKEN, 10),
    (Manner.REJECTED, 8),
)
"""How often each of them is drawn, among a hundred."""


@dataclass(frozen=True, slots=True)
class Treatment:
    """A manner, and how many seconds pass before the answer where it has one."""

    manner: Manner
    seconds: float = 0.0


def treatment(seed: int, player: Player, event: object, time: int) -> Treatment:
    """What this receiver does when the event comes for the `time`-th time."""
    names = (seed, player.id, event, time)
    if time >= player.calm_after or chance(*names) >= player.trouble:
        return Treatment(Manner.APPLIED)
    manner = _drawn(chance(*names, "manner") * sum(weight for _, weight in _TROUBLES))
    if manner is Manner.REJECTED and not player.rejects:
        manner = Manner.BROKEN
    share = chance(*names, "seconds")
    return Treatment(manner, player.timeout * (1 + share) if manner is Manner.LATE else player.timeout * share * 0.7)


def _drawn(at: float) -> Manner:
    for manner, weight in _TROUBLES:
        if at < weight:
            return manner
        at -= weight
    return Manner.SLOW
