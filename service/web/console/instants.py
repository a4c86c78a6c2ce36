"""Instants as a browser's field for date and time has them: to the minute, without an offset; ours are in UTC."""

import re
from datetime import UTC, datetime
from typing import Annotated

from pydantic import BeforeValidator

from service.web.fields import InstantIn

_WALL = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?")


def _in_utc(value: object) -> object:
    """What has no offset is meant in UTC; everything else is left for the API's own rule."""
    found = _WALL.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return value
    return f"{found[0]}Z" if found[1] else f"{found[0]}:00Z"


WallIn = Annotated[InstantIn, BeforeValidator(_in_utc)]


def wall(at: datetime | None) -> str:
    """The instant as the value of such a field; empty for None."""
    return "" if at is None else at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")
