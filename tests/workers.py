"""A real `tocsin worker` as a process of its own, for tests of several at once and of one that is killed."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

SECRET = "a-tick-secret-of-the-crash-tests"


class WorkerProcess:
    """A real `tocsin worker` on the test's database."""

    def __init__(
        self, database_url: str, key: str, folder: Path, config: Path | None = None, *, drain_seconds: float = 25
    ) -> None:
        if config is None:
            config = folder / "no-jobs.toml"
            config.touch()
        self._environment = os.environ | {
            "TOCSIN_DATABASE_URL": database_url,
            "TOCSIN_ENCRYPTION_KEYS": key,
            "TOCSIN_EGRESS_ALLOW": "127.0.0.0/8",
            "TOCSIN_CONFIG": str(config),
            "TOCSIN_DRAIN_SECONDS": str(drain_seconds),
            "SHIPMENTS_TICK_SECRET": SECRET,
        }
        self._running: asyncio.subprocess.Process | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator["WorkerProcess"]:
        """Start it; whatever the test does, it is gone afterwards."""
        self._running = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "service.cli.main",
            "worker",
            env=self._environment,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            yield self
        finally:
            await self.kill()

    async def stop(self) -> int:
        """SIGTERM, and wait; returns the exit code."""
        assert self._running is not None
        self._running.send_signal(signal.SIGTERM)
        return await self._running.wait()

    async def kill(self) -> None:
        """SIGKILL: no handler, no drain, no last words."""
        assert self._running is not None
        if self._running.returncode is None:
            self._running.send_signal(signal.SIGKILL)
        await self._running.wait()
