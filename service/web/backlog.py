"""The backlog: what is due, scheduled, held and in flight, how fast it moves, and where it is worst."""

from fastapi import APIRouter, Response
from pydantic import Field

from service.domain import errors
from service.domain.model import HeldBy
from service.domain.pace import Stalled
from service.flow.backlog import Outlook, outlook
from service.store.backlog import MOST, MOST_UNFANNED, WORST
from service.web.answers import ok
from service.web.auth import Reader
from service.web.described import KEYED, answers, refusals
from service.web.fields import Instant, NoQuery, Out
from service.web.state import House

router = APIRouter(tags=["backlog"])


class WaitingLane(Out):
    """A subscriber whose deliveries wait although their time has come."""

    subscriber_id: str = Field(examples=["billing"])
    due: int = Field(description="Deliveries whose time has come, held or not.", examples=[1200])
    oldest_due_age_seconds: float | None = Field(
        description="Null where all of them wait for a predecessor.", examples=[8.25]
    )
    reason: HeldBy | None = Field(
        description="What they wait for; null where it is a worker. With `lane-full` they count as due, else as held."
    )
    next_at: Instant | None = Field(description="When the lane is looked at next; null where nobody knows.")


class Backlog(Out):
    """Every unfinished delivery is counted once: as due, scheduled, held or leased."""

    at: Instant
    due: int = Field(
        description="May be sent now, and waits for a worker, or for a free place in its lane (`lane-full`).",
        examples=[1200],
    )
    leased: int = Field(description="Being sent.", examples=[128])
    scheduled: int = Field(description="Its time is ahead: a retry.", examples=[40])
    held: int = Field(
        description=(
            "Waits for something else: `heldBy` of a delivery says for what. `lane-full` is not among these: it is due."
        ),
        examples=[0],
    )
    capped: bool = Field(
        description=f"A count went no further than {MOST:,} in all, or 10,000 of one subscriber: at least so many are.",
        examples=[False],
    )
    oldest_due_age_seconds: float | None = Field(
        description="How long what is due has waited at most, `lane-full` included; null where nothing is due.",
        examples=[8.25],
    )
    oldest_pending_age_seconds: float | None = Field(
        description="How long the oldest delivery has been unfinished, held or not; null where none is.",
        examples=[61.5],
    )
    unfanned_events: int = Field(
        description=(
            "Published events that are still to become deliveries, one after another: each waits for all that were "
            f"published before it. Counted to {MOST_UNFANNED:,} at most; events of runs are not among these."
        ),
        examples=[0],
    )
    oldest_unfanned_age_seconds: float | None = Field(
        description="How long ago the oldest of these was published; null where there is none.", examples=[0.05]
    )
    arrivals_per_minute: float = Field(
        description="Deliveries made or replayed, over the last 5 whole minutes, or as many as there are.",
        examples=[300.0],
    )
    completions_per_minute: float = Field(
        description="Deliveries that ended, in whatever state, over the same minutes.", examples=[4100.0]
    )
    retry_amplification: float | None = Field(
        description="Attempts for each delivery that ended; null where none did.", examples=[1.02]
    )
    headroom_per_minute: float = Field(
        description="Completions less arrivals; negative while the backlog grows.", examples=[3800.0]
    )
    drain_eta_seconds: float | None = Field(
        description="When what is due will have been sent at this pace; 0 where nothing is due, null for never.",
        examples=[18.9],
    )
    drain_eta_reason: Stalled | None = Field(description="Why it is never: null where it is not.")
    lanes: list[WaitingLane] = Field(
        description=f"The worst {WORST}, those waiting longest first; held by a person last."
    )


@router.get(
    "/v1/backlog",
    summary="Read the backlog",
    description=(
        "What waits, for how long, and whether it will ever be gone: `drainEtaSeconds` is null where completions do "
        "not outrun arrivals, or while all dispatch is paused."
    ),
    responses={**answers(Backlog, {200: "The backlog as of now."}), **refusals(*KEYED, errors.Invalid)},
)
async def get_backlog(_: Reader, __: NoQuery, house: House) -> Response:
    """The backlog as of now."""
    return ok(_shown(await outlook(house.db)))


def _shown(found: Outlook) -> Backlog:
    stands, pace = found.stands, found.pace
    return Backlog(
        at=stands.at,
        due=stands.due,
        leased=stands.leased,
        scheduled=stands.scheduled,
        held=stands.held,
        capped=stands.capped,
        oldest_due_age_seconds=stands.oldest_due_age_seconds,
        oldest_pending_age_seconds=stands.oldest_pending_age_seconds,
        unfanned_events=stands.unfanned,
        oldest_unfanned_age_seconds=stands.oldest_unfanned_age_seconds,
        arrivals_per_minute=pace.arrivals_per_minute,
        completions_per_minute=pace.completions_per_minute,
        retry_amplification=pace.retry_amplification,
        headroom_per_minute=pace.headroom_per_minute,
        drain_eta_seconds=found.drain_seconds,
        drain_eta_reason=found.stalled,
        lanes=[WaitingLane.model_validate(lane) for lane in stands.lanes],
    )
