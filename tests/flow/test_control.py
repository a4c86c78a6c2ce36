"""What operators do to jobs, runs and keys: it holds at once, it can be repeated, and the trail tells who did it."""

import asyncio
import re
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from service.domain.errors import Conflict, CutoffOutOfRange, Invalid, NotFound, RunConflict
from service.domain.job import JobConfig
from service.domain.model import RunId, RunSource, RunState, Scope
from service.flow import control
from service.flow.intake import Accepted
from service.store import keys, runs
from service.store.database import Database, Tx
from tests import steering
from tests.polling import eventually
from tests.scenes import Scene, shipments_job
from tests.steering import trail

JOB = shipments_job()


async def _state(scene: Scene, run: RunId) -> RunState:
    return (await scene.run(run)).state


@pytest.fixture
def scene(database: Database) -> Scene:
    return Scene(database)


async def _pause(scene: Scene, reason: str | None = "deploy") -> None:
    await control.pause_job(scene.db, JOB.name, actor="alice", reason=reason)


async def _resume(scene: Scene, reason: str | None = None) -> None:
    await control.resume_job(scene.db, scene.doorbell, JOB.name, actor="bob", reason=reason)


async def test_a_paused_job_holds_the_runs_that_wait_and_those_that_come_and_releases_all(scene: Scene) -> None:
    before = await scene.tick(JOB, "before")
    await _pause(scene)
    after = await scene.tick(JOB, "after")
    assert await _state(scene, before) is RunState.HELD
    assert await _state(scene, after) is RunState.HELD
    await _resume(scene)
    assert await _state(scene, before) is RunState.CLAIMED
    assert await _state(scene, after) is RunState.CLAIMED


async def test_pausing_one_job_leaves_the_others_alone(scene: Scene) -> None:
    other = await scene.tick(shipments_job(name="other"), "r")
    await _pause(scene)
    assert await _state(scene, other) is RunState.CLAIMED


async def test_pause_and_resume_write_one_line_each_however_often_they_are_sent(scene: Scene) -> None:
    await scene.tick(JOB)
    await asyncio.gather(*(_pause(scene) for _ in range(4)))
    await asyncio.gather(*(_resume(scene, "done") for _ in range(4)))
    told = [(line.actor, line.action, line.object, line.reason, line.detail) for line in await trail(scene)]
    assert told == [
        ("alice", "job.paused", "job:shipments.expire", "deploy", {"held": 1}),
        ("bob", "job.resumed", "job:shipments.expire", "done", {"released": 1}),
    ]


async def _start(scene: Scene, run_id: str, cutoff: datetime, job: JobConfig = JOB) -> Accepted:
    return await control.start_run(
        scene.db, scene.doorbell, job, run_id=run_id, cutoff=cutoff, actor="alice", reason="catch up"
    )


async def _now(scene: Scene) -> datetime:
    async with scene.db.begin() as tx:
        return tx.now


async def test_a_run_started_by_hand_is_claimed_once_in_the_operator_s_name(scene: Scene) -> None:
    now = await _now(scene)
    answers = await asyncio.gather(*(_start(scene, "r1", now) for _ in range(6)))
    assert len({answer.run.id for answer in answers}) == 1
    assert [answer.duplicate for answer in answers].count(False) == 1
    view = await scene.run(answers[0].run.id)
    assert (view.source, view.run_id, view.cutoff) == (RunSource.OPERATOR, "r1", now)
    [line] = await trail(scene)
    assert (line.actor, line.action, line.object) == ("alice", "run.started", f"run:{view.id}")
    assert (line.reason, line.detail) == ("catch up", {"job": JOB.name, "runId": "r1"})


async def test_a_run_started_by_hand_is_no_tick_of_its_job(scene: Scene) -> None:
    await _start(scene, "r1", await _now(scene))
    [row] = await scene.execute("SELECT count(*) AS n FROM tocsin.jobs WHERE last_tick_at IS NOT NULL")
    assert row.n == 0


async def test_a_run_started_by_hand_beside_a_resume_is_not_left_held(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, claim, resuming = await _now(scene), runs.claim, list[asyncio.Task[None]]()

    async def claim_beside(tx: Tx, **values: Any) -> bool:
        claimed = await claim(tx, **values)
        resuming.append(asyncio.create_task(_resume(scene)))
        assert await eventually(over_or_blocked)
        return claimed

    async def over_or_blocked() -> bool:
        return resuming[0].done() or await steering.blocked(scene)

    monkeypatch.setattr(runs, "claim", claim_beside)
    await _pause(scene)
    started = await _start(scene, "r1", now)
    await resuming[0]
    assert await _state(scene, started.run.id) is RunState.CLAIMED


async def test_a_refused_start_writes_nothing(scene: Scene) -> None:
    now = await _now(scene)
    await _start(scene, "r1", now)
    with pytest.raises(RunConflict):
        await _start(scene, "r1", now - timedelta(seconds=1))
    with pytest.raises(CutoffOutOfRange):
        await _start(scene, "r2", now + timedelta(hours=1))
    assert len(await trail(scene)) == 1


async def _failed_run(scene: Scene) -> RunId:
    run = await scene.tick(JOB)
    async with scene.db.begin() as tx:
        leased = await runs.lease(tx, jobs=[JOB.name], worker="w1", seconds=60)
        assert leased is not None
        assert await runs.fail(tx, leased, "column version is missing")
    return run


async def _retry(scene: Scene, run: RunId) -> None:
    await control.retry_run(scene.db, scene.doorbell, run, actor="alice", reason="mended")


async def test_a_failed_run_is_opened_again_once_and_forgets_its_error(scene: Scene) -> None:
    run = await _failed_run(scene)
    answers = await asyncio.gather(*(_retry(scene, run) for _ in range(4)), return_exceptions=True)
    assert sorted(type(answer).__name__ for answer in answers) == ["Conflict"] * 3 + ["NoneType"]
    view = await scene.run(run)
    assert (view.state, view.error) == (RunState.CLAIMED, None)
    [line] = await trail(scene)
    assert (line.action, line.object, line.reason) == ("run.retried", f"run:{run}", "mended")


async def test_only_a_failed_run_is_retried_and_the_refusal_names_its_state(scene: Scene) -> None:
    run = await scene.tick(JOB)
    with pytest.raises(Conflict, match="this one is claimed"):
        await _retry(scene, run)
    with pytest.raises(NotFound):
        await _retry(scene, RunId(uuid4()))
    assert await trail(scene) == []


async def test_a_new_key_is_shown_once_and_works_and_its_line_does_not_tell_it(scene: Scene) -> None:
    made = await control.create_key(scene.db, name="ci", scope=Scope.OPERATE, actor="cli")
    assert re.fullmatch(r"tsk_[A-Za-z0-9_-]{43}", made.key)
    assert made.key not in repr(made)
    async with scene.db.begin() as tx:
        assert await keys.find(tx, keys.digest(made.key)) == made.record
    [line] = await trail(scene)
    assert (line.actor, line.action, line.object, line.detail) == ("cli", "key.created", "key:ci", {"scope": "operate"})
    assert made.key not in repr(line)


async def test_a_live_key_s_name_is_taken_until_it_is_revoked(scene: Scene) -> None:
    async def create() -> str:
        return (await control.create_key(scene.db, name="ci", scope=Scope.READ, actor="cli")).key

    first = await create()
    with pytest.raises(Conflict):
        await create()
    await control.revoke_key(scene.db, "ci", actor="cli")
    assert await create() != first
    assert [line.action for line in await trail(scene)] == ["key.created", "key.revoked", "key.created"]


HIDDEN_OR_TAKEN = (
    *("", " ", "a b", "a\n", "a\x00", "x" * 65, "\u200b", "\u202eevil", "\ud800", "\u3164", "ci\ufe00"),
    *("bootstrap", "cli", "tocsin"),
)


async def test_a_key_s_name_is_visible_and_not_one_that_the_trail_uses_otherwise(scene: Scene) -> None:
    for name in HIDDEN_OR_TAKEN:
        with pytest.raises(Invalid) as refusal:
            await control.create_key(scene.db, name=name, scope=Scope.READ, actor="cli")
        assert [problem.pointer for problem in refusal.value.problems] == ["/name"], name
    assert await trail(scene) == []


async def test_a_visible_name_is_accepted(scene: Scene) -> None:
    for name in ("a", "x" * 64, "équipe-nord", "ops/ci@example"):
        assert (await control.create_key(scene.db, name=name, scope=Scope.READ, actor="cli")).record.name == name


async def test_revoking_a_key_that_is_not_there_is_refused(scene: Scene) -> None:
    with pytest.raises(NotFound):
        await control.revoke_key(scene.db, "ci", actor="cli")
