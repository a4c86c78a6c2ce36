"""Who ticks: a signed body, an identity token or a static token; whoever has none of them learns nothing more."""

from dataclasses import dataclass, field

import structlog
from starlette.datastructures import Headers

from service.domain import jsontext, signing
from service.domain.errors import Invalid, NotJson, Problem, TickRefused
from service.domain.identifiers import is_job_name
from service.domain.job import JobConfig
from service.domain.model import RunSource
from service.flow.tokens import TokenRefused
from service.runtime import Runtime

log = structlog.get_logger()

_MAX_DEPTH = 2
"""A tick nests not at all. Whoever has no secret may not make us build thousands of objects before we find that out."""
_DOTS = 2
"""In a JSON Web Token: between header, claims and signature."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """The job that is ticked and how the caller proved itself; `members` are those of a signed body."""

    job: JobConfig
    source: RunSource
    members: dict[str, jsontext.Json] = field(default_factory=dict[str, jsontext.Json])


async def admitted(house: Runtime, name: str, headers: Headers, raw: bytes) -> Admitted:
    """Let in whoever has one valid credential for the job of this name; any one is enough.

    What is answered to all others depends on the request alone and not on the job: with a bearer token in the head it
    is always the same refusal, without one a body that is no tick is told so first.

    Raises:
        TickRefused: there is no such job, or no valid credential for it.
        NotJson, Invalid: without a bearer token, the body is no tick.
        Unavailable: the token's issuer is away and none of its keys is known.

    """
    job, given = house.jobs.get(name), _bearer(headers)
    if given is None:
        return _signed(job, name, raw)
    if job and job.bearer and signing.verify_token(job.bearer.tokens, given.encode("latin-1")):
        return Admitted(job, RunSource.BEARER)
    why, claim = "token", None
    if job and job.oidc and given.count(".") == _DOTS:
        try:
            await house.tokens.verify(given, job.oidc)
        except TokenRefused as refusal:
            why, claim = refusal.why, refusal.claim
        else:
            return Admitted(job, RunSource.OIDC)
    try:
        return _signed(job, name, raw, why=why, claim=claim)
    except (NotJson, Invalid):
        raise _refused(job, name, why, claim) from None


def _bearer(headers: Headers) -> str | None:
    """What stands behind `Bearer` (RFC 6750, in any case), None without it; of two such headers none is valid."""
    given = headers.getlist("authorization")
    schemes = [each.partition(" ") for each in given]
    tokens = [rest.strip() for scheme, _, rest in schemes if scheme.lower() == "bearer"]
    return None if not tokens else tokens[0] if len(given) == 1 else ""


def _signed(
    job: JobConfig | None, name: str, raw: bytes, *, why: str | None = None, claim: str | None = None
) -> Admitted:
    members, _ = jsontext.parse_object(raw, max_depth=_MAX_DEPTH)
    run_id, cutoff = _text(members, "runId"), _text(members, "cutoffIso")
    if run_id is None or cutoff is None:
        raise Invalid(*(Problem(f"/{missing}", "is required, as a string") for missing in _missing(members)))
    secrets = job.secrets if job else ()
    if signing.verify_tick(secrets, run_id, cutoff, members.get("signature")) and job:
        return Admitted(job, RunSource.HMAC, members)
    raise _refused(job, name, why or ("signature" if "signature" in members else "no-credential"), claim)


def _refused(job: JobConfig | None, name: str, why: str, claim: str | None = None) -> TickRefused:
    """The one refusal; the reason is told in the log alone, in a fixed word, and which configured claim is not met."""
    if job is None:
        log.warning("tick.refused", job=None, why="job", asked=name if is_job_name(name) else None)
    else:
        log.warning("tick.refused", job=job.name, why=why, **({"claim": claim} if claim else {}))
    return TickRefused()


def _text(members: dict[str, jsontext.Json], name: str) -> str | None:
    value = members.get(name)
    return value if isinstance(value, str) else None


def _missing(members: dict[str, jsontext.Json]) -> list[str]:
    return [name for name in ("runId", "cutoffIso") if _text(members, name) is None]
