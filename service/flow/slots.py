"""A worker's own requests in flight: no lane, no origin and nobody who is slow may take all of its room."""

from time import monotonic
from typing import TypeVar

from service.domain.model import Claimed, Lease, SubscriberRow
from service.store.deliveries import Appetite

K = TypeVar("K")

SLOW_SECONDS = 1.0
"""A request that is out for longer makes its lane a slow one in this worker."""


class Slots:
    """Who has how many of the worker's slots.

    One lane, and one origin, gets at most half of them. The lanes that are slow now share three quarters at most, so
    that a quarter is always left for those that answer.
    """

    def __init__(self, concurrency: int) -> None:
        """Share out `concurrency` slots."""
        self._share = max(concurrency // 2, 1)
        self._slow_share = max(concurrency * 3 // 4, 1)
        self._lanes: dict[SubscriberRow, int] = {}
        self._origins: dict[str, int] = {}
        self._departed: dict[Lease, tuple[SubscriberRow, float]] = {}
        """By the lease, of which one delivery may have had two: a request may outlive its own."""

    def depart(self, claimed: Claimed) -> None:
        """Take a slot for this delivery's request, and for the chain behind it."""
        lane, origin = claimed.subscriber, claimed.origin
        self._lanes[lane] = self._lanes.get(lane, 0) + 1
        self._origins[origin] = self._origins.get(origin, 0) + 1
        self._departed[claimed.lease] = (lane, monotonic())

    def go_on(self, claimed: Claimed) -> None:
        """The next request goes out in the slot that this delivery was given."""
        del self._departed[claimed.lease]
        self._departed[claimed.lease] = (claimed.subscriber, monotonic())

    def land(self, claimed: Claimed) -> None:
        """The last request of the slot has ended: it is free again."""
        del self._departed[claimed.lease]
        _less(self._lanes, claimed.subscriber)
        _less(self._origins, claimed.origin)

    def appetite(self, batch: int) -> Appetite:
        """What the worker wants of its next claim, if it takes `batch` more."""
        full = {lane for lane, flights in self._lanes.items() if flights >= self._share}
        return Appetite(
            batch=batch,
            share=self._share,
            flights=self._lanes,
            origin_flights=self._origins,
            full=full | self._slow_lanes(),
        )

    def _slow_lanes(self) -> set[SubscriberRow]:
        """The lanes that get nothing more because the slow ones together have all that they may have."""
        since = monotonic() - SLOW_SECONDS
        slow: list[SubscriberRow] = []
        for lane, departed in self._departed.values():
            if departed > since:
                break  # the rest departed later still
            slow.append(lane)
        return set(slow) if len(slow) >= self._slow_share else set()


def _less(flights: dict[K, int], key: K) -> None:
    left = flights[key] - 1
    if left:
        flights[key] = left
    else:
        del flights[key]
