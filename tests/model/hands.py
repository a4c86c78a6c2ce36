"""More rules: operators, upkeep and retention; and at the end everything has to settle without a hand."""

import sys

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from service.domain.errors import Conflict, PayloadPurged
from service.domain.identifiers import delivery_id
from service.domain.model import Answer, DeliveryState, Outcome
from service.flow import control, control_subscribers, upkeep
from service.flow.control_deliveries import Named
from service.flow.reconciling import reconcile
from tests import operating
from tests.model.compare import compare
from tests.model.machine import DELIVERED, PICK, SLUGS, Machine
from tests.model.parts import DEAD, Bulk

SLUG = st.sampled_from(SLUGS)
_PATIENCE = 60


class Hands(Machine):
    """The machine with people at it."""

    @invariant()
    def both_say_the_same(self) -> None:
        """The database and the model agree."""
        self.runner.run(compare(self.stage, self.world))

    def named(self, row: int) -> Named:
        """The delivery as operators name it."""
        [found] = self.runner.run(
            self.stage.scene.execute("SELECT event_id, subscriber FROM tocsin.deliveries WHERE row = :row", row=row)
        )
        return operating.named(delivery_id(found.event_id, found.subscriber))

    def picked(self, pick: int) -> int:
        """One of the deliveries there are."""
        rows = sorted(self.world.deliveries)
        return rows[pick % len(rows)]

    # -- one delivery

    @precondition(lambda self: self.world.deliveries)
    @rule(pick=PICK)
    def replay(self, pick: int) -> None:
        """A person replays one delivery, whatever has become of it."""
        row = self.picked(pick)
        named = self.named(row)
        try:
            self.do(operating.replay(self.stage.scene, named))
        except (Conflict, PayloadPurged):
            assert not self.world.replay(row, 1)
        else:
            assert self.world.replay(row, 1)
            self.world.after_replay([row])

    @precondition(lambda self: self.world.deliveries)
    @rule(pick=PICK)
    def cancel(self, pick: int) -> None:
        """A person calls one off, whatever has become of it."""
        row = self.picked(pick)
        named, was = self.named(row), self.world.deliveries[row].state
        try:
            self.do(operating.cancel(self.stage.scene, named))
        except Conflict:
            assert was not in {"pending", "cancelled"}
        else:
            assert self.world.cancel(row) == (was == "pending")

    @precondition(lambda self: any(each.state in DEAD for each in self.world.deliveries.values()))
    @rule(pick=PICK, delivered=st.booleans())
    def resolve(self, pick: int, *, delivered: bool) -> None:
        """A person says what became of a dead letter."""
        rows = sorted(row for row, each in self.world.deliveries.items() if each.state in DEAD)
        row = rows[pick % len(rows)]
        state = DeliveryState.DELIVERED if delivered else DeliveryState.CANCELLED
        self.do(operating.resolve(self.stage.scene, self.named(row), state))
        assert self.world.resolve(row, state.value)

    # -- subscribers and dispatch

    @rule(slug=SLUG)
    def pause_or_resume(self, slug: str) -> None:
        """A subscriber is paused; or resumed, also where Tocsin disabled it."""
        lane, scene = self.world.lanes[slug], self.stage.scene
        if lane.deleted:
            return
        if lane.state == "active":
            self.do(control_subscribers.pause_subscriber(scene.db, slug, actor="m", reason="deploy"))
            lane.turn("paused")
        else:
            self.do(control_subscribers.resume_subscriber(scene.db, scene.doorbell, slug, actor="m", reason="done"))
            lane.turn("active")
            lane.wake()

    @rule()
    def pause_or_resume_dispatch(self) -> None:
        """The switch over everything is turned."""
        scene = self.stage.scene
        if not self.world.paused:
            self.do(control.pause_dispatch(scene.db, actor="m", reason="calm"))
            self.world.paused = True
            return
        before = {slug: lane[4] for slug, lane in self.runner.run(self.stage.seen()).lanes.items()}
        self.do(control.resume_dispatch(scene.db, scene.doorbell, actor="m", reason="on"))
        after = {slug: lane[4] for slug, lane in self.runner.run(self.stage.seen()).lanes.items()}
        self.world.resume({slug for slug in SLUGS if before[slug] != after[slug]})

    @precondition(lambda self: len(self.world.deliveries) > 4)
    @rule(slug=SLUG)
    def delete_or_bring_back(self, slug: str) -> None:
        """A subscriber goes; or a deleted one comes back under its name."""
        lane = self.world.lanes[slug]
        if lane.deleted:
            lane.revision = self.do(self.stage.put(lane))
            self.world.revive(slug)
            return
        cancelled = self.do(control_subscribers.delete_subscriber(self.stage.scene.db, slug, actor="m"))
        assert cancelled == self.world.delete(slug)

    @precondition(lambda self: any(each.open and each.key for each in self.world.deliveries.values()))
    @rule(slug=st.sampled_from(["ordered", "strict"]))
    def block_or_skip(self, slug: str) -> None:
        """What an ordered lane does behind a dead letter is changed while it works."""
        lane = self.world.lanes[slug]
        if lane.deleted:
            return
        lane.block = not lane.block
        lane.revision = self.do(self.stage.put(lane))
        lane.wake()
        for key in {each.key for each in self.world.deliveries.values() if each.slug == slug and each.open}:
            self.world.promote(slug, key)

    @precondition(lambda self: self.held)
    @rule(pick=PICK)
    def goes_down(self, pick: int) -> None:
        """A receiver that has failed nine times in a row fails once more: its lane opens."""
        lane = self.lane_of(self.held[pick % len(self.held)].chain[0])
        lane.failures = 9
        self.do(self.stage.fail_nine_times(lane.slug))
        self.settle_all([Answer(Outcome.SERVER_ERROR, 500)])

    # -- bulk replays

    @precondition(lambda self: len(self.world.bulks) < 2 and any(not d.open for d in self.world.deliveries.values()))
    @rule(state=st.sampled_from([*sorted(DEAD), "delivered", "cancelled"]), swept=st.booleans())
    def replay_many(self, state: str, *, swept: bool) -> None:
        """A bulk replay of everything in one state begins; retention may come before its first delivery."""
        matching = self.world.matching(frozenset([state]))
        try:
            record = self.do(operating.replay_all(self.stage.scene, DeliveryState(state), rate=1 / 60))
        except PayloadPurged:
            assert self.world.all_purged(matching)
            return
        assert not self.world.all_purged(matching)
        assert record.matched == len(matching)
        last, step = max(matching, default=0), self.world.step
        bulk = Bulk(record.id, frozenset([state]), last, step, next_at=self.world.now, running=bool(matching))
        self.world.bulks.append(bulk)
        if swept:
            self.retain(age=0, limit=1000, whole=True)

    @precondition(lambda self: sum(b.running and b.next_at <= self.world.now for b in self.world.bulks) == 1)
    @rule()
    def chunk(self) -> None:
        """A bulk replay goes on by one."""
        [bulk] = [bulk for bulk in self.world.bulks if bulk.running and bulk.next_at <= self.world.now]
        self.do(self.stage.chunk())
        self.world.chunk(bulk)

    # -- upkeep and retention

    def expire(self) -> None:
        """What waits beyond its deadline ends."""
        self.do(upkeep.expire_overdue(self.stage.scene.db))
        self.world.expire()

    @precondition(lambda self: any(not each.open for each in self.world.deliveries.values()))
    @rule(age=st.sampled_from([0, 20]), limit=st.sampled_from([1000, 2]), whole=st.booleans())
    def retain(self, age: int, limit: int, *, whole: bool) -> None:
        """Payloads go before deliveries, as they do in a run of retention."""
        if whole:
            self.do(self.stage.sweep(age, limit))
            self.world.sweep(age)
        else:
            self.do(self.stage.purge(age))
            self.world.purge(age)

    @precondition(lambda self: self.world.deliveries)
    @rule()
    def upkeep(self) -> None:
        """What every worker does at a slow pace."""
        self.expire()
        self.note_settled()

    def note_settled(self) -> None:
        """A run is settled when all its deliveries are terminal, and no sooner."""
        self.do(upkeep.note_settled(self.stage.scene.db))
        assert not self.runner.run(self.stage.unnoted())

    # -- the end

    def teardown(self) -> None:
        """Whatever happened: with everything open, workers end it without a hand, and nothing odd is on record."""
        if sys.exc_info()[0] is None:
            self._end()

    def _end(self) -> None:
        """Everybody at work died; one worker that works is enough."""
        self.held = []
        self.time_passes(2)
        self._open_everything()
        for _ in range(_PATIENCE):
            if not self._chunks() and not any(each.open for each in self.world.deliveries.values()):
                break
            self.lapse("w3")
            self._settle_held()
            self.claim("w3", batch=100, share=100, chain=3)
            self._settle_held()
            self.expire()
            self.time_passes(5)
        self.note_settled()
        self.both_say_the_same()
        waiting = [each for each in self.world.deliveries.values() if each.open]
        assert not waiting, f"does not end: {waiting} in {self.world.lanes[waiting[0].slug]} at {self.world.now}"
        assert not self.runner.run(reconcile(self.stage.scene.db)).findings

    def _open_everything(self) -> None:
        self.world.lanes["slow"].rate = None
        for slug, lane in self.world.lanes.items():
            if lane.state != "active":
                self.pause_or_resume(slug)
        if not self.world.lanes["slow"].deleted:
            self.runner.run(self.stage.put(self.world.lanes["slow"]))
            self.world.lanes["slow"].wake()
        if self.world.paused:
            self.pause_or_resume_dispatch()

    def _chunks(self) -> bool:
        """Go on with the bulk replays; whether one has more to do."""
        for bulk in self.world.bulks:
            if sum(each.running and each.next_at <= self.world.now for each in self.world.bulks) == 1:
                self.chunk()
            elif bulk.running and bulk.next_at <= self.world.now:
                bulk.running = False
                self.do(self.stage.stop_replay(bulk.id))
        return any(bulk.running for bulk in self.world.bulks)

    def _settle_held(self) -> None:
        if self.held:
            self.settle_all([DELIVERED])
