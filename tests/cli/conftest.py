"""A running `tocsin up` with the example job, for the commands that talk to one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
import pytest_asyncio
from sqlalchemy import URL, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from service.store.vault import new_key
from tests.cli.process import ROOT, Process, started

TICK_SECRET = "a tick secret for the tests, long enough"
API_KEY = "an-admin-key-for-the-tests"


@dataclass(frozen=True)
class Live:
    """A running Tocsin: its address, its database, and the environment in which commands find both."""

    url: str
    database_url: str
    env: dict[str, str]
    process: Process


@pytest_asyncio.fixture(scope="session")
async def live(
    server: URL, admin: AsyncEngine, template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Live]:
    """`tocsin up` on a database of its own with the example's table; shared by the tests of this folder."""
    name = f"tocsin_cli_{uuid4().hex[:12]}"
    url = server.set(database=name).render_as_string(hide_password=False)
    async with created(admin, name, template), running(url, ROOT / "examples/tocsin.toml", tmp_path_factory) as it:
        yield it


@asynccontextmanager
async def created(admin: AsyncEngine, name: str, template: str) -> AsyncIterator[None]:
    """A database of this name, gone afterwards."""
    await _execute(admin, f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
    yield
    await _execute(admin, f"DROP DATABASE {name} WITH (FORCE)")


@asynccontextmanager
async def running(url: str, config: Path, folders: pytest.TempPathFactory, **more: str) -> AsyncIterator[Live]:
    """`tocsin up` with these jobs on this database, to which the example's table is added."""
    await apply_schema(url)
    env = {
        "TOCSIN_DATABASE_URL": url,
        "TOCSIN_ENCRYPTION_KEYS": new_key(),
        "TOCSIN_BOOTSTRAP_KEY": API_KEY,
        "TOCSIN_CONFIG": str(config),
        "TOCSIN_EGRESS_ALLOW": "127.0.0.0/8",
        "TOCSIN_LOG_FORMAT": "json",
        "TOCSIN_PORT": "0",
        "TOCSIN_DATA_DIR": str(folders.mktemp("live")),
        "SHIPMENTS_TICK_SECRET": TICK_SECRET,
        **more,
    }
    async with started("up", env=env, cwd=folders.mktemp("cwd")) as process:
        address = await process.url()
        yield Live(address, url, {**env, "TOCSIN_URL": address}, process)


async def apply_schema(url: str) -> None:
    """Run examples/schema.sql as it stands: three overdue shipments more each time."""
    statements = (ROOT / "examples/schema.sql").read_text(encoding="utf-8").split(";\n")
    engine = create_async_engine(url)
    try:
        async with engine.begin() as connection:
            for statement in statements:
                if statement.strip():
                    await connection.execute(text(statement))
    finally:
        await engine.dispose()


async def _execute(engine: AsyncEngine, statement: str) -> None:
    async with engine.connect() as connection:
        await connection.execute(text(statement))
