"""Operational events: what Tocsin tells of itself, stored with what they tell of and sent like any other event.

Each is written in the transaction of what it tells of, and only where a live subscriber of its tenant asks for it; the
next fan-out takes it from there. None is about deliveries of Tocsin's own events, so that none leads to another.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime

from uuid_utils.compat import uuid7

from service.domain.eventbody import compose
from service.domain.identifiers import delivery_id, delivery_key
from service.domain.model import DeliveryRow, EventId, Found, LeasedRun, RunId
from service.domain.operational import HOUSE_TENANT, Operational
from service.domain.timestamps import format_rfc3339
from service.store import audience, events, runs, subscribers, views
from service.store.audience import DeadLetter
from service.store.database import Tx
from service.store.runs import SettledRun
from service.store.views import RunView


async def settle_runs(tx: Tx, ids: Sequence[RunId]) -> None:
    """Note which of these runs are settled by now, and tell of it; call it after the commit that ended a delivery."""
    await runs_settled(tx, await runs.settle(tx, ids))


async def runs_settled(tx: Tx, settled: Sequence[SettledRun]) -> None:
    """Tell that every delivery of these runs is terminal; of a run that was replayed, once more."""
    if not settled or HOUSE_TENANT not in await audience.tenants(tx, Operational.RUN_SETTLED):
        return
    facts = []
    for each in settled:
        if view := await views.run(tx, each.id):
            counts = {state: n for state, n in view.deliveries.items() if state not in ("pending", "leased")}
            data = _run(view) | {"deliveries": counts, "completedAt": _at(view.completed_at)}
            facts.append(_fact(Operational.RUN_SETTLED, str(each.id), each.number, data))
    await _store(tx, facts)


async def run_failed(tx: Tx, run: LeasedRun) -> None:
    """Tell that a run's source could not be read; an operator may mend it and retry the run."""
    if HOUSE_TENANT not in await audience.tenants(tx, Operational.RUN_FAILED):
        return
    if view := await views.run(tx, run.id):
        data = _run(view) | {"error": view.error}
        await _store(tx, [_fact(Operational.RUN_FAILED, str(run.id), run.lease_seq, data)])


async def deliveries_dead(tx: Tx, rows: Sequence[DeliveryRow]) -> None:
    """Tell which of these deliveries ended as dead letters."""
    if not rows:
        return
    if tenants := await audience.tenants(tx, Operational.DELIVERY_DEAD):
        await _store(tx, [_dead(letter) for letter in await audience.dead_letters(tx, rows, tenants)])


async def subscribers_disabled(tx: Tx, slugs: Sequence[str], reason: str) -> None:
    """Tell that Tocsin disabled these subscribers by itself."""
    if not slugs or not (tenants := await audience.tenants(tx, Operational.SUBSCRIBER_DISABLED)):
        return
    version, facts = int(tx.now.timestamp() * 1_000_000), []
    for slug in slugs:
        record = await subscribers.read(tx, slug)
        if record is not None and record.wanted.tenant_id in tenants:
            data = {"subscriberId": slug, "reason": reason}
            facts.append(_fact(Operational.SUBSCRIBER_DISABLED, slug, version, data, record.wanted.tenant_id))
    await _store(tx, facts)


async def _store(tx: Tx, facts: Sequence[Found]) -> None:
    if facts:
        await events.add(tx, [compose(fact, EventId(uuid7()), tx.now) for fact in facts])


def _fact(
    kind: Operational, subject: str, version: int, data: Mapping[str, object], tenant: str = HOUSE_TENANT
) -> Found:
    return Found(kind.value, subject, version, json.dumps(data, ensure_ascii=False), tenant)


def _run(view: RunView) -> dict[str, object]:
    return {
        "run": str(view.id),
        "job": view.job,
        "runId": view.run_id,
        "cutoff": format_rfc3339(view.cutoff),
        "source": view.source.value,
        "events": view.events,
        "claimedAt": format_rfc3339(view.claimed_at),
    }


def _dead(letter: DeadLetter) -> Found:
    key = delivery_id(letter.event_id, letter.subscriber)
    last = {"class": letter.outcome, "status": letter.status, "detail": letter.detail}
    data: dict[str, object] = {
        "deliveryId": key,
        "key": delivery_key(letter.event_id, letter.slug),
        "eventId": str(letter.event_id),
        "eventType": letter.event_type,
        "subject": letter.subject,
        "version": letter.version,
        "subscriberId": letter.slug,
        "run": str(letter.run_id) if letter.run_id else None,
        "state": letter.state,
        "reason": letter.reason,
        "generation": letter.generation,
        "attemptCount": letter.attempt_count,
        "lastOutcome": last if letter.outcome else None,
        "createdAt": format_rfc3339(letter.created_at),
        "finishedAt": format_rfc3339(letter.finished_at),
    }
    return _fact(Operational.DELIVERY_DEAD, key, letter.generation, data, letter.tenant_id)


def _at(instant: datetime | None) -> str | None:
    return None if instant is None else format_rfc3339(instant)
