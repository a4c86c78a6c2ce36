"""The state machine: whatever may happen to deliveries, in any order, to the house and to its model at once."""

import asyncio
from collections.abc import Coroutine
from itertools import cycle
from typing import Any, ClassVar, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from service.domain.model import Answer, Outcome
from service.flow.outbound import Outbound
from service.store.deliveries import Appetite
from service.store.settlements import Settled
from tests.model.operators import Operated
from tests.model.parts import OPENS_AT, Lane, Told, Verdict, verdict
from tests.model.stage import Held, Stage

T = TypeVar("T")

MOST_EVENTS = 8
WORKERS = st.sampled_from(["w1", "w2"])
ANSWERS = st.sampled_from(
    [
        Answer(Outcome.DELIVERED, 200),
        Answer(Outcome.SERVER_ERROR, 500),
        Answer(Outcome.TIMEOUT),
        Answer(Outcome.THROTTLED, 429, retry_after=120.0),
        Answer(Outcome.REJECTED, 404),
        Answer(Outcome.UNREACHABLE),
        Answer(Outcome.DISCONNECTED),
        Answer(Outcome.REJECTED, 410, disable=True),
        Answer(Outcome.INTERRUPTED),
        Answer(Outcome.INTERNAL, retry_after=60.0),
        Answer(Outcome.BLOCKED),
        Answer(Outcome.SHADOW),
    ]
)
SOME_ANSWERS = st.lists(ANSWERS, min_size=3, max_size=3, unique=True)
DELIVERED = Answer(Outcome.DELIVERED, 200)
SUBJECTS = st.sampled_from(["a", "b"])
PICK = st.integers(0, 63)
SLUGS = ("plain", "careful", "ordered", "strict", "slow")


def lanes() -> list[Lane]:
    """One subscriber of each kind."""
    return [
        Lane("plain", 9001),
        Lane("careful", 9002, idempotent=False, concurrency=1),
        Lane("ordered", 9003, ordering="subject", block=True),
        Lane("strict", 9004, ordering="strict"),
        Lane("slow", 9005, rate=1.0),
    ]


class Machine(RuleBasedStateMachine):
    """Each rule does one thing to both; the invariant compares them."""

    runner: ClassVar[asyncio.Runner]
    stage: ClassVar[Stage]

    def __init__(self) -> None:
        super().__init__()
        self.world = Operated(lanes())
        self.held: list[Held] = []
        self.events = 0
        self.do(self.stage.clear())
        for lane in self.world.lanes.values():
            lane.revision = self.do(self.stage.put(lane))

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run one thing against the database, as the next step of the model."""
        self.world.step += 1
        return self.runner.run(work)

    # -- what comes in

    @precondition(lambda self: self.events < MOST_EVENTS)
    @rule(subject=SUBJECTS)
    def publish(self, subject: str) -> None:
        """An event comes in and is fanned out."""
        self.events += 1
        rows = self.do(self.stage.publish(subject, self.events))
        assert set(rows) == self.world.listeners()
        self.world.publish(self.events, subject, rows)

    @initialize(subjects=st.lists(SUBJECTS, min_size=1, max_size=3))
    def begin(self, subjects: list[str]) -> None:
        """There is something to do."""
        for subject in subjects:
            self.publish(subject)

    @precondition(lambda self: any(each.open for each in self.world.deliveries.values()))
    @rule(minutes=st.sampled_from([1, 2, 5, 20, 61]))
    def time_passes(self, minutes: int) -> None:
        """The clock is turned."""
        self.do(self.stage.pass_time(minutes))
        self.world.now += minutes

    # -- what workers do

    @precondition(lambda self: any(each.open for each in self.world.deliveries.values()))
    @rule(worker=WORKERS, batch=st.sampled_from([100, 2]), share=st.sampled_from([100, 1]), chain=st.integers(1, 3))
    def claim(self, worker: str, batch: int, share: int, chain: int) -> None:
        """A worker takes what it can get, and holds it."""
        held = self.do(self.stage.claim(worker, Appetite(batch, share, chain=chain), self.world.now))
        self._hold(held, lambda got: self.world.claim(worker, got, batch=batch, share=share, chain=chain))

    @precondition(lambda self: any(each.open for each in self.world.deliveries.values()))
    @rule(worker=WORKERS, answers=SOME_ANSWERS, good=st.integers(0, 2))
    def work(self, worker: str, answers: list[Answer], good: int) -> None:
        """A worker goes all the way with whatever it can get."""
        mine, self.held = self.held, []
        self.claim(worker, batch=100, share=100, chain=3)
        if self.held:
            self._settle(self.held, good, answers)
        self.held = mine

    @precondition(lambda self: self.held)
    @rule(worker=WORKERS, minutes=st.sampled_from([2, 2, 1, 61]))
    def leases_run_out(self, worker: str, minutes: int) -> None:
        """Whoever held them longest was stopped for too long, and may still come back with its results."""
        self.time_passes(minutes)
        self.lapse(worker)

    def lapse(self, worker: str) -> None:
        """A worker takes over all whose leases ran out; it is told whose they were."""
        before = {row: (each.owner, each.seq) for row, each in self.world.deliveries.items()}
        held = self.do(self.stage.lapse(worker, self.world.now))
        self._hold(held, lambda got: self.world.lapse(worker, got))
        for item in (item for each in held for item in each.chain):
            assert item.claimed.lapsed is not None
            assert before[item.claimed.row] == (item.claimed.lapsed.worker, item.claimed.lapsed.lease_seq)

    def _hold(self, held: list[Held], judge: Any) -> None:
        claimed = [item.claimed for each in held for item in each.chain]
        judge(sorted(each.row for each in claimed))
        for each in claimed:
            known = self.world.deliveries[each.row]
            told = (each.generation, each.attempt_count, each.generation_attempts, each.lease_seq)
            assert told == (known.generation, known.attempts, known.tries, known.seq)
        self.held += held

    @precondition(lambda self: self.held)
    @rule(pick=PICK, good=st.integers(0, 2), answer=ANSWERS)
    def settle_one(self, pick: int, good: int, answer: Answer) -> None:
        """One chain is answered: so many deliveries well, the next one so."""
        held = self.held.pop(pick % len(self.held))
        self._settle([held], good, [answer])

    @precondition(lambda self: self.held)
    @rule(answers=SOME_ANSWERS)
    def settle_all(self, answers: list[Answer]) -> None:
        """Everything that is held is answered, in one batch."""
        held, self.held = self.held, []
        self._settle(held, 0, answers)

    @precondition(lambda self: self.held)
    @rule(pick=PICK)
    def settle_twice(self, pick: int) -> None:
        """The answer to a commit was lost: the same results are written again."""
        held = self.held.pop(pick % len(self.held))
        told = self._settle([held], 0, [Answer(Outcome.SERVER_ERROR, 500)])
        self._write(told)

    def _settle(self, held: list[Held], good: int, answers: list[Answer]) -> list[tuple[Settled, Told]]:
        """Each chain gets the next of the answers, behind so many good ones."""
        ended: list[tuple[Settled, Told]] = []
        for answer, each in zip(cycle(answers), held, strict=False):
            going = True
            for at, item in enumerate(each.chain):
                given = (DELIVERED if at < good else answer) if going else None
                settled = self.do(self.stage.attempt(each, item, given, self.world.now - each.at))
                told = self._told(each, item, given)
                going = going and told.verdict.state == "delivered"
                ended.append((settled, told))
        self._write(ended)
        return ended

    def _write(self, ended: list[tuple[Settled, Told]]) -> None:
        """The settler writes a delivery once a batch; a second result of it goes into the next."""
        self.do(self.stage.settle([settled for settled, _ in ended]))
        opened: set[str] = set()
        waiting = [told for _, told in ended]
        while waiting:
            batch: dict[int, Told] = {}
            again = [told for told in waiting if batch.setdefault(told.row, told) is not told]
            opened |= self.world.settle(list(batch.values()))
            waiting = again
        opened = {slug for slug in opened if self.world.lanes[slug].failures >= OPENS_AT}
        for slug in opened:
            self.world.lanes[slug].opens = self.world.now + 1
        self.do(self.stage.still_probes(opened))

    def lane_of(self, item: Outbound) -> Lane:
        """The lane of a delivery that was claimed."""
        assert item.destination is not None
        return self.world.lanes[item.destination.slug]

    def _told(self, held: Held, item: Outbound, answer: Answer | None) -> Told:
        claimed, lapsed = item.claimed, item.claimed.lapsed
        lane = self.lane_of(item)
        left = round(claimed.seconds_left / 60) - (self.world.now - held.at)
        outcome: str | None
        if answer is None:
            outcome, decided = ("in_doubt" if lapsed else None), Verdict("pending", counted=False)
        elif lapsed is None and claimed.seconds_left <= 0:
            outcome, decided = None, Verdict("exhausted", counted=False, reason="deadline")
        else:
            outcome = "in_doubt" if lapsed else answer.outcome.value
            wait = None if lapsed or answer.retry_after is None else answer.retry_after / 60
            tries = claimed.generation_attempts
            decided = verdict(outcome, idempotent=lane.idempotent, tries=tries, left=left, retry_after=wait)
        return Told(
            claimed.row,
            claimed.lease_seq,
            decided,
            outcome,
            claimed.attempt_count + 1,
            claimed.generation,
            lapsed.lease_seq if lapsed else claimed.lease_seq,
            lapsed.worker if lapsed else held.worker,
            claimed.revision,
            gone=outcome == "rejected" and answer is not None and answer.disable,
        )
