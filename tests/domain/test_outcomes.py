"""The outcome table: every status there is, and every Retry-After that was ever seen in the wild."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.model import Outcome
from service.domain.outcomes import MAX_RETRY_AFTER_SECONDS, classify, retry_after_detail, retry_after_seconds

NOW = datetime(2026, 11, 30, 2, 0, 0, tzinfo=UTC)


def expected(status: int) -> Outcome:
    """The contract's table, spelled out once more by class."""
    if status in (408, 425):
        return Outcome.SERVER_ERROR
    if status == 429:
        return Outcome.THROTTLED
    by_class = {1: Outcome.DISCONNECTED, 2: Outcome.DELIVERED, 3: Outcome.REJECTED, 4: Outcome.REJECTED}
    return by_class.get(status // 100, Outcome.SERVER_ERROR)


@pytest.mark.parametrize("status", range(100, 1000))
def test_every_status_has_the_outcome_of_the_table(status: int) -> None:
    verdict = classify(status, [], NOW)
    assert verdict == (expected(status), None, status == 410)


@pytest.mark.parametrize("status", range(100, 1000))
def test_retry_after_is_heard_only_from_those_who_may_be_asked_again(status: int) -> None:
    verdict = classify(status, ["7"], NOW)
    heard = status in (408, 425, 429) or status >= 500
    assert verdict.retry_after == (7.0 if heard else None)
    assert (verdict.outcome is Outcome.THROTTLED) == (status in (429, 503))


def test_a_503_throttles_the_lane_only_if_it_says_until_when() -> None:
    assert classify(503, [], NOW).outcome is Outcome.SERVER_ERROR
    assert classify(503, ["junk"], NOW).outcome is Outcome.SERVER_ERROR
    assert classify(503, ["0"], NOW) == (Outcome.THROTTLED, 0.0, False)


SECONDS = {
    "0": 0.0,
    "-0": None,
    "5": 5.0,
    " 5 ": 5.0,
    "\t5": 5.0,
    "005": 5.0,
    "3600": 3600.0,
    "3601": MAX_RETRY_AFTER_SECONDS,
    "86400": MAX_RETRY_AFTER_SECONDS,
    "9999999999": MAX_RETRY_AFTER_SECONDS,
    "9" * 5000: MAX_RETRY_AFTER_SECONDS,
    "0" * 5000: 0.0,
    "9" * 100_000: None,
    "-5": None,
    "+5": None,
    "0.129": None,
    "5.0": None,
    "1m0s": None,
    "": None,
    "5, 10": None,
    "5_0": None,
    "٥": None,
    "５": None,
    "²": None,
    "5\x00": None,
    "5\n": None,
    "nan": None,
    "inf": None,
    "1e400": None,
    "1e2": None,
    "0x10": None,
    "None": None,
    "\ud800": None,
}


@pytest.mark.parametrize(("value", "seconds"), SECONDS.items(), ids=range(len(SECONDS)))
def test_retry_after_in_seconds_is_read_strictly_and_capped(value: str, seconds: float | None) -> None:
    assert retry_after_seconds([value], NOW) == seconds


def test_retry_after_given_twice_is_ignored() -> None:
    assert retry_after_seconds(["5", "10"], NOW) is None
    assert retry_after_seconds(["5", "5"], NOW) is None
    assert retry_after_seconds([], NOW) is None


DATES = {
    "Mon, 30 Nov 2026 02:01:30 GMT": 90.0,
    "Monday, 30-Nov-26 02:01:30 GMT": 90.0,
    "Mon Nov 30 02:01:30 2026": 90.0,
    "Tue Dec  1 02:00:00 2026": MAX_RETRY_AFTER_SECONDS,
    "Mon, 30 Nov 2026 02:00:00 GMT": 0.0,
    "Mon, 30 Nov 2026 01:00:00 GMT": 0.0,
    "Sun, 06 Nov 1994 08:49:37 GMT": 0.0,
    "Sunday, 06-Nov-94 08:49:37 GMT": 0.0,
    "Monday, 30-Nov-76 02:01:30 GMT": MAX_RETRY_AFTER_SECONDS,
    "Tuesday, 30-Nov-77 02:01:30 GMT": 0.0,
    "Fri, 31 Dec 9999 23:59:59 GMT": MAX_RETRY_AFTER_SECONDS,
    "Fri, 31 Dec 99999 23:59:59 GMT": None,
    "Fri, 31 Dec 0000 23:59:59 GMT": None,
    "Mon, 31 Feb 2027 02:01:30 GMT": None,
    "Mon, 30 Nov 2026 24:00:00 GMT": None,
    "Mon, 30 Nov 2026 02:00:60 GMT": None,
    "Mon, 30 Nov 2026 02:01:30 +0100": None,
    "Mon, 30 Nov 2026 02:01:30": None,
    "mon, 30 nov 2026 02:01:30 gmt": None,
    "Mo, 30 Nov 2026 02:01:30 GMT": None,
    "Mon, 30 Dez 2026 02:01:30 GMT": None,
    "2026-11-30T02:01:30Z": None,
    "Mon, ٣٠ Nov 2026 02:01:30 GMT": None,
}


@pytest.mark.parametrize(("value", "seconds"), DATES.items())
def test_retry_after_as_a_date_is_read_in_its_three_forms_and_capped(value: str, seconds: float | None) -> None:
    assert retry_after_seconds([value], NOW) == seconds


@given(st.integers(min_value=-(10**6), max_value=10**6))
def test_any_date_that_a_server_writes_is_understood(offset: int) -> None:
    written = format_datetime(NOW + timedelta(seconds=offset), usegmt=True)
    assert retry_after_seconds([written], NOW) == min(max(offset, 0), MAX_RETRY_AFTER_SECONDS)


@given(st.lists(st.text(), max_size=3), st.integers(min_value=100, max_value=999))
def test_no_junk_makes_classification_fail_or_wait_longer_than_an_hour(values: list[str], status: int) -> None:
    verdict = classify(status, values, NOW)
    assert verdict.retry_after is None or 0 <= verdict.retry_after <= MAX_RETRY_AFTER_SECONDS
    detail = retry_after_detail(values, verdict.retry_after)
    assert detail is None or (len(detail) <= 100 and detail.isprintable())


DETAILS = {
    ("30",): "retry-after: 30",
    ("86400",): "retry-after: 86400 (capped at 3600 s)",
    ("1m0s",): "retry-after: 1m0s (ignored)",
    ("a\x00b\r\n",): "retry-after: a\ufffdb\ufffd\ufffd (ignored)",
    ("5", "6"): "retry-after: given more than once, ignored",
    (): None,
}


@pytest.mark.parametrize(("values", "detail"), DETAILS.items())
def test_what_was_asked_and_what_came_of_it_stand_beside_the_attempt(values: list[str], detail: str | None) -> None:
    assert retry_after_detail(values, retry_after_seconds(values, NOW)) == detail
