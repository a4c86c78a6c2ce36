"""The drill's sequences that ring a job: each tick is a real one, so whatever is due at its cutoff goes out."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from service.cli.api import ApiRefused
from service.cli.drill_evidence import Check, NotRun, Overdue, both_sides, check
from service.cli.drill_stage import Act, Scene, Target
from service.cli.tick import post_tick
from service.domain.signing import tick_signature
from service.domain.timestamps import format_rfc3339

_OUTBOX = "outbox"
_RINGABLE = (_OUTBOX, "tick", "sql")
_STORM = 50
_MOST_EVENTS = 2_000
_POLL_SECONDS = 0.2
_NO_TIME = "no time"

Run = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Bell:
    """The job that the drill may ring. `page_size` is None where it is not known here."""

    job: str
    secret: bytes
    page_size: int | None

    async def source(self, scene: Scene) -> str:
        """The job's source.

        Raises:
            NotRun: the job cannot be rung now.

        """
        try:
            standing = await scene.stage.call("GET", f"/v1/jobs/{quote(self.job, safe='')}")
        except ApiRefused as refusal:
            if refusal.status != HTTPStatus.NOT_FOUND:
                raise
            raise NotRun(f"Tocsin knows no job {self.job}: name one of its tocsin.toml with --job") from None
        if standing["paused"]:
            raise NotRun(f"the job {self.job} is paused: `tocsin resume job {self.job}`")
        if standing["source"] not in _RINGABLE:
            raise NotRun(f"the job {self.job} has the source {standing['source']}: name one of {', '.join(_RINGABLE)}")
        await self._check_secret(scene)
        return str(standing["source"])

    async def _check_secret(self, scene: Scene) -> None:
        """Post a tick that cannot become a run, because its cutoff is no time: who has signed it is looked at first.

        Raises:
            NotRun: the secret is another one, which is better known before anything is made due.

        """
        try:
            await self.ring(scene, _run_id(scene), _NO_TIME)
        except ApiRefused as refusal:
            if refusal.status == HTTPStatus.UNAUTHORIZED:
                raise NotRun(
                    f"the job {self.job} takes no tick that is signed with this secret: name one of its `secrets` "
                    "with --secret env:NAME or file:PATH"
                ) from None
            if refusal.status != HTTPStatus.UNPROCESSABLE_ENTITY:
                raise

    async def ring(self, scene: Scene, run_id: str, cutoff: str) -> dict[str, Any]:
        """Post a tick, as a scheduler does, which tries again where nobody answers."""
        tick = {"runId": run_id, "cutoffIso": cutoff, "signature": tick_signature(self.secret, run_id, cutoff)}
        return await post_tick(scene.stage.ringer, self.job, tick, retries=3)


async def duplicate_tick(bell: Bell, scene: Scene) -> list[Check]:
    """The same tick twice, and once more with another cutoff."""
    due = await _due_event(bell, scene)
    run_id, cutoff = _run_id(scene), _now()
    first = await bell.ring(scene, run_id, cutoff)
    second = await bell.ring(scene, run_id, cutoff)
    scene.note(f"tick {run_id} twice: duplicate {first['duplicate']}, then {second['duplicate']}")
    refused = await _refused(bell, scene, run_id, _shifted(cutoff, -1))
    run = await completed(scene, first["run"]["id"])
    same = (first["duplicate"], second["duplicate"]) == (False, True) and second["run"]["id"] == run["id"]
    return [
        Check("the second tick is a duplicate of the same run", same, (cite_run(run),)),
        Check("the same run id with another cutoff is a conflict", refused, (cite_run(run),)),
        *await _sent_once(scene, due, run),
    ]


async def tick_storm(bell: Bell, scene: Scene) -> list[Check]:
    """Fifty copies of one tick at once."""
    due = await _due_event(bell, scene)
    run_id, cutoff = _run_id(scene), _now()
    told = await asyncio.gather(*(bell.ring(scene, run_id, cutoff) for _ in range(_STORM)))
    first = [each for each in told if not each["duplicate"]]
    runs = {each["run"]["id"] for each in told}
    scene.note(f"{_STORM} ticks {run_id} at once: {len(first)} accepted, {len(runs)} run")
    run = await completed(scene, told[0]["run"]["id"])
    return [
        Check(f"{_STORM} ticks made one run", len(runs) == 1 and len(first) == 1, (cite_run(run),)),
        *await _sent_once(scene, due, run),
    ]


async def page_boundary(bell: Bell, scene: Scene) -> list[Check]:
    """Dues of one page less one, a whole page, one page and one; and one that is due a moment after the cutoff."""
    size = await _page_size(bell, scene)
    target = await scene.subscriber("200", quiet=True, maxConcurrency=100)
    cutoff = _shifted(_now(), -60)
    checks: list[Check] = []
    published = found = late = 0
    for count in (size - 1, size, size + 1):
        await scene.publish(count, due_at=cutoff)
        await scene.publish(due_at=_shifted(cutoff, 1))
        run = await completed(scene, (await bell.ring(scene, f"{_run_id(scene)}-{count}", cutoff))["run"]["id"])
        published, found = published + count + 1, found + count + late
        own = sum(each["run"] == run["id"] for each in await scene.ended(target, found))
        row = cite_run(run, made_of=_made_of(count, late, own, run["events"]))
        scene.note(f"{count} due at {cutoff} with pages of {size}: {row}")
        promise = f"a run finds {count} dues with pages of {size}, and not what is due a moment later"
        checks.append(Check(promise, own == count + late, (row,)))
        cutoff, late = _shifted(cutoff, 2), 1
    last = await completed(scene, (await bell.ring(scene, f"{_run_id(scene)}-last", cutoff))["run"]["id"])
    all_ended = await scene.ended(target, published)
    once = len(target.requests) == len({request.key for request in target.requests}) == published
    arrived = once and all(each["state"] == "delivered" for each in all_ended)
    return [*checks, Check(f"{published:,} dues were delivered, each once", arrived, (cite_run(last),))]


async def completed(scene: Scene, run_id: str, *, more: float = 0) -> Run:
    """The run once every event of it is found and fanned out, or it has failed.

    Raises:
        Overdue: it is not so within the stage's patience and `more` seconds.

    """
    patience = scene.stage.patience + more
    ends = time.monotonic() + patience
    while True:
        run: Run = await scene.stage.call("GET", f"/v1/runs/{run_id}")
        if run["state"] in ("completed", "failed"):
            return run
        if time.monotonic() >= ends:
            raise Overdue(Check(f"the run is completed within {patience:.0f} s", held=False, rows=(cite_run(run),)))
        await asyncio.sleep(_POLL_SECONDS)


async def _due_event(bell: Bell, scene: Scene) -> Target | None:
    """A target for which one event is due; None where the job's source finds other things than published events."""
    if await bell.source(scene) != _OUTBOX:
        return None
    target = await scene.subscriber("200")
    await scene.publish(due_at=_shifted(_now(), -1))
    return target


async def _sent_once(scene: Scene, target: Target | None, run: Run) -> list[Check]:
    """That the run found the target's event, and that it was sent once."""
    if target is None:
        return [Check("the run is completed", run["state"] == "completed", (cite_run(run),))]
    [delivery] = await scene.settled(target)
    once = delivery["run"] == run["id"] and delivery["state"] == "delivered" and len(target.requests) == 1
    return [
        check(f"run {run['id']} delivered what was due, once", once, delivery),
        *both_sides(target.requests, [delivery]),
    ]


async def _refused(bell: Bell, scene: Scene, run_id: str, cutoff: str) -> bool:
    """Whether a tick of this run with another cutoff is refused as a conflict."""
    try:
        await bell.ring(scene, run_id, cutoff)
    except ApiRefused as refusal:
        scene.note(f"tick {run_id} with the cutoff {cutoff}: HTTP {refusal.status}")
        return refusal.status == HTTPStatus.CONFLICT
    return False


async def _page_size(bell: Bell, scene: Scene) -> int:
    """The size of the job's pages.

    Raises:
        NotRun: it is not known, too small or too large to be filled, or the job finds no published events.

    """
    if await bell.source(scene) != _OUTBOX:
        raise NotRun(f"the job {bell.job} is no outbox job, so nothing can be made due: name one with --job")
    if bell.page_size is None:
        raise NotRun(f"the job {bell.job} does not stand in this machine's tocsin.toml: say its --page-size")
    if bell.page_size < 2 or 3 * bell.page_size > _MOST_EVENTS:  # noqa: PLR2004 - one less has to be something
        raise NotRun(f"a page of {bell.page_size} is too small or too large to fill: rehearse with a page_size of 50")
    return bell.page_size


def tick_acts(bell: Bell) -> tuple[Act, ...]:
    """The sequences that ring this job, one after the other: a run finds what is due for all of them."""
    return (
        Act("duplicate-tick", _DUPLICATE, partial(duplicate_tick, bell)),
        Act("tick-storm", _STORMED, partial(tick_storm, bell)),
        Act("page-boundary", _PAGED, partial(page_boundary, bell)),
    )


_DUPLICATE = "A tick that comes twice is one run."
_STORMED = "A tick that comes fifty times at once is one run."
_PAGED = "Nothing is lost or doubled at the edge of a page."
UNRUNG = (("duplicate-tick", _DUPLICATE), ("tick-storm", _STORMED), ("page-boundary", _PAGED))
"""Names and promises of the sequences that need a job."""


def _run_id(scene: Scene) -> str:
    return f"drill-{scene.stage.tag}-{scene.slug}"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _shifted(cutoff: str, seconds: int) -> str:
    return format_rfc3339(datetime.fromisoformat(cutoff) + timedelta(seconds=seconds))


def _made_of(count: int, late: int, own: int, events: int) -> str:
    """What a run's events are: those due at its cutoff, the one that the run before rightly left over, others' ones."""
    parts = [f"{count} due at its cutoff"] + [f"{late} left over from the run before"] * bool(late)
    if own != count + late:
        parts = [f"{own} of this sequence, which is not {' + '.join(parts)}"]
    return " + ".join(parts + [f"{events - own} that were due in the job besides"] * (events > own))


def cite_run(run: Run, *, made_of: str = "") -> str:
    """A run's id and name, where it stands, what it found, and what that is made of."""
    found = f"run {run['id']} ({run['runId']}) {run['state']}: {run['events']:,} events"
    return f"{found}, {made_of}" if made_of else found
