"""The API over a real database, called in the process; where bytes on the wire matter, over a real socket."""

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio
import uvicorn
from fastapi import FastAPI
from sqlalchemy import URL, text
from sqlalchemy.ext.asyncio import AsyncEngine

from service.domain.job import JobConfig
from service.domain.model import Scope
from service.domain.signing import tick_signature
from service.domain.targets import Network
from service.domain.timestamps import format_rfc3339
from service.flow import control
from service.flow.counters import Counters
from service.flow.doorbell import Doorbell
from service.flow.egress import Egress
from service.flow.tokens import Tokens
from service.runtime import Runtime
from service.settings import Settings
from service.store.database import Database
from service.store.vault import Vault, new_key
from service.web.app import create_app
from service.web.connections import Door
from tests.scenes import Scene

BOOTSTRAP_KEY = "bootstrap-key-of-the-tests"
SECRET = b"tick-secret-of-shipments"
OLD_SECRET = b"tick-secret-of-shipments-before"
OTHER_SECRET = b"tick-secret-of-the-reports"
JOB = "shipments.expire"

JOBS = {
    JOB: JobConfig(name=JOB, source="tick", secrets=(SECRET, OLD_SECRET), event_type="shipment.expired"),
    "reports": JobConfig(name="reports", source="tick", secrets=(OTHER_SECRET,), event_type="report.due"),
}


def instant(seconds: float = 0) -> str:
    """An instant so many seconds from now, in whole seconds."""
    return format_rfc3339(datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=seconds))


def tick(run_id: str = "r1", cutoff: str | None = None, *, secret: bytes = SECRET) -> dict[str, Any]:
    """A signed tick."""
    cutoff = instant() if cutoff is None else cutoff
    return {"runId": run_id, "cutoffIso": cutoff, "signature": tick_signature(secret, run_id, cutoff)}


def problem(answer: httpx.Response, status: int, slug: str) -> dict[str, Any]:
    """The problem in an answer, which has to be exactly this one and to echo nothing that a test marked with ECHO."""
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = answer.json()
    assert (answer.status_code, document["status"], document["type"]) == (status, status, f"/problems/{slug}")
    assert "ECHO" not in answer.text
    return document


def pointers(answer: httpx.Response) -> list[str]:
    """Where the faults are in an answer that has to be a validation problem."""
    return [error["pointer"] for error in problem(answer, 422, "invalid")["errors"]]


@dataclass
class Api:
    """A running API and the house behind it."""

    app: FastAPI
    house: Runtime
    client: httpx.AsyncClient
    scene: Scene = field(init=False)

    def __post_init__(self) -> None:
        """See the same database as a worker does."""
        self.scene = Scene(self.house.db, vault=self.house.vault)

    async def rows(self) -> dict[str, int]:
        """How many rows each table has that a request could write to."""
        tables = ("runs", "events", "deliveries", "subscribers", "jobs", "audit", "idempotency_keys")
        return {name: len(await self.scene.execute(f"TABLE tocsin.{name}")) for name in tables}

    async def key(self, name: str, scope: Scope) -> dict[str, str]:
        """A header with a new key of this scope."""
        made = await control.create_key(self.house.db, name=name, scope=scope, actor="test")
        return {"authorization": f"Bearer {made.key}"}


def runtime_on(db: Database, jobs: Mapping[str, JobConfig] = JOBS, allow: Sequence[Network] = ()) -> Runtime:
    """What the API needs, on a test's database; `allow` are networks that it may call."""
    settings = Settings(bootstrap_key=BOOTSTRAP_KEY, data_dir="unused")
    egress = Egress(allow, ())
    return Runtime(
        settings=settings,
        jobs=jobs,
        sources={},
        db=db,
        vault=Vault([new_key()]),
        egress=egress,
        doorbell=Doorbell(db),
        tokens=Tokens(egress),
        counters=Counters(jobs),
    )


@asynccontextmanager
async def called(
    db: Database, jobs: Mapping[str, JobConfig] = JOBS, allow: Sequence[Network] = ()
) -> AsyncIterator[Api]:
    """The API, called in the process by a client that holds the bootstrap key."""
    house = runtime_on(db, jobs, allow)
    app = create_app(house)
    headers = {"authorization": f"Bearer {BOOTSTRAP_KEY}"}
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://tocsin", headers=headers) as client:
        yield Api(app, house, client)
    await house.tokens.close()
    await house.egress.close()


@pytest_asyncio.fixture
async def api(database: Database) -> AsyncIterator[Api]:
    """The API over a fresh database."""
    async with called(database) as api:
        yield api


@pytest.fixture
def client(api: Api) -> httpx.AsyncClient:
    """Calls the API with the bootstrap key."""
    return api.client


@pytest_asyncio.fixture
async def address(api: Api) -> AsyncIterator[tuple[str, int]]:
    """Where the same API answers on a real socket."""
    async with served(api) as where:
        yield where


@asynccontextmanager
async def served(api: Api) -> AsyncIterator[tuple[str, int]]:
    """Where an API answers on a real socket, served as `tocsin serve` does."""
    bound = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(Door(api.app))
    serving = asyncio.create_task(server._serve([bound]))
    try:
        yield bound.getsockname()[:2]
    finally:
        server.should_exit = server.force_exit = True
        await serving
        bound.close()


@pytest_asyncio.fixture(scope="session")
async def shared_database(server: URL, admin: AsyncEngine, template: str) -> AsyncIterator[Database]:
    """One database for all tests of refusals: since none may write, all may use the same."""
    name = f"tocsin_refusals_{uuid4().hex[:12]}"
    async with admin.connect() as connection:
        await connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy"))
    database = Database(server.set(database=name).render_as_string(hide_password=False))
    yield database
    await database.close()
    async with admin.connect() as connection:
        await connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))


@pytest_asyncio.fixture(scope="session")
async def shared_api(shared_database: Database) -> AsyncIterator[Api]:
    """One API on that database."""
    async with called(shared_database) as api:
        yield api


@pytest_asyncio.fixture
async def refusing(shared_api: Api) -> AsyncIterator[Api]:
    """An API whose database must be as empty after the test as before it: what is refused leaves nothing behind."""
    yield shared_api
    assert not any((await shared_api.rows()).values())
