"""The drill's receiver: the sample receiver, which here also keeps its own record of every request."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from service.cli.answers import Script
from service.cli.receiving import Receiver, Verdict

_NO_NUMBER = -1


@dataclass(frozen=True, slots=True)
class Request:
    """One request as the receiver saw it; `at` is in seconds of this process's clock. Numbers that are none are -1."""

    at: float
    key: str
    generation: int
    attempt: int
    sha256: str
    fault: str | None
    duplicate: bool
    answer: str


class Recorder(Receiver):
    """Writes down each request before it is answered."""

    def __init__(self, script: Script, secret: bytes, told: Callable[[Request], None], *, every: int = 1) -> None:
        """Verify with `secret`; one key in `every` goes through the script. `told` is called with each request."""
        super().__init__(script, every=every, secrets=[secret])
        self.requests: list[Request] = []
        self._told = told
        self.then: Callable[[], None] | None = None
        """Done once, with the next request, after it was judged and before it is answered."""

    def judge(self, headers: dict[str, str], body: bytes) -> Verdict:
        """Decide as the sample receiver does, and keep what was seen."""
        verdict = super().judge(headers, body)
        request = Request(
            time.monotonic(),
            verdict.key,
            _number(headers.get("tocsin-generation", "")),
            _number(headers.get("tocsin-attempt", "")),
            hashlib.sha256(body).hexdigest(),
            verdict.fault,
            verdict.duplicate,
            str(verdict.answer),
        )
        self.requests.append(request)
        self._told(request)
        then, self.then = self.then, None
        if then is not None:
            then()
        return verdict


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else _NO_NUMBER  # noqa: PLR2004
