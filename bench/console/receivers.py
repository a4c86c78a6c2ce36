"""Local receivers for every fate of a delivery: the first word of the path says how they answer."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

SCRIPT = b"<!doctype html><h1>No</h1><script>alert(1)</script><img src=x onerror=alert(2)>"
"""What a browser would run if a page showed an answer as it came."""

_ANSWERS: dict[str, bytes] = {
    "ok": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    "script": b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/html\r\ncontent-length: %d\r\n\r\n%b"
    % (len(SCRIPT), SCRIPT),
    "down": b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 16\r\n\r\nno healthy hosts",
    "gone": b"HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n",
    "busy": b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 900\r\ncontent-length: 9\r\n\r\nnot today",
}


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection; a path that is not known is read and never answered."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
            await reader.readexactly(int(fields.get("content-length", "0")))
            if answer := _ANSWERS.get(head.split(" ")[1].split("/")[1]):
                writer.write(answer)
                await writer.drain()
    writer.close()


@asynccontextmanager
async def receiving() -> AsyncIterator[str]:
    """All of them; gives the address before the path."""
    server = await asyncio.start_server(_serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
