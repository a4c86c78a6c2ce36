"""Lists stay lists of a page however much there is: their plans walk an index and stop at the limit."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
import pytest_asyncio
from sqlalchemy import URL, select, text
from sqlalchemy.ext.asyncio import AsyncEngine

from service.domain.model import DeliveryState, RunState
from service.domain.states import DEAD_LETTERS
from service.store import views, views_deliveries, views_delivery, views_events
from service.store.database import Database, Tx
from service.store.tables import deliveries
from service.store.views import Page
from service.store.views_deliveries import Sought
from tests.scenes import Scene

_EVENTS, _PER_EVENT = 2000, 5
_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)

_FILL = (
    """
    INSERT INTO tocsin.runs (id, job, run_id, cutoff, source, state, completed_at)
    SELECT ('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, 'job-' || n % 3, 'r' || n, now(), 'hmac',
           'completed', now() FROM generate_series(1, 2000) n
    """,
    f"""
    INSERT INTO tocsin.events (id, tenant_id, type, subject, version, topics, run_id, body, body_sha256, data_sha256,
                               fanned_out_at)
    SELECT ('00000000-0000-7000-9000-' || lpad(n::text, 12, '0'))::uuid, 'default', 'type-' || n % 5, 's' || n, 1,
           '{{*}}', ('00000000-0000-7000-8000-' || lpad((n % 2000 + 1)::text, 12, '0'))::uuid, 'x', 'x', 'x', now()
      FROM generate_series(1, {_EVENTS}) n
    """,
    f"""
    INSERT INTO tocsin.deliveries (event_id, subscriber, run_id, deadline_at, state, reason, finished_at)
    SELECT e.id, s, e.run_id, now(), CASE WHEN s = 4 THEN 'rejected' ELSE 'delivered' END,
           CASE WHEN s = 4 THEN 'attempts' END, now()
      FROM tocsin.events e, generate_series(1, {_PER_EVENT}) s ORDER BY e.id, s
    """,
    "UPDATE tocsin.deliveries SET state = 'pending', finished_at = NULL WHERE row BETWEEN 40 AND 49",
    "UPDATE tocsin.deliveries SET subscriber = 6 WHERE subscriber = 3 AND row <= 50",
    """
    INSERT INTO tocsin.attempts (delivery, number, generation, lease_seq, outcome, counted, started_at, duration_ms,
                                 worker)
    SELECT row, 1, 1, 1, 'delivered', true, now(), 1, 'w' FROM tocsin.deliveries
    """,
)


@pytest_asyncio.fixture(scope="module")
async def filled(server: URL, admin: AsyncEngine, template: str) -> AsyncIterator[Database]:
    """A database with 2,000 runs, 2,000 events and 10,000 deliveries with an attempt each; few are pending, and old."""
    name = f"tocsin_views_{uuid4().hex[:12]}"
    async with admin.connect() as connection:
        await connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy"))
    database = Database(server.set(database=name).render_as_string(hide_password=False))
    try:
        await _fill(database)
        yield database
    finally:
        await database.close()
        async with admin.connect() as connection:
            await connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))


async def _fill(database: Database) -> None:
    scene = Scene(database)
    for number in range(_PER_EVENT + 1):
        await scene.subscriber(f"s{number}", f"http://127.0.0.1:1/{number}")
    for statement in _FILL:
        await scene.execute(statement)
    await scene.execute("ANALYZE")


_TOUCHED = text(
    "SELECT coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::bigint FROM pg_stat_xact_user_tables "
    "WHERE schemaname = 'tocsin'"
)


async def touched(db: Database, question: Callable[[Tx], Awaitable[Sequence[Any]]]) -> tuple[Sequence[Any], int]:
    """What a question answers, and how many rows of all tables were read for it."""
    async with db.begin() as tx:
        before = (await tx.conn.execute(_TOUCHED)).scalar_one()
        answer = await question(tx)
        return answer, (await tx.conn.execute(_TOUCHED)).scalar_one() - before


_PAGE = Page(20)
_DEEP = Page(20, after=2000)

SOUGHT = {
    "all": Sought(),
    "of a subscriber": Sought(subscriber_id="s1"),
    "of a quiet subscriber": Sought(subscriber_id="s5"),
    "of nobody": Sought(subscriber_id="nobody"),
    "pending": Sought(states=(DeliveryState.PENDING,)),
    "leased": Sought(states=(DeliveryState.LEASED,)),
    "pending of a busy subscriber": Sought(states=(DeliveryState.PENDING,), subscriber_id="s1"),
    "of an unknown run": Sought(run=UUID(int=1)),
    "of an unknown event": Sought(event_id=UUID(int=1)),
    "of a run": Sought(run=UUID("00000000-0000-7000-8000-000000000051")),
    "of an event": Sought(event_id=UUID("00000000-0000-7000-9000-000000000050")),
    "dead letters": Sought(states=(DeliveryState.REJECTED,)),
    "delivered": Sought(states=(DeliveryState.DELIVERED,)),
    "of a type": Sought(event_type="type-1"),
    "of a reason": Sought(reason="attempts"),
}

MIXED = {
    **SOUGHT,
    "of a type with a state": Sought(event_type="type-1", states=(DeliveryState.REJECTED,)),
    "dead letters of a type": Sought(event_type="type-1", states=tuple(sorted(DEAD_LETTERS))),
    "of a subscriber's type": Sought(event_type="type-1", subscriber_id="s1"),
    "of a run's type": Sought(event_type="type-1", run=UUID("00000000-0000-7000-8000-000000000051")),
    "of an event, with a type": Sought(event_type="type-0", event_id=UUID("00000000-0000-7000-9000-000000000050")),
    "of a reason and all else": Sought(reason="attempts", event_type="type-1", subscriber_id="s4", since=_LONG_AGO),
    "of a run's reason": Sought(reason="attempts", run=UUID("00000000-0000-7000-8000-000000000051")),
    "of an event's reason": Sought(reason="attempts", event_id=UUID("00000000-0000-7000-9000-000000000050")),
    "of no reason that there is": Sought(reason="nothing"),
    "of no type that there is": Sought(event_type="nothing"),
}


@pytest.mark.parametrize("sought", SOUGHT.values(), ids=SOUGHT)
@pytest.mark.parametrize("page", [_PAGE, _DEEP], ids=["first page", "deep page"])
async def test_a_page_of_deliveries_reads_about_a_page(filled: Database, sought: Sought, page: Page) -> None:
    found, rows = await touched(filled, lambda tx: views_deliveries.page_of(tx, sought, page))
    assert len(found) <= page.limit
    # Each item brings its event, subscriber, lane and last attempt; a type that a fifth has is looked for in fives.
    assert rows <= page.limit * 5 * 8


@pytest.mark.parametrize("most", [40, 1000, 20_000], ids="at most {}".format)
@pytest.mark.parametrize("sought", MIXED.values(), ids=MIXED)
async def test_the_pages_have_all_that_is_sought_however_few_are_looked_at(
    filled: Database, sought: Sought, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views_deliveries, "MOST", most)
    async with filled.begin() as tx:
        found, after = list[int](), None
        while after is None or after > 0:
            leaf = await views_deliveries.page_of(tx, sought, Page(300, after))
            found += [view.row for view in leaf]
            after = leaf[-1].row if len(leaf) == 300 else leaf.looked_to or 0
        named = [column == value for column, value in await views_deliveries.walk_of(tx, sought)]
        every = select(deliveries.c.row).where(*named, *views_deliveries.conditions(sought, deliveries))
        assert found == sorted((await tx.conn.execute(every)).scalars(), reverse=True)


async def test_a_page_of_runs_reads_a_page(filled: Database) -> None:
    for job, state, count in (
        (None, None, 20),
        ("job-1", None, 20),
        ("nobody", None, 0),
        (None, RunState.COMPLETED, 20),
        (None, RunState.RUNNING, 0),
        ("job-1", RunState.COMPLETED, 20),
    ):
        found, rows = await touched(filled, lambda tx: views.runs(tx, job=job, state=state, page=_PAGE))  # noqa: B023
        # Each run brings its five deliveries, to be counted.
        assert (len(found), rows <= 20 * 8) == (count, True), (job, state)


async def test_the_last_run_of_each_job_is_found_by_its_index(filled: Database) -> None:
    found, rows = await touched(filled, lambda tx: views.jobs(tx, ["job-1", "job-2", "nobody"]))
    assert [job.last_run and job.last_run.run_id for job in found] == ["r1999", "r2000", None]
    assert rows <= 20


async def test_a_page_of_events_reads_a_page_and_no_bodies(filled: Database) -> None:
    for type_, subject, count in (
        (None, None, 20),
        ("type-1", None, 20),
        (None, "s7", 1),
        ("nothing", None, 0),
        ("type-1", "s7", 0),
    ):
        found, rows = await touched(
            filled,
            lambda tx: views_events.page_of(tx, type=type_, subject=subject, page=_PAGE),  # noqa: B023
        )
        assert len(found) == count
        assert rows <= 20 * 2
    for query in (views_events._QUERY, views_delivery._described(deliveries)):
        assert "tocsin.events.body," not in str(query)


async def test_counting_the_deliveries_of_a_page_of_runs_reads_only_theirs(filled: Database) -> None:
    ids = [UUID(f"00000000-0000-7000-8000-{n:012d}") for n in range(2, 42)]
    found, rows = await touched(filled, lambda tx: _counted(tx, ids))
    assert sum(found) == 40 * _PER_EVENT
    assert rows <= 40 * _PER_EVENT * 2


async def _counted(tx: Tx, ids: Sequence[UUID]) -> list[int]:
    counts = await views.counts(tx, ids)
    return [sum(each.deliveries.values()) for each in counts.values()]
