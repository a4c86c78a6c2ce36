"""The receivers of a chaos run, and what they saw: one port a subscriber, one record a request."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, cast

from service.domain.signing import sign
from tests.chaos.answers import NOT_APPLIED, STATUS, Manner, Treatment, treatment
from tests.chaos.cast import CAST, Player

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_SKEWED_SECONDS = 1800


@dataclass(slots=True)
class Request:
    """One request as the receiver saw it; times are seconds of this machine's wall clock."""

    subscriber: str
    key: str
    generation: int
    attempt: int
    arrived: float
    sha256: bytes
    manner: Manner
    fault: str | None
    skewed: bool
    """Whether the sender's clock was far off when it signed."""
    ended: float = float("inf")
    """When the last byte of the answer was written, or the connection was gone."""
    whole: bool = False
    """Whether it was answered in full before the connection was gone."""

    @property
    def name(self) -> tuple[str, int, int]:
        """What the same attempt is called on the other side."""
        return self.key, self.generation, self.attempt

    @property
    def status(self) -> int | None:
        """The status that was answered in full; None where there was none."""
        return STATUS.get(self.manner) if self.whole else None


class Receivers:
    """All of them, with a common record."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.requests: list[Request] = []
        self.applied: set[str] = set()
        """The keys that were taken in; a repeat is known by its key and not taken in again."""
        self.open = 0
        self.urls: dict[str, str] = {}
        self._times: Counter[str] = Counter()

    @asynccontextmanager
    async def listening(self) -> "AsyncIterator[Receivers]":
        """Listen, each on a free port, until the end."""
        loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            for player in CAST:
                server = await loop.create_server(partial(_Line, self, player), "127.0.0.1", 0, backlog=1024)
                stack.callback(server.close)
                self.urls[player.id] = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
            yield self

    def come(self, player: Player, headers: dict[str, str], body: bytes) -> tuple[Request, Treatment]:
        """Take note of a request, and say how it is treated."""
        key = headers.get("webhook-id", "")
        self._times[key] += 1
        event = json.loads(body)
        how = treatment(self.seed, player, (event["subject"], event["version"]), self._times[key])
        if how.manner not in NOT_APPLIED:
            self.applied.add(key)
        signed_at = int(headers.get("webhook-timestamp", "0"))
        request = Request(
            subscriber=player.id,
            key=key,
            generation=int(headers.get("tocsin-generation", "0")),
            attempt=int(headers.get("tocsin-attempt", "0")),
            arrived=time.time(),
            sha256=sha256(body).digest(),
            manner=how.manner,
            fault=_fault(player, headers, key, signed_at, body),
            skewed=abs(time.time() - signed_at) > _SKEWED_SECONDS,
        )
        self.requests.append(request)
        self.open += 1
        return request, how


def _fault(player: Player, headers: dict[str, str], key: str, signed_at: int, body: bytes) -> str | None:
    if headers.get("idempotency-key") != key or not key.endswith(f":{player.id}"):
        return "not its key"
    right = sign((player.key,), key, signed_at, body)
    return None if headers.get("webhook-signature") == right else "not its signature"


class _Line(asyncio.Protocol):
    """One keep-alive connection, which carries one request after another."""

    def __init__(self, receivers: Receivers, player: Player) -> None:
        self._receivers = receivers
        self._player = player
        self._buffer = bytearray()
        self._current: Request | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if self._timer is not None:
            self._timer.cancel()
        self._end(whole=False)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while self._current is None and not self._transport.is_closing() and (taken := self._take()) is not None:
            headers, body = taken
            self._current, how = self._receivers.come(self._player, headers, body)
            self._treat(how)

    def _take(self) -> tuple[dict[str, str], bytes] | None:
        """The next request, once all of it is there."""
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return None
        lines: Sequence[str] = head.decode("latin-1").split("\r\n")[1:]
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        size = int(headers["content-length"])
        if len(rest) < size:
            return None
        self._buffer = rest[size:]
        return headers, bytes(rest[:size])

    def _treat(self, how: Treatment) -> None:
        match how.manner:
            case Manner.SILENT:
                pass
            case Manner.CUT:
                self._transport.abort()
            case Manner.MIDWAY:
                self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 64\r\n\r\nhalf of it")
                self._transport.close()
            case Manner.GARBAGE:
                self._transport.write(b"\x16\x03\x01 this is no HTTP \x00\xff\r\n\r\n")
                self._transport.close()
            case Manner.DRIP:
                self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 4096\r\n\r\n")
                self._drip()
            case _ if how.seconds > 0 and how.manner in {Manner.SLOW, Manner.LATE}:
                self._timer = asyncio.get_running_loop().call_later(how.seconds, self._answer, how.manner)
            case _:
                self._answer(how.manner)

    def _drip(self) -> None:
        self._transport.write(b".")
        self._timer = asyncio.get_running_loop().call_later(0.1, self._drip)

    def _answer(self, manner: Manner) -> None:
        self._timer = None
        if self._transport.is_closing():
            return
        quiet = "retry-after: 1\r\n" if manner is Manner.QUIET else ""
        self._transport.write(f"HTTP/1.1 {STATUS[manner]} X\r\n{quiet}content-length: 0\r\n\r\n".encode())
        self._end(whole=True)

    def _end(self, *, whole: bool) -> None:
        if self._current is not None:
            self._current.ended, self._current.whole = time.time(), whole
            self._current = None
            self._receivers.open -= 1
