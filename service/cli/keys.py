"""`tocsin keys`: API keys, straight in the database, so that the first one can be made before any exists."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer

from service import migrations
from service.cli.options import AsJson, command_app
from service.cli.output import print_json, print_table
from service.domain.durations import parse_duration
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


def _duration(text: str) -> timedelta:
    """A length of time with its unit.

    Raises:
        typer.BadParameter: it is none, or a bare number, which could be anything.

    """
    seconds = parse_duration(text)
    if seconds is None:
        raise typer.BadParameter("must be a whole number with its unit: s, m, h or d, as in 90d")
    try:
        return timedelta(seconds=seconds)
    except OverflowError:
        raise typer.BadParameter("is too long") from None


Name = Annotated[str, typer.Argument(metavar="NAME", help="Whose key it is: the name stands in the audit trail.")]


@app.callback()
def keys() -> None:
    """Make, list and revoke API keys. These commands use the database directly, not the API."""


@app.command()
def create(
    name: Name,
    scope: Annotated[Scope, typer.Option(help="What it may do; each scope includes the ones before it.")] = Scope.READ,
    expires_in: Annotated[
        timedelta | None,
        typer.Option(
            metavar="DURATION", parser=_duration, help="When it ends by itself, like 90d, 12h or 30m; never without."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make an API key and print it, this once: only its hash is stored."""
    made = asyncio.run(_create(name, scope, expires_in))
    if as_json:
        print_json({**_fields(made.record), "key": made.key})
        return
    until = f", until {format_rfc3339(made.record.expires_at)}" if made.record.expires_at else ""
    typer.echo(f"This is the only time that the key of {name} ({scope.value}{until}) is shown:", err=True)
    typer.echo(made.key)


@app.command(name="list")
def list_(as_json: AsJson = False) -> None:
    """List API keys, revoked and expired ones too, oldest first. LAST USED is true to the minute."""
    found = [_fields(record) for record in asyncio.run(_all())]
    if as_json:
        print_json(found)
        return
    shown = ("name", "scope", "createdAt", "lastUsedAt", "expiresAt", "revokedAt")
    print_table(
        ("NAME", "SCOPE", "CREATED", "LAST USED", "EXPIRES", "REVOKED"),
        [tuple(key[field] for field in shown) for key in found],
        empty="No keys. Make one with `tocsin keys create NAME`.",
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


async def _create(name: str, scope: Scope, expires_in: timedelta | None) -> NewKey:
    async with _database() as db:
        return await control.create_key(db, name=name, scope=scope, actor=_ACTOR, expires_in=expires_in)


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
        "lastUsedAt": _written(record.last_used_at),
        "expiresAt": _written(record.expires_at),
        "revokedAt": _written(record.revoked_at),
    }


def _written(at: datetime | None) -> str | None:
    return None if at is None else format_rfc3339(at)
