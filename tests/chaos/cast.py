"""The subscribers of a chaos run: one for each promise that the house makes to a kind of receiver."""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

WIDE = "chaos.wide"
NARROW = "chaos.narrow"
"""One event in NARROW_EVERY: those who take one delivery after another would hold up the whole run otherwise."""
NARROW_EVERY = 5
_BOTH = (WIDE, NARROW)


@dataclass(frozen=True, slots=True)
class Player:
    """A subscriber; `trouble` is the share of first requests that its receiver does not answer with a prompt 200."""

    id: str
    event_types: tuple[str, ...] = _BOTH
    trouble: float = 0.25
    rejects: bool = True
    """Whether it sometimes says no for good."""
    calm_after: int = 4
    """From this request of a key on it always answers well, so that nobody has to lend a hand at the end."""
    wanted: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def key(self) -> bytes:
        """What signs what is sent to it."""
        return sha256(self.id.encode()).digest()

    @property
    def timeout(self) -> float:
        """How long one attempt may take, in seconds."""
        return float(self.wanted.get("timeoutSeconds", 0.6))

    def body(self, url: str) -> dict[str, Any]:
        """What `PUT /v1/subscribers/{id}` is asked."""
        return {
            "url": url,
            "eventTypes": list(self.event_types),
            "timeoutSeconds": self.timeout,
            "backoffBaseSeconds": 0.05,
            "backoffCapSeconds": 0.5,
            "maxAttempts": 8,
            "secret": "whsec_" + b64encode(self.key).decode(),
            **self.wanted,
        }


CAST = (
    Player("plain"),
    Player("tight", wanted={"maxConcurrency": 2}),
    Player("rated", wanted={"ratePerSecond": 400, "maxConcurrency": 8}),
    Player("by-subject", wanted={"ordering": "subject", "onDeadLetter": "skip"}),
    # A dead letter would block what comes behind it until a person looks: it has attempts enough for every chaos.
    Player("blocking", rejects=False, wanted={"ordering": "subject", "onDeadLetter": "block", "maxAttempts": 100}),
    Player("strict", (NARROW,), trouble=0.1, wanted={"ordering": "strict", "onDeadLetter": "skip"}),
    Player("careful", (NARROW,), wanted={"idempotent": False}),
    Player("moody", trouble=0.5, calm_after=6, wanted={"maxAttempts": 4, "timeoutSeconds": 1.0}),
)
