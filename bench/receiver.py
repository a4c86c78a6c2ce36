"""A receiver that is never the bottleneck: answers every POST with 200 as fast as one process can, and counts.

It takes apart no more of HTTP/1.1 than it needs: where a request's head ends, how long its body is, its webhook-id.
`GET /count` tells how many requests were answered and how many hang, `GET /ids` their webhook-ids, `GET /reset` forgets
them. Whatever is posted to `/hang…` is never answered; of what is posted to `/timed…`, `GET /times` tells when it came,
by the clock that all processes of the machine share.
"""

import argparse
import asyncio
import re
import resource
import socket
from dataclasses import dataclass, field
from time import monotonic
from typing import cast

import uvloop

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
_SPECIAL = (b"POST /hang", b"POST /timed")
_BACKLOG = 4096


@dataclass(slots=True)
class Tally:
    """What was received since the last reset."""

    ids: list[bytes] = field(default_factory=list[bytes])
    times: list[tuple[bytes, float]] = field(default_factory=list[tuple[bytes, float]])
    hanging: int = 0

    def told(self, path: bytes) -> bytes:
        """The answer to a question of the benchmark's own."""
        if path == b"/ids":
            return b"\n".join(self.ids)
        if path == b"/times":
            return b"\n".join(b"%b %.6f" % one for one in self.times)
        if path == b"/reset":
            self.ids, self.times, self.hanging = [], [], 0
        return b"%d %d" % (len(self.ids), self.hanging)


class Connection(asyncio.Protocol):
    """One keep-alive connection."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._rest = b""
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way back."""
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        """Answer every request that is complete; keep the rest for later."""
        if self._rest:
            data = self._rest + data
        begin, answers = 0, b""
        while (head_end := data.find(b"\r\n\r\n", begin)) >= 0:
            end = head_end + 4 + _length(data, begin, head_end)
            if end > len(data):
                break
            answers += self._answer(data, begin, head_end)
            begin = end
        self._rest = data[begin:]
        if answers and self._transport is not None:
            self._transport.write(answers)

    def _answer(self, data: bytes, begin: int, head_end: int) -> bytes:
        if data.startswith(b"GET ", begin):
            body = self._tally.told(data[begin + 4 : data.index(b" ", begin + 4)])
            return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        at = data.find(b"\r\nwebhook-id: ", begin, head_end)
        webhook_id = data[at + 14 : data.index(b"\r\n", at + 14)] if at >= 0 else b""
        if data.startswith(_SPECIAL, begin):  # one look for both: most of what comes is neither
            if data.startswith(b"POST /hang", begin):
                self._tally.hanging += 1
                return b""
            self._tally.times.append((webhook_id, monotonic()))
        self._tally.ids.append(webhook_id)
        return _ANSWER


def _length(data: bytes, begin: int, head_end: int) -> int:
    at = data.find(b"\r\ncontent-length: ", begin, head_end)
    if at >= 0:
        return int(data[at + 18 : data.index(b"\r\n", at + 18)])
    found = _LENGTH.search(data, begin, head_end)  # some clients write it otherwise
    return int(found[1]) if found else 0


async def _serve(hosts: list[str]) -> None:
    tally, port = Tally(), 0
    for host in hosts:
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        port = listening.getsockname()[1]
        await asyncio.get_running_loop().create_server(lambda: Connection(tally), sock=listening, backlog=_BACKLOG)
    print(port, flush=True)
    await asyncio.get_running_loop().create_future()


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("hosts", nargs="+", help="loopback addresses; all get the same port, which is printed")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    uvloop.run(_serve(parser.parse_args().hosts))


if __name__ == "__main__":
    _main()
