"""The vocabulary in which a sample receiver is told how to answer: `429:5,timeout,200`."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

_MIN_STATUS, _MAX_STATUS = 200, 599
_MAX_STEPS = 100
_MAX_RETRY_AFTER = 86_400

VOCABULARY = (
    "a status code (200), a status code with Retry-After seconds (429:5), timeout or hang (takes the request and never "
    "answers), disconnect (takes the request and hangs up), refuse (the port refuses every connection; alone only)"
)


class Kind(StrEnum):
    """What the receiver does with a request."""

    STATUS = "status"
    HANG = "hang"
    DISCONNECT = "disconnect"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Step:
    """One scripted answer. `retry_after` is in seconds."""

    kind: Kind
    status: int = 0
    retry_after: int | None = None

    @property
    def applies(self) -> bool:
        """Whether the receiver does the work: a hang and a disconnect lose the acknowledgement, not the effect."""
        return self.kind in (Kind.HANG, Kind.DISCONNECT) or _MIN_STATUS <= self.status < 300  # noqa: PLR2004

    def __str__(self) -> str:
        """The answer as it is written in a script."""
        if self.kind is not Kind.STATUS:
            return self.kind.value
        return str(self.status) if self.retry_after is None else f"{self.status}:{self.retry_after}"


@dataclass(frozen=True, slots=True)
class Script:
    """The answers that each webhook-id gets, one a request; the last one repeats."""

    steps: tuple[Step, ...]

    def answer(self, request: int) -> Step:
        """The answer to the n-th request (from 1) with the same webhook-id."""
        return self.steps[min(request, len(self.steps)) - 1]

    @property
    def refuses(self) -> bool:
        """Whether no connection is to be accepted at all."""
        return self.steps[0].kind is Kind.REFUSE


def parse(text: str) -> Script:
    """Read a comma-separated script.

    Raises:
        ValueError: a word is not in the vocabulary; the message names it and the vocabulary.

    """
    words = [word.strip().lower() for word in text.split(",")]
    if len(words) > _MAX_STEPS:
        message = f"at most {_MAX_STEPS} answers, here are {len(words)}"
        raise ValueError(message)
    steps = tuple(_step(word) for word in words)
    _check_refusal(steps)
    return Script(steps)


def _step(word: str) -> Step:
    if word in ("timeout", "hang"):
        return Step(Kind.HANG)
    if word in (Kind.DISCONNECT, Kind.REFUSE):
        return Step(Kind(word))
    status, colon, seconds = word.partition(":")
    if _is_number(status, _MIN_STATUS, _MAX_STATUS) and (not colon or _is_number(seconds, 0, _MAX_RETRY_AFTER)):
        return Step(Kind.STATUS, int(status), int(seconds) if colon else None)
    message = f"{word!r} is not an answer; say {VOCABULARY}"
    raise ValueError(message)


def _is_number(text: str, low: int, high: int) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= len(str(high)) and low <= int(text) <= high


def _check_refusal(steps: Sequence[Step]) -> None:
    if len(steps) > 1 and any(step.kind is Kind.REFUSE for step in steps):
        message = "refuse stands alone: which webhook-id it is would be known only after the connection was accepted"
        raise ValueError(message)
