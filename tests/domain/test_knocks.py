"""Which run a tick gets that signs nothing: its slot's, or one of its own where the slot has not come."""

from datetime import UTC, datetime, timedelta

from service.domain.identifiers import MAX_RUN_ID_BYTES
from service.domain.knocks import Knock, by_hand, of_slot

NOW = datetime(2026, 11, 30, 2, 3, 4, 567_890, tzinfo=UTC)
SLOT = datetime(2026, 11, 30, 3, tzinfo=UTC)


def test_a_slot_that_has_come_is_the_run_and_its_cutoff() -> None:
    assert of_slot("jobs", SLOT, SLOT) == Knock("jobs@2026-11-30T03:00:00Z", SLOT)
    assert of_slot("jobs", SLOT, SLOT + timedelta(hours=5)) == of_slot("jobs", SLOT, SLOT)


def test_clocks_may_be_a_few_seconds_apart() -> None:
    assert of_slot("jobs", SLOT, SLOT - timedelta(seconds=5)).cutoff == SLOT


def test_a_run_by_hand_with_the_next_slot_s_time_leaves_that_slot_its_run() -> None:
    forced = of_slot("jobs", SLOT, SLOT - timedelta(seconds=6))
    assert forced == Knock("jobs@manual-2026-11-30T02:59Z", None)
    assert of_slot("jobs", SLOT, SLOT) != forced


def test_a_run_by_hand_is_the_same_for_a_minute() -> None:
    assert by_hand("jobs", NOW) == by_hand("jobs", NOW.replace(second=59)) == Knock("jobs@manual-2026-11-30T02:03Z")
    assert by_hand("jobs", NOW) != by_hand("jobs", NOW + timedelta(minutes=1))


def test_the_longest_source_still_makes_a_run_id() -> None:
    assert len(of_slot("x" * 100, NOW, NOW).run_id) <= MAX_RUN_ID_BYTES
