"""`tocsin reseal`: the last step of changing the key that seals secrets in the database."""

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import asdict
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from service import keyfiles, migrations
from service.cli.options import AsJson, command_app
from service.cli.output import complain, console, print_json
from service.flow import resealing
from service.flow.resealing import Progress as Done
from service.flow.survey import READABLE_AGAIN
from service.runtime import database_url
from service.settings import Settings
from service.store.database import Database
from service.store.vault import Vault

app = command_app()

_ACTOR = "cli"
"""Who the audit trail says it was: whoever may use the database directly."""
_LINE_SECONDS = 3.0


@app.command()
def reseal(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what would be resealed; change nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Seal with the first of TOCSIN_ENCRYPTION_KEYS whatever in the database was sealed with another one.

    Subscribers' secrets and the values of their headers, in small batches beside a running service. It can be stopped
    and started again at any time. Exit code 1 where some can be opened with none of the keys; they stay as they are.
    It uses the database directly, not the API.
    """
    done = asyncio.run(_reseal(Settings(), dry_run=dry_run))
    if as_json:
        print_json({**asdict(done), "dryRun": dry_run})
    else:
        did = "would be sealed" if dry_run else "were sealed"
        closed = f"{done.unreadable:,} cannot be opened, " if done.unreadable else ""
        typer.echo(f"{done.older:,} secrets and header values {did} anew, {closed}{done.seen:,} records looked at.")
    if done.unreadable:
        complain(
            f"{done.unreadable:,} can be opened with none of TOCSIN_ENCRYPTION_KEYS; what they need cannot be told: "
            f"{READABLE_AGAIN}."
        )
        raise typer.Exit(1)


async def _reseal(settings: Settings, *, dry_run: bool) -> Done:
    done = Done(0)
    async with _opened(settings) as (db, vault), aclosing(_batches(db, vault, dry_run=dry_run)) as batches:
        with _display() as show:
            async for done in batches:
                show(done)
    return done


def _batches(db: Database, vault: Vault, *, dry_run: bool) -> AsyncGenerator[Done, None]:
    return resealing.reseal(db, vault, actor=_ACTOR, dry_run=dry_run)


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[tuple[Database, Vault]]:
    """The database, if its schema is this release's, and the vault of the configured or generated keys."""
    async with database_url(settings) as url:
        await migrations.check(url)
        keys = keyfiles.complete(settings).encryption_keys
        db = Database(url, pool_size=1)
        try:
            yield db, Vault([key.get_secret_value() for key in keys])
        finally:
            await db.close()


@contextmanager
def _display() -> Iterator[Callable[[Done], None]]:
    """A function that shows how far it is: a bar on a terminal, else a line on stderr every few seconds."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    columns = BarColumn(bar_width=24), TextColumn("{task.completed:,.0f} of {task.total:,.0f}"), TimeElapsedColumn()
    with Progress(*columns, console=console(stderr=True)) as bar:
        task = bar.add_task("", total=0)
        yield lambda done: bar.update(task, total=max(done.total, done.seen), completed=done.seen)


class _Lines:
    def __init__(self) -> None:
        self._again_at = time.monotonic() + _LINE_SECONDS

    def __call__(self, done: Done) -> None:
        if time.monotonic() >= self._again_at:
            sys.stderr.write(f"{done.seen:,} of {done.total:,} looked at, {done.older:,} sealed anew\n")
            self._again_at = time.monotonic() + _LINE_SECONDS
