"""The exact bytes that every subscriber of an event receives, composed once and never again."""

import hashlib
import json
from datetime import datetime
from uuid import UUID

from service.domain.identifiers import topics
from service.domain.model import EventId, Found, NewEvent
from service.domain.timestamps import format_rfc3339

MAX_DATA_BYTES = 256 * 1024


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
