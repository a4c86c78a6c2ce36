"""The model: what claims, answers, lapses and operators must make of deliveries; it knows no database.

Where the house may choose (which of several lanes first, when a batch does not hold all), the model is told the choice
and judges it; everything else it foretells.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from tests.model.parts import DEAD, DEADLINE, LEASE, NEVER, Attempt, Bulk, Delivery, Lane, Told


class World:
    """Everything there is, as it has to be."""

    def __init__(self, lanes: Iterable[Lane]) -> None:
        self.lanes = {lane.slug: lane for lane in lanes}
        self.deliveries: dict[int, Delivery] = {}
        self.attempts: list[Attempt] = []
        self.generations: dict[int, int] = {}
        self.purged: set[int] = set()
        self.bulks: list[Bulk] = []
        self.paused = False
        self.now = 0.0
        self.step = 0

    def listeners(self) -> set[str]:
        """Who gets the next event."""
        return {lane.slug for lane in self.lanes.values() if not lane.deleted}

    def publish(self, event: int, subject: str, rows: Mapping[str, int]) -> None:
        """An event became a delivery for each listener."""
        for slug, row in rows.items():
            key = {"none": None, "subject": subject, "strict": "*"}[self.lanes[slug].ordering]
            due = self.now if key is None else NEVER
            self.deliveries[row] = Delivery(row, event, slug, key, self.now, self.now + DEADLINE, due, self.step)
            self.lanes[slug].wake()
            self.promote(slug, key)

    def chain(self, slug: str, key: str | None) -> list[Delivery]:
        """What waits for one another, in order, ended ones too."""
        found = (each for each in self.deliveries.values() if (each.slug, each.key) == (slug, key))
        return sorted(found, key=lambda each: each.row)

    def promote(self, slug: str, key: str | None) -> None:
        """Let go of the head of a chain, unless a dead letter blocks it."""
        if key is None:
            return
        chain = self.chain(slug, key)
        head = next((each for each in chain if each.open), None)
        if head is None or head.due < NEVER or head.owner:
            return
        if self.lanes[slug].block and any(each.state in DEAD for each in chain if each.row < head.row):
            return
        head.due, head.since = self.now, self.step

    # -- claims and lapses

    def claim(self, worker: str, got: Sequence[int], *, batch: int, share: int, chain: int) -> None:
        """A worker was given these; they must be what is due and has room, the longest due first."""
        wants = {slug: self._wants(lane, share) for slug, lane in self.lanes.items()}
        due = [row for row in got if self.deliveries[row].due <= self.now]
        total = sum(len(rows) for want in wants.values() for rows in want)
        assert len(due) == min(batch, total), f"{len(due)} claimed of {total} that might be, in a batch of {batch}"
        for slug, want in wants.items():
            heads = [row for row in due if self.deliveries[row].slug == slug]
            self._judge(heads, want, whole=total <= batch)
            followers = [row for row in got if row not in due and self.deliveries[row].slug == slug]
            assert followers == self._followers(heads, chain), f"behind {heads} came {followers}"
        for slug, lane in self.lanes.items():
            if self._turns(lane):
                lane.tokens = lane.tokens_now(self.now) - sum(self.deliveries[row].slug == slug for row in got)
                lane.tokens_at = self.now
        for row in got:
            self._lease(self.deliveries[row], worker)

    def _turns(self, lane: Lane) -> bool:
        return lane.state == "active" and not self.paused and max(lane.throttled, lane.opens) <= self.now

    def _wants(self, lane: Lane, share: int) -> tuple[list[Delivery], list[Delivery], list[Delivery]]:
        """What a claim without an end to its batch takes of a lane: first attempts, retries, bulk replays."""
        if not self._turns(lane):
            return [], [], []
        fresh, late, bulk = (self._due(lane.slug, queue) for queue in (0, 1, 2))
        heads = int(min(lane.slots(), share, lane.tokens_now(self.now) // 1))
        late_heads = max(min(heads, max(lane.concurrency * 3 // 4, 1) - lane.leased_late), 0)
        late = late[:late_heads]
        fresh = fresh[: heads - len(late)]
        bulk = bulk[: max(min(heads - len(fresh), late_heads) - len(late), 0)]
        return fresh, late, bulk

    def _due(self, slug: str, queue: int) -> list[Delivery]:
        found = (
            each
            for each in self.deliveries.values()
            if each.slug == slug and each.queue == queue and each.open and not each.owner and each.due <= self.now
        )
        return sorted(found, key=lambda each: (each.due, each.since, each.row))

    def _judge(self, heads: Sequence[int], want: tuple[list[Delivery], ...], *, whole: bool) -> None:
        """Of each queue the ones that were due longest; of equal ones any."""
        for queue, wanted in enumerate(want):
            got = sorted((each.due, each.since) for row in heads if (each := self.deliveries[row]).queue == queue)
            right = [(each.due, each.since) for each in wanted]
            assert got == (right if whole else right[: len(got)]), f"of queue {queue}: {got}, not {right}"

    def _followers(self, heads: Sequence[int], chain: int) -> list[int]:
        """What is leased behind heads, because whoever has the head may go on with it."""
        if not heads:
            return []
        lane = self.lanes[self.deliveries[heads[0]].slug]
        strict = lane.ordering == "strict" and lane.failures < 10 and lane.idempotent
        reach = int(min(chain if strict else lane.slots(), lane.tokens_now(self.now) // 1))
        each_gets = max((reach - len(heads)) // len(heads), 0)
        found: list[int] = []
        for head in (self.deliveries[row] for row in heads):
            behind = [d.row for d in self.chain(lane.slug, head.key) if d.row > head.row and d.open and not d.owner]
            found += behind[:each_gets] if head.key is not None else []
        return sorted(found)

    def _lease(self, each: Delivery, worker: str) -> None:
        lane = self.lanes[each.slug]
        lane.leased += 1
        lane.leased_late += each.queue > 0
        each.owner, each.seq, each.until = worker, each.seq + 1, self.now + LEASE
        if each.due > self.now:
            each.due, each.since = self.now, self.step

    def lapse(self, worker: str, got: Sequence[int]) -> None:
        """A worker took over these; they must be all whose leases ran out."""
        overdue = sorted(row for row, each in self.deliveries.items() if each.owner and each.until <= self.now)
        assert list(got) == overdue, f"{got} lapsed, not {overdue}"
        for row in got:
            each = self.deliveries[row]
            each.owner, each.seq, each.until = worker, each.seq + 1, self.now + LEASE

    # -- results

    def settle(self, batch: Sequence[Told]) -> set[str]:
        """Results were written; returns the lanes that opened by them, whose probe has a pause of its own."""
        valid = [told for told in batch if self._stands(told)]
        self.attempts += [self._evidence(told, late=told not in valid) for told in batch if self._is_news(told, valid)]
        ordered = sorted(valid, key=lambda told: self.deliveries[told.row].slug)
        lanes = {slug: list(own) for slug, own in groupby(ordered, lambda told: self.deliveries[told.row].slug)}
        opened = {slug for slug, own in lanes.items() if self._tell(self.lanes[slug], own)}
        for told in valid:
            self._apply(self.deliveries[told.row], told)
        for told in valid:
            if told.verdict.state != "pending" or told.verdict.delay is None:
                self.promote(self.deliveries[told.row].slug, self.deliveries[told.row].key)
        for told in valid:
            lane = self.lanes[self.deliveries[told.row].slug]
            if told.gone and told.revision == lane.revision:
                lane.state = "disabled"
        return opened

    def _stands(self, told: Told) -> bool:
        each = self.deliveries.get(told.row)
        return each is not None and each.owner is not None and each.seq == told.seq

    def _is_news(self, told: Told, valid: Sequence[Told]) -> bool:
        """Evidence is written once; late evidence only where there is a delivery that it is about."""
        if told.outcome is None:
            return False
        same = {(each.row, each.seq, each.worker, each.outcome) for each in self.attempts}
        known = (told.row, told.evidence_seq, told.worker, told.outcome) in same
        return told in valid or (told.row in self.deliveries and not known)

    def _evidence(self, told: Told, *, late: bool) -> Attempt:
        counted = told.verdict.counted and not late
        outcome = told.outcome or ""
        return Attempt(told.row, told.number, told.generation, told.evidence_seq, outcome, counted, late, told.worker)

    def _tell(self, lane: Lane, own: Sequence[Told]) -> bool:
        lane.leased -= len(own)
        lane.leased_late -= sum(self.deliveries[told.row].queue > 0 for told in own)
        throttles = [told.verdict.throttle for told in own if told.verdict.throttle is not None]
        return lane.hear([told.outcome for told in own], max(throttles, default=None), self.now)

    def _apply(self, each: Delivery, told: Told) -> None:
        verdict = told.verdict
        each.attempts += verdict.counted
        each.tries += verdict.counted
        each.queue = 1 if each.queue == 0 and verdict.counted else each.queue
        each.owner, each.reason = None, verdict.reason
        if verdict.state == "pending":
            each.due = NEVER if verdict.delay is None else self.now + verdict.delay
            each.since = self.step
        else:
            each.end(verdict.state, verdict.reason, self.now, self.step)
