"""The drill's crash: a tick has claimed a run, and the worker is dead before it has fanned the events out."""

import asyncio
import os
import shlex
import signal
import subprocess
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
_ALONE_SECONDS = 1.0
"""How long nobody who was named runs after the kill: who completes the run meanwhile was not named."""


async def crash(hands: Hands, bell: Bell | None, scene: Scene) -> list[Check]:
    """SIGKILL a worker when a tick has claimed a run and before its events are fanned out."""
    bell, command = await _needed(hands, bell, scene)
    pids = await hands.workers(scene)
    lease = await lease_seconds(scene)
    target = await scene.subscriber("200", quiet=True, maxConcurrency=100)
    cutoff = datetime.now(UTC).replace(microsecond=0)
    await scene.publish(_FLOCK, due_at=format_rfc3339(cutoff - timedelta(seconds=1)))
    with stoppable(*pids[1:]):
        run_id = await _tick_and_kill(scene, bell, pids, format_rfc3339(cutoff))
        killed_at = datetime.now(UTC)
        scene.note(f"the tick is accepted as run {run_id}; SIGKILL {pids[0]}; then: {' '.join(command)}")
        await asyncio.sleep(_ALONE_SECONDS)
    _start(command)
    await ready(scene)
    run = await completed(scene, run_id, more=2 * lease)
    done = [await scene.stage.full(each) for each in await scene.ended(target, _FLOCK, more=2 * lease)]
    row = f"{cite_run(run)}; completed at {run['completedAt']}, the worker was killed at {format_rfc3339(killed_at)}"
    scene.note(row)
    _check_cut(run, killed_at)
    delivered = all(each["state"] == "delivered" for each in done)
    return [
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


async def _tick_and_kill(scene: Scene, bell: Bell, pids: tuple[int, ...], cutoff: str) -> str:
    """Have a run claimed while no worker runs, or only the one that answers the tick as well; kill it; the run's id.

    Raises:
        NotRun: one of the other workers answers for the API, so that it cannot be stopped.

    """
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    with stoppable(pids[0]):
        if not await _api_lives(scene):
            go_on(pids[0])
            if not await _api_lives(scene):
                raise NotRun("the API answers from one of the other workers: name its process first, or use `serve`")
        told: Mapping[str, Mapping[str, str]] = await bell.ring(scene, f"drill-{scene.stage.tag}-crash", cutoff)
        os.kill(pids[0], signal.SIGKILL)
        return told["run"]["id"]


async def _api_lives(scene: Scene) -> bool:
    """Whether the API answers although processes are stopped."""
    try:
        await asyncio.wait_for(scene.stage.api.call("GET", "/livez"), _LIVE_SECONDS)
    except (TimeoutError, NobodyAnswers):
        return False
    return True


def _check_cut(run: Run, killed_at: datetime) -> None:
    """Make sure that the kill came in time, and that nobody else was at work.

    Raises:
        NotRun: the run was completed too early to have been interrupted.

    """
    if run["completedAt"] is None:
        return
    after = (parse_rfc3339(run["completedAt"]) - killed_at).total_seconds()
    if after <= 0:
        raise NotRun(f"the fan-out was over before the kill came: try again ({cite_run(run)})")
    if after < _ALONE_SECONDS:
        raise NotRun(f"a worker that was not named completed the run: name each with --worker-pid ({cite_run(run)})")


def _start(command: list[str]) -> None:
    """Start what the operator named, in a session of its own, and do not wait for it."""
    nowhere = subprocess.DEVNULL
    try:
        subprocess.Popen(command, stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True)  # noqa: S603
    except OSError as error:
        raise NotRun(f"--restart cannot be run ({error.strerror}); THE WORKER IS DEAD: start it by hand") from None
