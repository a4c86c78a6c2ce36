"""The overview: is anything late, where, and what needs a person; and the switch over all dispatch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from service.domain.errors import Unavailable
from service.domain.model import Outcome, RunState, Scope, SubscriberState
from service.flow import control
from service.flow.backlog import outlook
from service.runtime import Runtime
from service.store import audit, dead_letters, dispatching, pulse, subscribers, views
from service.store.audit import AuditLine
from service.store.backlog import Lane
from service.store.dead_letters import DeadKind, DeadLetters
from service.store.pulse import Minute
from service.store.subscribers import SubscriberRecord
from service.store.views import JobView, Page, RunView
from service.web.console.charts import Part, Stack
from service.web.console.forms import act, posted
from service.web.console.rendering import page
from service.web.console.route import ConsoleRoute
from service.web.console.session import HOME, Signed
from service.web.console.words import duration, tone
from service.web.state import House

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)

LATE_SECONDS = 60.0
"""What has been due for longer without being sent is late."""
RUNS_SHOWN, LINES_SHOWN, KINDS_SHOWN = 8, 6, 6
MOST_DEAD = 2000
"""So many dead letters, the newest, are looked at: the page asks again every few seconds."""
MOST_SUBSCRIBERS = 500
"""So many, the newest, are looked through for those that get nothing."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How the work flows. Ages and times are seconds; rates are a minute's; `drain_seconds` is None for never.

    `hour` has one bar a minute, the attempts by outcome.
    """

    due: int
    oldest_due_age_seconds: float | None
    arrivals_per_minute: float
    completions_per_minute: float
    drain_seconds: float | None
    hour: Sequence[Stack]
    lanes: Sequence[Lane]

    @property
    def late(self) -> bool:
        """Whether something has been due for too long."""
        return self.oldest_due_age_seconds is not None and self.oldest_due_age_seconds > LATE_SECONDS

    @property
    def stuck(self) -> bool:
        """Whether what is due will never be done at this pace."""
        return self.due > 0 and self.drain_seconds is None

    @property
    def sums(self) -> list[Part]:
        """The whole hour by outcome."""
        sums: dict[tuple[str, str], int] = {}
        for part in (part for stack in self.hour for part in stack.parts):
            key = part.label, part.tone
            sums[key] = sums.get(key, 0) + part.value
        return [Part(label, value, tone) for (label, tone), value in sums.items()]

    @property
    def told(self) -> str:
        """The chart of the hour in words."""
        return "Attempts a minute: " + (", ".join(f"{part.value:,} {part.label}" for part in self.sums) or "none")


@dataclass(frozen=True, slots=True)
class Matter:
    """One thing that a person should look at, and where."""

    tone: str
    text: str
    href: str


@dataclass(frozen=True, slots=True)
class Overview:
    """All that the page shows. `off` are subscribers that get nothing; `pace` is None while it is not known."""

    in_flight: int
    jobs: Sequence[JobView]
    runs: Sequence[RunView]
    failed: Sequence[RunView]
    off: Sequence[SubscriberRecord]
    dead: DeadLetters
    trail: Sequence[AuditLine]
    pace: Pace | None

    @property
    def dead_count(self) -> int:
        """Dead letters, as many as were looked at."""
        return sum(kind.count for kind in self.dead.kinds)

    @property
    def kinds(self) -> Sequence[DeadKind]:
        """The most frequent kinds of dead letters."""
        return self.dead.kinds[:KINDS_SHOWN]

    @property
    def matters(self) -> list[Matter]:
        """What a person should look at, the most urgent first."""
        return [*_late(self.pace), *_broken(self), *_halted(self)]


@router.get(HOME)
async def show_overview(request: Request, _: Signed, house: House) -> Response:
    """How the house stands now."""
    return page(request, "overview.html", overview=await read(house))


@router.post("/console/dispatch/pause")
async def pause_dispatch(request: Request, session: Signed, house: House) -> Response:
    """Hold every delivery."""
    form = await posted(request, session, Scope.OPERATE)

    async def work() -> str:
        reason = form.reason(required=True)
        await control.pause_dispatch(house.db, actor=session.actor.name, reason=reason)
        return "Dispatch is paused: nothing new is sent; what is in flight finishes."

    return await act(request, session, form, work, HOME)


@router.post("/console/dispatch/resume")
async def resume_dispatch(request: Request, session: Signed, house: House) -> Response:
    """Let deliveries be sent again."""
    form = await posted(request, session, Scope.OPERATE)

    async def work() -> str:
        await control.resume_dispatch(house.db, house.doorbell, actor=session.actor.name, reason=form.reason())
        return "Dispatch goes on, each subscriber slowly at first."

    return await act(request, session, form, work, HOME)


async def read(house: Runtime) -> Overview:
    """All of it, in one transaction, but for the pace, which may be unknown."""
    pace = await _pace(house)
    async with house.db.begin() as tx:
        known = await subscribers.listed(tx, Page(MOST_SUBSCRIBERS))
        return Overview(
            in_flight=await dispatching.leased(tx),
            jobs=await views.jobs(tx, sorted(house.jobs)),
            runs=await views.runs(tx, job=None, state=None, page=Page(RUNS_SHOWN)),
            failed=await views.runs(tx, job=None, state=RunState.FAILED, page=Page(RUNS_SHOWN)),
            off=[each for each in known if each.state != SubscriberState.ACTIVE],
            dead=await dead_letters.dead_letters(tx, subscriber_id=None, by_subscriber=False, most=MOST_DEAD),
            trail=await audit.listed(tx, actor=None, object=None, page=Page(LINES_SHOWN)),
            pace=pace,
        )


async def _pace(house: Runtime) -> Pace | None:
    """How the work flows, from the backlog and the pulse of the last hour; None where that took too long."""
    try:
        found = await outlook(house.db)
        async with house.db.begin() as tx:
            hour = await pulse.minutes(tx)
    except Unavailable:
        return None
    return Pace(
        due=found.stands.due,
        oldest_due_age_seconds=found.stands.oldest_due_age_seconds,
        arrivals_per_minute=found.pace.arrivals_per_minute,
        completions_per_minute=found.pace.completions_per_minute,
        drain_seconds=found.drain_seconds,
        hour=[_bar(minute) for minute in hour],
        lanes=found.stands.lanes,
    )


def _bar(minute: Minute) -> Stack:
    counts = [(outcome.value, minute.counts.get(pulse.ATTEMPT + outcome, 0)) for outcome in Outcome]
    return Stack(f"{minute.at:%H:%M}", [Part(outcome, n, tone(outcome)) for outcome, n in counts if n])


def _late(pace: Pace | None) -> Iterator[Matter]:
    if pace and pace.late:
        age = duration(pace.oldest_due_age_seconds)
        yield Matter("bad", f"The oldest due delivery has waited for {age}", "/console/deliveries?state=pending")
    if pace and pace.stuck:
        yield Matter("bad", "The backlog does not drain: less is finished than arrives", "/console/deliveries")


def _broken(seen: Overview) -> Iterator[Matter]:
    if seen.failed:
        more = "+" if len(seen.failed) == RUNS_SHOWN else ""
        yield Matter("bad", f"Runs failed: {len(seen.failed)}{more}", "/console/runs?state=failed")
    if seen.dead_count:
        more = "+" if seen.dead.truncated else ""
        yield Matter("bad", f"Dead letters to look at: {seen.dead_count:,}{more}", "/console/dead-letters")
    for job in seen.jobs:
        if job.frozen_since:
            yield Matter("bad", f"The ticks of {job.name} only repeat an old run", "/console/jobs")


def _halted(seen: Overview) -> Iterator[Matter]:
    for state in (SubscriberState.DISABLED, SubscriberState.PAUSED):
        if count := sum(each.state == state for each in seen.off):
            tone = "bad" if state == SubscriberState.DISABLED else "wait"
            yield Matter(tone, f"Subscribers {state.value}: {count}", "/console/subscribers")
    if paused := [job.name for job in seen.jobs if job.paused]:
        yield Matter("wait", f"Jobs paused: {', '.join(paused[:5])}{' …' if len(paused) > 5 else ''}", "/console/jobs")  # noqa: PLR2004
