"""The drill's stopped worker: its requests are under way, its leases run out, others take over, it goes on."""

import asyncio
import os
import signal
from functools import partial

from service.cli.drill_evidence import Check, Delivery, NotRun, both_sides, check
from service.cli.drill_hands import Hands, explained, lease_seconds, ready, stoppable, worker
from service.cli.drill_stage import REASON, Scene, Target
from service.domain.errors import Unavailable

_FLOCK = 20
_BEYOND_SECONDS = 5.0
"""How long after its leases a stopped worker goes on: others have taken them over by then."""


async def lease_expiry(hands: Hands, scene: Scene) -> list[Check]:
    """SIGSTOP a worker while its requests are under way, SIGCONT after its leases."""
    pid = (await hands.workers(scene))[0]
    lease = await lease_seconds(scene)
    target = await waiting_flock(scene, _FLOCK)
    with stoppable(pid):
        target.receiver.then = partial(os.kill, pid, signal.SIGSTOP)
        resuming = asyncio.create_task(resume_once(scene, target))  # whoever answers may be what is stopped
        await scene.seen(target)
        scene.note(f"SIGSTOP {pid} while a request is under way; waiting for its leases ({lease:.0f} s)")
        await asyncio.sleep(lease + _BEYOND_SECONDS)
    scene.note(f"SIGCONT {pid}")
    await resuming
    await ready(scene)
    await scene.steer(target, "resume")
    done = await scene.settled(target, _FLOCK, more=lease)
    lost = [each for each in done if _lost_lease(each, pid)]
    if not lost:
        raise NotRun(f"no lease of {pid} was taken over while it stood still: let a second worker run beside it")
    return [
        check("what it had claimed was taken over, and that is on record", bool(lost), *lost),
        check("all were delivered", all(each["state"] == "delivered" for each in done), *done),
        check("a second request came only behind a lost lease", explained(target.requests, done), *lost),
        *both_sides(target.requests, done),
    ]


async def waiting_flock(scene: Scene, count: int) -> Target:
    """A target for which so many deliveries wait behind a pause."""
    target = await scene.subscriber("200")
    await scene.steer(target, "pause")
    await scene.publish(count)
    await scene.until(target, f"{count} deliveries wait", lambda found: len(found) == count)
    return target


async def resume_once(scene: Scene, target: Target) -> None:
    """Let a target go on; what follows at once may take the answer away, so it is not asked for again here."""
    try:
        await scene.stage.api.call("POST", f"/v1/subscribers/{target.id}/resume", body={"reason": REASON})
    except Unavailable:
        scene.note("no answer to the resume: whoever answers was gone by then")


def _lost_lease(delivery: Delivery, pid: int) -> bool:
    """Whether an attempt of this worker lost its lease before it ended."""
    return any(
        (each["outcome"] == "in_doubt" or each["late"]) and each["worker"].rpartition(":")[0] == worker(pid)
        for each in delivery["attempts"]
    )
