"""What operators do to subscribers; each change and its audit line are one transaction."""

import hmac
import json
import secrets
from dataclasses import asdict, dataclass, field

from uuid_utils.compat import uuid7

from service.domain import signing
from service.domain.errors import Conflict, Invalid, NotFound, Problem
from service.domain.eventbody import compose
from service.domain.identifiers import delivery_id
from service.domain.model import DeliveryState, EventId, Found, SubscriberRow, SubscriberState
from service.domain.subscriber import DEFAULT_GRACE_SECONDS, GRACE_SECONDS, Wanted
from service.flow import subscriber_trail
from service.flow.doorbell import Doorbell
from service.flow.vetting import Vetting
from service.store import audit, chains, endings, events, fan_out, lanes, pulse, subscribers
from service.store.database import Database, Tx
from service.store.subscribers import SubscriberRecord
from service.store.vault import Vault

MAX_VALID_SECRETS = 10
"""Every valid secret adds a signature to the header; whoever has so many is rotating in a loop."""

DELETED = "subscriber-deleted"
"""The reason of a delivery that was cancelled because its subscriber was deleted."""

TEST_TYPE = "tocsin.test"
TENANT = "The tenant of a subscriber is fixed once it has had a delivery, also one that ended: make another subscriber."
ORDERED = "The ordering can be changed only while no delivery of the subscriber is unfinished."
NO_SUCH = "There is no subscriber with this id."
_SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class Shown:
    """A subscriber after a change; `secret` is set where a new one was made, and is never shown again."""

    record: SubscriberRecord
    created: bool = False
    secret: str | None = field(default=None, repr=False)


async def put_subscriber(
    db: Database, wanted: Wanted, *, actor: str, vault: Vault, vetting: Vetting, secret: str | None = None
) -> Shown:
    """Create the subscriber, bring a deleted one back under its slug, or put `wanted` in the place of what is stored.

    A secret is made where none is given, and stays as it is on every later PUT. A PUT that changes nothing writes
    nothing. Two at once on a free slug: one creates, the other updates.

    Raises:
        Invalid: a field cannot be accepted, the URL leads where nothing may be sent, or the secret of an existing
            subscriber was to be changed.

    """
    await vetting.check(wanted, secret)
    async with db.begin() as tx:
        # Looked up first only because an INSERT that meets a conflict uses up a row number; the constraint decides.
        stored = await subscribers.lock(tx, wanted.id, vault)
        row = None if stored else await subscribers.add(tx, wanted, vault)
        if row is None:
            stored = stored or await _lock(tx, wanted.id, vault)
            if stored.deleted_at is None:
                return Shown(await _update(tx, stored, wanted, actor=actor, vault=vault, secret=secret))
            row = stored.row
            await _keep_tenant(tx, stored, wanted)
            await subscribers.replace(tx, row, wanted, vault)
        return await _open(tx, row, wanted, actor=actor, vault=vault, secret=secret)


async def _open(tx: Tx, row: SubscriberRow, wanted: Wanted, *, actor: str, vault: Vault, secret: str | None) -> Shown:
    """Give a subscriber that is new, or new again, its secret and its lane."""
    secret = secret or _new_secret()
    await subscribers.retire_secrets(tx, row, grace_seconds=0)
    await subscribers.add_secret(tx, row, _sealed(vault, secret))
    await lanes.open_lane(tx, row, wanted)
    await lanes.set_state(tx, row, SubscriberState.ACTIVE, None)
    await _note(tx, actor, "created", wanted.id, after=subscriber_trail.told(asdict(wanted)))
    return Shown(await _lock(tx, wanted.id, vault), created=True, secret=secret)


async def _update(
    tx: Tx, stored: SubscriberRecord, wanted: Wanted, *, actor: str, vault: Vault, secret: str | None
) -> SubscriberRecord:
    if secret is not None:
        await _refuse_another_secret(tx, stored.row, secret, vault)
    changes = subscriber_trail.changes(stored.wanted, wanted)
    if not changes:
        return stored
    if wanted.ordering is not stored.wanted.ordering and await subscribers.has_unfinished(tx, stored.row):
        raise Conflict(ORDERED)
    await _keep_tenant(tx, stored, wanted)
    await subscribers.replace(tx, stored.row, wanted, vault)
    await lanes.open_lane(tx, stored.row, wanted)
    await lanes.wake(tx, {stored.row: lanes.Wake()})  # a lane that was full may have room now
    await chains.promote(tx, await chains.links_of(tx, stored.row))  # a dead letter may block no longer
    await _note(tx, actor, "updated", wanted.id, None, **changes)
    return await _lock(tx, wanted.id, vault)


async def _keep_tenant(tx: Tx, stored: SubscriberRecord, wanted: Wanted) -> None:
    """What was meant for one tenant must not go to another's URL, be it in a replay; erasing finds it by its tenant."""
    if wanted.tenant_id != stored.wanted.tenant_id and await fan_out.has_reached(tx, stored.row):
        raise Conflict(TENANT)


async def _refuse_another_secret(tx: Tx, row: SubscriberRow, secret: str, vault: Vault) -> None:
    """Let a repeated creation pass, whose secret is the one that signs now; any other is a matter of rotation."""
    [destination] = await subscribers.destinations(tx, [row], vault)
    given = signing.decode_secret(secret)
    if not any(hmac.compare_digest(given, newest) for newest in destination.secrets[:1]):
        raise Invalid(Problem("/secret", "can be given at creation only; use rotate-secret to change it"))


async def delete_subscriber(db: Database, slug: str, *, actor: str) -> int:
    """Delete the subscriber and cancel what is unfinished; says how many deliveries that were. History stays.

    A backlog is cancelled chunk by chunk, each in its own transaction; `sweep_deleted` ends what a crash left over.

    Raises:
        NotFound: there is none, or it is deleted already.

    """
    async with db.begin() as tx:
        stored = await _lock_live(tx, slug)
        await subscribers.delete(tx, stored.row)
        await subscribers.retire_secrets(tx, stored.row, grace_seconds=0)
        await lanes.set_state(tx, stored.row, SubscriberState.DISABLED, DELETED)
        await _note(tx, actor, "deleted", slug)
    return await _cancel_all(db, stored.row)


async def sweep_deleted(db: Database) -> int:
    """Cancel what is unfinished of deleted subscribers: a fan-out ran beside the DELETE, or a crash cut it short."""
    async with db.begin() as tx:
        rows = await subscribers.deleted_with_unfinished(tx)
    return sum([await _cancel_all(db, row) for row in rows])


async def _cancel_all(db: Database, row: SubscriberRow) -> int:
    """Cancel chunk by chunk to the end, or until somebody brings the subscriber back: what is new then stays."""
    total = 0
    while True:
        async with db.begin() as tx:
            if not await subscribers.lock_deleted(tx, row):
                return total
            cancelled = await endings.cancel_pending(tx, row, DELETED)
            if cancelled:
                await pulse.add(tx, {pulse.ENDED + DeliveryState.CANCELLED: cancelled})
        total += cancelled
        if cancelled < endings.BATCH:
            return total


async def pause_subscriber(db: Database, slug: str, *, actor: str, reason: str | None) -> SubscriberRecord:
    """Hold the subscriber's deliveries; what is in flight finishes, nothing is lost, no attempt is used up.

    Pausing a paused one changes nothing.

    Raises:
        NotFound: there is no such subscriber.
        Conflict: it is disabled, which holds its deliveries already.

    """
    async with db.begin() as tx:
        stored = await _lock_live(tx, slug)
        if stored.state is SubscriberState.PAUSED:
            return stored
        if stored.state is SubscriberState.DISABLED:
            raise Conflict("This subscriber is disabled, which holds its deliveries already; resume enables it again.")
        await lanes.set_state(tx, stored.row, SubscriberState.PAUSED, reason)
        await _note(tx, actor, "paused", slug, reason)
        return await _lock(tx, slug)


async def resume_subscriber(
    db: Database, doorbell: Doorbell, slug: str, *, actor: str, reason: str | None
) -> SubscriberRecord:
    """Send to the subscriber again, be it paused or disabled; what waited goes out, the longest due first.

    Resuming an active one changes nothing.

    Raises:
        NotFound: there is no such subscriber.

    """
    async with db.begin() as tx:
        stored = await _lock_live(tx, slug)
        if stored.state is SubscriberState.ACTIVE:
            return stored
        await lanes.set_state(tx, stored.row, SubscriberState.ACTIVE, None)
        await lanes.wake(tx, {stored.row: lanes.Wake()})
        await _note(tx, actor, "resumed", slug, reason, was=stored.state.value)
        current = await _lock(tx, slug)
    await doorbell.ring()
    return current


async def rotate_secret(
    db: Database, slug: str, *, actor: str, vault: Vault, grace_seconds: float = DEFAULT_GRACE_SECONDS
) -> Shown:
    """Give the subscriber a new secret, beside which those that signed until now go on for the grace.

    No grace is made longer: of two rotations in a day, the first secret ends when the first grace does. A grace of 0
    ends all older secrets at once, for one that leaked or can no longer be decrypted.

    Raises:
        NotFound: there is no such subscriber.
        Invalid: the grace is out of its bounds.
        Conflict: too many secrets would sign.

    """
    if fault := GRACE_SECONDS.fault(grace_seconds):
        raise Invalid(Problem("/graceSeconds", fault))
    secret = _new_secret()
    async with db.begin() as tx:
        stored = await _lock_live(tx, slug)
        older = await subscribers.retire_secrets(tx, stored.row, grace_seconds)
        if older >= MAX_VALID_SECRETS:
            raise Conflict(f"{older} secrets are valid: wait until a grace ends, or rotate with graceSeconds 0.")
        await subscribers.add_secret(tx, stored.row, _sealed(vault, secret))
        await _note(tx, actor, "secret_rotated", slug, graceSeconds=grace_seconds, olderSecrets=older)
        return Shown(await _lock(tx, slug, vault), secret=secret)


@dataclass(frozen=True, slots=True)
class Sent:
    """The test event and its one delivery, under the ids that they have outside."""

    event: EventId
    delivery: str


async def send_test(db: Database, doorbell: Doorbell, slug: str, *, actor: str) -> Sent:
    """Send a signed `tocsin.test` event to this subscriber alone, through the whole path; a pause holds it too.

    Raises:
        NotFound: there is no such subscriber.

    """
    async with db.begin() as tx:
        stored = await _lock_live(tx, slug)
        event = await _test_event(tx, stored.wanted)
        await fan_out.enqueue(tx, event, stored.row)
        sent = Sent(event, delivery_id(event, stored.row))
        await _note(tx, actor, "tested", slug, delivery=sent.delivery)
    await doorbell.ring()
    return sent


async def _test_event(tx: Tx, wanted: Wanted) -> EventId:
    """Store a new event whose version is the clock's microsecond, or the next that is free."""
    version = int(tx.now.timestamp() * 1_000_000)
    data = json.dumps({"subscriberId": wanted.id, "message": "A test of this subscriber; nothing happened."})
    while True:
        found = Found(TEST_TYPE, wanted.id, version, data, wanted.tenant_id)
        [stored] = await events.add(tx, [compose(found, EventId(uuid7()), tx.now)])
        if stored.added:
            return stored.id
        version += 1


async def _lock(tx: Tx, slug: str, vault: Vault | None = None) -> SubscriberRecord:
    """The subscriber as it stands, deleted ones too; nobody else changes it while the transaction lasts.

    Its headers' values are masked where no vault is given.
    """
    stored = await subscribers.lock(tx, slug, vault)
    if stored is None:
        raise NotFound(NO_SUCH)
    return stored


async def _lock_live(tx: Tx, slug: str) -> SubscriberRecord:
    stored = await _lock(tx, slug)
    if stored.deleted_at is not None:
        raise NotFound(NO_SUCH)
    return stored


async def _note(tx: Tx, actor: str, did: str, slug: str, reason: str | None = None, **detail: object) -> None:
    action, thing = f"subscriber.{did}", f"subscriber:{slug}"
    await audit.write(tx, actor=actor, action=action, object=thing, reason=reason, detail=detail)


def _new_secret() -> str:
    return signing.new_secret(secrets.token_bytes(_SECRET_BYTES))


def _sealed(vault: Vault, secret: str) -> bytes:
    """What is stored is the signing key itself, not its `whsec_…` text."""
    return vault.seal(signing.decode_secret(secret))
