"""A running `tocsin serve` with something of everything in it, and a key of every scope."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncEngine

from service.domain.model import DeliveryState, Scope
from service.flow import control
from service.store.database import Database
from service.store.vault import Vault, new_key
from tests import operating
from tests.cli.conftest import created
from tests.cli.process import ROOT, started
from tests.scenes import Scene, shipments_job

TICK_SECRET = "a tick secret for the tests, long enough"


@dataclass(frozen=True)
class Served:
    """Where it listens, the keys by scope (None: nobody's), and an id of everything that has one."""

    url: str
    keys: Mapping[str | None, Mapping[str, str]]
    ids: Mapping[str, str]


@pytest_asyncio.fixture(scope="session")
async def served(
    server: URL, admin: AsyncEngine, template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Served]:
    """The API as a process of its own; it has no worker, so that nothing is sent anywhere."""
    name, folder, key = "tocsin_protocol", tmp_path_factory.mktemp("protocol"), new_key()
    url = server.set(database=name).render_as_string(hide_password=False)
    env = {
        "TOCSIN_DATABASE_URL": url,
        "TOCSIN_ENCRYPTION_KEYS": key,
        "TOCSIN_BOOTSTRAP_KEY": "bootstrap-key-of-the-protocol",
        "TOCSIN_CONFIG": str(ROOT / "examples/tocsin.toml"),
        "TOCSIN_LOG_FORMAT": "json",
        "TOCSIN_PORT": "0",
        "TOCSIN_DATA_DIR": str(folder),
        "SHIPMENTS_TICK_SECRET": TICK_SECRET,
    }
    async with created(admin, name, template), _database(url) as db:
        scene = Scene(db, vault=Vault([key]))
        ids, keys = await _furnish(scene), await _keys(db)
        async with started("serve", env=env, cwd=Path(folder)) as process:
            yield Served(await process.url(), keys, ids)


async def _keys(db: Database) -> dict[str | None, dict[str, str]]:
    keys: dict[str | None, dict[str, str]] = {None: {}}
    for scope in Scope:
        made = await control.create_key(db, name=f"fuzz-{scope.value}", scope=scope, actor="test")
        keys[scope.value] = {"authorization": f"Bearer {made.key}"}
    return keys


async def _furnish(scene: Scene) -> dict[str, str]:
    """A subscriber with a dead letter, a bulk replay of it, and a run."""
    job = shipments_job()
    await scene.subscriber("acme", "http://127.0.0.1:9/", max_attempts=1)
    await scene.subscriber("victim", "http://127.0.0.1:9/", event_types=("nothing",))
    event = await scene.event()
    await scene.dispatcher().once()
    [dead] = await scene.views("acme")
    replay = await operating.replay_all(scene, DeliveryState.EXHAUSTED)
    run = await scene.tick(job)
    return {
        "deliveries": dead.id,
        "events": str(event),
        "jobs": job.name,
        "replays": str(replay.id),
        "runs": str(run),
        "subscribers": "acme",
    }


@asynccontextmanager
async def _database(url: str) -> AsyncIterator[Database]:
    db = Database(url)
    yield db
    await db.close()
