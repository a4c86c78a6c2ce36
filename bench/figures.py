"""What is measured, what it is compared with, and what was wanted: the yardstick, which nobody moves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median

Samples = Mapping[str, Sequence[float]]
"""The values of each figure, in the order in which they were taken."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured quantity."""

    label: str
    unit: str


@dataclass(frozen=True, slots=True)
class Ratio:
    """Two figures of one run, the median of one over the median of the other, and the bound that was wanted."""

    label: str
    over: str
    under: str
    bound: float
    at_most: bool = False

    def value(self, samples: Samples) -> float | None:
        """The ratio; None where one of its figures was not measured."""
        if not samples.get(self.over) or not samples.get(self.under):
            return None
        return median(samples[self.over]) / median(samples[self.under])

    def missed_by(self, value: float) -> float:
        """How far the value is on the wrong side of the bound; zero where it is met."""
        return max(value - self.bound if self.at_most else self.bound - value, 0.0)

    @property
    def wanted(self) -> str:
        """The bound in words."""
        return f"{'at most' if self.at_most else 'at least'} {self.bound:g}"


_POSTS, _DELIVERIES, _ROWS, _TICKS = "posts/s", "deliveries/s", "rows/s", "ticks/s"
_MS, _MB, _CPU = "ms", "MB", "µs/delivery"

FIGURES: Mapping[str, Figure] = {
    "floor-1": Figure("client alone, 1 process", _POSTS),
    "floor-2": Figure("client alone, 2 processes", _POSTS),
    "floor-serial": Figure("client alone, one after another", _POSTS),
    "drain-wide-1": Figure("drain, wide, 1 process", _DELIVERIES),
    "drain-wide-2": Figure("drain, wide, 2 processes", _DELIVERIES),
    "drain-narrow-1": Figure("drain, narrow, 1 process", _DELIVERIES),
    "drain-narrow-2": Figure("drain, narrow, 2 processes", _DELIVERIES),
    "drain-strict-1": Figure("drain, one strict lane, 1 process", _DELIVERIES),
    "drain-strict-2": Figure("drain, one strict lane, 2 processes", _DELIVERIES),
    "cpu-workers": Figure("CPU of the workers, wide, 2 processes", _CPU),
    "cpu-postgresql": Figure("CPU of PostgreSQL, wide, 2 processes", _CPU),
    "cpu-receiver": Figure("CPU of the receiver, wide, 2 processes", _CPU),
    "insert": Figure("bare INSERT … SELECT", _ROWS),
    "fan-out": Figure("fan-out", _ROWS),
    "claim-empty": Figure("claim p95, tables empty otherwise", _MS),
    "claim-full": Figure("claim p95, tables full", _MS),
    "others-alone": Figure("99 subscribers, the 100th paused", _DELIVERIES),
    "others-hanging": Figure("99 subscribers, the 100th hangs", _DELIVERIES),
    "drain-unswept": Figure("the same drain without a sweep, 2 processes", _DELIVERIES),
    "drain-swept": Figure("drain during a sweep, 2 processes", _DELIVERIES),
    "sweep": Figure("sweep during that drain", _ROWS),
    "tick-idle": Figure("tick p95, idle", _MS),
    "tick-drain": Figure("tick p95, during a drain", _MS),
    "page-first": Figure("list page 1", _MS),
    "page-deep": Figure("list page 1,000", _MS),
    "memory-short": Figure("worker memory, 1k due", _MB),
    "memory-long": Figure("worker memory, 1M due", _MB),
    "crowd-fan-out": Figure("fan-out, a crowd of 2,000 subscribers, 1M deliveries", _ROWS),
    "crowd-short": Figure("drain of the crowd, 20k due, 2 processes", _DELIVERIES),
    "crowd-long": Figure("drain of the crowd, 1M due, 2 processes", _DELIVERIES),
    "well-idle": Figure("published to heard p95, the others away", _MS),
    "well-herd": Figure("published to heard p95, while they come back", _MS),
    "herd": Figure("drain of those who come back, 2 processes", _DELIVERIES),
    "storm-sent": Figure("storm of ticks, as scheduled", _TICKS),
    "storm-answered": Figure("storm of ticks, answered", _TICKS),
    "storm-wait": Figure("storm of ticks, answer p95", _MS),
    "storm-late": Figure("storm of ticks, sent behind schedule p95", _MS),
    "storm-refused": Figure("storm of ticks, of 10,000 answered 503", "ticks"),
    "storm-dropped": Figure("storm of ticks, of 10,000 not answered", "ticks"),
}

RATIOS: Sequence[Ratio] = (
    Ratio("drain, 2 processes ÷ client alone, 2 processes", "drain-wide-2", "floor-2", 0.45),
    Ratio("narrow drain ÷ wide drain, 1 process", "drain-narrow-1", "drain-wide-1", 0.7),
    Ratio("narrow drain ÷ wide drain, 2 processes", "drain-narrow-2", "drain-wide-2", 0.7),
    Ratio("strict lane ÷ client one after another, 1 process", "drain-strict-1", "floor-serial", 0.5),
    Ratio("strict lane ÷ client one after another, 2 processes", "drain-strict-2", "floor-serial", 0.5),
    Ratio("fan-out ÷ bare INSERT … SELECT", "fan-out", "insert", 0.7),
    Ratio("claim p95, full ÷ empty", "claim-full", "claim-empty", 1.5, at_most=True),
    Ratio("99 subscribers, the 100th hangs ÷ paused", "others-hanging", "others-alone", 0.9),
    Ratio("drain during a sweep ÷ without", "drain-swept", "drain-unswept", 0.8),
    Ratio("tick p95, during a drain ÷ idle", "tick-drain", "tick-idle", 4.0, at_most=True),
    Ratio("list page 1,000 ÷ page 1", "page-deep", "page-first", 1.5, at_most=True),
    Ratio("worker memory, 1M due ÷ 1k due", "memory-long", "memory-short", 1.3, at_most=True),
    Ratio("drain of the crowd, 1M due ÷ 20k due", "crowd-long", "crowd-short", 0.8),
    Ratio("published to heard p95, others come back ÷ away", "well-herd", "well-idle", 4.0, at_most=True),
    Ratio("storm of ticks, answered ÷ scheduled", "storm-answered", "storm-sent", 0.95),
)


def p95(values: Sequence[float]) -> float:
    """The smallest value that at least 95 % of the values do not exceed."""
    return sorted(values)[ceil(len(values) * 0.95) - 1]
