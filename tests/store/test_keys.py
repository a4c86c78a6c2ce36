"""What the table of API keys promises: hashes only, one live key a name, a revoked key is no key."""

import asyncio
from datetime import datetime, timedelta
from uuid import uuid4

from sqlalchemy import text

from service.domain.model import Scope
from service.store import keys
from service.store.database import Database
from service.store.keys import KeyRecord

KEY = "tsk_" + "x" * 43


async def _add(database: Database, name: str, key: str = KEY, scope: Scope = Scope.OPERATE) -> KeyRecord | None:
    async with database.begin() as tx:
        return await keys.add(tx, id=uuid4(), name=name, scope=scope, key_hash=keys.digest(key))


async def _find(database: Database, key: str) -> KeyRecord | None:
    async with database.begin() as tx:
        return await keys.find(tx, keys.digest(key))


async def test_a_key_is_found_by_its_hash_with_its_name_and_scope(database: Database) -> None:
    added = await _add(database, "ci")
    found = await _find(database, KEY)
    assert found == added
    assert found is not None
    assert (found.name, found.scope, found.revoked_at) == ("ci", Scope.OPERATE, None)


async def test_an_unknown_key_is_not_found(database: Database) -> None:
    await _add(database, "ci")
    assert await _find(database, KEY + "y") is None


async def test_the_key_itself_is_nowhere_in_the_table(database: Database) -> None:
    await _add(database, "ci")
    async with database.begin() as tx:
        row = (await tx.conn.execute(text("SELECT api_keys::text AS it, hash FROM tocsin.api_keys"))).one()
    assert KEY not in row.it
    assert len(row.hash) == 32


async def test_a_revoked_key_is_not_found_but_stays_listed(database: Database) -> None:
    await _add(database, "ci")
    async with database.begin() as tx:
        assert await keys.revoke(tx, "ci")
        assert not await keys.revoke(tx, "ci")
    assert await _find(database, KEY) is None
    async with database.begin() as tx:
        [listed] = await keys.all(tx)
    assert listed.revoked_at is not None


async def test_an_expired_key_is_not_found_and_its_name_is_free_once_it_is_retired(database: Database) -> None:
    async with database.begin() as tx:
        ends = tx.now + timedelta(hours=1)
        added = await keys.add(tx, id=uuid4(), name="ci", scope=Scope.READ, key_hash=keys.digest(KEY), expires_at=ends)
    assert added is not None
    assert added.expires_at == ends
    assert await _find(database, KEY) == added
    async with database.begin() as tx:
        await keys.retire_expired(tx, "ci")
        assert await keys.add(tx, id=uuid4(), name="ci", scope=Scope.READ, key_hash=b"2") is None
        await tx.conn.execute(text("UPDATE tocsin.api_keys SET expires_at = now()"))
    assert await _find(database, KEY) is None
    async with database.begin() as tx:
        await keys.retire_expired(tx, "ci")
        assert await keys.add(tx, id=uuid4(), name="ci", scope=Scope.READ, key_hash=b"2") is not None


async def test_the_use_of_a_key_is_noted_once_a_minute_and_waits_for_nobody(database: Database) -> None:
    added = await _add(database, "ci")
    assert added is not None

    async def noted() -> datetime | None:
        async with database.begin() as tx:
            await keys.note_use(tx, added.id)
        found = await _find(database, KEY)
        assert found is not None
        return found.last_used_at

    async with database.begin() as other:
        await other.conn.execute(text("SELECT FROM tocsin.api_keys FOR UPDATE"))
        assert await noted() is None
    first = await noted()
    assert first is not None
    assert await noted() == first
    async with database.begin() as tx:
        await tx.conn.execute(text("UPDATE tocsin.api_keys SET last_used_at = now() - interval '61 seconds'"))
    assert await noted() > first  # type: ignore[operator]


async def test_a_name_belongs_to_one_live_key_and_is_free_again_after_its_end(database: Database) -> None:
    answers = await asyncio.gather(*(_add(database, "ci", KEY + str(n)) for n in range(8)))
    assert sum(answer is not None for answer in answers) == 1
    async with database.begin() as tx:
        await keys.revoke(tx, "ci")
    assert await _add(database, "ci", KEY + "again") is not None
