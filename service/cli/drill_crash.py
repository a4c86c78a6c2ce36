"""The drill's crash: a tick has claimed a run, and the worker is dead before it has fanned the events out."""

import asyncio
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from service.cli.api import NobodyAnswers
from service.cli.drill_evidence import Check, NotRun, both_sides
from service.cli.drill_hands import Hands, explained, go_on, lease_seconds, ready, stoppable
from service.cli.drill_stage import Scene
from service.cli.drill_ticks import Bell, Run, cite_run, completed
from service.domain.timestamps import format_rfc3339, parse_rfc3339

_FLOCK = 300
_LIVE_SECONDS = 2.0
_BEGIN_SECONDS = 10.0
"""How long the first worker may take to begin the run; the others stand still meanwhile."""

_STEP_SECONDS = 0.02
"""For so long the worker runs between two looks at the run; behind each page a worker rests for longer."""


async def crash(hands: Hands, bell: Bell | None, scene: Scene) -> list[Check]:
    """SIGKILL a worker when a tick has claimed a run and before its events are fanned out."""
    bell, command = await _needed(hands, bell, scene)
    pids = await hands.workers(scene)
    lease = await lease_seconds(scene)
    target = await scene.subscriber("200", quiet=True, maxConcurrency=100)
    cutoff = datetime.now(UTC).replace(microsecond=0)
    await scene.publish(_FLOCK, due_at=format_rfc3339(cutoff - timedelta(seconds=1)))
    with stoppable(*pids[1:]):
        begun = await _tick_and_kill(scene, bell, pids, format_rfc3339(cutoff))
        killed_at = datetime.now(UTC)
        _start(command)
    scene.note(f"SIGKILL {pids[0]}, which had begun run {begun['id']}; then: {' '.join(command)}")
    await ready(scene)
    run = await completed(scene, begun["id"], more=2 * lease)
    done = [await scene.stage.full(each) for each in await scene.ended(target, _FLOCK, more=2 * lease)]
    row = f"{cite_run(run)}; {pids[0]} was killed at {format_rfc3339(killed_at)} with {begun['events']} of them found"
    if run["completedAt"] is not None:
        row += f"; completed {_check_cut(run, killed_at, lease):.1f} s later, behind its lease ({lease:.0f} s)"
    scene.note(row)
    delivered = all(each["state"] == "delivered" for each in done)
    return [
        Check("the worker that was killed had begun the run and held its lease", begun["state"] == "running", (row,)),
        Check("the run was completed after the crash, without another tick", run["state"] == "completed", (row,)),
        Check(f"all {_FLOCK} dues were found once and delivered", delivered, (row,)),
        Check("a request came again only behind a lost lease or a timeout", explained(target.requests, done), (row,)),
        *both_sides(target.requests, done),
    ]


async def _needed(hands: Hands, bell: Bell | None, scene: Scene) -> tuple[Bell, list[str]]:
    """The job and the command that starts the worker again.

    Raises:
        NotRun: one of them was not named, or cannot be used.

    """
    if bell is None:
        raise NotRun("name an outbox job with --job: the run of a tick is what is interrupted")
    if await bell.source(scene) != "outbox":
        raise NotRun(f"the job {bell.job} is no outbox job, so nothing can be made due")
    if not hands.restart:
        raise NotRun("say with --restart what starts the worker again, such as 'systemctl restart tocsin-worker'")
    try:
        return bell, shlex.split(hands.restart)
    except ValueError as error:
        raise NotRun(f"--restart is no command ({error})") from None


async def _tick_and_kill(scene: Scene, bell: Bell, pids: tuple[int, ...], cutoff: str) -> Run:
    """Have a run claimed while no other worker than the first runs, and kill that one in the midst; the run as it was.

    Raises:
        NotRun: one of the other workers answers for the API, so that it cannot be stopped; or nothing was killed
            because the run was not seen in the midst.

    """
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    with stoppable(pids[0]):
        apart = await _api_lives(scene)
        if not apart:
            go_on(pids[0])
            if not await _api_lives(scene):
                raise NotRun("the API answers from one of the other workers: name its process first, or use `serve`")
        told: Mapping[str, Mapping[str, str]] = await bell.ring(scene, f"drill-{scene.stage.tag}-crash", cutoff)
        begun = await _begun(scene, pids[0], told["run"]["id"], apart=apart)
        os.kill(pids[0], signal.SIGKILL)
        return begun


async def _begun(scene: Scene, pid: int, run_id: str, *, apart: bool) -> Run:
    """The run as soon as this worker has leased it; where the API is a process `apart`, the worker stands still then.

    Raises:
        NotRun: it was over by then, or the worker did not take it.

    """
    ends = time.monotonic() + _BEGIN_SECONDS
    while time.monotonic() < ends:
        if apart:
            go_on(pid)
            await asyncio.sleep(_STEP_SECONDS)
            os.kill(pid, signal.SIGSTOP)
        run: Run = await scene.stage.call("GET", f"/v1/runs/{run_id}")
        if run["state"] == "running":
            return run
        if run["state"] != "claimed":
            raise NotRun(f"the fan-out was over before the kill could come: try again ({cite_run(run)})")
    raise NotRun(f"process {pid} did not begin the run: does its tocsin.toml have the job?")


async def _api_lives(scene: Scene) -> bool:
    """Whether the API answers although processes are stopped."""
    try:
        await asyncio.wait_for(scene.stage.api.call("GET", "/livez"), _LIVE_SECONDS)
    except (TimeoutError, NobodyAnswers):
        return False
    return True


def _check_cut(run: Run, killed_at: datetime, lease: float) -> float:
    """How many seconds after the kill the run was completed, long enough for a lease to have run out meanwhile.

    Raises:
        NotRun: the run was completed too early for the killed worker to have held it.

    """
    after = (parse_rfc3339(run["completedAt"]) - killed_at).total_seconds()
    if after <= 0:
        raise NotRun(f"the fan-out was over before the kill came: try again ({cite_run(run)})")
    if after < lease / 2:
        raise NotRun(
            f"{cite_run(run)} {after:.1f} s after the kill, before a lease ({lease:.0f} s) was over: the killed worker "
            "did not hold the run. Name each worker with --worker-pid, or try again"
        )
    return after


def _start(command: list[str]) -> None:
    """Start what the operator named, in a session of its own, and do not wait for it."""
    nowhere = subprocess.DEVNULL
    try:
        subprocess.Popen(command, stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True)  # noqa: S603
    except OSError as error:
        raise NotRun(f"--restart cannot be run ({error.strerror}); THE WORKER IS DEAD: start it by hand") from None
