"""What must hold after every step: the database and the model say the same of every row, and lanes add up."""

from collections import Counter
from typing import Any

from tests.model.parts import NEVER, Delivery, Lane
from tests.model.stage import Row, Stage
from tests.model.world import World


async def compare(stage: Stage, world: World) -> None:
    """Raise an AssertionError where they differ."""
    seen = await stage.seen()
    assert seen.rows == {row: _row(world, each) for row, each in world.deliveries.items()}
    assert seen.lanes == {lane.slug: _lane(world, lane) for lane in world.lanes.values()}
    assert seen.attempts == sorted(world.attempts)
    assert seen.generations == world.generations
    assert not seen.early
    _adds_up(world)


def _row(world: World, each: Delivery) -> Row:
    due = max(each.due - world.now, 0.0) if each.open else None
    return Row(
        each.row,
        each.slug,
        each.state,
        each.reason,
        each.generation,
        each.attempts,
        each.tries,
        each.queue,
        each.key is not None,
        each.seq,
        each.owner,
        due,
        max(each.deadline - world.now, 0.0) if each.open else None,
    )


def _lane(world: World, lane: Lane) -> tuple[Any, ...]:
    waits = (max(until - world.now, 0.0) for until in (lane.throttled, lane.opens))
    return (lane.state, lane.leased, lane.leased_late, lane.failures, lane.ramp, *waits)


def _adds_up(world: World) -> None:
    """Promises that need no foretelling: they follow from what is on record alone."""
    leased = Counter(each.slug for each in world.deliveries.values() if each.owner)
    assert all(lane.leased == leased[lane.slug] for lane in world.lanes.values())
    counted = Counter(attempt.row for attempt in world.attempts if attempt.counted)
    for each in world.deliveries.values():
        assert each.attempts == counted[each.row]
        assert each.generation == 1 + world.generations.get(each.row, 0)
    leases = Counter((attempt.row, attempt.seq) for attempt in world.attempts if not attempt.late)
    assert max(leases.values(), default=0) <= 1, f"two attempts under one lease: {leases.most_common(1)}"
    for each in world.deliveries.values():
        if each.key is not None and each.open and not each.owner and each.due < NEVER:
            head = next(other for other in world.chain(each.slug, each.key) if other.open)
            assert head.row == each.row, f"{each.row} is due before {head.row}, which it waits for"
