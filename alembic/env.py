"""How migrations run: one process at a time, and never queueing behind a long transaction.

The lock is polled for, not waited for: a waiting `pg_advisory_lock` would itself be a transaction that others wait
for. Replicas that start together thus take turns, and the later ones find nothing left to do.
"""

import asyncio

from alembic import context
from alembic.util import CommandError
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from service.domain.errors import ConfigurationError
from service.settings import Settings
from service.store.tables import SCHEMA, metadata

LOCK = 0x70C51
LOCK_TIMEOUT = "5s"
"""A statement that cannot get its table lock gives up, lest everything queues behind it; `migrate` can run again."""


def migrate(connection: Connection) -> None:
    """Run what was asked for (upgrade, downgrade, autogenerate) on this connection, alone."""
    connection.execution_options(isolation_level="AUTOCOMMIT")
    while not connection.execute(text("SELECT pg_try_advisory_lock(:lock)"), {"lock": LOCK}).scalar_one():
        connection.execute(text("SELECT pg_sleep(0.2)"))
    try:
        if not connection.execute(text("SELECT to_regnamespace(:schema)"), {"schema": SCHEMA}).scalar_one():
            connection.execute(text(f"CREATE SCHEMA {SCHEMA}"))
        connection.execute(text("SELECT set_config('lock_timeout', :limit, false)"), {"limit": LOCK_TIMEOUT})
        connection.commit()
        connection.execution_options(isolation_level="READ COMMITTED")
        _run(connection)
    finally:
        connection.rollback()
        connection.execution_options(isolation_level="AUTOCOMMIT")
        connection.execute(text("SELECT pg_advisory_unlock(:lock)"), {"lock": LOCK})
        connection.commit()


def _run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=metadata,
        version_table_schema=SCHEMA,
        include_schemas=True,
        include_name=lambda name, kind, _: kind != "schema" or name == SCHEMA,
        compare_server_default=True,
        transaction_per_migration=True,
    )
    with context.begin_transaction():
        context.run_migrations()


def _configured() -> str:
    """The database of the settings, for whoever calls `alembic` itself; refused in one line where it is none."""
    try:
        url = Settings().database_url
    except ConfigurationError as refusal:
        raise CommandError(refusal.detail) from None
    if url is None:
        message = "TOCSIN_DATABASE_URL is not set: export the URL of the database, postgresql://user:password@host/name"
        raise CommandError(message)
    return url


async def main() -> None:
    """Migrate the database that the caller names, or else TOCSIN_DATABASE_URL."""
    engine = create_async_engine(context.config.attributes.get("url") or _configured(), poolclass=NullPool)
    try:
        async with engine.connect() as connection:
            await connection.run_sync(migrate)
    finally:
        await engine.dispose()


asyncio.run(main())
