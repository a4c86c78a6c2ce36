"""What one process counts for `/metrics`; an object for each house, so that two in one process do not mix."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from service import __version__
from service.domain.model import DeliveryRow, DeliveryState, Outcome, RunState
from service.domain.states import TERMINAL
from service.flow import gauges
from service.flow.spread import Spread
from service.store import pulse
from service.store.gauges import Gauges
from service.store.settlements import Settled

_UNSENT: Final = frozenset({Outcome.IN_DOUBT, Outcome.INTERRUPTED, Outcome.SHADOW, Outcome.INTERNAL, Outcome.BLOCKED})
"""Outcomes whose time says nothing of a receiver, or that had none."""
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30, 60)
_LAGS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 21_600, 86_400)
_TRIES: Final = (1, 2, 3, 4, 5, 6, 8, 12, 20)
_ENDS: Final = tuple(sorted(TERMINAL - {DeliveryState.CANCELLED}))
"""How a worker ends deliveries; they are cancelled by people, wherever those are heard."""
_RUN_STATES: Final = (RunState.CLAIMED, RunState.COMPLETED, RunState.FAILED)


@dataclass(frozen=True, slots=True)
class House:
    """What a look at the database found; None where it had no answer in time."""

    gauges: Gauges | None


class TickResult(StrEnum):
    """What came of a tick; `unavailable` is told to come again, because the database or a token's issuer is away."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    FROZEN = "frozen"
    REFUSED = "refused"
    CONFLICT = "conflict"
    INVALID = "invalid"
    UNAVAILABLE = "unavailable"


class Counters(Collector):
    """The metrics of one process. Labels hold jobs' names and fixed words, never what a caller sent.

    Everything is counted in plain numbers of one event loop, and turned into metrics when somebody asks for them.
    """

    def __init__(self, jobs: Iterable[str] = ()) -> None:
        """Begin at zero for each of these jobs: a counter that is born with its first refusal shows no increase."""
        jobs = tuple(jobs)
        self._ticks = Counter({(job, result.value): 0 for job in ("", *jobs) for result in TickResult})
        self._runs = Counter({(job, state.value): 0 for job in jobs for state in _RUN_STATES})
        self._found = Counter(dict.fromkeys(jobs, 0))
        self._attempts = Counter[str](dict.fromkeys(Outcome, 0))
        self._ended = Counter[str](dict.fromkeys(_ENDS, 0))
        self._last_ticks: dict[str, float] = {}
        self._arrived = self._late = self._breaches = self._lapsed = self._scans = 0
        self._scanned_at = 0.0
        self._durations = Spread(
            "tocsin_attempt_duration_seconds",
            "How long attempts took, from the look-up of the name to the answer's end.",
            _SECONDS,
        )
        self._lags = Spread(
            "tocsin_delivery_lag_seconds",
            "From the moment at which a delivery was due to the start of its attempt, in which a connection may still "
            "have to be made before the first byte. Time for which its lane was held counts.",
            _LAGS,
        )
        self._tries = Spread(
            "tocsin_attempts_per_delivery",
            "Counted attempts of a delivery's generation when an attempt ended it.",
            _TRIES,
        )
        self.published: Callable[[], int] = lambda: 0
        """How often the doorbell was rung; hung in by the runtime."""
        self.flights: Callable[[], tuple[int, float]] | None = None
        """Requests in flight and the share of the worker's room that is taken; None where there is no worker."""
        self._beside: Sequence[Metric] = ()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def tick(self, job: str, result: TickResult) -> None:
        """One more; the job is empty where there is none of the name that was called."""
        self._ticks[job, result.value] += 1
        if result is TickResult.ACCEPTED:
            self.run(job, RunState.CLAIMED)

    def last_tick(self, job: str, at: datetime) -> None:
        """A valid tick of this job came then."""
        self._last_ticks[job] = at.timestamp()

    def run(self, job: str, state: RunState) -> None:
        """A run of this configured job came into this state."""
        self._runs[job, state.value] += 1

    def discovered(self, job: str, events: int) -> None:
        """A run of this configured job found so many events."""
        self._found[job] += events

    def arrived(self, deliveries: int) -> None:
        """So many deliveries were made, or opened by a replay."""
        self._arrived += deliveries

    def expired(self, deliveries: int) -> None:
        """The deadline of so many deliveries passed while they waited."""
        self._ended[DeliveryState.EXHAUSTED] += deliveries
        self._breaches += deliveries

    def settled(self, batch: Sequence[Settled], written: Collection[DeliveryRow]) -> None:
        """These attempts ended; of those that are not among `written` somebody else had taken over the delivery."""
        for item in batch:
            claimed, decision, answer = item.claimed, item.settlement, item.answer
            if claimed.row not in written:
                self._late += 1
                continue
            if answer is not None:
                outcome = answer.outcome
                self._attempts[outcome] += 1
                if claimed.lapsed is not None:
                    self._lapsed += 1
                elif outcome not in _UNSENT:
                    self._durations.observe(item.duration_ms / 1000)
                    self._lags.observe(max(item.started_at - claimed.due_at, 0.0))
            if decision.state is not DeliveryState.PENDING:
                self._ended[decision.state] += 1
                self._tries.observe(claimed.generation_attempts + decision.counted)
                self._breaches += decision.reason == "deadline"

    def scanned(self) -> None:
        """This worker has just looked for what is due."""
        self._scans += 1
        self._scanned_at = time.time()

    def totals(self) -> dict[str, int]:
        """What the pulse is made of, counted since the process began."""
        return {
            pulse.ARRIVED: self._arrived,
            pulse.SCAN: self._scans,
            **{pulse.ENDED + state: n for state, n in self._ended.items()},
            **{pulse.ATTEMPT + outcome: n for outcome, n in self._attempts.items()},
        }

    def text(self, house: House | None = None) -> bytes:
        """Everything, in Prometheus' text format 0.0.4; with `house` also what is not this process's own."""
        beats = [self._scanned_at] if self.flights is not None else []
        if house is not None and house.gauges is not None:
            beats.append(house.gauges.scanned_at or 0.0)
        self._beside = [*gauges.heartbeat(beats), *(gauges.families(house.gauges) if house is not None else ())]
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """What was counted."""
        build = GaugeMetricFamily("tocsin_build_info", "The release; always 1.", labels=["version"])
        build.add_metric([__version__], 1)
        yield build
        yield from self._of_runs()
        yield from self._of_deliveries()
        yield from (self._durations.family(), self._lags.family(), self._tries.family())
        yield CounterMetricFamily(
            "tocsin_published",
            "Doorbell rings sent to wake workers: there is no other transport yet. Each says only that there is work.",
            value=self.published(),
        )
        if self.flights is not None:
            yield from _of_the_worker(*self.flights())
        yield from self._beside

    def _of_runs(self) -> Iterator[Metric]:
        yield _by_job("tocsin_ticks", "Ticks that were answered.", "result", self._ticks)
        last = GaugeMetricFamily(
            "tocsin_last_tick_timestamp_seconds",
            "When the last valid tick came, in seconds since 1970 by the database's clock.",
            labels=["job"],
        )
        for job, at in self._last_ticks.items():
            last.add_metric([job], at)
        yield last
        told = "Runs that came into a state: claimed by a tick or a person, completed or failed in this process."
        yield _by_job("tocsin_runs", told, "state", self._runs)
        yield _counted("tocsin_events_discovered", "Events that runs found.", "job", self._found)

    def _of_deliveries(self) -> Iterator[Metric]:
        arrived = "Deliveries that this process made by fan-out or opened by a bulk replay."
        yield CounterMetricFamily("tocsin_arrived", arrived, value=self._arrived)
        yield _counted("tocsin_attempts", "Attempts that ended, by their outcome.", "outcome", self._attempts)
        late = "Attempts that ended when another worker had taken over; they are evidence and change nothing."
        yield CounterMetricFamily("tocsin_attempts_late", late, value=self._late)
        yield _counted("tocsin_ended", "Deliveries that this process ended, by their state.", "state", self._ended)
        breaches = "Deliveries that were not delivered by their deadline."
        yield CounterMetricFamily("tocsin_deadline_breaches", breaches, value=self._breaches)
        lapsed = "Leases of dead workers that this one took over: what became of their attempts is not known."
        yield CounterMetricFamily("tocsin_leases_expired", lapsed, value=self._lapsed)


def _of_the_worker(flights: int, saturation: float) -> Iterator[Metric]:
    yield GaugeMetricFamily("tocsin_worker_inflight", "Requests, or chains of them, that are out.", value=flights)
    taken = "The share of this worker's concurrency that is taken by requests and unwritten results."
    yield GaugeMetricFamily("tocsin_worker_saturation_ratio", taken, value=saturation)


def _counted(name: str, told: str, label: str, counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(name, told, labels=[label])
    for value, n in counts.items():
        family.add_metric([str(value)], n)
    return family


def _by_job(name: str, told: str, label: str, counts: Mapping[tuple[str, str], int]) -> Metric:
    family = CounterMetricFamily(name, told, labels=["job", label])
    for values, n in counts.items():
        family.add_metric(values, n)
    return family
