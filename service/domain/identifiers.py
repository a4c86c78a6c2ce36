"""Names: which ones are allowed, how ids that leave the house are written and read, what an event type matches."""

import base64
import re
from uuid import UUID

MAX_RUN_ID_BYTES = 200
"""Of UTF-8. A runId is opaque, compared byte for byte, and has no control characters."""
MAX_SUBJECT_BYTES = 255
"""Of UTF-8, without control characters."""
MAX_VERSION = 2**63 - 1
MAX_TYPE_CHARS = 128
_RESERVED = "tocsin."

_JOB = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
_SUBSCRIBER = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_TYPE = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_DELIVERY = re.compile(r"dlv_([0-9a-v]{32})")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_MAX_ROW = 2**31 - 1
_DIGITS = "0123456789abcdefghijklmnopqrstuv"
_PAIRS = [high + low for high in _DIGITS for low in _DIGITS]
"""Ten bits each: a worker writes an id with every line of its log, and `base64` would take twice as long."""
_SHIFTS = range(150, -1, -10)


def is_job_name(text: str) -> bool:
    """Whether a job may be called so: up to 100 of a-z, 0-9, dot, hyphen, underscore; begins with a letter or digit."""
    return _JOB.fullmatch(text) is not None


def is_subscriber_slug(text: str) -> bool:
    """Whether a subscriber may be called so: up to 63 of a-z, 0-9, hyphen, underscore.

    There is no dot because the slug is part of the `webhook-id`, where Standard Webhooks forbids it.
    """
    return _SUBSCRIBER.fullmatch(text) is not None


def is_tenant(text: str) -> bool:
    """Whether a tenant may be called so; capitals are allowed because tenant ids often come from another system."""
    return _TENANT.fullmatch(text) is not None


def is_event_type(text: str) -> bool:
    """Whether an event may be of this type: words of letters, digits, hyphen, underscore, joined by dots."""
    return len(text) <= MAX_TYPE_CHARS and _TYPE.fullmatch(text) is not None


def is_reserved_type(text: str) -> bool:
    """Whether events of this type are Tocsin's own: no application and no source may publish one."""
    return text.startswith(_RESERVED)


def is_pattern(text: str) -> bool:
    """Whether a subscription may ask for this: `*`, an event type, or the beginning of one with `.*` after it."""
    return text == "*" or is_event_type(text.removesuffix(".*"))


def topics(event_type: str) -> tuple[str, ...]:
    """Every pattern that matches the type, widest first: `a.b.c` has `*`, `a.*`, `a.b.*` and `a.b.c`.

    Of Tocsin's own types `*` is left out: who wants every event of the applications has not asked for those.
    """
    words = event_type.split(".")
    beginnings = (".".join(words[:count]) + ".*" for count in range(1, len(words)))
    widest = () if is_reserved_type(event_type) else ("*",)
    return (*widest, *beginnings, event_type)


def delivery_id(event_id: UUID, subscriber_row: int) -> str:
    """The id that a delivery has outside: `dlv_` and 32 characters of base32hex (RFC 4648) over event and row."""
    bits = event_id.int << 32 | subscriber_row
    return "dlv_" + "".join([_PAIRS[bits >> shift & 1023] for shift in _SHIFTS])


def parse_delivery_id(text: str) -> tuple[UUID, int] | None:
    """The event and the subscriber's row behind a delivery id; None when it cannot be one of ours."""
    found = _DELIVERY.fullmatch(text)
    if not found:
        return None
    packed = base64.b32hexdecode(found[1].upper())
    row = int.from_bytes(packed[16:], "big")
    return (UUID(bytes=packed[:16]), row) if row <= _MAX_ROW else None


def delivery_key(event_id: UUID, slug: str) -> str:
    """The delivery key, which is the `webhook-id`: the same for ever, in every attempt and generation."""
    return f"{event_id}:{slug}"


def parse_delivery_key(text: str) -> tuple[UUID, str] | None:
    """The event and the subscriber behind a delivery key; None for what cannot be one."""
    event, _, slug = text.partition(":")
    event_id = parse_uuid(event)
    return (event_id, slug) if event_id is not None and is_subscriber_slug(slug) else None


def parse_uuid(text: str) -> UUID | None:
    """The UUID in its one canonical form (8-4-4-4-12 hex digits); None for anything else."""
    return UUID(text) if _UUID.fullmatch(text) else None
