"""The scheduler's door: one signed tick in, one claimed run out."""

from http import HTTPStatus

import structlog
from fastapi import APIRouter, Request, Response
from pydantic import Field

from service.domain import errors, jsontext, signing
from service.domain.errors import Invalid, Problem, TickRefused
from service.domain.job import JobConfig
from service.domain.model import RunSource
from service.flow import intake
from service.flow.intake import Accepted
from service.runtime import Runtime
from service.store import views
from service.web import bodies
from service.web.answers import Answer
from service.web.described import OPEN, answers, refusals, takes
from service.web.fields import In, InstantIn, RunIdText
from service.web.problems import TooSlow
from service.web.schemas import Run, TickAccepted
from service.web.state import House

log = structlog.get_logger()

router = APIRouter(tags=["ticks"])

_MAX_DEPTH = 2
"""A tick nests not at all. Whoever has no secret may not make us build thousands of objects before we find that out."""


class Tick(In):
    """Run this job as `runId` up to `cutoffIso`; `signature` covers both, joined by a dot."""

    run_id: RunIdText = Field(description="1-200 bytes of UTF-8, no control characters.")
    cutoff_iso: InstantIn
    signature: str = Field(description="Hex of HMAC-SHA256 over runId + '.' + cutoffIso under the job's tick secret.")


_EXAMPLE = {
    "runId": "nightly-2026-11-30",
    "cutoffIso": "2026-11-30T02:00:00Z",
    "signature": "5d1ff2d4d2f5b9d3c3c3f6f3d3b1c7ad1f7e0a4f2e9c8b7a6d5e4f3a2b1c0d9e",
}


@router.post(
    "/v1/jobs/{job}/ticks",
    summary="Tick a job",
    description=(
        "Claims the run and answers; the work is done by the workers. Safe to repeat: the same runId with the same "
        "cutoff gets the same run. Any Content-Type. The signature stands in place of an API key."
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
    openapi_extra=takes(Tick, _EXAMPLE) | OPEN,
)
@router.post("/v1/jobs/{job}/ticks/", include_in_schema=False, name="post_tick_slash")
async def post_tick(job: str, request: Request, house: House) -> Response:
    """Decide in this order: size, JSON, the signed fields, the signature, everything else."""
    members, _ = jsontext.parse_object(await bodies.read(request, bodies.TICK_BYTES), max_depth=_MAX_DEPTH)
    config = _verified(house, job, members)
    tick = bodies.validate(Tick, members)
    accepted = await intake.accept(
        house.db, house.doorbell, config, run_id=tick.run_id, cutoff=tick.cutoff_iso, source=RunSource.HMAC
    )
    log.info("tick.accepted", job=config.name, run=str(accepted.run), duplicate=accepted.duplicate)
    return (await accepted_answer(house, accepted)).response()


def _verified(house: Runtime, job: str, members: dict[str, jsontext.Json]) -> JobConfig:
    """The job whose secret signed this tick; who has none signed it learns nothing more than that."""
    run_id, cutoff = _text(members, "runId"), _text(members, "cutoffIso")
    if run_id is None or cutoff is None:
        raise Invalid(*(Problem(f"/{name}", "is required, as a string") for name in _missing(members)))
    config = house.jobs.get(job)
    secrets = config.secrets if config else ()
    if signing.verify_tick(secrets, run_id, cutoff, members.get("signature")) and config:
        return config
    log.warning("tick.refused", job=config.name if config else None)
    raise TickRefused


def _text(members: dict[str, jsontext.Json], name: str) -> str | None:
    value = members.get(name)
    return value if isinstance(value, str) else None


def _missing(members: dict[str, jsontext.Json]) -> list[str]:
    return [name for name in ("runId", "cutoffIso") if _text(members, name) is None]


async def accepted_answer(house: Runtime, accepted: Accepted) -> Answer:
    """202 for a run that was claimed now, 200 for one that had been; as it stands at this moment."""
    async with house.db.begin() as tx:
        view = await views.run(tx, accepted.run)
    body = TickAccepted(accepted=True, duplicate=accepted.duplicate, run=Run.model_validate(view))
    status = HTTPStatus.OK if accepted.duplicate else HTTPStatus.ACCEPTED
    return Answer.of(body, status, location=f"/v1/runs/{accepted.run}")
