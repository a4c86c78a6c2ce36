"""What the store of subscribers promises: a slug is taken once, secrets come out in order and in time or not at all."""

import asyncio

from sqlalchemy import text

from service.domain.headers import MASK
from service.domain.model import Destination, Mode, OnDeadLetter, Ordering, Policy, SubscriberRow, SubscriberState
from service.domain.subscriber import Wanted
from service.store import lanes, subscribers
from service.store.database import Database, Tx
from service.store.vault import Vault, new_key
from service.store.views import Page
from tests.wanting import wanted

VAULT = Vault([new_key()])
A, B, C = b"a" * 32, b"b" * 32, b"c" * 32


async def _add(tx: Tx, slug: str = "acme", *secrets: bytes) -> SubscriberRow:
    row = await subscribers.add(tx, wanted(slug), VAULT)
    assert row is not None
    for secret in secrets:
        await subscribers.add_secret(tx, row, VAULT.seal(secret))
    return row


async def _destination(tx: Tx, row: SubscriberRow, vault: Vault = VAULT) -> Destination:
    [destination] = await subscribers.destinations(tx, [row], vault)
    return destination


async def _age_secrets(tx: Tx, seconds: float) -> None:
    """Turn the clock forward for the secrets that are in their grace."""
    shift = "UPDATE tocsin.subscriber_secrets SET expires_at = expires_at - make_interval(secs => :by)"
    await tx.conn.execute(text(shift), {"by": float(seconds)})


EVERYTHING = Wanted(
    id="acme",
    url="https://acme.example/hook",
    event_types=("shipment.*", "order.paid"),
    tenant_id="north",
    mode=Mode.SHADOW,
    idempotent=False,
    ordering=Ordering.SUBJECT,
    on_dead_letter=OnDeadLetter.BLOCK,
    max_concurrency=3,
    rate_per_second=2.5,
    timeout_seconds=7.25,
    max_attempts=4,
    backoff_base_seconds=0.5,
    backoff_cap_seconds=60.0,
    deadline_seconds=3600.0,
    headers={"x-team": "north", "authorization": "Bearer t"},
)


async def test_every_field_comes_back_as_it_was_stored(database: Database) -> None:
    async with database.begin() as tx:
        await subscribers.add(tx, EVERYTHING, VAULT)
        record = await subscribers.read(tx, "acme", VAULT)
    assert record is not None
    assert record.wanted == EVERYTHING
    assert (record.state, record.revision, record.deleted_at) == (SubscriberState.ACTIVE, 1, None)
    assert record.created_at == record.updated_at == tx.now


async def test_a_slug_is_taken_once_however_many_ask_at_once(database: Database) -> None:
    async def add() -> SubscriberRow | None:
        async with database.begin() as tx:
            return await subscribers.add(tx, wanted(), VAULT)

    rows = await asyncio.gather(*(add() for _ in range(8)))
    assert sum(row is not None for row in rows) == 1


async def test_a_replacement_keeps_the_row_and_counts_a_revision(database: Database) -> None:
    async with database.begin() as tx:
        row = await _add(tx)
        await subscribers.replace(tx, row, EVERYTHING, VAULT)
        record = await subscribers.read(tx, "acme", VAULT)
    assert record is not None
    assert (record.row, record.wanted, record.revision) == (row, EVERYTHING, 2)


async def test_a_deleted_subscriber_is_not_read_nor_listed_and_can_be_brought_back(database: Database) -> None:
    async with database.begin() as tx:
        row = await _add(tx)
        await subscribers.delete(tx, row)
        assert await subscribers.read(tx, "acme") is None
        assert await subscribers.listed(tx, Page(50)) == []
        locked = await subscribers.lock(tx, "acme")
        assert locked is not None
        assert locked.deleted_at == tx.now
        await subscribers.replace(tx, row, wanted(), VAULT)
        assert await subscribers.read(tx, "acme") is not None


async def test_the_state_of_the_lane_is_part_of_the_record(database: Database) -> None:
    async with database.begin() as tx:
        row = await _add(tx)
        await lanes.open_lane(tx, row, wanted())
        await lanes.set_state(tx, row, SubscriberState.PAUSED, "deploy")
        record = await subscribers.read(tx, "acme")
    assert record is not None
    assert (record.state, record.state_reason) == (SubscriberState.PAUSED, "deploy")


async def test_pages_are_newest_first_and_meet_without_gap_or_overlap(database: Database) -> None:
    seen: list[str] = []
    after: int | None = None
    async with database.begin() as tx:
        for number in range(5):
            await _add(tx, f"s{number}")
        while page := await subscribers.listed(tx, Page(2, after)):
            seen += [record.wanted.id for record in page]
            after = page[-1].row
    assert seen == ["s4", "s3", "s2", "s1", "s0"]


async def test_a_destination_has_what_an_attempt_needs(database: Database) -> None:
    async with database.begin() as tx:
        row = await subscribers.add(tx, EVERYTHING, VAULT)
        assert row is not None
        await subscribers.add_secret(tx, row, VAULT.seal(A))
        destination = await _destination(tx, row)
    assert destination == Destination(
        row=row,
        slug="acme",
        revision=2,
        url=EVERYTHING.url,
        mode=Mode.SHADOW,
        timeout_seconds=7.25,
        policy=Policy(idempotent=False, max_attempts=4, backoff_base_seconds=0.5, backoff_cap_seconds=60.0),
        headers=EVERYTHING.headers,
        secrets=(A,),
    )


async def test_destinations_of_many_come_in_one_statement_and_only_those_asked_for(database: Database) -> None:
    async with database.begin() as tx:
        rows = [await _add(tx, f"s{number}", A) for number in range(4)]
        found = await subscribers.destinations(tx, [*rows[:3], SubscriberRow(999)], VAULT)
    assert {destination.slug for destination in found} == {"s0", "s1", "s2"}


async def test_in_the_grace_both_secrets_sign_the_newest_first_and_after_it_the_new_one_alone(
    database: Database,
) -> None:
    async with database.begin() as tx:
        row = await _add(tx, "acme", A)
        assert await subscribers.retire_secrets(tx, row, 60) == 1
        await subscribers.add_secret(tx, row, VAULT.seal(B))
        assert (await _destination(tx, row)).secrets == (B, A)
        await _age_secrets(tx, 61)
        assert (await _destination(tx, row)).secrets == (B,)


async def test_two_rotations_in_one_grace_keep_every_secret_for_its_own_time(database: Database) -> None:
    async with database.begin() as tx:
        row = await _add(tx, "acme", A)
        await subscribers.retire_secrets(tx, row, 60)
        await subscribers.add_secret(tx, row, VAULT.seal(B))
        await _age_secrets(tx, 30)
        assert await subscribers.retire_secrets(tx, row, 60) == 2
        await subscribers.add_secret(tx, row, VAULT.seal(C))
        assert (await _destination(tx, row)).secrets == (C, B, A)
        await _age_secrets(tx, 31)
        assert (await _destination(tx, row)).secrets == (C, B)
        await _age_secrets(tx, 30)
        assert (await _destination(tx, row)).secrets == (C,)


async def test_without_grace_every_older_secret_ends_at_once_and_is_erased(database: Database) -> None:
    async with database.begin() as tx:
        row = await _add(tx, "acme", A, B)
        assert await subscribers.retire_secrets(tx, row, 0) == 0
        await subscribers.add_secret(tx, row, VAULT.seal(C))
        assert (await _destination(tx, row)).secrets == (C,)
        count = await tx.conn.execute(text("SELECT count(*) FROM tocsin.subscriber_secrets"))
        assert count.scalar_one() == 1


async def test_a_secret_that_cannot_be_opened_makes_the_destination_unreadable_instead_of_failing_the_batch(
    database: Database,
) -> None:
    async with database.begin() as tx:
        good, bad = await _add(tx, "good", A), await _add(tx, "bad", A)
        await subscribers.add_secret(tx, bad, Vault([new_key()]).seal(B))
        found = {each.slug: each for each in await subscribers.destinations(tx, [good, bad], VAULT)}
    assert (found["good"].unreadable, found["good"].secrets) == (False, (A,))
    assert (found["bad"].unreadable, found["bad"].secrets) == (True, ())


async def test_a_header_that_cannot_be_opened_makes_the_destination_unreadable(database: Database) -> None:
    async with database.begin() as tx:
        row = await subscribers.add(tx, EVERYTHING, Vault([new_key()]))
        assert row is not None
        await subscribers.add_secret(tx, row, VAULT.seal(A))
        destination = await _destination(tx, row)
    assert (destination.unreadable, destination.secrets, destination.headers) == (True, (), {})


async def test_the_values_of_headers_are_sealed_in_the_database_and_masked_without_a_vault_that_opens_them(
    database: Database,
) -> None:
    async with database.begin() as tx:
        await subscribers.add(tx, EVERYTHING, VAULT)
        stored = (await tx.conn.execute(text("SELECT s::text FROM tocsin.subscribers s"))).scalar_one()
        seen = [
            await subscribers.read(tx, "acme"),
            await subscribers.read(tx, "acme", Vault([new_key()])),
            *await subscribers.listed(tx, Page(1)),
            await subscribers.lock(tx, "acme"),
        ]
        [opened] = await subscribers.listed(tx, Page(1), VAULT)
    assert "Bearer t" not in stored
    for record in seen:
        assert record is not None
        assert record.wanted.headers == {"x-team": MASK, "authorization": MASK}
    assert opened.wanted.headers == EVERYTHING.headers


async def test_a_destination_without_any_secret_is_unreadable(database: Database) -> None:
    async with database.begin() as tx:
        destination = await _destination(tx, await _add(tx))
    assert (destination.unreadable, destination.secrets) == (True, ())


async def test_no_secret_url_or_header_shows_when_a_record_or_a_destination_is_printed(database: Database) -> None:
    async with database.begin() as tx:
        row = await subscribers.add(tx, EVERYTHING, VAULT)
        assert row is not None
        await subscribers.add_secret(tx, row, VAULT.seal(A))
        destination, record = await _destination(tx, row), await subscribers.read(tx, "acme")
    assert "aaaa" not in repr(destination)
    assert "hook" not in repr(record)
    assert "Bearer" not in repr(record)
