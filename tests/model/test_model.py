"""A machine that does to the real store whatever may happen to it, in any order, and holds it against a pure model."""

import asyncio
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from service.domain.model import Answer, Outcome
from service.store.database import Database
from tests.model.hands import Hands
from tests.model.machine import DELIVERED
from tests.model.stage import Stage
from tests.scenes import Scene

EXAMPLES = int(os.environ.get("MODEL_EXAMPLES", "0"))
"""How many sequences to try, others each time, and shrunk; 0 tries the few of the suite, which are always the same."""


@pytest.fixture
def machine(database_url: str) -> Iterator[type[Hands]]:
    """The machine on a database of its own, with a loop of its own: Hypothesis knows of none."""
    with asyncio.Runner() as runner:
        db = Database(database_url)
        Hands.runner, Hands.stage = runner, Stage(Scene(db))
        yield Hands
        runner.run(db.close())


@pytest.mark.timeout(0 if EXAMPLES else 120)
def test_in_whatever_order_things_happen_the_store_does_what_the_model_says(machine: type[Hands]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES or 40,
            stateful_step_count=60 if EXAMPLES else 40,
            derandomize=not EXAMPLES,
            print_blob=bool(EXAMPLES),
            database=None,
            phases=[Phase.generate, Phase.shrink] if EXAMPLES else [Phase.generate],
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_an_owner_that_comes_back_late_changes_nothing_and_leaves_its_evidence(machine: type[Hands]) -> None:
    """What the sequences of chance meet seldom, in one: two owners, a late answer, a cancellation, a deletion."""
    hands = machine()
    hands.begin(["a", "a", "b"])
    hands.claim("w1", batch=100, share=100, chain=3)
    hands.leases_run_out("w2", minutes=2)
    assert len({held.worker for held in hands.held}) == 2
    first = [held for held in hands.held if held.worker == "w1"]
    second = [held for held in hands.held if held.worker == "w2"]
    hands.held = first
    hands.settle_all([Answer(Outcome.DELIVERED, 200), Answer(Outcome.REJECTED, 404), Answer(Outcome.TIMEOUT)])
    hands.both_say_the_same()
    hands.held = second
    hands.settle_all([DELIVERED])
    hands.both_say_the_same()
    assert {attempt.late for attempt in hands.world.attempts} == {True, False}
    hands.time_passes(5)
    hands.claim("w1", batch=100, share=100, chain=3)
    for pick in range(len(hands.world.deliveries)):
        hands.cancel(pick)
    hands.retain(0, 1000, whole=True)
    hands.settle_all([Answer(Outcome.THROTTLED, 429, retry_after=120.0)])
    hands.both_say_the_same()
    hands.begin(["b"])
    hands.claim("w2", batch=100, share=100, chain=3)
    hands.goes_down(0)
    hands.both_say_the_same()
    hands.teardown()


def test_a_run_is_settled_when_all_has_ended_and_not_any_more_once_something_is_replayed(machine: type[Hands]) -> None:
    hands = machine()
    hands.begin(["a"])
    hands.time_passes(1)
    hands.claim("w1", batch=100, share=100, chain=3)
    hands.settle_all([DELIVERED])
    hands.note_settled()
    hands.replay(0)
    hands.both_say_the_same()
    hands.teardown()


def test_what_is_still_held_is_not_taken_over_with_what_ran_out_beside_it(machine: type[Hands]) -> None:
    hands = machine()
    hands.begin(["a"])
    hands.claim("w1", batch=100, share=100, chain=3)
    hands.time_passes(1)
    hands.publish("b")
    hands.claim("w1", batch=100, share=100, chain=3)
    hands.time_passes(1)
    hands.lapse("w2")
    hands.both_say_the_same()
    assert {hands.world.deliveries[item.claimed.row].owner for held in hands.held for item in held.chain} == {
        "w1",
        "w2",
    }
    hands.teardown()
