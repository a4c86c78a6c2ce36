"""Starts the processes that are measured, or measured against, and ends them: by their id, never by a name."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Self

from bench.waiting import PATIENCE_SECONDS, Failed, until

ROOT = Path(__file__).resolve().parent.parent
ORIGINS = 4
"""So many loopback addresses the receiver has; to Tocsin, and to every client's pool, each is a destination."""
SILENT = "127.0.0.99"
"""Where nobody ever gets an answer: a destination of its own, as a subscriber that hangs is."""
_END_SECONDS = 40


@asynccontextmanager
async def started(
    *command: str, env: Mapping[str, str] | None = None, pipes: bool = False
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that is told to end when the context does; without pipes its output goes nowhere.

    With BENCH_VERBOSE set, its log goes to stderr: to see why it does not do what it has to, not to measure.
    """
    shown = pipes or "BENCH_VERBOSE" in os.environ
    pipe = asyncio.subprocess.PIPE if pipes else asyncio.subprocess.DEVNULL
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")}
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT,
        env={**kept, "PYTHONPATH": str(ROOT), **(env or {})},
        stdin=pipe,
        stdout=pipe,
        stderr=None if shown else asyncio.subprocess.DEVNULL,
        limit=2**26,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _END_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()


@asynccontextmanager
async def tocsin(command: str, env: Mapping[str, str], count: int = 1) -> AsyncIterator[list[int]]:
    """So many processes of the product as it is shipped; gives their ids."""
    async with AsyncExitStack() as stack:
        command_line = (sys.executable, "-m", "service.cli.main", command)
        processes = [await stack.enter_async_context(started(*command_line, env=env)) for _ in range(count)]
        yield [process.pid for process in processes]


async def line_of(process: asyncio.subprocess.Process) -> str:
    """The next line that a process prints; fails when it has ended instead."""
    line = await process.stdout.readline() if process.stdout else b""
    if not line:
        raise Failed(f"a helper process ended with {await process.wait()}")
    return line.decode().strip()


def free_port() -> int:
    """A port of the loopback that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True, slots=True)
class Receiver:
    """The counting receiver, seen from here."""

    pid: int
    port: int
    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter

    @classmethod
    @asynccontextmanager
    async def running(cls) -> AsyncIterator[Self]:
        """One process of it, on all its addresses."""
        hosts = [f"127.0.0.{number}" for number in range(1, ORIGINS + 1)]
        async with started(sys.executable, "-m", "bench.receiver", *hosts, SILENT, pipes=True) as process:
            port = int(await line_of(process))
            reader, writer = await asyncio.open_connection(hosts[0], port, limit=2**26)
            try:
                yield cls(process.pid, port, reader, writer)
            finally:
                writer.close()

    def url(self, number: int) -> str:
        """Where the subscriber of this number lives."""
        return f"http://127.0.0.{1 + number % ORIGINS}:{self.port}/s/{number}"

    def timed_url(self, number: int) -> str:
        """Where the subscriber of this number lives if it is to be known when it heard of each event."""
        return f"http://127.0.0.{1 + number % ORIGINS}:{self.port}/timed/{number}"

    @property
    def silent_url(self) -> str:
        """A URL that accepts and never answers."""
        return f"http://{SILENT}:{self.port}/hang"

    async def count(self) -> int:
        """How many requests were answered since the last reset."""
        return int((await self._ask("/count")).split()[0])

    async def heard(self, requests: int, *, patience: float = PATIENCE_SECONDS) -> None:
        """Wait until so many requests were answered, for at most `patience` seconds.

        Raises:
            Failed: they never came.

        """

        async def all_came() -> bool:
            return await self.count() >= requests

        await until(all_came, f"{requests} requests", patience=patience)

    async def hanging(self) -> int:
        """How many requests were left without an answer since the last reset."""
        return int((await self._ask("/count")).split()[1])

    async def check(self, expected: set[str]) -> None:
        """Make sure that each of these webhook-ids was answered once since the last reset, and no other.

        Raises:
            Failed: otherwise.

        """
        received = (await self._ask("/ids")).decode().split("\n")
        if len(received) != len(expected) or set(received) != expected:
            raise Failed(f"{len(received)} requests with {len(set(received))} ids, instead of {len(expected)}")

    async def times(self) -> dict[str, float]:
        """When each webhook-id that was posted to a timed URL was heard last since the last reset, by `monotonic`."""
        pairs = (line.split() for line in (await self._ask("/times")).decode().splitlines())
        return {webhook_id: float(at) for webhook_id, at in pairs}

    async def reset(self) -> None:
        """Count from zero."""
        await self._ask("/reset")

    async def _ask(self, path: str) -> bytes:
        self._writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        head = await self._reader.readuntil(b"\r\n\r\n")
        return await self._reader.readexactly(int(head.rpartition(b" ")[2]))


async def race(processes: Sequence[asyncio.subprocess.Process], word: str) -> float:
    """Say `word` to processes that all wait for it; how many seconds passed until all of them have said so too."""
    began = monotonic()
    for process in processes:
        if process.stdin is not None:
            process.stdin.write(f"{word}\n".encode())
    for process in processes:
        await line_of(process)
    return monotonic() - began
