"""How long a claim takes beside a million finished deliveries, and others that are not due or not to be sent."""

from time import monotonic

from bench import history
from bench.figures import p95
from bench.house import House
from bench.sizes import Sizes
from bench.stage import Stage
from bench.waiting import Failed
from service.domain.model import Answer, Claimed, DeliveryState, Outcome, Settlement
from service.store import deliveries, settlements
from service.store.database import Tx
from service.store.deliveries import Appetite
from service.store.settlements import Settled

_BATCH = 200
_WARM = 5
_WORKER, _LEASE_SECONDS = "bench", 60.0


async def measure(stage: Stage, sizes: Sizes) -> None:
    """Claim by claim in turns, each settled before the next, so that the lanes always have room."""
    empty_name, full_name = await history.claims(stage, sizes)
    async with stage.house(empty_name) as empty, stage.house(full_name) as full:
        for _ in range(_WARM):
            await _claimed(empty)
            await _claimed(full)
        for _ in range(sizes.rounds):
            taken = [(await _claimed(empty), await _claimed(full)) for _ in range(sizes.claims)]
            stage.note("claim-empty", p95([first for first, _ in taken]))
            stage.note("claim-full", p95([second for _, second in taken]))


async def _claimed(house: House) -> float:
    """The milliseconds that a claim took."""
    async with house.db.begin() as tx:
        began = monotonic()
        claimed = await deliveries.claim(
            tx, Appetite(batch=_BATCH, share=_BATCH), worker=_WORKER, lease_seconds=_LEASE_SECONDS
        )
        taken = (monotonic() - began) * 1000
    if len(claimed) != _BATCH:
        raise Failed(f"a claim of {_BATCH} took {len(claimed)}")
    async with house.db.begin() as tx:
        await settlements.settle(tx, [_delivered(tx, item) for item in claimed])
    return taken


def _delivered(tx: Tx, claimed: Claimed) -> Settled:
    decision = Settlement(DeliveryState.DELIVERED, counted=True)
    return Settled(claimed, decision, Answer(Outcome.DELIVERED, 200), _WORKER, tx.now.timestamp(), 5)
