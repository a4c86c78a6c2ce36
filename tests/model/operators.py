"""The other half of the model: what operators, deadlines and retention must make of deliveries."""

from collections.abc import Sequence

from tests.model.parts import DEAD, DEADLINE, NEVER, Bulk, Delivery, Lane
from tests.model.world import World


class Operated(World):
    """The world with people in it."""

    def resume(self, ramped: set[str]) -> None:
        """Dispatch goes on; of the lanes each that has something to give out starts slowly, the others may."""
        self.paused = False
        for lane in self.lanes.values():
            waits = lane.slots() and lane.tokens_now(self.now) >= 1 and any(self._due(lane.slug, q) for q in range(3))
            if lane.slug in ramped or (lane.state == "active" and lane.ramp is None and waits):
                assert lane.slug in ramped, f"{lane.slug} waits, and does not start slowly"
                lane.ramp = 1

    def cancel(self, row: int) -> bool:
        """Call off what has not ended; False where it has."""
        each = self.deliveries[row]
        if not each.open:
            return False
        self._release(each)
        each.end("cancelled", "cancelled-by-operator", self.now, self.step)
        self.promote(each.slug, each.key)
        return True

    def _release(self, each: Delivery) -> None:
        lane = self.lanes[each.slug]
        lane.leased -= each.owner is not None
        lane.leased_late -= each.owner is not None and each.queue > 0
        lane.wake()

    def resolve(self, row: int, state: str) -> bool:
        """A person says what became of a dead letter; False where it is none."""
        each = self.deliveries[row]
        if each.state not in DEAD:
            return False
        each.end(state, "resolved-by-operator", self.now, self.step)
        self.lanes[each.slug].wake()
        self.promote(each.slug, each.key)
        return True

    def delete(self, slug: str) -> int:
        """A subscriber goes, and all of it that has not ended; returns how many those are."""
        lane = self.lanes[slug]
        lane.deleted = True
        lane.turn("disabled")
        waiting = [each for each in self.deliveries.values() if each.slug == slug and each.open]
        for each in waiting:
            self._release(each)
            each.end("cancelled", "subscriber-deleted", self.now, self.step)
        return len(waiting)

    def revive(self, slug: str) -> None:
        """It comes back under its name, and its lane is open."""
        self.lanes[slug].deleted = False
        self.lanes[slug].turn("active")

    def replay(self, row: int, queue: int) -> bool:
        """Open the next generation of what has ended; False where that is refused."""
        each = self.deliveries[row]
        lane = self.lanes[each.slug]
        if each.open or lane.deleted or each.event in self.purged:
            return False
        self._open(each, lane, queue)
        return True

    def _open(self, each: Delivery, lane: Lane, queue: int) -> None:
        behind = next((d for d in self.chain(each.slug, each.key) if d.row > each.row and d.open), None)
        moved_on = each.key is not None and behind is not None and (behind.due < NEVER or behind.attempts > 0)
        if not (each.state in DEAD and lane.block and not moved_on):
            each.key = None  # its successors were sent meanwhile: it has left the order
        each.state, each.reason, each.finished = "pending", None, NEVER
        each.generation, each.tries, each.queue = each.generation + 1, 0, queue
        each.due, each.since = self.now if each.key is None else NEVER, self.step
        each.deadline = self.now + DEADLINE
        self.generations[each.row] = self.generations.get(each.row, 0) + 1
        lane.wake()

    def after_replay(self, rows: Sequence[int]) -> None:
        """What was opened and keeps its place is due if it is the head of its chain."""
        for row in rows:
            self.promote(self.deliveries[row].slug, self.deliveries[row].key)

    def expire(self) -> list[int]:
        """End what waits and whose deadline is over."""
        late = [each for each in self.deliveries.values() if each.open and not each.owner and each.deadline <= self.now]
        for each in late:
            each.end("exhausted", "deadline", self.now, self.step)
        for each in late:
            if each.key is not None:
                self.lanes[each.slug].wake()
                self.promote(each.slug, each.key)
        return sorted(each.row for each in late)

    # -- bulk replays

    def matching(self, states: frozenset[str]) -> list[int]:
        """What a bulk replay of these states would release now."""
        return sorted(row for row, each in self.deliveries.items() if each.state in states)

    def all_purged(self, rows: Sequence[int]) -> bool:
        """Whether these are there, all of them of events that were purged, to subscribers that are there."""
        found = [self.deliveries[row] for row in rows]
        return bool(found) and all(d.event in self.purged and not self.lanes[d.slug].deleted for d in found)

    def chunk(self, bulk: Bulk) -> None:
        """The next delivery of a bulk replay is looked at, and released if it may be."""
        rows = [row for row in self.matching(bulk.states) if bulk.after < row <= bulk.last]
        row = next((row for row in rows if self.deliveries[row].ended <= bulk.made), None)
        opened = row is not None and self.replay(row, 2)
        if row is not None and opened:
            self.after_replay([row])
            bulk.replayed += 1
        bulk.after = bulk.last if row is None else row
        bulk.next_at = self.now + opened
        bulk.running = bulk.after < bulk.last

    # -- retention

    def sweep(self, age: int) -> list[int]:
        """Delete what ended so long ago; returns the rows that are gone."""
        gone = [row for row, each in self.deliveries.items() if self._has_had_its_time(each, age)]
        for row in gone:
            del self.deliveries[row]
            self.generations.pop(row, None)
        self.attempts = [attempt for attempt in self.attempts if attempt.row not in gone]
        return sorted(gone)

    def _has_had_its_time(self, each: Delivery, age: int) -> bool:
        lane = self.lanes[each.slug]
        blocking = each.key is not None and each.state in DEAD and lane.block and not lane.deleted
        old = max(each.created, each.finished) <= self.now - age
        return old and not blocking and not self._wanted(each)

    def _wanted(self, each: Delivery) -> bool:
        """Whether a running bulk replay may still come to it."""
        running = [bulk for bulk in self.bulks if bulk.running]
        return bool(running) and min(bulk.after for bulk in running) < each.row <= max(bulk.last for bulk in running)

    def purge(self, age: int) -> set[int]:
        """Empty the events of which nothing is needed any more; returns which were emptied."""
        own: dict[int, list[Delivery]] = {}
        for each in self.deliveries.values():
            own.setdefault(each.event, []).append(each)
        needed = {event for event, all_ in own.items() if any(self._needs(each, age) for each in all_)}
        gone = set(own) - needed - self.purged
        self.purged |= gone
        return gone

    def _needs(self, each: Delivery, age: int) -> bool:
        return each.open or each.finished > self.now - age or each.state in DEAD or self._wanted(each)
