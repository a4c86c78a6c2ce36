"""The state machines: whatever is decided of a delivery is an arrow that the table has."""

from itertools import product

import pytest

from service.domain import retry
from service.domain.model import Answer, DeliveryState, Outcome, Policy, RunState
from service.domain.states import DELIVERY_TRANSITIONS, RUN_TRANSITIONS, TERMINAL


@pytest.mark.parametrize("outcome", Outcome)
def test_every_settlement_is_an_arrow_out_of_leased(outcome: Outcome) -> None:
    for idempotent, attempts, seconds_left in product((True, False), (0, 7), (0.0, 1e6)):
        budget = retry.Budget(attempts, seconds_left)
        decided = retry.settle(Answer(outcome), Policy(idempotent=idempotent), budget, draw=0.5)
        assert decided.state in DELIVERY_TRANSITIONS[DeliveryState.LEASED]


def test_the_tables_name_every_state() -> None:
    assert set(DELIVERY_TRANSITIONS) == set(DeliveryState)
    assert set(RUN_TRANSITIONS) == set(RunState)


def test_only_a_person_opens_what_is_terminal() -> None:
    for state in TERMINAL:
        assert DeliveryState.LEASED not in DELIVERY_TRANSITIONS[state]
