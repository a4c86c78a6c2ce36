"""A real HTTP receiver on a local socket that answers as badly as a test asks it to, and remembers every request.

    async with Receiver(answer(429, headers={"retry-after": "1"}), HANG, answer(200)) as receiver:
        … send to receiver.url …
        assert receiver.requests[0].header("webhook-id")

Answers are used up one a request; after the last one `then` is given for ever. A function from request to answer
may stand in the place of each, for answers that depend on what was asked.
"""

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Self

from tests.polling import eventually


class Manner(Enum):
    """How a request is treated."""

    ANSWER = "answer"
    """A whole answer, after `delay` seconds or once `hold` is set."""
    HANG = "hang"
    """The request is read, and nothing is ever said."""
    DISCONNECT = "disconnect"
    """The request is read, and the connection cut."""
    DISCONNECT_UNREAD = "disconnect-unread"
    """The connection is cut before the body is read."""
    DISCONNECT_MIDWAY = "disconnect-midway"
    """The head and half of the promised body, then the connection is cut."""
    DRIP = "drip"
    """The head at once, then the body one byte every `delay` seconds."""
    ENDLESS = "endless"
    """The head at once, then bytes for as long as they are read."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one request gets. `raw` is sent as it stands in place of an HTTP answer."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""
    delay: float = 0.0
    hold: asyncio.Event | None = None
    manner: Manner = Manner.ANSWER
    raw: bytes | None = None


def answer(
    status: int = 200,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    delay: float = 0.0,
    hold: asyncio.Event | None = None,
) -> Answer:
    """A whole HTTP answer, given after `delay` seconds, or once `hold` is set."""
    return Answer(status, headers or {}, body, delay, hold)


def drip(body: bytes, *, every: float, status: int = 200) -> Answer:
    """An answer whose body comes one byte every `every` seconds."""
    return Answer(status, body=body, delay=every, manner=Manner.DRIP)


HANG = Answer(manner=Manner.HANG)
DISCONNECT = Answer(manner=Manner.DISCONNECT)
DISCONNECT_UNREAD = Answer(manner=Manner.DISCONNECT_UNREAD)
DISCONNECT_MIDWAY = Answer(body=b"x" * 64, manner=Manner.DISCONNECT_MIDWAY)
ENDLESS = Answer(manner=Manner.ENDLESS)


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came over the wire; `arrived` is the loop's clock in seconds, `connection` counts from 1."""

    method: str
    target: str
    raw_headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    arrived: float
    connection: int

    @property
    def headers(self) -> dict[str, str]:
        """The headers by lower-case name; of a repeated one, the last."""
        return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self.raw_headers}

    def header(self, name: str) -> str | None:
        """One header, or None."""
        return self.headers.get(name.lower())


Script = Callable[[Request], Answer]


class Receiver:
    """The server; an asynchronous context manager."""

    def __init__(
        self,
        *answers: Answer | Script,
        then: Answer | Script | None = None,
        host: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Prepare a receiver that listens on a free port of `host` once entered."""
        self.requests: list[Request] = []
        self.connections = 0
        self.inflight = 0
        self.peak = 0
        """The most requests that were ever open at once."""
        self._answers = deque(answers)
        self._then = then or Answer()
        self._host = host
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """The base URL, without a slash at its end."""
        scheme = "https" if self._tls else "http"
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{scheme}://{host}:{self.port}"

    def with_header(self, name: str, value: str) -> list[Request]:
        """The requests that carry this header with this value, in the order of their coming."""
        return [request for request in self.requests if request.header(name) == value]

    async def received(self, count: int, *, seconds: float = 10.0) -> list[Request]:
        """Wait until at least so many requests have come, and give them all."""
        await eventually(lambda: len(self.requests) >= count, seconds=seconds)
        return list(self.requests)

    async def __aenter__(self) -> Self:
        """Begin to listen."""
        self._server = await asyncio.start_server(self._connected, self._host, 0, ssl=self._tls, backlog=1024)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Stop listening and cut every connection, the hanging ones too."""
        self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.create_task(self._serve(reader, writer, self.connections))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int) -> None:
        try:
            while (head := await _head(reader)) is not None and await self._one(head, reader, writer, connection):
                pass
        except (OSError, asyncio.IncompleteReadError):
            pass  # The far end went away, as a test may well want it to.
        finally:
            writer.transport.abort()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _one(
        self, head: "_Head", reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int
    ) -> bool:
        """Read and treat one request; whether the connection may carry another."""
        self.inflight += 1
        self.peak = max(self.peak, self.inflight)
        try:
            arrived = asyncio.get_running_loop().time()
            unread = Request(head.method, head.target, head.headers, b"", arrived, connection)
            step = self._answers.popleft() if self._answers else self._then
            if isinstance(step, Answer) and step.manner is Manner.DISCONNECT_UNREAD:
                self.requests.append(unread)
                return False
            body = await _body(reader, head)
            request = Request(head.method, head.target, head.headers, body, arrived, connection)
            self.requests.append(request)
            return await _treat(step if isinstance(step, Answer) else step(request), writer)
        finally:
            self.inflight -= 1


@dataclass(frozen=True, slots=True)
class _Head:
    method: str
    target: str
    headers: tuple[tuple[bytes, bytes], ...]

    def value(self, name: bytes) -> bytes:
        return next((value for key, value in self.headers if key.lower() == name), b"")


async def _head(reader: asyncio.StreamReader) -> _Head | None:
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = raw[:-4].split(b"\r\n")
    method, target, _ = first.decode("latin-1").split(" ", 2)
    headers = tuple((name, value.strip()) for name, _, value in (line.partition(b":") for line in lines))
    return _Head(method, target, headers)


async def _body(reader: asyncio.StreamReader, head: _Head) -> bytes:
    if head.value(b"transfer-encoding").lower() != b"chunked":
        return await reader.readexactly(int(head.value(b"content-length") or b"0"))
    body = b""
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readuntil(b"\r\n")
    return body


async def _treat(how: Answer, writer: asyncio.StreamWriter) -> bool:
    match how.manner:
        case Manner.HANG:
            await asyncio.Event().wait()
        case Manner.DRIP:
            await _drip(how, writer)
        case Manner.ENDLESS:
            await _endless(how, writer)
        case Manner.DISCONNECT_MIDWAY:
            writer.write(_rendered(how)[: -len(how.body) // 2])
            await writer.drain()
        case Manner.ANSWER:
            return await _whole(how, writer)
        case Manner.DISCONNECT | Manner.DISCONNECT_UNREAD:
            pass
    return False


async def _whole(how: Answer, writer: asyncio.StreamWriter) -> bool:
    if how.hold:
        await how.hold.wait()
    if how.delay:
        await asyncio.sleep(how.delay)
    writer.write(how.raw if how.raw is not None else _rendered(how))
    await writer.drain()
    if how.raw is not None:
        writer.write_eof()
    return how.raw is None


async def _drip(how: Answer, writer: asyncio.StreamWriter) -> None:
    head = _rendered(how)[: -len(how.body)]
    for piece in (head, *(how.body[at : at + 1] for at in range(len(how.body)))):
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(how.delay)


async def _endless(how: Answer, writer: asyncio.StreamWriter) -> None:
    writer.write(f"HTTP/1.1 {how.status} Endless\r\ntransfer-encoding: chunked\r\n\r\n".encode())
    chunk = b"1000\r\n" + b"x" * 0x1000 + b"\r\n"
    while True:
        writer.write(chunk)
        await writer.drain()


def _rendered(how: Answer) -> bytes:
    headers = {"content-length": str(len(how.body)), **how.headers}
    lines = [f"HTTP/1.1 {how.status} Scripted", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + how.body
