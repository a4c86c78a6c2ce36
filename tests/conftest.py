"""One real PostgreSQL for the whole session, and a database of its own for each test.

`TOCSIN_TEST_DATABASE_URL` names a server to use instead of the embedded one; its user must be allowed to create
databases. Each test's database is copied from a template that was migrated once: some 20 ms a test.
"""

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import pytest_asyncio
from sqlalchemy import URL, make_url, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from service import migrations
from service.embedded import EmbeddedPostgres
from service.store.database import Database

_FORGETFUL = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "wal_level": "minimal"}
"""The tests' server need not survive a power cut. `wal_level` minimal cannot serve replicas, hence no senders."""


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a developer has exported must not decide whether a test passes."""
    for name in list(os.environ):
        if name.startswith("TOCSIN_") and name != "TOCSIN_TEST_DATABASE_URL":
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def server() -> Iterator[URL]:
    """The URL of a running server, with its maintenance database."""
    if given := os.environ.get("TOCSIN_TEST_DATABASE_URL"):
        yield make_url(given).set(drivername="postgresql+asyncpg")
        return
    with (
        tempfile.TemporaryDirectory(prefix="tocsin-test-") as folder,
        EmbeddedPostgres(Path(folder), {**_FORGETFUL, "max_wal_senders": "0"}) as postgres,
    ):
        yield make_url(postgres.url_of("postgres"))


@pytest_asyncio.fixture(scope="session")
async def admin(server: URL) -> AsyncIterator[AsyncEngine]:
    """An engine that may create and drop databases."""
    engine = create_async_engine(server, isolation_level="AUTOCOMMIT")
    yield engine
    await engine.dispose()


@pytest_asyncio.fixture(scope="session")
async def template(server: URL, admin: AsyncEngine) -> AsyncIterator[str]:
    """The name of a migrated, empty database that nobody is connected to."""
    name = f"tocsin_template_{uuid4().hex[:12]}"
    await _run(admin, f"CREATE DATABASE {name}")
    await migrations.upgrade(_text(server.set(database=name)))
    yield name
    await _run(admin, f"DROP DATABASE {name} WITH (FORCE)")


@pytest_asyncio.fixture
async def database_url(server: URL, admin: AsyncEngine, template: str) -> AsyncIterator[str]:
    """The URL of a fresh, migrated database, for tests that start real processes."""
    name = f"tocsin_test_{uuid4().hex[:12]}"
    await _run(admin, f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
    yield _text(server.set(database=name))
    await _run(admin, f"DROP DATABASE {name} WITH (FORCE)")


@pytest_asyncio.fixture
async def empty_database_url(server: URL, admin: AsyncEngine) -> AsyncIterator[str]:
    """The URL of a fresh database that was never migrated."""
    name = f"tocsin_test_{uuid4().hex[:12]}"
    await _run(admin, f"CREATE DATABASE {name}")
    yield _text(server.set(database=name))
    await _run(admin, f"DROP DATABASE {name} WITH (FORCE)")


@pytest_asyncio.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """A fresh, migrated database."""
    database = Database(database_url)
    yield database
    await database.close()


async def _run(engine: AsyncEngine, statement: str) -> None:
    async with engine.connect() as connection:
        await connection.execute(text(statement))


def _text(url: URL) -> str:
    return url.render_as_string(hide_password=False)
