"""What is counted for `/metrics`; a registry for each house, so that two in one process do not mix."""

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics, generate_latest

disable_created_metrics()  # type: ignore[no-untyped-call]  # they double the lines and nobody asks for them


class TickResult(StrEnum):
    """What came of a tick; `unavailable` is told to come again, because the database or a token's issuer is away."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    FROZEN = "frozen"
    REFUSED = "refused"
    CONFLICT = "conflict"
    INVALID = "invalid"
    UNAVAILABLE = "unavailable"


class Counters:
    """The metrics of one process. Labels hold jobs' names and fixed words, never what a caller sent."""

    def __init__(self, jobs: Iterable[str] = ()) -> None:
        """Begin at zero for each of these jobs: a counter that is born with its first refusal shows no increase."""
        self._registry = CollectorRegistry()
        self._ticks = Counter(
            "tocsin_ticks_total", "Ticks that were answered.", ("job", "result"), registry=self._registry
        )
        self._last_tick = Gauge(
            "tocsin_last_tick_timestamp_seconds",
            "When the last valid tick came, in seconds since 1970 by the database's clock.",
            ("job",),
            registry=self._registry,
        )
        for job in ("", *jobs):
            for result in TickResult:
                self._ticks.labels(job, result.value)

    def tick(self, job: str, result: TickResult) -> None:
        """One more; the job is empty where there is none of the name that was called."""
        self._ticks.labels(job, result.value).inc()

    def last_tick(self, job: str, at: datetime) -> None:
        """A valid tick of this job came then."""
        self._last_tick.labels(job).set(at.timestamp())

    def text(self) -> bytes:
        """Everything, in Prometheus' text format 0.0.4."""
        return generate_latest(self._registry)
