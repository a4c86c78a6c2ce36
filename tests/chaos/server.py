"""The PostgreSQL of a chaos run, which is killed, and asked by the harness with more patience than by anybody else."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from service import migrations
from service.domain.errors import ConfigurationError
from service.embedded import EmbeddedPostgres

_SETTINGS = {
    # A killed process loses nothing that the kernel has; only a power cut would, and nobody pulls the plug here.
    "fsync": "off",
    "max_connections": "60",
    # Tells which fan-out was over before another one began: only between those is there an order.
    "track_commit_timestamp": "on",
}
_PATIENCE_SECONDS = 90.0
_PAUSE_SECONDS = 0.1


class Server:
    """A server under `folder` that this run alone uses; `running` is the way to one."""

    def __init__(self, postgres: EmbeddedPostgres, folder: Path) -> None:
        self._postgres = postgres
        self._folder = folder
        self._engine: AsyncEngine = create_async_engine(
            postgres.url, poolclass=NullPool, connect_args={"timeout": 10, "command_timeout": 60}
        )

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls, folder: Path) -> AsyncIterator["Server"]:
        """A migrated database, gone afterwards."""
        postgres = await asyncio.to_thread(EmbeddedPostgres, folder, _SETTINGS)
        server = cls(postgres, folder)
        try:
            await migrations.upgrade(postgres.url)
            yield server
        finally:
            await server.revive()
            await asyncio.to_thread(postgres.stop)

    @property
    def url(self) -> str:
        """Where it is."""
        return self._postgres.url

    async def ask(self, statement: str, **values: object) -> Sequence[Any]:
        """Run one statement, again and again while the server is away; it has to bear being run twice."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + _PATIENCE_SECONDS
        while True:
            try:
                async with self.connected() as connection:
                    result = await connection.execute(text(statement), values)
                    return result.all() if result.returns_rows else []
            except (OSError, SQLAlchemyError, TimeoutError):
                if loop.time() > ends:
                    raise
            await asyncio.sleep(_PAUSE_SECONDS)

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[AsyncConnection]:
        """A connection of its own, on which each statement is committed as soon as it is done."""
        async with self._engine.connect() as connection:
            yield await connection.execution_options(isolation_level="AUTOCOMMIT")

    def kill(self) -> None:
        """SIGKILL to the postmaster; what it has started notices by itself and goes as well."""
        pid = (self._folder / "postgres" / "postmaster.pid").read_text().split("\n", 1)[0]
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)

    async def revive(self) -> None:
        """Start it again if it is dead, and wait until it answers."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + _PATIENCE_SECONDS
        while True:
            try:
                await asyncio.to_thread(self._postgres.revive)
                break
            except ConfigurationError:  # what the dead one left running holds its files for a moment
                if loop.time() > ends:
                    raise
            await asyncio.sleep(_PAUSE_SECONDS)
        await self.ask("SELECT 1")
