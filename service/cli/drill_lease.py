"""The drill's stopped worker: its requests are under way, its leases run out, others take over, it goes on."""

import asyncio
import os
import signal
import time
from collections.abc import Sequence
from functools import partial

from service.cli.drill_evidence import Check, Delivery, NotRun, both_sides, check
from service.cli.drill_hands import Hands, explained, go_on, lease_seconds, ready, stoppable, worker
from service.cli.drill_stage import Scene, Target
from service.domain.errors import Unavailable

_TRIES = 40
_SETTLING_SECONDS = 3.0
_BEYOND_SECONDS = 5.0
"""How long after its leases a stopped worker goes on at the latest: others have taken them over by then."""

_LOOK_SECONDS = 0.05


async def lease_expiry(hands: Hands, scene: Scene) -> list[Check]:
    """SIGSTOP a worker while a request of it is under way, SIGCONT when its lease was taken over."""
    pid = (await hands.workers(scene))[0]
    lease = await lease_seconds(scene)
    target = await scene.subscriber("200,hang,200")
    with stoppable(pid):
        count, offering = await _stop_at_its_request(scene, target, pid)
        scene.note(f"SIGSTOP {pid} while a request of it is under way; waiting for its lease ({lease:.0f} s)")
        taken = await _taken_over(target, lease + _BEYOND_SECONDS)
    scene.note(f"SIGCONT {pid}" + (", with an attempt of its successor under way" if taken else ""))
    await offering
    await ready(scene)
    await scene.stage.call("POST", "/v1/events", scene.event(count))
    done = await scene.settled(target, count, more=lease)
    lost = [each for each in done if _lost_lease(each, pid)]
    if not lost:
        raise NotRun(f"no lease of {pid} was taken over while it stood still: let a second worker run beside it")
    return [
        check("what it had claimed was taken over, and that is on record", bool(lost), *lost),
        check("what came of its own attempts decided nothing any more", _late(lost, pid), *lost),
        check("all were delivered", all(each["state"] == "delivered" for each in done), *done),
        check("a request came again only behind a lost lease or a timeout", explained(target.requests, done), *lost),
        *both_sides(target.requests, done),
    ]


async def _stop_at_its_request(scene: Scene, target: Target, pid: int) -> tuple[int, asyncio.Task[None]]:
    """Publish events one by one until the worker has sent one and stands still before it has heard the answer.

    Gives back how many were published, and the last call, which may be waiting for its answer. Which worker sent a
    request is seen by whether it is settled although this one is stopped; an API that is stopped with it cannot be
    asked, and counts as a yes.

    Raises:
        NotRun: the other workers sent all of them.

    """
    for number in range(1, _TRIES + 1):
        target.receiver.then = partial(os.kill, pid, signal.SIGSTOP)
        offering = asyncio.create_task(_offer(scene, number))
        await scene.seen(target, number)
        mine = not await _settled_by_another(scene, target)
        if mine:
            return number, offering
        go_on(pid)
        await offering
    raise NotRun(f"the other workers sent all of {_TRIES} requests: try again")


async def _offer(scene: Scene, number: int) -> None:
    """Publish an event; what follows at once may take the answer away, so it is not asked for again here."""
    scene.stage.events += 1
    try:
        await scene.stage.api.call("POST", "/v1/events", body=scene.event(number))
    except Unavailable:
        scene.note("no answer to the publisher: the API is stopped as well")


async def _settled_by_another(scene: Scene, target: Target) -> bool:
    """Whether everything sent so far is settled within three seconds, with nothing sent a second time."""
    try:
        async with asyncio.timeout(_SETTLING_SECONDS):
            while all(request.attempt == 1 for request in target.requests):
                found = await scene.stage.deliveries(target)
                if found and all(each["state"] == "delivered" for each in found):
                    return True
                await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError:
        pass
    return False


async def _taken_over(target: Target, seconds: float) -> bool:
    """Wait until somebody tries a delivery a second time; False where nobody does in so many seconds."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if any(request.attempt > 1 for request in target.requests):
            return True
        await asyncio.sleep(_LOOK_SECONDS)
    return False


def _lost_lease(delivery: Delivery, pid: int) -> bool:
    """Whether an attempt of this worker lost its lease before it ended."""
    return any(
        (each["outcome"] == "in_doubt" or each["late"]) and each["worker"].rpartition(":")[0] == worker(pid)
        for each in delivery["attempts"]
    )


def _late(lost: Sequence[Delivery], pid: int) -> bool:
    """Whether all that this worker said of leases that it had lost is marked as late."""
    return all(
        each["late"] or each["outcome"] == "in_doubt"
        for delivery in lost
        for each in delivery["attempts"]
        if each["worker"].rpartition(":")[0] == worker(pid) and each["number"] in _in_doubt(delivery)
    )


def _in_doubt(delivery: Delivery) -> set[int]:
    return {each["number"] for each in delivery["attempts"] if each["outcome"] == "in_doubt"}
