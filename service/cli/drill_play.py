"""Plays the drill: whether it can be played at all, which sequences, in which order, and what came of each."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from service.cli.drill_answers import HARMLESS
from service.cli.drill_crash import crash
from service.cli.drill_evidence import NotRun, Overdue, Ruling, Verdict, judged, outcomes
from service.cli.drill_hands import Hands
from service.cli.drill_lease import lease_expiry
from service.cli.drill_outage import database_gone
from service.cli.drill_stage import Act, Scene, Stage
from service.cli.drill_ticks import UNRUNG, Bell, tick_acts
from service.cli.standstill import in_words
from service.domain.errors import TocsinError

_NO_JOB = "name a job with --job, best an outbox job of its own (docs/drill.md)"
_NOT_WANTED = "it disturbs everybody: add --disruptive, on an installation for rehearsals"

_STOPPED_BEFORE = "the drill was stopped before this had ended: run it again"

_STOPPED = "A worker that is stopped past its leases loses nothing and decides nothing any more."
_GONE = "A database that is gone for 20 seconds costs nothing but time."
_CRASHED = "A crash between the claim of a run and its fan-out loses nothing."
_DISRUPTIONS = (("lease-expiry", _STOPPED), ("database-gone", _GONE), ("crash", _CRASHED))


@dataclass(frozen=True, slots=True)
class Plan:
    """What may be done beyond the harmless: ring a job, lay hands on processes."""

    bell: Bell | None
    hands: Hands | None


async def rehearse(stage: Stage, plan: Plan) -> list[Verdict]:
    """Play every sequence and judge it: the harmless ones at the same time, then the disruptive ones.

    Raises:
        TocsinError: nothing can be rehearsed here; the message names the mend.

    """
    await _check(stage)
    ticks = () if plan.bell is None else tick_acts(plan.bell)
    groups = await asyncio.gather(*(_in_turn(stage, acts) for acts in (*((act,) for act in HARMLESS), ticks)))
    found = [verdict for group in groups for verdict in group]
    if plan.bell is None:
        found += _not_run(UNRUNG, _NO_JOB)
    if plan.hands is None:
        return [*found, *_not_run(_DISRUPTIONS, _NOT_WANTED)]
    return [*found, *await _in_turn(stage, _disruptions(plan.hands, plan.bell))]


def so_far(stage: Stage, plan: Plan) -> list[Verdict]:
    """The verdicts of a drill that was stopped: of what had ended, and that all else was not run."""
    ended = {verdict.sequence: verdict for verdict in stage.verdicts}
    missing = [
        *_not_run(((act.slug, act.promise) for act in HARMLESS), _STOPPED_BEFORE),
        *_not_run(UNRUNG, _STOPPED_BEFORE if plan.bell else _NO_JOB),
        *_not_run(_DISRUPTIONS, _STOPPED_BEFORE if plan.hands else _NOT_WANTED),
    ]
    return [ended.get(each.sequence, each) for each in missing]


def _disruptions(hands: Hands, bell: Bell | None) -> tuple[Act, ...]:
    """The sequences that disturb everybody, one after the other; the one that kills a worker is the last."""
    plays = (partial(lease_expiry, hands), partial(database_gone, hands.settings), partial(crash, hands, bell))
    return tuple(Act(*named, play) for named, play in zip(_DISRUPTIONS, plays, strict=True))


def _not_run(acts: Iterable[tuple[str, str]], mend: str) -> list[Verdict]:
    return [Verdict(name, promise, Ruling.NOT_RUN, mend) for name, promise in acts]


async def _in_turn(stage: Stage, acts: Sequence[Act]) -> list[Verdict]:
    return [await _play(stage, act) for act in acts]


async def _play(stage: Stage, act: Act) -> Verdict:
    """Play one sequence to its verdict."""
    scene = Scene(stage, act.slug)
    try:
        verdict = judged(act.slug, act.promise, await act.play(scene))
    except NotRun as reason:
        verdict = Verdict(act.slug, act.promise, Ruling.NOT_RUN, str(reason))
    except Overdue as late:
        verdict = judged(act.slug, act.promise, [late.check])
    except TocsinError as refusal:
        verdict = Verdict(act.slug, act.promise, Ruling.BROKEN, f"Tocsin refused: {refusal.detail}")
    scene.note(f"{verdict.ruling}" + ("" if verdict.ruling is Ruling.KEPT else f": {verdict.said}"))
    stage.verdicts.append(verdict)
    return verdict


async def _check(stage: Stage) -> None:
    """Send one delivery to a receiver that answers: whatever hinders that would hinder everything.

    Raises:
        TocsinError: it did not arrive.

    """
    standing = await stage.api.call("GET", "/v1/dispatch")
    if standing["paused"]:
        paused = in_words(standing["since"], standing["pausedBy"], standing["reason"])
        raise TocsinError(f"nothing can be rehearsed: {paused}.")
    scene = Scene(stage, "first")
    target = await scene.subscriber("200")
    scene.note(f"an attempt may take {stage.attempt_seconds:g} s here, so that it fits the lease")
    await scene.publish()
    try:
        [delivery] = await scene.settled(target)
    except Overdue as late:
        raise TocsinError(
            f"nothing was delivered within {stage.patience:.0f} s: does a worker run? {late.check.rows[0]}"
        ) from None
    said = (delivery["lastOutcome"] or {}).get("detail")
    if outcomes(delivery) == ["blocked"]:
        raise TocsinError(
            f"Tocsin may not call {stage.host} ({said}): start it with TOCSIN_EGRESS_ALLOW={stage.host}/32"
        )
    if outcomes(delivery) != ["delivered"] or not target.requests:
        raise TocsinError(
            f"a receiver on {stage.host} that answers 200 was not reached ({delivery['state']}, {said}): "
            "name with --receiver-host an address at which Tocsin reaches this machine"
        )
