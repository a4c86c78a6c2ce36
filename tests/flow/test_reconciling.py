"""What reconciliation promises: each kind of disagreement is found and named, and a healthy house shows none."""

import asyncio
import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from service.domain.identifiers import delivery_id
from service.domain.model import Ordering
from service.flow import reconciling
from service.flow.reconciling import TOLD, Report, reconcile
from service.store import reconciliation
from service.store.database import Database
from service.store.reconciliation import Kind
from tests import steering
from tests.receivers import Receiver, answer
from tests.scenes import Scene, shipments_job

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "reconciliation.md").read_text(encoding="utf-8")
LONG_AGO = "now() - interval '10 minutes'"


@pytest.fixture
def scene(database: Database) -> Scene:
    return Scene(database)


def _kinds(report: Report) -> list[Kind]:
    assert not report.unchecked
    return [finding.kind for finding in report.findings]


async def _waiting(scene: Scene) -> str:
    """One delivery that waits; its id."""
    await scene.subscriber("acme", "http://127.0.0.1:9/")
    event = await scene.event()
    [row] = await scene.execute("SELECT row FROM tocsin.subscribers")
    return delivery_id(event, row.row)


async def _run(scene: Scene) -> str:
    run = await scene.tick(shipments_job())
    return str(run)


async def _overdue_lease(scene: Scene) -> str:
    found = await _waiting(scene)
    await scene.execute(
        "UPDATE tocsin.deliveries SET lease_owner = 'dead', leased_at = now(), lease_seq = 1, "
        f"lease_expires_at = {LONG_AGO}"
    )
    await scene.execute("UPDATE tocsin.lanes SET leased = 1, lapse_at = now(), next_due_at = 'infinity'")
    return found


async def _unfanned_event(scene: Scene) -> str:
    run = await _run(scene)
    event = await scene.event()
    await scene.execute("UPDATE tocsin.runs SET state = 'completed', settled_at = now(), completed_at = now()")
    await scene.execute("UPDATE tocsin.events SET fanned_out_at = NULL, run_id = CAST(:run AS uuid)", run=run)
    return str(event)


async def _unfanned_published(scene: Scene) -> str:
    event = await scene.event()
    await scene.execute(f"UPDATE tocsin.events SET fanned_out_at = NULL, created_at = {LONG_AGO}")
    return str(event)


async def _unstarted_run(scene: Scene) -> str:
    run = await _run(scene)
    await scene.execute(f"UPDATE tocsin.runs SET claimed_at = {LONG_AGO}")
    return run


async def _run_held_without_a_pause(scene: Scene) -> str:
    run = await _run(scene)
    await scene.execute("UPDATE tocsin.runs SET state = 'held'")
    return run


async def _due_not_claimed(scene: Scene) -> str:
    found = await _waiting(scene)
    await scene.execute(f"UPDATE tocsin.deliveries SET next_attempt_at = {LONG_AGO}")
    await scene.execute(f"UPDATE tocsin.lanes SET next_due_at = {LONG_AGO}")
    return found


async def _lane_asleep(scene: Scene) -> str:
    found = await _waiting(scene)
    await scene.execute(f"UPDATE tocsin.deliveries SET next_attempt_at = {LONG_AGO}")
    await scene.execute("UPDATE tocsin.lanes SET next_due_at = 'infinity'")
    return found


async def _lane_count(scene: Scene) -> str:
    await _waiting(scene)
    await scene.execute("UPDATE tocsin.lanes SET leased = 3")
    return "acme"


async def _lane_of_late_count(scene: Scene) -> str:
    await _waiting(scene)
    await scene.execute("UPDATE tocsin.lanes SET leased_late = 1")
    return "acme"


async def _settled_with_pending(scene: Scene) -> str:
    run = await _run(scene)
    await _waiting(scene)
    await scene.execute("UPDATE tocsin.deliveries SET run_id = CAST(:run AS uuid)", run=run)
    await scene.execute("UPDATE tocsin.runs SET state = 'completed', completed_at = now(), settled_at = now()")
    return run


async def _unsettled_without_pending(scene: Scene) -> str:
    run = await _run(scene)
    await scene.execute(f"UPDATE tocsin.runs SET state = 'completed', completed_at = {LONG_AGO}")
    return run


async def _attempt_count(scene: Scene) -> str:
    found = await _waiting(scene)
    await scene.execute("UPDATE tocsin.deliveries SET attempt_count = 2")
    return found


async def _generation_count(scene: Scene) -> str:
    found = await _waiting(scene)
    await scene.execute("UPDATE tocsin.deliveries SET generation = 2")
    return found


async def _orphan(scene: Scene) -> str:
    found = await _waiting(scene)
    await scene.execute(f"UPDATE tocsin.subscribers SET deleted_at = {LONG_AGO}")
    return found


async def _payload_missing(scene: Scene) -> str:
    found = await _waiting(scene)
    await scene.execute("UPDATE tocsin.events SET body = NULL")
    return found


async def _replay_stuck(scene: Scene) -> str:
    [row] = await scene.execute(
        "INSERT INTO tocsin.replays (id, filter, reason, requested_by, rate_per_second, state, matched, last_row, "
        f"next_at) VALUES (gen_random_uuid(), '{{}}', 'r', 'a', 1, 'running', 9, 9, {LONG_AGO}) RETURNING id::text"
    )
    return str(row.id)


BROKEN: dict[str, tuple[Kind, Callable[[Scene], Coroutine[Any, Any, str]]]] = {
    "a lease that nobody takes over": (Kind.OVERDUE_LEASE, _overdue_lease),
    "an event that a completed run left": (Kind.UNFANNED_EVENT, _unfanned_event),
    "a published event that nobody fans out": (Kind.UNFANNED_EVENT, _unfanned_published),
    "a run that nobody starts": (Kind.STUCK_RUN, _unstarted_run),
    "a run that is held without a pause": (Kind.STUCK_RUN, _run_held_without_a_pause),
    "a due delivery that nobody claims": (Kind.DUE_NOT_CLAIMED, _due_not_claimed),
    "a lane that sleeps over due work": (Kind.LANE_ASLEEP, _lane_asleep),
    "a lane that counts what is not there": (Kind.LANE_COUNT, _lane_count),
    "a lane that counts a retry that is none": (Kind.LANE_COUNT, _lane_of_late_count),
    "a settled run with a pending delivery": (Kind.RUN_COUNT, _settled_with_pending),
    "a run that is through and not settled": (Kind.RUN_COUNT, _unsettled_without_pending),
    "an attempt without evidence": (Kind.ATTEMPT_COUNT, _attempt_count),
    "a generation that nobody asked for": (Kind.GENERATION_COUNT, _generation_count),
    "a delivery of a deleted subscriber": (Kind.ORPHAN, _orphan),
    "a delivery without its payload": (Kind.PAYLOAD_MISSING, _payload_missing),
    "a bulk replay that stands": (Kind.RUNNING_REPLAY_STUCK, _replay_stuck),
}


@pytest.mark.parametrize("case", BROKEN)
async def test_each_disagreement_is_found_alone_with_its_example_and_its_mend(scene: Scene, case: str) -> None:
    kind, breaks = BROKEN[case]
    example = await breaks(scene)
    report = await reconcile(scene.db)
    assert _kinds(report) == [kind]
    [finding] = report.findings
    assert (finding.count, list(finding.examples)) == (1, [example])
    assert (finding.detail, finding.mend) == TOLD[kind]


def test_every_kind_is_tried_and_told() -> None:
    assert {kind for kind, _ in BROKEN.values()} == set(Kind) == set(TOLD)


async def test_a_busy_house_shows_nothing_at_any_moment(scene: Scene) -> None:
    await scene.shipments(120)
    failing = [answer(500), answer(200)] * 20
    async with Receiver() as quick, Receiver(*failing, then=answer(200)) as shaky:
        await scene.subscriber("quick", quick.url)
        await scene.subscriber("shaky", shaky.url)
        await scene.subscriber("strict", quick.url, ordering=Ordering.STRICT)
        await scene.tick(shipments_job(page_size=40))
        stop = asyncio.Event()
        working = asyncio.create_task(scene.worker(shipments_job(page_size=40)).run(stop))
        looks = 0
        while await scene.states() != {"delivered": 360}:
            assert _kinds(await reconcile(scene.db)) == []
            looks += 1
        stop.set()
        await working
    assert looks > 1
    assert _kinds(await reconcile(scene.db)) == []


async def test_what_happens_between_the_beginning_of_a_look_and_the_look_is_no_finding(scene: Scene) -> None:
    async with Receiver(then=answer(200)) as receiver:
        await scene.subscriber("strict", receiver.url, ordering=Ordering.STRICT)
        await scene.subscriber("plain", receiver.url)
        await scene.subscriber("rated", receiver.url, rate_per_second=0.1)
        for n in range(3):
            await scene.event(f"e{n}")
        await scene.execute(f"UPDATE tocsin.deliveries SET next_attempt_at = {LONG_AGO} WHERE next_attempt_at < now()")
        async with scene.db.begin() as tx:
            await reconciliation.bound(tx)
            await scene.dispatcher().once()
            assert {kind for kind in Kind if (await reconciliation.look(tx, kind)).count} == set()
            await scene.event("new")
            await steering.claim(scene)
            assert {kind for kind in Kind if (await reconciliation.look(tx, kind)).count} == set()


async def test_paused_work_is_no_finding_however_long_it_waits(scene: Scene) -> None:
    await _due_not_claimed(scene)
    await scene.execute("UPDATE tocsin.dispatch SET paused = true")
    assert _kinds(await reconcile(scene.db)) == []
    await scene.execute("UPDATE tocsin.dispatch SET paused = false")
    await scene.execute("UPDATE tocsin.lanes SET state = 'paused'")
    assert _kinds(await reconcile(scene.db)) == []


async def test_a_run_that_waits_behind_others_is_not_stuck_but_one_that_was_passed_over_is(scene: Scene) -> None:
    waits = await scene.tick(shipments_job(), "waits")
    await scene.tick(shipments_job(), "works")
    await scene.execute(f"UPDATE tocsin.runs SET claimed_at = {LONG_AGO}")
    leased = "UPDATE tocsin.runs SET state = 'running', lease_expires_at = now() + interval '1 minute', started_at = "
    await scene.execute(leased + "now() - interval '1 hour' WHERE run_id = 'works'")
    assert _kinds(await reconcile(scene.db)) == []
    await scene.execute(leased + "now() WHERE run_id = 'works'")
    [finding] = (await reconcile(scene.db)).findings
    assert list(finding.examples) == [str(waits)]


async def test_a_look_that_takes_too_long_is_cut_short_and_said(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = text("SELECT pg_sleep(30)::text AS name")
    questions = {**reconciliation._QUESTIONS, Kind.ORPHAN: slow}
    monkeypatch.setattr(reconciliation, "_QUESTIONS", questions)
    monkeypatch.setattr(reconciliation, "SECONDS", 0.05)
    report = await reconciling.reconcile(scene.db)
    assert (list(report.unchecked), report.findings) == ([Kind.ORPHAN], [])


MENDS = dict(re.findall(r"^### ([a-z-]+)\n.*?```sql\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize(
    "case",
    [
        "an event that a completed run left",
        "a lane that counts what is not there",
        "a settled run with a pending delivery",
    ],
)
async def test_the_statements_of_the_page_mend_what_they_are_for(scene: Scene, case: str) -> None:
    kind, breaks = BROKEN[case]
    example = await breaks(scene)
    statement = MENDS[kind].replace(":id", f"'{example}'").rstrip().removesuffix(";")
    await scene.execute(statement)
    await scene.discovery(shipments_job()).once()
    assert _kinds(await reconcile(scene.db)) == []


def test_every_kind_has_its_row_on_the_page() -> None:
    assert re.findall(r"^\| `([a-z-]+)` \|", PAGE, re.MULTILINE) == list(Kind)
