"""The two state machines, each as one transition table; every write of a state is one of these arrows."""

from collections.abc import Mapping
from typing import Final

from service.domain.model import DeliveryState as D
from service.domain.model import RunState as R

RUN_TRANSITIONS: Final[Mapping[R, frozenset[R]]] = {
    R.HELD: frozenset({R.CLAIMED}),  # the job was resumed
    R.CLAIMED: frozenset({R.RUNNING, R.HELD}),  # a worker leased it; or the job was paused first
    R.RUNNING: frozenset({R.RUNNING, R.COMPLETED, R.FAILED}),  # running again: a successor took over a dead lease
    R.FAILED: frozenset({R.CLAIMED}),  # an operator retried it: it goes on from where it stopped
    R.COMPLETED: frozenset(),
}

DELIVERY_TRANSITIONS: Final[Mapping[D, frozenset[D]]] = {
    D.PENDING: frozenset({D.LEASED, D.CANCELLED, D.EXHAUSTED}),  # exhausted: its deadline passed while it waited
    D.LEASED: frozenset({D.PENDING, D.DELIVERED, D.EXHAUSTED, D.REJECTED, D.AMBIGUOUS, D.CANCELLED}),
    D.DELIVERED: frozenset({D.PENDING}),  # back to pending only as a new generation: replay
    D.EXHAUSTED: frozenset({D.PENDING, D.DELIVERED, D.CANCELLED}),  # resolved by a person who looked
    D.REJECTED: frozenset({D.PENDING, D.DELIVERED, D.CANCELLED}),
    D.AMBIGUOUS: frozenset({D.PENDING, D.DELIVERED, D.CANCELLED}),
    D.CANCELLED: frozenset({D.PENDING}),
}

DEAD_LETTERS: Final = frozenset({D.EXHAUSTED, D.REJECTED, D.AMBIGUOUS})
TERMINAL: Final = DEAD_LETTERS | {D.DELIVERED, D.CANCELLED}

REPLAYABLE: Final = frozenset(state for state in TERMINAL if D.PENDING in DELIVERY_TRANSITIONS[state])
RESOLVABLE: Final = frozenset(state for state in TERMINAL if {D.DELIVERED, D.CANCELLED} <= DELIVERY_TRANSITIONS[state])
CANCELLABLE: Final = frozenset(DELIVERY_TRANSITIONS) - TERMINAL
"""From which states an operator may replay, resolve or cancel a delivery."""
