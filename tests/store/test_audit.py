"""What the audit trail promises: every line can be found by who and by what, newest first, page by page."""

import pytest

from service.domain.errors import NotFound
from service.store import audit
from service.store.audit import AuditLine
from service.store.database import Database, Tx
from service.store.views import Page


async def _fill(tx: Tx) -> None:
    for number in range(6):
        actor, thing = ("alice", "bob")[number % 2], ("job:a", "job:b", "subscriber:c")[number % 3]
        await audit.write(tx, actor=actor, action="job.paused", object=thing, reason=f"reason {number}")


async def _reasons(tx: Tx, *, actor: str | None = None, object: str | None = None) -> list[str | None]:  # noqa: A002
    return [line.reason for line in await audit.listed(tx, actor=actor, object=object, page=Page(50))]


async def test_a_line_says_who_did_what_when_and_why(database: Database) -> None:
    async with database.begin() as tx:
        await audit.write(tx, actor="alice", action="job.paused", object="job:a", reason="deploy", detail={"held": 2})
        [line] = await audit.listed(tx, actor=None, object=None, page=Page(50))
    assert line == AuditLine(line.id, tx.now, "alice", "job.paused", "job:a", "deploy", {"held": 2})


async def test_reason_and_detail_may_be_missing(database: Database) -> None:
    async with database.begin() as tx:
        await audit.write(tx, actor="alice", action="key.revoked", object="key:ci")
        [line] = await audit.listed(tx, actor=None, object=None, page=Page(50))
    assert (line.reason, line.detail) == (None, {})


async def test_lines_are_found_by_actor_by_object_and_by_both(database: Database) -> None:
    async with database.begin() as tx:
        await _fill(tx)
        assert await _reasons(tx) == [f"reason {number}" for number in (5, 4, 3, 2, 1, 0)]
        assert await _reasons(tx, actor="alice") == ["reason 4", "reason 2", "reason 0"]
        assert await _reasons(tx, object="job:a") == ["reason 3", "reason 0"]
        assert await _reasons(tx, actor="alice", object="job:a") == ["reason 0"]
        assert await _reasons(tx, actor="nobody") == []


async def test_pages_meet_without_gap_or_overlap_while_lines_are_added(database: Database) -> None:
    seen: list[str | None] = []
    after: int | None = None
    async with database.begin() as tx:
        await _fill(tx)
        while page := await audit.listed(tx, actor=None, object=None, page=Page(2, after)):
            seen += [line.reason for line in page]
            after = page[-1].id
            await audit.write(tx, actor="eve", action="job.resumed", object="job:a", reason="newer")
    assert seen == [f"reason {number}" for number in (5, 4, 3, 2, 1, 0)]


async def test_a_line_vanishes_with_the_transaction_that_it_tells_of(database: Database) -> None:
    async def fail_after_writing() -> None:
        async with database.begin() as tx:
            await audit.write(tx, actor="alice", action="job.paused", object="job:a")
            raise NotFound

    with pytest.raises(NotFound):
        await fail_after_writing()
    async with database.begin() as tx:
        assert await audit.listed(tx, actor=None, object=None, page=Page(50)) == []
