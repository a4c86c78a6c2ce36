"""The schema in the database is the schema in the code, however many processes brought it there."""

import asyncio
import re
from typing import Any
from uuid import uuid4

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.util import CommandError
from sqlalchemy import Connection, inspect, make_url, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from service import migrations
from service.domain.errors import ConfigurationError, Unavailable
from service.store.database import Database
from service.store.tables import SCHEMA, metadata


async def test_the_migrated_database_has_what_the_code_expects(database_url: str) -> None:
    def differences(connection: Connection) -> list[object]:
        options: dict[str, object] = {
            "include_schemas": True,
            "include_name": lambda name, kind, _: kind != "schema" or name == SCHEMA,
            "include_object": lambda _object, name, *_: name != "alembic_version",
            "compare_server_default": True,
        }
        return list(compare_metadata(MigrationContext.configure(connection, opts=options), metadata))

    engine = create_async_engine(database_url, poolclass=NullPool)
    async with engine.connect() as connection:
        assert await connection.run_sync(differences) == []
    await engine.dispose()


async def test_every_index_has_its_predicate_and_every_table_its_storage(database: Database) -> None:
    """What alembic does not compare: WHERE clauses and fillfactor, told by creating the code's tables beside."""
    told = "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = :schema ORDER BY 1"
    storage = "SELECT relname, reloptions FROM pg_class WHERE relnamespace = CAST(:schema AS regnamespace) ORDER BY 1"
    async with database.engine.connect() as connection:
        await connection.execute(text("CREATE SCHEMA beside"))
        beside = await connection.execution_options(schema_translate_map={SCHEMA: "beside"})
        await beside.run_sync(metadata.create_all)
        for question in (told, storage):
            migrated = {row[0]: row[1] for row in await connection.execute(text(question), {"schema": SCHEMA})}
            created = {row[0]: row[1] for row in await connection.execute(text(question), {"schema": "beside"})}
            migrated = {name: it for name, it in migrated.items() if not name.startswith("alembic_version")}
            assert {name: re.sub(r" ON tocsin\.", " ON beside.", str(it)) for name, it in migrated.items()} == {
                name: str(it) for name, it in created.items()
            }
        await connection.rollback()


async def test_every_foreign_key_has_an_index_that_begins_with_it(database: Database) -> None:
    """Else deleting one parent reads the whole table of children."""

    def bare(connection: Connection) -> list[str]:
        look = inspect(connection)

        def indexed(table: str) -> list[list[str | None]]:
            primary = list[str | None](look.get_pk_constraint(table, SCHEMA)["constrained_columns"])
            return [primary, *(index["column_names"] for index in look.get_indexes(table, SCHEMA))]

        return [
            f"{table}.{key['constrained_columns']}"
            for table in look.get_table_names(SCHEMA)
            for key in look.get_foreign_keys(table, SCHEMA)
            if not any(
                columns[: len(key["constrained_columns"])] == key["constrained_columns"] for columns in indexed(table)
            )
        ]

    async with database.engine.connect() as connection:
        assert await connection.run_sync(bare) == []


async def test_replicas_that_start_at_once_migrate_once(empty_database_url: str) -> None:
    with pytest.raises(ConfigurationError, match="run `tocsin migrate`"):
        await migrations.check(empty_database_url)
    assert await migrations.current(empty_database_url) is None
    reached = await asyncio.gather(*(migrations.upgrade(empty_database_url) for _ in range(3)))
    assert set(reached) == {migrations.head()}
    await migrations.check(empty_database_url)


async def test_a_migrator_waits_for_the_one_before_it(empty_database_url: str) -> None:
    engine = create_async_engine(empty_database_url, poolclass=NullPool)
    async with engine.connect() as other:
        await other.execute(text("SELECT pg_advisory_lock(:lock)"), {"lock": 0x70C51})
        upgrade = asyncio.create_task(migrations.upgrade(empty_database_url))
        done, _ = await asyncio.wait([upgrade], timeout=0.5)
        assert not done
        await other.execute(text("SELECT pg_advisory_unlock(:lock)"), {"lock": 0x70C51})
    assert await upgrade == migrations.head()
    await engine.dispose()


async def test_a_schema_of_a_newer_release_is_refused(database: Database, database_url: str) -> None:
    async with database.begin() as tx:
        await tx.conn.execute(text("UPDATE tocsin.alembic_version SET version_num = '9999'"))
    with pytest.raises(ConfigurationError, match="newer release"):
        await migrations.check(database_url)
    with pytest.raises(ConfigurationError, match="newer release"):
        await migrations.upgrade(database_url)


async def test_a_database_that_is_away_is_unavailable() -> None:
    with pytest.raises(Unavailable):
        await migrations.upgrade("postgresql+asyncpg://nobody@127.0.0.1:1/none")


async def test_migrations_can_be_taken_back(empty_database_url: str) -> None:
    await migrations.upgrade(empty_database_url)
    config = migrations._config()
    config.attributes["url"] = empty_database_url
    await asyncio.to_thread(command.downgrade, config, "base")
    engine = create_async_engine(empty_database_url, poolclass=NullPool)
    async with engine.connect() as connection:
        left = await connection.run_sync(lambda it: inspect(it).get_table_names(SCHEMA))
    await engine.dispose()
    assert left == ["alembic_version"]


def test_alembic_itself_names_the_setting_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOCSIN_DATABASE_URL", raising=False)
    with pytest.raises(CommandError, match="TOCSIN_DATABASE_URL is not set"):
        command.current(migrations._config())


def test_a_migration_never_imports_the_code() -> None:
    """What it did is history; the code goes on."""
    scripts = list((migrations.script_location() / "versions").glob("*.py"))
    assert scripts
    assert not [it.name for it in scripts if re.search(r"^\s*(from|import) service", it.read_text(), re.MULTILINE)]


def test_the_folder_of_migrations_is_no_package() -> None:
    """An `__init__.py` there would shadow the library alembic."""
    assert not (migrations.script_location() / "__init__.py").exists()
    assert command.upgrade.__module__ == "alembic.command"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"username": "nobody-of-this-name"}, "refuses the user"),
        ({"database": "nothing-of-this-name"}, "no database of this name"),
        ({"query": {"port": "abc"}}, "cannot use"),
        ({"host": "a..b"}, "cannot use"),
        ({"query": {"ssl": "perhaps"}}, "cannot use"),
    ],
)
async def test_a_url_that_the_server_or_the_driver_refuses_is_one_line_without_the_password(
    database_url: str, change: dict[str, Any], said: str
) -> None:
    url = make_url(database_url).set(password="ECHO")
    query = ({} if "host" in change else dict(url.query)) | change.get("query", {})
    text_of_url = url.set(**{**change, "query": query}).render_as_string(hide_password=False)
    for look in (migrations.check, migrations.upgrade, migrations.current):
        with pytest.raises(ConfigurationError, match=said) as refusal:
            await look(text_of_url)
        assert "TOCSIN_DATABASE_URL" in refusal.value.detail
        assert "ECHO" not in refusal.value.detail


async def test_a_user_without_the_rights_is_told_so(
    database_url: str, empty_database_url: str, admin: AsyncEngine
) -> None:
    role = f"tocsin_weak_{uuid4().hex[:8]}"
    async with admin.connect() as connection:
        await connection.execute(text(f"CREATE ROLE {role} LOGIN"))
    try:
        for url, look in ((database_url, migrations.check), (empty_database_url, migrations.upgrade)):
            with pytest.raises(ConfigurationError, match="lacks a right"):
                await look(make_url(url).set(username=role).render_as_string())
    finally:
        async with admin.connect() as connection:
            await connection.execute(text(f"DROP ROLE {role}"))
