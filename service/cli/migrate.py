"""`tocsin migrate`: brings the database's schema to this release."""

import asyncio

import typer

from service import migrations
from service.cli.options import command_app
from service.runtime import database_url
from service.settings import Settings

app = command_app()


@app.command()
def migrate() -> None:
    """Bring the database's schema to this release.

    Harmless when it is there already, and when many processes do it at once.
    """
    typer.echo(f"The database is at revision {asyncio.run(_upgrade(Settings()))}.")


async def _upgrade(settings: Settings) -> str:
    async with database_url(settings) as url:
        return await migrations.upgrade(url)
