"""Reconciliation: everything on record that no healthy house would show, and the mend of each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from service.domain.errors import Unavailable
from service.store import reconciliation
from service.store.database import Database, sqlstate
from service.store.reconciliation import Kind, Seen

_TIMED_OUT = "57014"
_PAGE = "docs/reconciliation.md"

TOLD: Mapping[Kind, tuple[str, str]] = {
    Kind.OVERDUE_LEASE: (
        "deliveries whose lease ran out more than a minute ago, and nobody took them over",
        "Start a worker: it records the dead owner's attempt as in_doubt and goes on.",
    ),
    Kind.UNFANNED_EVENT: (
        "events without deliveries, although their run is completed or they were published five minutes ago",
        f"Start a worker for published ones. Those of a completed run need a statement: {_PAGE}.",
    ),
    Kind.STUCK_RUN: (
        "runs that no worker takes, or that are held although their job is not paused",
        "Start a worker whose tocsin.toml has the job. Pause and resume the job where the run is held.",
    ),
    Kind.DUE_NOT_CLAIMED: (
        "deliveries that have been due for five minutes in lanes to which no worker came meanwhile",
        "Start a worker; where some run, look for worker.broken and database.away in their logs.",
    ),
    Kind.LANE_ASLEEP: (
        "deliveries that have been due for a minute in lanes that nobody will look at",
        "Any running worker wakes such lanes within seconds: start one.",
    ),
    Kind.LANE_COUNT: (
        "subscribers whose count of deliveries in flight is not what is in flight",
        f"Pause the subscriber and set the count right: {_PAGE}.",
    ),
    Kind.RUN_COUNT: (
        "runs that count as settled with deliveries pending, or do not although all are terminal",
        f"Any running worker notes settled runs within seconds: start one. For the others: {_PAGE}.",
    ),
    Kind.ATTEMPT_COUNT: (
        "deliveries whose attemptCount is not the number of their counted attempts",
        f"Evidence is missing or was written twice: find out who changed the table, then {_PAGE}.",
    ),
    Kind.GENERATION_COUNT: (
        "deliveries whose generation is not one more than their replays",
        f"A replay's record is missing: find out who changed the table, then {_PAGE}.",
    ),
    Kind.ORPHAN: (
        "unfinished deliveries of subscribers that were deleted more than five minutes ago",
        "Any running worker cancels them within seconds: start one.",
    ),
    Kind.PAYLOAD_MISSING: (
        "unfinished deliveries whose payload is gone",
        'Cancel them with `tocsin cancel ID --reason "…"`: what is to be sent is not there any more.',
    ),
    Kind.RUNNING_REPLAY_STUCK: (
        "bulk replays that should have gone on five minutes ago",
        'Start a worker, or cancel the replay with `tocsin replays cancel ID --reason "…"`.',
    ),
}
"""What each kind means, and its mend."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One kind of which there are records; `count` goes to MOST, `examples` are outside ids."""

    kind: Kind
    count: int
    examples: Sequence[str]
    detail: str
    mend: str


@dataclass(frozen=True, slots=True)
class Report:
    """What was found at `at`, by the database's clock; `unchecked` are the kinds whose look took too long."""

    at: datetime
    findings: Sequence[Finding]
    unchecked: Sequence[Kind]


async def reconcile(db: Database) -> Report:
    """Look for every kind, each in a short transaction of its own; nothing is changed.

    Raises:
        Unavailable: the database is away.

    """
    async with db.begin() as tx:
        at = tx.now
    seen = {kind: await _look(db, kind) for kind in Kind}
    findings = [
        Finding(kind, each.count, each.examples, *TOLD[kind]) for kind, each in seen.items() if each and each.count
    ]
    return Report(at, findings, [kind for kind, each in seen.items() if each is None])


async def _look(db: Database, kind: Kind) -> Seen | None:
    """What there is of the kind; None where the look was cut short."""
    try:
        async with db.begin(timed=False) as tx:
            await reconciliation.bound(tx)
            return await reconciliation.look(tx, kind)
    except Unavailable as error:
        if error.__cause__ is not None and sqlstate(error.__cause__) == _TIMED_OUT:
            return None
        raise
