"""What Idempotency-Keys promise: one request works, the others get its answer, a dead one blocks nobody for long."""

import asyncio
from datetime import datetime

import pytest
from sqlalchemy import text

from service.store import idempotency
from service.store.database import Database
from service.store.idempotency import Begun, Standing

REQUEST = b"\x01" * 32
OTHER_REQUEST = b"\x02" * 32
DAY = 86_400


async def _begin(database: Database, *, key: str = "k", actor: str = "ci", request: bytes = REQUEST) -> Begun:
    async with database.begin() as tx:
        return await idempotency.begin(tx, actor=actor, key=key, request_sha256=request, ttl_seconds=DAY)


async def _finish(database: Database, began_at: datetime | None, answer: bytes = b"sealed") -> bool:
    assert began_at is not None
    async with database.begin() as tx:
        return await idempotency.finish(tx, actor="ci", key="k", began_at=began_at, status=201, sealed_answer=answer)


async def _forget(database: Database, began_at: datetime | None) -> None:
    assert began_at is not None
    async with database.begin() as tx:
        await idempotency.forget(tx, actor="ci", key="k", began_at=began_at)


async def _age(database: Database, seconds: float) -> None:
    """Turn the clock forward for everything that is stored."""
    shift = "UPDATE tocsin.idempotency_keys SET created_at = created_at - i, expires_at = expires_at - i FROM "
    async with database.begin() as tx:
        await tx.conn.execute(text(shift + "make_interval(secs => :by) AS i"), {"by": float(seconds)})


async def test_of_many_requests_at_once_exactly_one_is_fresh(database: Database) -> None:
    answers = await asyncio.gather(*(_begin(database) for _ in range(10)))
    assert [answer.standing for answer in answers].count(Standing.FRESH) == 1
    assert [answer.standing for answer in answers].count(Standing.IN_FLIGHT) == 9


async def test_an_answered_request_is_replayed_with_status_and_answer(database: Database) -> None:
    began = await _begin(database)
    assert await _finish(database, began.began_at)
    assert await _begin(database) == Begun(Standing.REPLAY, status=201, sealed_answer=b"sealed")


@pytest.mark.parametrize("answered", [False, True])
async def test_another_request_under_the_same_key_is_a_mismatch(database: Database, answered: bool) -> None:
    began = await _begin(database)
    if answered:
        await _finish(database, began.began_at)
    assert (await _begin(database, request=OTHER_REQUEST)).standing is Standing.MISMATCH


async def test_keys_of_different_actors_do_not_meet(database: Database) -> None:
    assert (await _begin(database, actor="a")).standing is Standing.FRESH
    assert (await _begin(database, actor="b", request=OTHER_REQUEST)).standing is Standing.FRESH


async def test_a_forgotten_request_may_be_sent_again_at_once(database: Database) -> None:
    await _forget(database, (await _begin(database)).began_at)
    assert (await _begin(database)).standing is Standing.FRESH


async def test_an_answer_is_never_forgotten(database: Database) -> None:
    began = await _begin(database)
    await _finish(database, began.began_at)
    await _forget(database, began.began_at)
    assert (await _begin(database)).standing is Standing.REPLAY


async def test_a_request_that_died_is_taken_over_after_a_minute_but_not_by_another_one(database: Database) -> None:
    await _begin(database)
    await _age(database, idempotency.TAKEOVER_SECONDS - 5)
    assert (await _begin(database)).standing is Standing.IN_FLIGHT
    await _age(database, 10)
    assert (await _begin(database, request=OTHER_REQUEST)).standing is Standing.MISMATCH
    answers = await asyncio.gather(*(_begin(database) for _ in range(5)))
    assert [answer.standing for answer in answers].count(Standing.FRESH) == 1


async def test_a_request_that_was_taken_over_can_neither_answer_nor_forget(database: Database) -> None:
    slow = await _begin(database)
    await _age(database, idempotency.TAKEOVER_SECONDS + 5)
    successor = await _begin(database)
    assert not await _finish(database, slow.began_at, b"late")
    await _forget(database, slow.began_at)
    assert (await _begin(database)).standing is Standing.IN_FLIGHT
    assert await _finish(database, successor.began_at, b"good")
    assert (await _begin(database)).sealed_answer == b"good"


async def test_a_key_whose_time_is_over_is_free_for_any_request(database: Database) -> None:
    began = await _begin(database)
    await _finish(database, began.began_at)
    await _age(database, DAY + 1)
    fresh = await _begin(database, request=OTHER_REQUEST)
    assert (fresh.standing, fresh.status) == (Standing.FRESH, None)


async def test_the_purge_removes_what_is_over_in_bounded_batches_and_nothing_else(database: Database) -> None:
    for number in range(5):
        await _begin(database, key=f"old-{number}")
    await _age(database, DAY + 1)
    await _begin(database, key="new")
    purged = []
    for _ in range(4):
        async with database.begin() as tx:
            purged.append(await idempotency.purge_expired(tx, 2))
    assert purged == [2, 2, 1, 0]
    assert (await _begin(database, key="new")).standing is Standing.IN_FLIGHT
