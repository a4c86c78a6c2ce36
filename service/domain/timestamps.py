"""Instants in and out: RFC 3339 in a grammar that is checked before anything is parsed, never a guess."""

import re
from datetime import UTC, datetime, timedelta, timezone

_GRAMMAR = re.compile(
    r"(?P<clock>[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})"
    r"(?:\.(?P<fraction>[0-9]{1,9}))?"
    r"(?:Z|(?P<sign>[+-])(?P<hours>[01][0-9]|2[0-3]):(?P<minutes>[0-5][0-9]))",
    re.IGNORECASE,
)
"""RFC 3339 section 5.6, `date-time`; T and Z may be lower-case there."""

_INFINITE = (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))


def parse_rfc3339(text: str) -> datetime:
    """The instant in UTC. Digits beyond the microsecond are cut, as everywhere else in the house.

    Raises:
        ValueError: it is not RFC 3339 with an offset, no such day or hour exists, it names a leap second (which
            neither PostgreSQL nor Python can keep), or it lies outside the years 1 to 9999 in UTC. The very first and
            the very last microsecond of these are refused too: the database's driver takes them for infinity.

    """
    found = _GRAMMAR.fullmatch(text)
    if not found:
        msg = "must be RFC 3339 with an offset, like 2026-11-30T02:00:00Z"
        raise ValueError(msg)
    try:
        # Not fromisoformat: newer Pythons read 24:00 there as the next day.
        clock = datetime.strptime(found["clock"].upper(), "%Y-%m-%dT%H:%M:%S").replace(tzinfo=_offset(found))
        instant = _with_fraction(clock, found["fraction"]).astimezone(UTC)
    except (ValueError, OverflowError):
        msg = "must be an instant that exists: no hour 24, no leap second, years 1 to 9999"
        raise ValueError(msg) from None
    if instant in _INFINITE:
        msg = "must be between the first and the last microsecond of the years 1 to 9999"
        raise ValueError(msg)
    return instant


def format_rfc3339(instant: datetime) -> str:
    """The instant in UTC with `Z`; a fraction, of six digits, only where there is one.

    Raises:
        ValueError: the datetime has no offset, so it is no instant.

    """
    if instant.utcoffset() is None:
        msg = "a datetime without an offset is no instant"
        raise ValueError(msg)
    return instant.astimezone(UTC).isoformat().removesuffix("+00:00") + "Z"


def _offset(found: re.Match[str]) -> timezone:
    if not found["sign"]:
        return UTC
    size = timedelta(hours=int(found["hours"]), minutes=int(found["minutes"]))
    return timezone(-size if found["sign"] == "-" else size)


def _with_fraction(clock: datetime, fraction: str | None) -> datetime:
    return clock.replace(microsecond=int((fraction or "")[:6].ljust(6, "0")))
