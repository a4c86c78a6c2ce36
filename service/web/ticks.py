"""The scheduler's door: one authenticated tick in, one claimed run out."""

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import structlog
from fastapi import APIRouter, Request, Response

from service.domain import errors
from service.domain.errors import CutoffOutOfRange, Invalid, Refused, RunConflict, TickRefused, TocsinError, Unavailable
from service.domain.knocks import Knock
from service.domain.model import RunSource
from service.flow.counters import TickResult
from service.flow.intake import Accepted, Intake
from service.runtime import Runtime
from service.web import bodies, callers, knocking
from service.web.answers import Answer
from service.web.callers import Admitted
from service.web.described import OPEN, answers, refusals, takes
from service.web.knocking import SCHEDULE_TIME, Tick
from service.web.problems import TooSlow, kind_of
from service.web.schemas import Run, TickAccepted
from service.web.state import State

if TYPE_CHECKING:
    from service.flow.tracing import TickSpan

log = structlog.get_logger()

router = APIRouter(tags=["ticks"])

FROZEN_MEND: Final = (
    "the scheduler sends the same body every time, so nothing new runs: let it make runId, cutoffIso and signature "
    "anew for each slot, or send a token in their place ([jobs.X.oidc]); docs/ticks.md has recipes"
)
_FROZEN_NAME_MEND: Final = (
    "the scheduler names the same run every time, so nothing new runs: let it send another runId for each slot; "
    "docs/ticks.md has recipes"
)

_RESULTS: Final = (
    (TickRefused, TickResult.REFUSED),
    (RunConflict, TickResult.CONFLICT),
    (Refused, TickResult.INVALID),
    (Unavailable, TickResult.UNAVAILABLE),
)
"""By the first class that an error is of."""

_EXAMPLE = {
    "runId": "nightly-2026-11-30",
    "cutoffIso": "2026-11-30T02:00:00Z",
    "signature": "5d1ff2d4d2f5b9d3c3c3f6f3d3b1c7ad1f7e0a4f2e9c8b7a6d5e4f3a2b1c0d9e",
}

_HEADERS = {
    "parameters": [
        {
            "name": SCHEDULE_TIME,
            "in": "header",
            "required": False,
            "description": "The slot, from a caller with an identity token: it is the cutoff and ends the runId.",
            "schema": {"type": "string", "format": "date-time"},
            "example": "2026-11-30T03:00:00+01:00",
        }
    ]
}


@router.post(
    "/v1/jobs/{job}/ticks",
    summary="Tick a job",
    description=(
        "Claims the run and answers; the work is done by the workers. Safe to repeat: the same runId with the same "
        "cutoff gets the same run. Any Content-Type. The signature stands in place of an API key. Where the job has "
        "a table `oidc` or `bearer` in tocsin.toml, `Authorization: Bearer <token>` stands in place of the signature; "
        "the body may then be empty (`oidc`) or hold `runId` and, if it is to be another time than now, `cutoffIso`."
    ),
    status_code=HTTPStatus.ACCEPTED,
    responses={
        **answers(TickAccepted, {202: "The run is claimed.", 200: "It had been claimed before: `duplicate`."}),
        **refusals(
            errors.NotJson,
            errors.TickRefused,
            errors.RunConflict,
            errors.TooLarge,
            TooSlow,
            errors.UnsupportedEncoding,
            errors.Invalid,
            errors.CutoffOutOfRange,
        ),
    },
    openapi_extra=takes(Tick, _EXAMPLE, required=False) | OPEN | _HEADERS,
)
@router.post("/v1/jobs/{job}/ticks/", include_in_schema=False, name="post_tick_slash")
async def post_tick(job: str, request: Request, state: State) -> Response:
    """Decide in this order: size, who it is (of a signed body: JSON, then the signature), everything else."""
    house = state.runtime
    with _counting(house, job):
        raw = await bodies.read(request, bodies.TICK_BYTES)
        caller = await callers.admitted(house, job, request.headers, raw)
        with _traced(house, caller, request) as span:
            wanted = await knocking.knock(house.db, caller, request.headers, raw)
            accepted = await _accept(state.intake, caller, wanted, request, span.traceparent if span else None)
            if span:
                span.accepted(accepted.run.id, run_id=wanted.run_id, duplicate=accepted.duplicate)
    _note(house, caller, wanted.run_id, accepted)
    return accepted_answer(accepted).response()


@contextmanager
def _counting(house: Runtime, job: str) -> Iterator[None]:
    """Count and log what is not taken; an unknown job has no name there, or callers could make up labels."""
    try:
        yield
    except (Refused, Unavailable) as refusal:
        result = next(result for kind, result in _RESULTS if isinstance(refusal, kind))
        known = job if job in house.jobs else ""
        house.counters.tick(known, result)
        if result is not TickResult.REFUSED:  # that one is logged with its reason
            places = [each.pointer for each in refusal.problems] if isinstance(refusal, Invalid) else []
            log.warning("tick.not_taken", job=known or None, result=result.value, places=places)
        raise


@contextmanager
def _traced(house: Runtime, caller: Admitted, request: Request) -> Iterator["TickSpan | None"]:
    """The span of a tick whose caller is known: nobody else may fill a trace, or choose which one goes on."""
    if house.tracing is None:
        yield None
        return
    with house.tracing.tick(caller.job.name, request.url.scheme, request.headers.get("traceparent")) as span:
        try:
            yield span
        except Exception as error:
            span.refused(kind_of(error)[1].status if isinstance(error, TocsinError) else 500)
            raise


async def _accept(
    intake: Intake, caller: Admitted, wanted: Knock, request: Request, traceparent: str | None
) -> Accepted:
    try:
        return await intake.accept(caller.job, wanted, caller.source, traceparent=traceparent)
    except CutoffOutOfRange as refusal:
        if refusal.too_old and caller.source is RunSource.HMAC:
            log.warning("tick.too_old", job=caller.job.name, mend=f"if every tick is refused so, {FROZEN_MEND}")
        raise knocking.at_its_place(refusal, caller.source, request.headers) from None


def _note(house: Runtime, caller: Admitted, run_id: str, accepted: Accepted) -> None:
    """Log and count a tick that has its run."""
    job, run = caller.job.name, str(accepted.run.id)
    told = {"job": job, "run": run, "run_id": run_id}
    log.info("tick.accepted", **told, source=caller.source.value, duplicate=accepted.duplicate)
    result = TickResult.DUPLICATE if accepted.duplicate else TickResult.ACCEPTED
    if accepted.frozen_since is not None:
        result = TickResult.FROZEN
        mend = FROZEN_MEND if caller.source is RunSource.HMAC else _FROZEN_NAME_MEND
        log.warning("tick.frozen", **told, since=accepted.frozen_since.isoformat(), mend=mend)
    house.counters.tick(job, result)
    house.counters.last_tick(job, accepted.at)


def accepted_answer(accepted: Accepted) -> Answer:
    """202 for a run that was claimed now, 200 for one that had been; as it stood a moment ago."""
    body = TickAccepted(accepted=True, duplicate=accepted.duplicate, run=Run.model_validate(accepted.run))
    status = HTTPStatus.OK if accepted.duplicate else HTTPStatus.ACCEPTED
    return Answer.of(body, status, location=f"/v1/runs/{accepted.run.id}")
