"""The drill's harmless sequences: receivers that misbehave, operators that step in. They touch nobody else."""

import time
from collections.abc import Sequence
from urllib.parse import quote

from service.cli.api import ApiRefused
from service.cli.drill_evidence import Check, Delivery, NotRun, both_sides, check, outcomes
from service.cli.drill_stage import REASON, Act, Scene, Target

_RETRY_AFTER = 3
_ROUNDING_SECONDS = 0.1
_FLOCK = 10
_HANGING_SECONDS = 1.5


async def lost_acknowledgement(scene: Scene) -> list[Check]:
    """Receive, accept, lose the acknowledgement, retry under one key."""
    target = await scene.subscriber("disconnect,200")
    await scene.publish()
    [delivery] = await scene.settled(target)
    return [
        check("the loss and the retry are on record", outcomes(delivery) == ["disconnected", "delivered"], delivery),
        check("a receiver that keeps its keys applied it once", _duplicates(target) == [False, True], delivery),
        *both_sides(target.requests, [delivery]),
    ]


async def throttled_alone(scene: Scene) -> list[Check]:
    """429 with Retry-After for one subscriber while another flows."""
    slow = await scene.subscriber(f"429:{_RETRY_AFTER},200", "throttled", every=5, maxConcurrency=1)
    fast = await scene.subscriber("200", "flowing")
    await scene.publish(5)
    flowed = await scene.settled(fast, 5)
    waited = await scene.settled(slow, 5)
    first, second = slow.requests[0].at, slow.requests[1].at
    [struck] = [each for each in waited if each["attemptCount"] > 1] or waited[:1]
    in_time = second - first >= _RETRY_AFTER - _ROUNDING_SECONDS
    return [
        check(f"its whole lane waited for Retry-After ({_RETRY_AFTER} s)", in_time, struck),
        check("it was throttled once and then delivered", outcomes(struck) == ["throttled", "delivered"], struck),
        check("the others were delivered at once", all(outcomes(each) == ["delivered"] for each in flowed), flowed[0]),
        check("and did not wait for it", max(request.at for request in fast.requests) < second, flowed[-1]),
        check("nothing of the throttled lane was lost", _delivered(waited), *waited),
        *both_sides([*slow.requests, *fast.requests], [*waited, *flowed]),
    ]


async def too_slow(scene: Scene) -> list[Check]:
    """A receiver that takes longer than an attempt may: one that deduplicates, and one that cannot."""
    safe = await scene.subscriber("timeout,200", "keeps-keys", timeoutSeconds=0.5)
    unsafe = await scene.subscriber("timeout,200", "keeps-none", timeoutSeconds=0.5, idempotent=False)
    await scene.publish()
    [retried] = await scene.settled(safe)
    [stopped] = await scene.settled(unsafe)
    return [
        check(
            "it is tried again under the same key",
            outcomes(retried) == ["timeout", "delivered"] and _duplicates(safe) == [False, True],
            retried,
        ),
        check(
            "who cannot deduplicate is not asked twice: a person decides",
            stopped["state"] == "ambiguous" and outcomes(stopped) == ["timeout"],
            stopped,
        ),
        *both_sides([*safe.requests, *unsafe.requests], [retried, stopped]),
    ]


async def rejected(scene: Scene) -> list[Check]:
    """The receiver says no for good."""
    target = await scene.subscriber("422,200")
    await scene.publish()
    [delivery] = await scene.settled(target)
    once = delivery["state"] == "rejected" and outcomes(delivery) == ["rejected"]
    return [
        check("it is a dead letter after one attempt, with its reason", once and bool(delivery["reason"]), delivery),
        *both_sides(target.requests, [delivery]),
    ]


async def exhausted_then_replayed(scene: Scene) -> list[Check]:
    """Attempts used up, then replayed: the next generation of the same delivery."""
    target = await scene.subscriber("500,500,200", maxAttempts=2)
    await scene.publish()
    [given_up] = await scene.settled(target)
    await scene.stage.call("POST", f"/v1/deliveries/{quote(given_up['id'], safe='')}/replay", {"reason": REASON})
    scene.note(f"replay {given_up['id']}")
    [delivery] = await scene.settled(target)
    attempts = [(each["number"], each["generation"], each["outcome"]) for each in delivery["attempts"]]
    story = [(1, 1, "server_error"), (2, 1, "server_error"), (3, 2, "delivered")]
    keys = {request.key for request in target.requests}
    return [
        check("two attempts used it up", given_up["state"] == "exhausted" and len(given_up["attempts"]) == 2, given_up),  # noqa: PLR2004
        check("the replay is generation 2 and no attempt was erased", attempts == story, delivery),
        check("all three requests had one key", keys == {delivery["key"]}, delivery),
        *both_sides(target.requests, [delivery]),
    ]


async def paused_and_resumed(scene: Scene) -> list[Check]:
    """A pause holds deliveries and loses none."""
    target = await scene.subscriber("200", "paused")
    witness = await scene.subscriber("200", "running", quiet=True)
    await scene.steer(target, "pause")
    await scene.publish(_FLOCK)
    beside = await scene.settled(witness, _FLOCK)
    held = await scene.until(target, f"{_FLOCK} deliveries are held", _all_held)
    silent = not target.requests
    await scene.steer(target, "resume")
    done = await scene.settled(target, _FLOCK)
    untried = all(each["attemptCount"] == 0 for each in held)
    return [
        check("while it was paused, nothing was sent and no attempt used up", silent and untried, *held),
        check("the resume sent each of them once", _delivered(done) and len(target.requests) == _FLOCK, *done),
        *both_sides([*target.requests, *witness.requests], [*done, *beside]),
    ]


async def cancelled_in_flight(scene: Scene) -> list[Check]:
    """An operator cancels a delivery whose request is under way."""
    target = await scene.subscriber("hang,200", timeoutSeconds=_HANGING_SECONDS)
    await scene.publish()
    await scene.seen(target)
    await _cancel(scene, target)
    await scene.until(target, "the request's end is on record", lambda found: found[0]["lastOutcome"] is not None)
    [delivery] = await scene.settled(target)
    decided = [each for each in delivery["attempts"] if not each["late"] or each["counted"]]
    return [
        check("it is cancelled, and its request decided nothing", delivery["state"] == "cancelled", delivery),
        check(
            "what came of the request is kept as late evidence", bool(delivery["attempts"]) and not decided, delivery
        ),
        check("it was not sent again", len(target.requests) == 1, delivery),
        *both_sides(target.requests, [delivery]),
    ]


async def _cancel(scene: Scene, target: Target) -> None:
    """Cancel the target's only delivery while its first request is under way.

    Raises:
        NotRun: that took longer than the request may have lasted.

    """
    [leased] = await scene.stage.deliveries(target)
    lasts = min(_HANGING_SECONDS, scene.stage.attempt_seconds or _HANGING_SECONDS)
    refused: ApiRefused | None = None
    try:
        await scene.stage.call("POST", f"/v1/deliveries/{quote(leased['id'], safe='')}/cancel", {"reason": REASON})
    except ApiRefused as refusal:
        refused = refusal
    if time.monotonic() - target.requests[0].at >= lasts:
        raise NotRun(f"its request of {lasts:g} s was over before it was cancelled: try again, or with a longer lease")
    if refused is not None:
        raise refused
    scene.note(f"cancel {leased['id']}, which was {leased['state']}")


HARMLESS = (
    Act("lost-ack", "An acknowledgement that is lost leads to a retry under the same key.", lost_acknowledgement),
    Act("throttled", "429 holds up the subscriber that said it, and nobody else.", throttled_alone),
    Act("slow", "A receiver slower than an attempt may be leads to a retry or to a person.", too_slow),
    Act("rejected", "A receiver's no for good is not tried again.", rejected),
    Act("replayed", "What was given up can be sent again, under its key.", exhausted_then_replayed),
    Act("paused", "A pause loses nothing.", paused_and_resumed),
    Act("cancelled", "What is cancelled in flight stays cancelled.", cancelled_in_flight),
)


def _duplicates(target: Target) -> list[bool]:
    return [request.duplicate for request in target.requests]


def _delivered(deliveries: Sequence[Delivery]) -> bool:
    return all(each["state"] == "delivered" and outcomes(each)[-1:] == ["delivered"] for each in deliveries)


def _all_held(found: Sequence[Delivery]) -> bool:
    return len(found) == _FLOCK and all(each["heldBy"] == "subscriber-paused" for each in found)
