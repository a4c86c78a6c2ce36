"""What the tests of the guard and of sending share: name servers that say what a test wants, and ready requests."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import Any, Self

from service.flow.egress import Egress
from service.flow.resolver import Unresolved
from service.flow.send import Request
from tests.receivers import Answer, Receiver

LOOPBACK = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
EVENT = "0197f2a0-1111-7222-8333-444455556666"
SECRET = b"s" * 32
BODY = b'{"id":"0197f2a0-1111-7222-8333-444455556666","data":{"price":1.0,"big":12345678901234567890123}}'


@dataclass
class Names:
    """A name server: each look-up of a name takes the next of its answers, the last one for ever.

    An answer that is an exception is raised. While `hold` is unset, look-ups wait for it.
    """

    answers: dict[str, list[Sequence[str] | Exception]]
    asked: list[str] = field(default_factory=list)
    hold: asyncio.Event | None = None

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """Answer as the `Resolve` of an Egress."""
        assert port
        self.asked.append(host)
        if self.hold is not None:
            await self.hold.wait()
        left = self.answers.get(host)
        if not left:
            raise Unresolved("dns: no such name")
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Neighbour(Receiver):
    """A receiver on another address of this machine, at the port of one that is there already."""

    def __init__(self, *answers: Answer, beside: Receiver) -> None:
        """Prepare to listen on 127.0.0.2."""
        super().__init__(*answers, host="127.0.0.2")
        self.port = beside.port

    async def __aenter__(self) -> Self:
        """Begin to listen."""
        self._server = await asyncio.start_server(self._connected, self._host, self.port)
        return self


def still_open(receiver: Receiver) -> int:
    """How many connections a receiver has that neither side has closed."""
    return len(receiver._tasks)


def names(**answers: Iterable[str]) -> Names:
    """A name server that gives every `NAME.test` its addresses."""
    return Names({f"{name}.test": [tuple(addresses)] for name, addresses in answers.items()})


def loopback(resolve: Names | None = None, **options: Any) -> Egress:
    """An Egress that lets this machine be called."""
    return Egress(LOOPBACK, (), resolve, **options)


def request(url: str, **changes: Any) -> Request:
    """A request as the dispatcher makes it."""
    values: dict[str, Any] = {
        "url": url,
        "webhook_id": f"{EVENT}:acme",
        "body": BODY,
        "secrets": (SECRET,),
        "generation": 1,
        "attempt": 1,
        "timeout_seconds": 10.0,
    }
    return Request(**(values | changes))


@asynccontextmanager
async def raw(*pieces: bytes, then_hang: bool = False) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A receiver that reads a request's head and sends these bytes; gives its URL, and what it saw at the end."""
    ends: list[bytes] = []

    async def treat(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.writelines(pieces)
            await writer.drain()
            if then_hang:
                await reader.readexactly(len(BODY))
                ends.append(await reader.read())
        except OSError:
            ends.append(b"")
        finally:
            writer.close()

    server = await asyncio.start_server(treat, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", ends
