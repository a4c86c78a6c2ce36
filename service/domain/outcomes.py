"""What a receiver's answer means: the outcome table of the contract, and Retry-After."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from service.domain.excerpts import single_line
from service.domain.model import Outcome

MAX_RETRY_AFTER_SECONDS: Final = 3600.0

_GONE: Final = 410
_THROTTLED: Final = 429
_UNAVAILABLE: Final = 503
_TRANSIENT: Final = frozenset({408, 425})
"""4xx that speak of this moment and not of the request: Request Timeout, Too Early."""

_MONTHS: Final = {
    month: number
    for number, month in enumerate(
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), start=1
    )
}
_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_LONG_DAY = r"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
_MONTH = rf"(?P<month>{'|'.join(_MONTHS)})"
_CLOCK = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
_DATES: Final = (
    re.compile(rf"{_DAY}, (?P<day>[0-9]{{2}}) {_MONTH} (?P<year>[0-9]{{4}}) {_CLOCK} GMT"),
    re.compile(rf"{_LONG_DAY}, (?P<day>[0-9]{{2}})-{_MONTH}-(?P<year>[0-9]{{2}}) {_CLOCK} GMT"),
    re.compile(rf"{_DAY} {_MONTH} (?P<day>[ 0-9][0-9]) {_CLOCK} (?P<year>[0-9]{{4}})"),
)
"""The three forms of an HTTP-date (RFC 9110, 5.6.7): IMF-fixdate, RFC 850 and asctime. No locale has a say."""

_DELAY: Final = re.compile(r"[0-9]{1,10000}")
_SHOWN_CHARACTERS: Final = 40
_MOST_DIGITS: Final = 9
"""A number of more digits is past every cap; int() need not see it."""


class Verdict(NamedTuple):
    """What an answer means. `retry_after` is in seconds, from 0 to an hour, or None where nothing usable was said."""

    outcome: Outcome
    retry_after: float | None = None
    disable: bool = False
    """The receiver is gone for good: the subscriber is disabled as well."""


_DELIVERED: Final = Verdict(Outcome.DELIVERED)
_REJECTED: Final = Verdict(Outcome.REJECTED)


def classify(status: int, retry_after: Sequence[str], now: datetime) -> Verdict:
    """The verdict on a final status code; `retry_after` holds every Retry-After header, `now` is when they came.

    A status under 200 is no final answer at all, so the request may or may not have been taken in. One over 599
    counts as a server error (RFC 9110, 15).
    """
    if 200 <= status < 300:  # noqa: PLR2004 -- the classes of RFC 9110, 15 are best known by their numbers
        return _DELIVERED
    if status < 200:  # noqa: PLR2004
        return Verdict(Outcome.DISCONNECTED)
    if status == _THROTTLED:
        return Verdict(Outcome.THROTTLED, retry_after_seconds(retry_after, now))
    if status >= 500 or status in _TRANSIENT:  # noqa: PLR2004
        wait = retry_after_seconds(retry_after, now)
        throttled = status == _UNAVAILABLE and wait is not None
        return Verdict(Outcome.THROTTLED if throttled else Outcome.SERVER_ERROR, wait)
    return Verdict(Outcome.REJECTED, disable=True) if status == _GONE else _REJECTED


def retry_after_seconds(values: Sequence[str], now: datetime) -> float | None:
    """The seconds that Retry-After asks for, capped at an hour; None where it is absent, repeated or junk.

    Source: RFC 9110, 10.2.3: whole seconds in ASCII digits, or an HTTP-date. A date that has passed asks for 0.
    """
    if len(values) != 1:
        return None
    value = values[0].strip(" \t")
    if _DELAY.fullmatch(value):
        digits = value.lstrip("0") or "0"
        return MAX_RETRY_AFTER_SECONDS if len(digits) > _MOST_DIGITS else min(float(digits), MAX_RETRY_AFTER_SECONDS)
    moment = _http_date(value, now)
    if moment is None:
        return None
    return min(max((moment - now).total_seconds(), 0.0), MAX_RETRY_AFTER_SECONDS)


def retry_after_detail(values: Sequence[str], seconds: float | None) -> str | None:
    """What the receiver asked for and what became of it, to stand beside the attempt; None if it did not ask."""
    if not values:
        return None
    if len(values) > 1:
        return "retry-after: given more than once, ignored"
    asked = f"retry-after: {single_line(values[0], _SHOWN_CHARACTERS)}"
    if seconds is None:
        return f"{asked} (ignored)"
    return f"{asked} (capped at {MAX_RETRY_AFTER_SECONDS:.0f} s)" if seconds == MAX_RETRY_AFTER_SECONDS else asked


def _http_date(value: str, now: datetime) -> datetime | None:
    for form in _DATES:
        if match := form.fullmatch(value):
            year, month = _year(match["year"], now), _MONTHS[match["month"]]
            day, hour, minute, second = (int(match[part]) for part in ("day", "hour", "minute", "second"))
            try:
                return datetime(year, month, day, hour, minute, second, tzinfo=UTC)
            except ValueError:
                return None
    return None


def _year(digits: str, now: datetime) -> int:
    """Two digits mean the year at most 50 ahead of now that ends in them (RFC 9110, 5.6.7)."""
    if len(digits) == 4:  # noqa: PLR2004
        return int(digits)
    year = now.year - now.year % 100 + int(digits)
    return year - 100 if year > now.year + 50 else year
