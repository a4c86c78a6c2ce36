"""A running `tocsin up` whose jobs are rung by recipes: signed, with a static token, with tokens of two issuers."""

import re
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
import pytest_asyncio
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncEngine

from tests.cli.conftest import Live, created, running
from tests.cli.process import ROOT
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
    url = server.set(database=name).render_as_string(hide_password=False)
    config = tmp_path_factory.mktemp("config") / "tocsin.toml"
    config.write_text(_config(issuer))
    async with (
        created(admin, name, template),
        running(url, config, tmp_path_factory, SHIPMENTS_TICK_TOKEN=BEARER) as it,
    ):
        yield it


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
