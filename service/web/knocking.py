"""Which run an admitted tick asks for: what it signed, what its scheduler's headers say, or what its body says."""

from datetime import datetime, timedelta
from typing import Final

from pydantic import Field
from starlette.datastructures import Headers

from service.domain import jsontext, knocks
from service.domain.errors import CutoffOutOfRange, Invalid, NotJson, Problem
from service.domain.identifiers import MAX_RUN_ID_BYTES
from service.domain.job import BearerConfig, OidcConfig
from service.domain.knocks import Knock
from service.domain.model import RunSource
from service.domain.timestamps import parse_rfc3339
from service.store.database import Database
from service.web import bodies
from service.web.callers import Admitted
from service.web.fields import In, InstantIn, RunIdText

SCHEDULE_TIME: Final = "X-CloudScheduler-ScheduleTime"
"""The slot, constant over the tries of one slot; Cloud Scheduler sets it, its users cannot."""


class Tick(In):
    """Run this job as `runId` up to `cutoffIso`; `signature` covers both, joined by a dot."""

    run_id: RunIdText = Field(description="1-200 bytes of UTF-8, no control characters.")
    cutoff_iso: InstantIn
    signature: str = Field(description="Hex of HMAC-SHA256 over runId + '.' + cutoffIso under the job's tick secret.")


class UnsignedTick(In):
    """The same from a caller whose token has let it in."""

    run_id: RunIdText
    cutoff_iso: InstantIn | None = None
    signature: object = None
    """Not looked at."""


async def knock(db: Database, caller: Admitted, headers: Headers, raw: bytes) -> Knock:
    """The run that the tick asks for.

    Raises:
        Invalid: it does not say so, or not in a way that can be accepted.
        Unavailable: the database, whose clock is asked, is away.

    """
    if caller.source is RunSource.OIDC and caller.job.oidc:
        ahead = timedelta(seconds=caller.job.max_cutoff_ahead)
        return await _of_token(db, caller.job.oidc, headers, raw, ahead)
    if caller.source is RunSource.BEARER and caller.job.bearer:
        return _of_bearer(caller.job.bearer, headers, raw)
    tick = bodies.validate(Tick, caller.members)
    return Knock(tick.run_id, tick.cutoff_iso)


async def _of_token(db: Database, oidc: OidcConfig, headers: Headers, raw: bytes, ahead: timedelta) -> Knock:
    slot = _slot(headers)
    named = _named(raw) if slot is None else None
    if named is not None:
        return named
    async with db.begin() as tx:
        now = tx.now
    return knocks.by_hand(oidc.source, now) if slot is None else knocks.of_slot(oidc.source, slot, now, ahead)


def _of_bearer(bearer: BearerConfig, headers: Headers, raw: bytes) -> Knock:
    in_head = _run_id(headers, bearer.run_id_header) if bearer.run_id_header else None
    found = _completed(in_head, raw) if in_head is not None else _named(raw)
    if found is None:
        # A run id that is made up here would make two runs of one slot that is tried twice.
        where = f"/header/{bearer.run_id_header}" if bearer.run_id_header else "/runId"
        raise Invalid(Problem(where, "is required: the run id, the same for each try of one slot"))
    return found


def _completed(run_id: str, raw: bytes) -> Knock:
    """The run that a header names, with the cutoff that the body may add; whatever else the body is, is its own."""
    try:
        members, _ = jsontext.parse_object(raw)
    except NotJson:
        return Knock(run_id)
    named: dict[str, jsontext.Json] = {"runId": run_id}
    named |= {name: members[name] for name in ("runId", "cutoffIso") if name in members}
    tick = bodies.validate(UnsignedTick, named)
    if tick.run_id != run_id:
        raise Invalid(Problem("/runId", "is another one than in the header"))
    return Knock(run_id, tick.cutoff_iso)


def _slot(headers: Headers) -> datetime | None:
    given = headers.getlist(SCHEDULE_TIME)
    if not given:
        return None
    try:
        [text] = given
        return parse_rfc3339(text)
    except ValueError:
        fault = "must be one RFC 3339 time with an offset, like 2026-11-30T02:00:00Z"
        raise Invalid(Problem(f"/header/{SCHEDULE_TIME}", fault)) from None


def _run_id(headers: Headers, name: str) -> str | None:
    given = headers.getlist(name)
    if not given:
        return None
    try:
        [text] = given
        text = text.encode("latin-1").decode()  # as the server reads heads, and as they are meant
        fault = jsontext.text_fault(text, max_bytes=MAX_RUN_ID_BYTES)
    except ValueError:
        text, fault = "", "must be there once, in UTF-8"
    if fault:
        raise Invalid(Problem(f"/header/{name}", fault))
    return text


def _named(raw: bytes) -> Knock | None:
    """The run that a body names; None for one that names none, such as a text that is always the same."""
    try:
        members, _ = jsontext.parse_object(raw)
    except NotJson:
        return None
    except Invalid:
        if b'"runId"' in raw:  # meant as a tick, and faulty
            raise
        return None
    if not members.keys() & {"runId", "cutoffIso"}:
        return None
    tick = bodies.validate(UnsignedTick, members)
    return Knock(tick.run_id, tick.cutoff_iso)


def at_its_place(refusal: CutoffOutOfRange, source: RunSource, headers: Headers) -> CutoffOutOfRange:
    """The refusal of a cutoff, pointing at the header where it came from there."""
    if source is not RunSource.OIDC or SCHEDULE_TIME not in headers:
        return refusal
    problems = (Problem(f"/header/{SCHEDULE_TIME}", each.detail) for each in refusal.problems)
    return CutoffOutOfRange(*problems, too_old=refusal.too_old)
