"""What must hold of the lanes in a chaos run: the order of those who want one, and the quiet of a paused one."""

from collections import defaultdict
from collections.abc import Iterator

from tests.chaos.cast import CAST
from tests.chaos.record import Delivery, Record

QUIET_AFTER_SECONDS = 1.5
"""What was claimed before a pause may be on its way for a moment, longer on a busy machine."""


def in_order(record: Record) -> Iterator[str]:
    """Of what must keep an order, none was accepted before one that comes before it: see `_comes_before`.

    Left out is what no order is promised for: replays, what was called off or never accepted, and an attempt that was
    still on its way when its lease was lost.
    """
    ordered = {player.id for player in CAST if "ordering" in player.wanted}
    chains: defaultdict[tuple[str, int], list[tuple[float, Delivery]]] = defaultdict(list)
    for each in record.deliveries:
        if each.subscriber in ordered and each.order_key is not None and (at := _accepted(record, each)) is not None:
            chains[each.subscriber, each.order_key].append((at, each))
    for chain in chains.values():
        for accepted, later in chain:
            before = [at for at, each in chain if _comes_before(record, each, later)]
            if before and max(before) > accepted:
                yield f"{later.key} was accepted {max(before) - accepted:.3f} s before one that it had to wait for"


def _comes_before(record: Record, each: Delivery, later: Delivery) -> bool:
    """Whether one was published and confirmed, or its fan-out was over, before the other was offered, or its began."""
    if each.committed is not None and each.committed < later.began:
        return True
    earlier, then = record.published_as.get(each.event), record.published_as.get(later.event)
    return earlier is not None and then is not None and earlier[1] < then[0]


def _accepted(record: Record, delivery: Delivery) -> float | None:
    """When it was first answered 200 in its first generation; None where nothing is promised of it."""
    if delivery.key in record.called_off or any(each.lost for each in record.attempts_of.get(delivery.key, ())):
        return None
    requests = record.requests_of.get(delivery.key, ())
    return next((each.ended for each in requests if each.generation == 1 and each.status == 200), None)


def quiet_while_paused(record: Record) -> Iterator[str]:
    """Nothing is sent to a paused subscriber, but for what an owner sent that had lost its lease."""
    for pause in record.pauses:
        for request in record.requests:
            if pause.subscriber not in (None, request.subscriber):
                continue
            since = request.arrived - pause.confirmed
            if since < QUIET_AFTER_SECONDS or request.arrived > pause.over:
                continue
            if not any(each.lost for each in record.attempts_at.get(request.name, ())):
                yield f"{request.name} came {since:.1f} s after the pause of {pause.subscriber or 'all dispatch'}"
