"""RFC 3339, strictly: what is an instant, what is not, and how it is written."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.timestamps import format_rfc3339, parse_rfc3339

EXTREMES = (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))

TAKEN = {
    "2026-11-30T02:00:00Z": "2026-11-30T02:00:00Z",
    "2026-11-30t02:00:00z": "2026-11-30T02:00:00Z",
    "2025-10-26T02:30:00+02:00": "2025-10-26T00:30:00Z",
    "2025-10-26T02:30:00+01:00": "2025-10-26T01:30:00Z",
    "2025-03-01T00:00:00-00:00": "2025-03-01T00:00:00Z",
    "2025-03-01T00:00:00+23:59": "2025-02-28T00:01:00Z",
    "2024-02-29T00:00:00Z": "2024-02-29T00:00:00Z",
    "2025-03-30T02:30:00.5Z": "2025-03-30T02:30:00.500000Z",
    "2025-03-30T02:30:00.123456Z": "2025-03-30T02:30:00.123456Z",
    "2025-03-30T02:30:00.123456789Z": "2025-03-30T02:30:00.123456Z",
    "2025-03-30T02:30:00.000000999Z": "2025-03-30T02:30:00Z",
    "0001-01-01T00:00:00.000001Z": "0001-01-01T00:00:00.000001Z",
    "9999-12-31T23:59:59.999998999Z": "9999-12-31T23:59:59.999998Z",
}

REFUSED = [
    "2025-10-26T02:30:00",
    "2025-03-30T02:30:00 Europe/Berlin",
    "2025-03-30T02:30:00[Europe/Berlin]",
    "2025-03-30 02:30",
    "2025-03-30 02:30:00Z",
    "2025-03-30T02:30Z",
    "1743294600",
    "2025-03-30",
    "2025-W13-7",
    "2025-W13-7T00:00:00Z",
    "2025-089T00:00:00Z",
    "20250330T023000Z",
    "2025-03-30x02:30:00Z",
    "2025-03-30T02:30:00-0800",
    "2025-03-30T02:30:00+08",
    "2025-03-30T02:30:00+00:00:01",
    "2025-03-30T24:00:00Z",
    "2025-03-30T23:59:60Z",
    "2025-03-30T23:59:61Z",
    "2025-03-30T02:60:00Z",
    "2025-03-30T02:30:00,5Z",
    "2025-03-30T02:30:00.Z",
    "2025-03-30T02:30:00.1234567890Z",
    "2025-02-29T00:00:00Z",
    "2025-13-01T00:00:00Z",
    "2025-00-01T00:00:00Z",
    "2025-04-31T00:00:00Z",
    "2025-03-30T02:30:00+24:00",
    "2025-03-30T02:30:00+12:60",
    "0000-01-01T00:00:00Z",
    "0001-01-01T00:00:00Z",
    "0001-01-01T01:00:00.000000999+01:00",
    "9999-12-31T23:59:59.999999Z",
    "9999-12-31T22:59:59.999999999-01:00",
    "0001-01-01T00:00:00+00:01",
    "9999-12-31T23:59:59-00:01",
    "99999-12-31T23:59:59Z",
    "+2025-03-30T02:30:00Z",
    "-2025-03-30T02:30:00Z",
    "٢٠٢٥-03-30T02:30:00Z",
    " 2025-03-30T02:30:00Z",
    "2025-03-30T02:30:00Z ",
    "2025-03-30T02:30:00Z\n",
    "2025-03-30T02:30:00\u2212" + "08:00",
    "now",
    "",
    "Sun, 30 Mar 2025 02:30:00 GMT",
]


@pytest.mark.parametrize(("text", "instant"), TAKEN.items())
def test_an_instant_with_an_offset_is_read_as_utc(text: str, instant: str) -> None:
    parsed = parse_rfc3339(text)
    assert parsed.tzinfo is UTC
    assert format_rfc3339(parsed) == instant


@pytest.mark.parametrize("text", REFUSED)
def test_everything_else_is_refused_without_a_guess_and_without_an_echo(text: str) -> None:
    with pytest.raises(ValueError, match=r"^must be ") as refusal:
        parse_rfc3339(text)
    assert not text.strip() or text.strip() not in str(refusal.value)


def test_the_hour_that_comes_twice_is_two_instants() -> None:
    first, second = (parse_rfc3339(f"2025-10-26T02:30:00{offset}") for offset in ("+02:00", "+01:00"))
    assert second - first == timedelta(hours=1)


@given(st.datetimes(timezones=st.just(UTC)).filter(lambda instant: instant not in EXTREMES))
def test_what_is_written_reads_back_the_same(instant: datetime) -> None:
    assert parse_rfc3339(format_rfc3339(instant)) == instant


@given(st.text(max_size=40))
def test_text_from_anywhere_is_an_instant_or_a_value_error(text: str) -> None:
    try:
        parse_rfc3339(text)
    except ValueError:
        return


def test_other_offsets_are_written_in_utc_and_none_is_refused() -> None:
    berlin = timezone(timedelta(hours=2))
    assert format_rfc3339(datetime(2026, 7, 1, 12, tzinfo=berlin)) == "2026-07-01T10:00:00Z"
    with pytest.raises(ValueError, match="offset"):
        format_rfc3339(datetime(2026, 7, 1, 12))  # noqa: DTZ001 - a naive datetime is the point
