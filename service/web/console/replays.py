"""Bulk replays: how they go, a look at what one would come to, starting one, stopping one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Request, Response
from pydantic import Field

from service.domain.errors import NotFound, Refused
from service.domain.identifiers import parse_uuid
from service.domain.model import Scope
from service.domain.states import REPLAYABLE
from service.flow import control_replays
from service.flow.control_replays import DEFAULT_RATE
from service.runtime import Runtime
from service.store import replays, views_deliveries
from service.store.replays import DEFAULT_STATES, ReplayRecord
from service.store.views import Page
from service.store.views_deliveries import Sought
from service.store.views_delivery import DeliveryView
from service.web.bodies import validate
from service.web.console import notices
from service.web.console.charts import Part
from service.web.console.deliveries import offered
from service.web.console.delivery import because
from service.web.console.filters import PER_PAGE, asked, link
from service.web.console.forms import Done, act, posted, require
from service.web.console.instants import WallIn, wall
from service.web.console.notices import Notice
from service.web.console.rendering import page
from service.web.console.route import ConsoleRoute
from service.web.console.session import Session, Signed
from service.web.console.story import REASONS
from service.web.paging import ListQuery
from service.web.replay_schemas import Replay
from service.web.replays import REPLAYS, ReplayFilter
from service.web.state import House

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)

PATH = "/console/replays"
NEW = f"{PATH}/new"
SOUGHT = "filter."
"""Begins the names of the form's fields that say what is replayed: a filter has a reason, and a replay has its own."""
SAMPLE = 5
"""Of what matches, so many are shown before it is replayed."""


class Wanted(ReplayFilter):
    """Which deliveries, as the API takes it, and how fast."""

    since: WallIn | None = None
    until: WallIn | None = None
    rate_per_second: Annotated[float, Field(strict=False, ge=0.1, le=10_000)] = DEFAULT_RATE


@router.get(PATH)
async def show_replays(request: Request, _: Signed, house: House) -> Response:
    """One page of bulk replays, newest first."""
    query = asked(request, ListQuery, limit=str(PER_PAGE))
    async with house.db.begin() as tx:
        found = await replays.listed(tx, REPLAYS.page(query))
    shown, cursor = REPLAYS.cut(query, found, lambda record: record.id)
    return page(request, "replays.html", replays=[(Replay.of(each), parts(each)) for each in shown], next_cursor=cursor)


@router.get(NEW)
async def show_new(request: Request, session: Signed, house: House) -> Response:
    """What the filter in the address finds now; nothing is done yet."""
    require(session, Scope.OPERATE)
    wanted = asked(request, Wanted)
    sought = wanted.sought()
    async with house.db.begin() as tx:
        slugs = await offered(tx)
    preview = _Preview() if sought == Sought() else await _preview(house, session, sought, wanted.rate_per_second)
    return page(
        request,
        "new_replay.html",
        wanted=wanted,
        filled=_filled(wanted),
        states=sorted(REPLAYABLE),
        default_states=[state.value for state in DEFAULT_STATES],
        reasons=REASONS,
        slugs=slugs,
        since=wall(wanted.since),
        until=wall(wanted.until),
        counted=preview.counted,
        sample=preview.sample,
        wrong=preview.wrong,
    )


@router.post(PATH)
async def start_replay(request: Request, session: Signed, house: House) -> Response:
    """Replay all that matches now."""
    form = await posted(request, session, Scope.OPERATE)
    given = {name: value for name in _NAMES if (value := form.get(f"{SOUGHT}{name}"))}

    async def work() -> Done:
        wanted, reason = validate(Wanted, dict(given)), because(form)
        record = await control_replays.start_replay(
            house.db,
            house.doorbell,
            wanted.sought(),
            actor=session.actor.name,
            reason=reason,
            rate=wanted.rate_per_second,
            dry_run=False,
        )
        many = f"{record.matched:,} deliveries are" if record.matched != 1 else "One delivery is"
        return Done(f"{many} being replayed.", f"{PATH}/{record.id}")

    return await act(request, session, form, work, link(NEW, given))


@router.get(f"{PATH}/{{id}}")
async def show_replay(request: Request, _: Signed, house: House, id: str) -> Response:  # noqa: A002 - the path's name
    """One bulk replay."""
    async with house.db.begin() as tx:
        record = await replays.read(tx, _replay(id))
    if record is None:
        raise NotFound(_NO_SUCH)
    return page(request, "replay.html", replay=Replay.of(record), parts_of=parts(record))


@router.post(f"{PATH}/{{id}}/cancel")
async def cancel_replay(request: Request, session: Signed, house: House, id: str) -> Response:  # noqa: A002
    """Release nothing more."""
    form, replay = await posted(request, session, Scope.OPERATE), _replay(id)

    async def work() -> str:
        reason = because(form)
        await control_replays.cancel_replay(house.db, replay, actor=session.actor.name, reason=reason)
        return "It is stopped: what it has released stays released."

    return await act(request, session, form, work, f"{PATH}/{replay}")


def parts(record: ReplayRecord) -> list[Part]:
    """How far it is, for a chart."""
    skipped = sum(record.skipped.values())
    left = max(record.matched - record.done, 0)
    return [Part("replayed", record.replayed, "good"), Part("skipped", skipped, "doubt"), Part("left", left, "rest")]


@dataclass(frozen=True, slots=True)
class _Preview:
    """What a dry run counts, with a few of the deliveries; or why it cannot be done."""

    counted: Replay | None = None
    sample: Sequence[DeliveryView] = ()
    wrong: Notice | None = None


async def _preview(house: Runtime, session: Session, sought: Sought, rate: float) -> _Preview:
    try:
        record = await control_replays.start_replay(
            house.db,
            house.doorbell,
            sought,
            actor=session.actor.name,
            reason="a look beforehand",
            rate=rate,
            dry_run=True,
        )
    except Refused as error:
        return _Preview(wrong=notices.of_error(error))
    return _Preview(Replay.of(record), await _sample(house, sought))


async def _sample(house: Runtime, sought: Sought) -> list[DeliveryView]:
    async with house.db.begin() as tx:
        sought = replace(sought, states=sought.states or DEFAULT_STATES)
        return await views_deliveries.page_of(tx, sought, Page(SAMPLE))


_NAMES = ("state", "reason", "subscriberId", "runId", "eventType", "since", "until", "ratePerSecond")
_NO_SUCH = "There is no bulk replay with this id."


def _filled(wanted: Wanted) -> dict[str, str]:
    """What is asked for, as the fields of a form."""
    shown = wanted.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in shown.items()}


def _replay(text: str) -> UUID:
    found = parse_uuid(text)
    if found is None:
        raise NotFound(_NO_SUCH)
    return found
