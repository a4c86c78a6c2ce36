"""How long a receiver that is down is tried: what the doctor warns of and the docs print."""

import pytest

from service.domain.model import Policy
from service.domain.patience import ends_far_before, in_words, mean_seconds
from service.domain.retry import backoff
from service.domain.subscriber import DAY_SECONDS


def test_the_defaults_last_about_a_minute_and_one_attempt_lasts_no_time() -> None:
    assert mean_seconds(Policy()) == (1 + 2 + 4 + 8 + 16 + 32 + 64) / 2
    assert mean_seconds(Policy(max_attempts=1)) == 0


@pytest.mark.parametrize("attempts", [4, 62, 10_000])
def test_no_pause_is_longer_than_its_cap(attempts: int) -> None:
    assert backoff(Policy(backoff_base_seconds=1, backoff_cap_seconds=10), attempts, 0.5) == 5
    assert mean_seconds(Policy(max_attempts=5, backoff_base_seconds=1, backoff_cap_seconds=2)) == (1 + 2 + 2 + 2) / 2


def test_the_defaults_end_far_before_their_deadline_and_patient_ones_do_not() -> None:
    assert ends_far_before(Policy(), 3 * DAY_SECONDS)
    assert not ends_far_before(Policy(max_attempts=30, backoff_cap_seconds=3600), 3 * DAY_SECONDS)
    assert not ends_far_before(Policy(), 60)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 seconds"),
        (1, "1 second"),
        (63.5, "64 seconds"),
        (120, "2 minutes"),
        (961.5, "16 minutes"),
        (7200, "2 hours"),
        (3 * DAY_SECONDS, "3 days"),
    ],
)
def test_a_length_of_time_is_said_in_the_unit_that_fits(seconds: float, words: str) -> None:
    assert in_words(seconds) == words
