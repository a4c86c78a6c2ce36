"""The kinds of fields that requests have, each bounded and safe to store once it is through."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

from fastapi import Query
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, PlainSerializer, WithJsonSchema
from pydantic.alias_generators import to_camel

from service.domain.identifiers import MAX_RUN_ID_BYTES, MAX_SUBJECT_BYTES, parse_uuid
from service.domain.jsontext import text_fault
from service.domain.mends import ENDED
from service.domain.timestamps import format_rfc3339, parse_rfc3339
from service.domain.unseen import is_steering, shows_something

MAX_REASON_CHARS = 500
MAX_NAME_BYTES = 200


class In(BaseModel):
    """The body of a request: camelCase, no type is guessed, no field is ignored."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, alias_generator=to_camel)


class Asked(BaseModel):
    """The query of a request: camelCase, no parameter is ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)


NoQuery = Annotated[Asked, Query()]
"""For operations that take no query: whatever stands there is refused."""


class Out(BaseModel):
    """Part of an answer: camelCase, made from the house's own records."""

    model_config = ConfigDict(from_attributes=True, frozen=True, alias_generator=to_camel, populate_by_name=True)


def text_of(max_bytes: int) -> Callable[[str], str]:
    """A check that a text has at most so many bytes of UTF-8, at least one, and no control characters."""

    def check(value: str) -> str:
        fault = text_fault(value, max_bytes=max_bytes)
        if fault:
            raise ValueError(fault)
        return value

    return check


def _reason(value: str) -> str:
    trimmed = value.strip()
    if not 1 <= len(trimmed) <= MAX_REASON_CHARS:
        msg = f"must have 1 to {MAX_REASON_CHARS} characters, not counting space around them"
        raise ValueError(msg)
    if any(map(is_steering, trimmed)):
        msg = "must not contain line separators or characters that change the direction of text"
        raise ValueError(msg)
    if not shows_something(trimmed):
        msg = "must have characters that can be seen"
        raise ValueError(msg)
    return text_of(4 * MAX_REASON_CHARS)(trimmed)


def _end_reason(value: str) -> str:
    if value not in ENDED:
        msg = f"must be one of {', '.join(sorted(ENDED))}"
        raise ValueError(msg)
    return value


def _instant(value: object) -> datetime:
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str):
        msg = "must be a string"
        raise ValueError(msg)  # noqa: TRY004 - pydantic turns only a ValueError into a fault
    try:
        return parse_rfc3339(value)
    except ValueError:
        if not _is_instant(value.replace(" ", "+")):
            raise
    msg = "has a space for the + of its offset: in a query, write + as %2B"
    raise ValueError(msg)


def _is_instant(text: str) -> bool:
    try:
        parse_rfc3339(text)
    except ValueError:
        return False
    return True


def _shown(value: datetime) -> str:
    """An instant as it is written. Infinity comes from the database's driver without an offset; it is shown as UTC."""
    return format_rfc3339(value if value.tzinfo else value.replace(tzinfo=UTC))


def _uuid(value: object) -> UUID:
    found = parse_uuid(value) if isinstance(value, str) else None
    if found is None:
        msg = "must be a UUID in its usual form of 36 characters"
        raise ValueError(msg)
    return found


_DIGITS = re.compile(r"[0-9]{1,18}")


def _digits(value: object) -> int:
    if isinstance(value, int):
        return value
    if not (isinstance(value, str) and _DIGITS.fullmatch(value)):
        msg = "must be a whole number in plain digits"
        raise ValueError(msg)
    return int(value)


_INSTANT_SCHEMA = WithJsonSchema({"type": "string", "format": "date-time", "examples": ["2026-11-30T02:00:00Z"]})

RunIdText = Annotated[str, AfterValidator(text_of(MAX_RUN_ID_BYTES))]
SubjectText = Annotated[str, AfterValidator(text_of(MAX_SUBJECT_BYTES))]
NameText = Annotated[str, AfterValidator(text_of(MAX_NAME_BYTES))]
"""A name that is only compared: one that no thing has finds nothing."""
ReasonText = Annotated[str, AfterValidator(_reason)]
"""Why a person does something."""
EndReason = Annotated[str, AfterValidator(_end_reason), WithJsonSchema({"type": "string", "enum": sorted(ENDED)})]
"""Why a delivery ended: one of a closed list."""
InstantIn = Annotated[datetime, BeforeValidator(_instant), _INSTANT_SCHEMA]
UuidIn = Annotated[UUID, BeforeValidator(_uuid), WithJsonSchema({"type": "string", "format": "uuid"})]
Digits = BeforeValidator(_digits)
Instant = Annotated[datetime, PlainSerializer(_shown, return_type=str), _INSTANT_SCHEMA]
