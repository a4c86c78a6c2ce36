"""The processes of a chaos run: `tocsin serve` and `tocsin worker`, each kept running as a service manager would."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_FIRST_LINES = 65_536
_LOOK_SECONDS = 0.05
_START_SECONDS = 60.0
_END_SECONDS = 40.0
_RESTART_SECONDS = 0.1


@dataclass
class Place:
    """One place in the house, taken by one process after another; `ready` is what each says when it is up."""

    arguments: tuple[str, ...]
    ready: bytes
    env: Mapping[str, str]
    folder: Path
    pids: list[int] = field(default_factory=list)
    """Of all that were here; the last one is the present one."""
    deserted: list[str] = field(default_factory=list)
    """Those that were up and left unbidden: whatever is done to the others, a process has to bear it."""
    _running: asyncio.subprocess.Process | None = None
    _keeper: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Begin to keep a process here."""
        self._keeper = asyncio.create_task(self._keep())

    async def close(self) -> None:
        """Keep none any longer: what still runs is killed."""
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
        self.signal(signal.SIGKILL)
        if self._running is not None:
            await self._running.wait()

    async def _keep(self) -> None:
        """Start one, and the next one when it has ended; one that cannot start without its database tries again."""
        while True:
            process = await self._start()
            code = await process.wait()
            if code != -signal.SIGKILL and self._is_ready():
                self.deserted.append(f"{self._said.name} left with {code}")
            await asyncio.sleep(_RESTART_SECONDS)

    async def _start(self) -> asyncio.subprocess.Process:
        """Start one; what it says goes into a file of its own."""
        self._said = self.folder / f"{self.arguments[0]}-{self.env['TOCSIN_PORT']}-{len(self.pids) + 1}.log"
        with self._said.open("wb") as said:
            self._running = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "service.cli.main", *self.arguments),
                cwd=self.folder,
                env=self.env,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        self.pids.append(self._running.pid)
        return self._running

    async def up(self) -> int:
        """Wait until one is up, and say which.

        Raises:
            RuntimeError: none is; the message is the end of what the last one said.

        """
        loop = asyncio.get_running_loop()
        ends = loop.time() + _START_SECONDS
        while self._running is None or self._running.returncode is not None or not self._is_ready():
            if loop.time() > ends:
                last = self._said.read_bytes()[-2000:].decode(errors="replace")
                raise RuntimeError(f"{' '.join(self.arguments)} does not come up: {last}")
            await asyncio.sleep(_LOOK_SECONDS)
        return self._running.pid

    def _is_ready(self) -> bool:
        with self._said.open("rb") as said:
            return self.ready in said.read(_FIRST_LINES)

    def signal(self, number: signal.Signals, pid: int | None = None) -> None:
        """Send a signal to the present one, if it lives and, where a `pid` is given, is that one."""
        one = self._running
        if one is not None and one.returncode is None and pid in (None, one.pid):
            one.send_signal(number)

    async def leave(self) -> int:
        """SIGTERM, and wait; the exit code. One that does not go is killed. The next call has to be `close`."""
        if self._keeper is None or self._running is None:
            return 0
        self._keeper.cancel()
        self.signal(signal.SIGTERM)
        try:
            return await asyncio.wait_for(self._running.wait(), _END_SECONDS)
        except TimeoutError:
            return -signal.SIGKILL


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(changes: Mapping[str, str]) -> dict[str, str]:
    """This environment without Tocsin's settings, and with the changes; Python finds the package in any folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")}
    skew = os.pathsep.join((str(Path(__file__).parent / "skewed"), str(_ROOT)))
    return {**kept, "PYTHONPATH": skew if "CHAOS_CLOCK_OFF" in changes else str(_ROOT), **changes}
