"""The command as a real process of its own, as an operator starts and stops it."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.polling import eventually

ROOT = Path(__file__).resolve().parents[2]
_COMMAND = (sys.executable, "-m", "service.cli.main")


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What stands on stdout, which has to be JSON and nothing else."""
        return json.loads(self.out)


@dataclass
class Process:
    """A command that goes on until it is told to stop; its lines come in as they are printed."""

    process: asyncio.subprocess.Process
    out: list[str] = field(default_factory=list)
    err: list[str] = field(default_factory=list)
    readers: list[asyncio.Task[None]] = field(default_factory=list)

    async def said(self, words: str, *, seconds: float = 30) -> str:
        """Wait for a line with these words on either stream; fails at once when the process has ended without it."""

        def found() -> str | None:
            lines = [line for line in (*self.out, *self.err) if words in line]
            if not lines and self.process.returncode is not None and all(reader.done() for reader in self.readers):
                raise RuntimeError(f"ended with {self.process.returncode}: {self.out[-5:]} {self.err[-5:]}")
            return lines[-1] if lines else None

        return await eventually(found, seconds=seconds) or ""

    async def url(self) -> str:
        """Where the API listens, once it does."""
        line = json.loads(await self.said("api.listening"))
        return str(line["url"])

    def signal(self, number: signal.Signals, *, group: bool = False) -> None:
        """Send a signal to the process, or, as a terminal does, to all of its group."""
        if group:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)

    async def ended(self, *, seconds: float = 30) -> int:
        """Wait for its end and give its exit code."""
        try:
            code = await asyncio.wait_for(self.process.wait(), seconds)
        except TimeoutError:
            message = f"not ended within {seconds} s; it said {self.out[-5:]} {self.err[-5:]}"
            raise AssertionError(message) from None
        await asyncio.gather(*self.readers)
        return code


@asynccontextmanager
async def started(*arguments: str, env: Mapping[str, str], cwd: Path) -> AsyncIterator[Process]:
    """Start a command in a process group of its own; what is left of it at the end is killed."""
    process = await asyncio.create_subprocess_exec(
        *_COMMAND,
        *arguments,
        cwd=cwd,
        env=environment(env),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    running = Process(process)
    for stream, lines in ((process.stdout, running.out), (process.stderr, running.err)):
        assert stream is not None
        running.readers.append(asyncio.create_task(_collect(stream, lines)))
    try:
        yield running
    finally:
        if process.returncode is None:
            process.kill()
            await running.ended()


async def call(
    *arguments: str, env: Mapping[str, str] | None = None, cwd: Path = ROOT, stdin: bytes = b"", seconds: float = 30
) -> Done:
    """Run a command to its end."""
    process = await asyncio.create_subprocess_exec(
        *_COMMAND,
        *arguments,
        cwd=cwd,
        env=environment(env or {}),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(stdin), seconds)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return Done(process.returncode or 0, out.decode(), err.decode())


def environment(changes: Mapping[str, str]) -> dict[str, str]:
    """This environment without Tocsin's settings, and with the changes; Python finds the package in any folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **changes}


async def _collect(stream: asyncio.StreamReader, lines: list[str]) -> None:
    while line := await stream.readline():
        lines.append(line.decode().rstrip("\n"))
