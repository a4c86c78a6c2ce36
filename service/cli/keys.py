"""`tocsin keys`: API keys, straight in the database, so that the first one can be made before any exists."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import typer

from service import migrations
from service.cli.options import AsJson, command_app
from service.cli.output import print_json, print_table
from service.domain.model import Scope
from service.domain.timestamps import format_rfc3339
from service.flow import control
from service.flow.control import NewKey
from service.runtime import database_url
from service.settings import Settings
from service.store import keys as stored
from service.store.database import Database
from service.store.keys import KeyRecord

app = command_app(no_args_is_help=True)

_ACTOR = "cli"
"""Who the audit trail says it was: whoever may use the database directly."""

Name = Annotated[str, typer.Argument(metavar="NAME", help="Whose key it is: the name stands in the audit trail.")]


@app.callback()
def keys() -> None:
    """Make, list and revoke API keys. These commands use the database directly, not the API."""


@app.command()
def create(
    name: Name,
    scope: Annotated[Scope, typer.Option(help="What it may do; each scope includes the ones before it.")] = Scope.READ,
    as_json: AsJson = False,
) -> None:
    """Make an API key and print it, this once: only its hash is stored."""
    made = asyncio.run(_create(name, scope))
    if as_json:
        print_json({**_fields(made.record), "key": made.key})
        return
    typer.echo(f"This is the only time that the key of {name} ({scope.value}) is shown:", err=True)
    typer.echo(made.key)


@app.command(name="list")
def list_(as_json: AsJson = False) -> None:
    """List API keys, revoked ones too, oldest first."""
    found = [_fields(record) for record in asyncio.run(_all())]
    if as_json:
        print_json(found)
        return
    rows = [tuple(key[field] for field in ("name", "scope", "createdAt", "revokedAt")) for key in found]
    print_table(
        ("NAME", "SCOPE", "CREATED", "REVOKED"), rows, empty="No keys. Make one with `tocsin keys create NAME`."
    )


@app.command()
def revoke(name: Name) -> None:
    """End a key. A process that has just seen it may accept it for some seconds more."""
    asyncio.run(_revoke(name))
    typer.echo(f"The key of {name} is revoked.")


@asynccontextmanager
async def _database() -> AsyncIterator[Database]:
    """The database, if its schema is this release's."""
    async with database_url(Settings()) as url:
        await migrations.check(url)
        db = Database(url, pool_size=1)
        try:
            yield db
        finally:
            await db.close()


async def _create(name: str, scope: Scope) -> NewKey:
    async with _database() as db:
        return await control.create_key(db, name=name, scope=scope, actor=_ACTOR)


async def _all() -> list[KeyRecord]:
    async with _database() as db, db.begin() as tx:
        return await stored.all(tx)


async def _revoke(name: str) -> None:
    async with _database() as db:
        await control.revoke_key(db, name, actor=_ACTOR)


def _fields(record: KeyRecord) -> dict[str, Any]:
    """A key as the API would name its fields."""
    return {
        "id": str(record.id),
        "name": record.name,
        "scope": record.scope.value,
        "createdAt": format_rfc3339(record.created_at),
        "revokedAt": format_rfc3339(record.revoked_at) if record.revoked_at else None,
    }
