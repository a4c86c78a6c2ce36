"""Brings the database's schema to the one that this release knows, and tells whether it is."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from service.domain.errors import ConfigurationError, Unavailable
from service.store.database import is_contended, is_lost, sqlstate
from service.store.tables import SCHEMA

OLDEST_POSTGRESQL = 15

_ONE_AT_A_TIME = threading.Lock()

_UNUSABLE = (
    "TOCSIN_DATABASE_URL has a part that the database's driver cannot use: "
    "look at its host, its port and the parameters behind the question mark"
)
_REFUSALS = (
    ("28P01", "the server refuses the password"),
    ("28", "the server refuses the user: create the role, or let it in (pg_hba.conf)"),
    ("3D000", "there is no database of this name on the server: create it, or name another"),
    ("42501", "the user lacks a right: let it own the schema tocsin, or grant it CREATE on the database"),
    ("25006", "the database is read-only: name the server that takes changes"),
)
"""Beginnings of SQLSTATEs, and what each means for whoever set the URL."""


async def upgrade(url: str) -> str:
    """Run every migration that is missing; the revision that the database is at afterwards.

    Any number of processes may do so at once: they take turns.

    Raises:
        Unavailable: the database cannot be reached.
        ConfigurationError: it is too old, or was migrated by a newer release, or a table is busy.

    """
    async with _connection(url) as connection:
        await _check_server(connection)
        await asyncio.to_thread(_upgrade, url)
        return await _revision(connection) or ""


async def current(url: str) -> str | None:
    """The revision that the database is at; None before the first migration."""
    async with _connection(url) as connection:
        return await _revision(connection)


def head() -> str:
    """The revision that this release works with."""
    newest = ScriptDirectory.from_config(_config()).get_current_head()
    return newest or ""


async def check(url: str) -> None:
    """Make sure that the database has this release's schema.

    Raises:
        ConfigurationError: it has another; the message names the mend.
        Unavailable: the database cannot be reached.

    """
    has, needed = await current(url), head()
    if has == needed:
        return
    if has is not None and not _is_known(has):
        message = f"The database is at revision {has}, made by a newer release of Tocsin: install that release"
    else:
        message = f"The database is at revision {has or 'none'}, this release needs {needed}: run `tocsin migrate`"
    raise ConfigurationError(message)


def script_location() -> Path:
    """The folder of the migrations: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent
    installed = package / "_alembic"
    return installed if installed.exists() else package.parent / "alembic"


@asynccontextmanager
async def _connection(url: str) -> AsyncIterator[AsyncConnection]:
    """A connection for the first look at the database: what the URL cannot mean is found out here.

    Raises:
        ConfigurationError: the URL cannot be used, or the server refuses who it names.
        Unavailable: the database cannot be reached.

    """
    try:
        engine = create_async_engine(url, poolclass=NullPool, connect_args={"timeout": 10})
        connection = await engine.connect()
    except (SQLAlchemyError, OSError, TimeoutError, ValueError, OverflowError) as error:
        if refusal := _refusal(error):
            raise refusal from None
        if is_lost(error):
            raise Unavailable from error
        raise ConfigurationError(_UNUSABLE) from None  # The cause's message may hold the URL, and with it the password.
    try:
        try:
            yield connection
        finally:
            await connection.close()
    except (DBAPIError, OSError, TimeoutError) as error:
        if refusal := _refusal(error):
            raise refusal from None
        if is_lost(error):
            raise Unavailable from error
        raise
    finally:
        await engine.dispose()


def _refusal(error: BaseException) -> ConfigurationError | None:
    """What the server does not let the URL's user do, where that is the error."""
    state = sqlstate(error)
    why = next((why for sign, why in _REFUSALS if state.startswith(sign)), None)
    return None if why is None else ConfigurationError(f"TOCSIN_DATABASE_URL: {why}")


async def _check_server(connection: AsyncConnection) -> None:
    version = int((await connection.execute(text("SHOW server_version_num"))).scalar_one()) // 10_000
    await connection.rollback()
    if version < OLDEST_POSTGRESQL:
        message = f"TOCSIN_DATABASE_URL names a PostgreSQL {version}: release {OLDEST_POSTGRESQL} or newer is needed"
        raise ConfigurationError(message)


async def _revision(connection: AsyncConnection) -> str | None:
    table = f"{SCHEMA}.alembic_version"
    exists = (await connection.execute(text("SELECT to_regclass(:table)"), {"table": table})).scalar_one()
    if exists is None:
        return None
    found = (await connection.execute(text(f"SELECT version_num FROM {table}"))).scalar_one_or_none()  # noqa: S608 - a constant
    return str(found) if found is not None else None


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(script_location()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _upgrade(url: str) -> None:
    """Alembic keeps its context in the process, so that within one process it is one call at a time as well."""
    config = _config()
    config.attributes["url"] = url
    try:
        with _ONE_AT_A_TIME:
            command.upgrade(config, "head")
    except CommandError as error:
        message = f"The database cannot be migrated: {error}. It was made by a newer release: install that release"
        raise ConfigurationError(message) from error
    except DBAPIError as error:
        if is_contended(error):
            message = "A table stayed locked by somebody else for too long: run `tocsin migrate` again"
            raise ConfigurationError(message) from error
        raise


def _is_known(revision: str) -> bool:
    return any(script.revision == revision for script in ScriptDirectory.from_config(_config()).walk_revisions())
