"""A worker's own requests in flight: no lane, no origin and nobody who is slow may take all of its room."""

from collections import Counter
from collections.abc import Callable
from time import monotonic
from typing import TypeVar

from service.domain.model import SubscriberRow
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
        self._lanes: Counter[SubscriberRow] = Counter()
        self._origins: Counter[str] = Counter()
        self._departed: dict[object, tuple[SubscriberRow, float]] = {}

    def depart(self, lane: SubscriberRow, origin: str) -> Callable[[], None]:
        """Take a slot; call what is returned when it is free again."""
        flight = object()
        self._lanes[lane] += 1
        self._origins[origin] += 1
        self._departed[flight] = (lane, monotonic())

        def landed() -> None:
            del self._departed[flight]
            _less(self._lanes, lane)
            _less(self._origins, origin)

        return landed

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


def _less(counter: Counter[K], key: K) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
