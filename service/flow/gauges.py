"""How the house stands as metrics: the database is asked once for all of them, whoever scrapes."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import structlog
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from service.domain.errors import TocsinError
from service.domain.model import DeliveryState, HeldBy
from service.domain.states import DEAD_LETTERS
from service.store import backlog, gauges
from service.store.backlog import Backlog
from service.store.database import Database
from service.store.gauges import Gauges

log = structlog.get_logger()

_CAPPED = f"Counted to {gauges.MOST:,} at most: then there are at least so many."
NEVER = float("inf")
"""What a drain that never ends takes."""


async def look(db: Database, seconds: float) -> Gauges | None:
    """How everything stands, found within `seconds`; None where the database has no answer by then."""
    try:
        async with db.bounded(seconds=seconds).begin() as tx:
            return await gauges.read(tx, seconds)
    except TocsinError as refusal:
        log.warning("gauges.unknown", because=refusal.detail)
    except Exception:
        # A scrape is answered whatever is wrong; that nothing is known is a metric of its own.
        log.exception("gauges.broken")
    return None


def heartbeat(beats: Sequence[float]) -> Iterator[Metric]:
    """The youngest of these, in seconds since 1970; nothing where there is none to tell."""
    if beats:
        told = "When a worker last looked for what is due, in seconds since 1970; 0 where that is over an hour ago."
        yield _gauge("tocsin_scan_heartbeat_timestamp_seconds", told, max(beats))


def families(found: Gauges | None) -> Iterator[Metric]:
    """Every gauge, with nothing in it that is not known; whether anything is known is one as well."""
    told = "1 where the database told how everything stands within the last seconds, else 0."
    yield _gauge("tocsin_database_up", told, float(found is not None))
    if found is None:
        return
    yield from _ages(found)
    yield from _counts(found)
    yield from _pace(found)


def _ages(found: Gauges) -> Iterator[Metric]:
    stands = found.backlog
    due = "How long the delivery has been due that waits longest, leaving out what is held but by a full lane; else 0."
    yield _gauge("tocsin_oldest_due_age_seconds", due, stands.oldest_due_age_seconds or 0.0)
    pending = (
        "How long the oldest delivery has been unfinished, held or not: of those that are next in each lane and the "
        f"{backlog.NEAREST:,} nearest to their deadline."
    )
    yield _gauge("tocsin_oldest_pending_age_seconds", pending, stands.oldest_pending_age_seconds or 0.0)
    unfanned = "How long ago the oldest event was published that is not fanned out to all of its subscribers; else 0."
    yield _gauge("tocsin_oldest_unfanned_age_seconds", unfanned, stands.oldest_unfanned_age_seconds or 0.0)
    lag = "How long ago the oldest run was claimed that is neither completed nor held; else 0."
    yield _gauge("tocsin_run_lag_seconds", lag, found.run_lag_seconds or 0.0)


def _counts(found: Gauges) -> Iterator[Metric]:
    stands = found.backlog
    yield _gauge(
        "tocsin_due",
        f"Deliveries that may be sent now: they wait for a worker, or their lane is full. {_CAPPED}",
        stands.due,
    )
    yield _gauge("tocsin_scheduled", f"Deliveries whose time is ahead. {_CAPPED}", stands.scheduled)
    held = "Deliveries that wait for something else than a worker: a pause, a predecessor, a throttle, a probe."
    yield _gauge("tocsin_held", f"{held} {_CAPPED}", stands.held)
    unfanned = f"Published events that are still to become deliveries. Counted to {backlog.MOST_UNFANNED:,} at most."
    yield _gauge("tocsin_unfanned_events", unfanned, stands.unfanned)
    states = {DeliveryState.PENDING: stands.pending, DeliveryState.LEASED: stands.leased, **found.finished}
    deliveries = f"Deliveries by state. {_CAPPED} Delivered ones are the planner's estimate, once they are many."
    yield _labelled("tocsin_deliveries", deliveries, "state", {state.value: n for state, n in states.items()})
    dead = {state.value: found.finished[state] for state in sorted(DEAD_LETTERS)}
    yield _labelled("tocsin_dead_letters", f"Deliveries that a person should look at. {_CAPPED}", "state", dead)
    overdue = "Leases of deliveries and runs that ran out and that no worker has taken over."
    yield _gauge("tocsin_leases_overdue", overdue, found.leases_overdue)
    known = {state.value: n for state, n in found.subscribers.items()}
    yield _labelled("tocsin_subscribers", "Subscribers by state.", "state", known)
    yield _labelled("tocsin_worst_lanes", _WORST, "held_by", _reasons(stands))
    paused = "1 while all dispatch is paused, else 0."
    yield _gauge("tocsin_dispatch_paused", paused, float(stands.dispatch_paused))


_WORST = f"Of the {backlog.WORST} subscribers whose deliveries wait longest, how many wait for what; empty: a worker."


def _reasons(stands: Backlog) -> Mapping[str, int]:
    counted = Counter(lane.reason for lane in stands.lanes)
    return {"" if reason is None else reason.value: counted[reason] for reason in (None, *HeldBy)}


def _pace(found: Gauges) -> Iterator[Metric]:
    pace, stands = found.pace, found.backlog
    over = "a minute, over the last 5 whole ones"
    yield _gauge("tocsin_arrivals_per_minute", f"Deliveries made or replayed {over}.", pace.arrivals_per_minute)
    yield _gauge("tocsin_completions_per_minute", f"Deliveries ended {over}.", pace.completions_per_minute)
    headroom = "Completions less arrivals; negative while the backlog grows."
    yield _gauge("tocsin_headroom_per_minute", headroom, pace.headroom_per_minute)
    if pace.retry_amplification is not None:
        amplified = "Attempts for each delivery that ended, over the last 5 whole minutes."
        yield _gauge("tocsin_retry_amplification_ratio", amplified, pace.retry_amplification)
    eta = pace.drain_seconds(stands.remaining, paused=stands.dispatch_paused)
    told = "When what is due will have been sent at this pace; +Inf for never, 0 where nothing is due."
    yield _gauge("tocsin_drain_eta_seconds", told, NEVER if eta is None else eta)


def _gauge(name: str, told: str, value: float) -> Metric:
    return GaugeMetricFamily(name, told, value=value)


def _labelled(name: str, told: str, label: str, values: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(name, told, labels=[label])
    for value, n in values.items():
        family.add_metric([value], n)
    return family
