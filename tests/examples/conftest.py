"""A running `tocsin up` whose jobs are rung by recipes: signed, with a static token, with tokens of two issuers."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest
import pytest_asyncio
from sqlalchemy import URL, text
from sqlalchemy.ext.asyncio import AsyncEngine

from service.store.vault import new_key
from tests.cli.conftest import API_KEY, TICK_SECRET, Live, apply_schema
from tests.cli.process import ROOT, started
from tests.examples.recipes import JOB, page
from tests.issuers import Issuer

BEARER = "a-static-token-for-the-tests-long-enough"


@pytest_asyncio.fixture(scope="session")
async def issuer() -> AsyncIterator[Issuer]:
    """Stands for Google and for GitHub: each recipe's own configuration says whose tokens it takes."""
    async with Issuer() as issuer:
        yield issuer


def adapted(fragment: str, job: str, issuer: str) -> str:
    """A recipe's piece of tocsin.toml, for another job and with the local issuer in place of the real one."""
    changed = re.sub(r'^issuer = ".*"', f'issuer = "{issuer}"', page(fragment), flags=re.MULTILINE)
    head = f'\n[jobs."{job}"]\nsource = "tick"\nevent_type = "rung"\n'
    return head + changed.replace(f'jobs."{JOB}"', f'jobs."{job}"')


@pytest_asyncio.fixture(scope="session")
async def live(
    server: URL, admin: AsyncEngine, template: str, issuer: Issuer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Live]:
    """The service, on a database of its own; shared by the tests of this folder."""
    name = f"tocsin_recipes_{uuid4().hex[:12]}"
    config = tmp_path_factory.mktemp("config") / "tocsin.toml"
    config.write_text(_config(issuer))
    async with admin.connect() as connection:
        await connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy"))
    url = server.set(database=name).render_as_string(hide_password=False)
    await apply_schema(url)
    env = {
        "TOCSIN_DATABASE_URL": url,
        "TOCSIN_ENCRYPTION_KEYS": new_key(),
        "TOCSIN_BOOTSTRAP_KEY": API_KEY,
        "TOCSIN_CONFIG": str(config),
        "TOCSIN_EGRESS_ALLOW": "127.0.0.0/8",
        "TOCSIN_LOG_FORMAT": "json",
        "TOCSIN_PORT": "0",
        "TOCSIN_DATA_DIR": str(tmp_path_factory.mktemp("live")),
        "SHIPMENTS_TICK_SECRET": TICK_SECRET,
        "SHIPMENTS_TICK_TOKEN": BEARER,
    }
    async with started("up", env=env, cwd=Path(tmp_path_factory.mktemp("cwd"))) as process:
        address = await process.url()
        yield Live(address, url, {**env, "TOCSIN_URL": address}, process)
    async with admin.connect() as connection:
        await connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))


def _config(issuer: Issuer) -> str:
    example = (ROOT / "examples/tocsin.toml").read_text(encoding="utf-8")
    return "\n".join(
        [
            example,
            page("eventbridge/bearer.toml"),
            adapted("cloud-scheduler/oidc.toml", "from.google", issuer.url),
            adapted("github-actions/oidc.toml", "from.github", issuer.url),
        ]
    )
