"""Publishing: an event that an application states itself, stored once under its logical key."""

from dataclasses import dataclass
from datetime import datetime

import structlog
from uuid_utils.compat import uuid7

from service.domain import identifiers
from service.domain.errors import EventConflict, Invalid, Problem, TooLarge
from service.domain.eventbody import MAX_DATA_BYTES, compose
from service.domain.jsontext import text_fault
from service.domain.model import EventId, Found
from service.flow.doorbell import Doorbell
from service.store import events, views_events
from service.store.database import Database
from service.store.views_events import EventView

log = structlog.get_logger()

_TYPE_RULE = (
    f"must be 1 to {identifiers.MAX_TYPE_CHARS} characters: words of letters, digits, hyphens and underscores, "
    "joined by dots"
)


@dataclass(frozen=True, slots=True)
class Published:
    """The stored event and its exact body; `created` is False where it had been published before, just the same.

    The body of one that was published long before may be purged: None.
    """

    event: EventView
    body: bytes | None
    created: bool


async def publish(
    db: Database, doorbell: Doorbell, found: Found, due_at: datetime | None = None, *, actor: str
) -> Published:
    """Store the event and leave its fan-out to a worker: at once, or with `due_at` when an outbox job's run finds it.

    `found.data` goes into the body as it stands, so it must be JSON text that `jsontext` has accepted. The same event
    again, also many at once, is the one that is stored.

    Raises:
        Invalid: the type, subject, version or tenant cannot be accepted.
        TooLarge: the data is.
        EventConflict: an event with this logical key has other data or another due time; nothing was written.

    """
    faults = _faults(found)
    if faults:
        raise Invalid(*faults)
    if len(found.data.encode()) > MAX_DATA_BYTES:
        raise TooLarge(f"The data is larger than the {MAX_DATA_BYTES} bytes that an event may have.")
    async with db.begin() as tx:
        event = compose(found, EventId(uuid7()), tx.now)
        [stored] = await events.add(tx, [event], due_at=due_at, published_by=actor)
        if not stored.same_data:
            raise EventConflict
        view = await views_events.event(tx, stored.id)
        if view is None or view[0].due_at != due_at:
            raise EventConflict("This event was published before with another dueAt.")
    if stored.added and due_at is None:
        await doorbell.ring()
    log.info("event.published", event_id=str(stored.id), actor=actor, duplicate=not stored.added)
    return Published(*view, created=stored.added)


def _faults(found: Found) -> list[Problem]:
    faults = []
    if not identifiers.is_event_type(found.type):
        faults.append(Problem("/type", _TYPE_RULE))
    if identifiers.is_reserved_type(found.type):
        faults.append(Problem("/type", "must not begin with tocsin., which is kept for Tocsin's own events"))
    if not identifiers.is_tenant(found.tenant_id):
        faults.append(Problem("/tenantId", "must be 1 to 100 letters, digits, dots, hyphens and underscores"))
    if subject_fault := text_fault(found.subject, max_bytes=identifiers.MAX_SUBJECT_BYTES):
        faults.append(Problem("/subject", subject_fault))
    if not 0 <= found.version <= identifiers.MAX_VERSION:
        faults.append(Problem("/version", f"must be an integer from 0 to {identifiers.MAX_VERSION}"))
    return faults
