"""The exact bytes that every subscriber of an event receives, composed once and never again."""

import hashlib
import json
from datetime import datetime
from uuid import UUID

from service.domain.errors import Invalid, NotJson
from service.domain.identifiers import (
    MAX_SUBJECT_BYTES,
    MAX_VERSION,
    is_event_type,
    is_reserved_type,
    is_tenant,
    topics,
)
from service.domain.jsontext import parse, text_fault
from service.domain.model import EventId, Found, NewEvent
from service.domain.timestamps import format_rfc3339

MAX_DATA_BYTES = 256 * 1024


def found_fault(found: Found) -> str | None:
    """What is wrong with a fact that a source returned, in words without its values; None when nothing is."""
    if found.event_id is not None:
        return None  # it is stored already
    faults = (
        (not is_event_type(found.type), "the event type is missing or malformed"),
        (is_reserved_type(found.type), "event types that begin with tocsin. are Tocsin's own: choose another"),
        (not is_tenant(found.tenant_id), "tenant_id is not a tenant"),
        (not 0 <= found.version <= MAX_VERSION, "version is not a whole number from 0 to 2^63-1"),
        (text_fault(found.subject, max_bytes=MAX_SUBJECT_BYTES) is not None, "subject cannot be stored"),
    )
    return next((fault for wrong, fault in faults if wrong), None) or _data_fault(found.data)


def _data_fault(data: str) -> str | None:
    raw = data.encode(errors="surrogatepass")
    if len(raw) > MAX_DATA_BYTES:
        return f"data is larger than {MAX_DATA_BYTES} bytes"
    try:
        parse(raw)
    except (NotJson, Invalid):
        return "data is not JSON that can be sent (no NUL, lone surrogate, NaN or duplicate key)"
    return None


def compose(found: Found, event_id: EventId, now: datetime) -> NewEvent:
    """Build the event of a discovered fact; `now` becomes its `timestamp`.

    `found.data` is spliced in as it stands, so numbers and key order reach the receiver as the source wrote them.
    """
    body = _body(found, event_id, now).encode()
    return NewEvent(
        id=event_id,
        tenant_id=found.tenant_id,
        type=found.type,
        subject=found.subject,
        version=found.version,
        body=body,
        body_sha256=hashlib.sha256(body).digest(),
        data_sha256=hashlib.sha256(found.data.encode()).digest(),
        topics=topics(found.type),
    )


def _body(found: Found, event_id: UUID, now: datetime) -> str:
    head = json.dumps(
        {
            "id": str(event_id),
            "type": found.type,
            "timestamp": format_rfc3339(now),
            "tenantId": found.tenant_id,
            "subject": found.subject,
            "version": found.version,
        },
        ensure_ascii=False,
        separators=(",", ":"),
    )
    return f'{head[:-1]},"data":{found.data}}}'
