"""Every refusal as `application/problem+json` (RFC 9457): one table from error class to status, slug and mend."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

from service.domain import errors
from service.domain.errors import Invalid, Refused, TocsinError

MEDIA_TYPE = "application/problem+json"


class MethodNotAllowed(Refused):
    """This path does not answer that method."""


class TooSlow(Refused):
    """The request body did not arrive in time."""


class Malformed(Refused):
    """The request cannot be read."""


class HeadTooLarge(Refused):
    """The request line and the headers are larger than is accepted here."""


class Internal(TocsinError):
    """Something went wrong on our side; it was logged."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What one class of errors looks like from outside; `mend` tells the caller what to do about it."""

    status: HTTPStatus
    slug: str
    title: str
    mend: str
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


TABLE: Mapping[type[TocsinError], Kind] = MappingProxyType(
    {
        errors.Refused: Kind(
            HTTPStatus.BAD_REQUEST,
            "refused",
            "Refused",
            "Read the problem's detail: it names what stands in the way.",
        ),
        Malformed: Kind(
            HTTPStatus.BAD_REQUEST,
            "malformed",
            "The request cannot be read",
            "Send a well-formed HTTP request; percent-encode paths and queries as UTF-8.",
        ),
        HeadTooLarge: Kind(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            "head-too-large",
            "The head of the request is too large",
            "Request line and headers together may have 32 KiB: send fewer or shorter ones.",
        ),
        errors.TickRefused: Kind(
            HTTPStatus.UNAUTHORIZED,
            "tick-refused",
            "The tick was refused",
            "Sign runId + '.' + cutoffIso, exactly as they stand in the body, with HMAC-SHA256 under the job's tick "
            "secret, and send the hex digits alone. The usual mistakes: a newline that `echo` adds (use printf '%s'), "
            "the prefix that `openssl dgst` prints (cut it off), another job's secret, a job name that is not in "
            "tocsin.toml. `tocsin sign` prints the right signature and explains a wrong one. With a token in place of "
            "the signature: its issuer, audience and claims must be those of the job's table `oidc`; the log line "
            "`tick.refused` says in `why` which was not. For safety this answer is the same for all of them, and "
            "nothing was written.",
            MappingProxyType({"www-authenticate": "Signature"}),
        ),
        errors.Unauthenticated: Kind(
            HTTPStatus.UNAUTHORIZED,
            "unauthenticated",
            "A valid API key is needed",
            "Send `Authorization: Bearer <key>`. `tocsin keys create` makes a key; a revoked key stays refused.",
            MappingProxyType({"www-authenticate": "Bearer"}),
        ),
        errors.Forbidden: Kind(
            HTTPStatus.FORBIDDEN,
            "forbidden",
            "The key's scope does not allow that",
            "Use a key with a wider scope: read < operate < admin. `tocsin keys list` shows what each key may do.",
        ),
        errors.NotFound: Kind(
            HTTPStatus.NOT_FOUND,
            "not-found",
            "There is no such thing here",
            "Check the path and the id; the lists (`GET /v1/runs`, `/v1/deliveries`, ...) show the ids that exist.",
        ),
        MethodNotAllowed: Kind(
            HTTPStatus.METHOD_NOT_ALLOWED,
            "method-not-allowed",
            "This path does not answer that method",
            "The Allow header of the answer names the methods; /docs lists every operation.",
        ),
        TooSlow: Kind(
            HTTPStatus.REQUEST_TIMEOUT,
            "too-slow",
            "The request body did not arrive in time",
            "Send the whole body within a few seconds, then try again.",
        ),
        errors.Conflict: Kind(
            HTTPStatus.CONFLICT,
            "conflict",
            "The request conflicts with what is stored",
            "Read the thing again and decide with its present state; the detail says what stands in the way.",
        ),
        errors.RunConflict: Kind(
            HTTPStatus.CONFLICT,
            "run-conflict",
            "This runId has another cutoff",
            "A runId names one run for ever. Repeat it with the same cutoff, or use a new runId for another cutoff.",
        ),
        errors.EventConflict: Kind(
            HTTPStatus.CONFLICT,
            "event-conflict",
            "This event exists with other data",
            "Events are immutable. Publish the change as the next version of the same subject.",
        ),
        errors.IdempotencyInFlight: Kind(
            HTTPStatus.CONFLICT,
            "idempotency-in-flight",
            "A request with this Idempotency-Key is still being handled",
            "Wait a moment and send the same request again: it then gets the stored answer.",
            MappingProxyType({"retry-after": "1"}),
        ),
        errors.PayloadPurged: Kind(
            HTTPStatus.GONE,
            "payload-purged",
            "The payload is gone",
            "Retention deleted what would be sent again; what happened to it stays on record. Publish the fact anew as "
            "the next version of its subject, and give payloads a longer life with `payloads_after` of the retention "
            "job.",
        ),
        errors.NotJson: Kind(
            HTTPStatus.BAD_REQUEST,
            "not-json",
            "The body is not JSON",
            "Send one JSON text in UTF-8 without a byte order mark, nested at most 100 deep.",
        ),
        errors.TooLarge: Kind(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            "too-large",
            "The body is too large",
            "A tick may have 16 KiB, an event 256 KiB of data, everything else 64 KiB.",
        ),
        errors.UnsupportedEncoding: Kind(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "unsupported-encoding",
            "Compressed request bodies are not accepted",
            "Send the body as it is, without Content-Encoding.",
        ),
        errors.Invalid: Kind(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "invalid",
            "Some fields cannot be accepted",
            "`errors` points at each fault (RFC 6901; /query/... means a query parameter, /header/... a header) and "
            "says what is wrong with it. Nothing was written.",
        ),
        errors.CutoffOutOfRange: Kind(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "cutoff-out-of-range",
            "The cutoff is out of range",
            "By the database's clock the cutoff may be at most `max_cutoff_ahead` in the future and `max_cutoff_age` "
            "old. Check the scheduler's clock and time zone; for an older cutoff, start a new run by hand.",
        ),
        errors.IdempotencyMismatch: Kind(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "idempotency-mismatch",
            "This Idempotency-Key belongs to another request",
            "Use a new key for each new request; repeat a key only with the very same method, path and body.",
        ),
        errors.Unavailable: Kind(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "unavailable",
            "Not available just now",
            "The database cannot be reached or is busy, this process has too much to do, or the issuer of a tick's "
            "token is away. Send the same request again after the time in Retry-After: nothing is lost, and nothing "
            "happens twice.",
            MappingProxyType({"retry-after": "2"}),
        ),
        errors.Contended: Kind(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "contended",
            "Two requests were in each other's way",
            "Nothing was written. Send the same request again after the time in Retry-After.",
            MappingProxyType({"retry-after": "1"}),
        ),
        Internal: Kind(
            HTTPStatus.INTERNAL_SERVER_ERROR,
            "internal",
            "Something went wrong on our side",
            "The operators find the cause in the log, at the time of the request. The request may be sent again.",
        ),
    }
)


@dataclass(frozen=True, slots=True)
class Rendered:
    """A problem ready to be sent."""

    status: int
    body: bytes
    headers: Mapping[str, str]


def kind_of(error: TocsinError) -> tuple[type[TocsinError], Kind]:
    """The nearest class in the table; what is in none of its branches is our own fault."""
    known = next((each for each in type(error).__mro__ if each in TABLE), Internal)
    return known, TABLE[known]


def type_uri(kind: Kind) -> str:
    """The `type` of the problem, which is also the path of its page."""
    return f"/problems/{kind.slug}"


def document(error: TocsinError) -> dict[str, Any]:
    """The problem's members; an error that is our own fault shows nothing of itself."""
    known, kind = kind_of(error)
    detail = Internal().detail if known is Internal else error.detail
    members: dict[str, Any] = {
        "type": type_uri(kind),
        "title": kind.title,
        "status": int(kind.status),
        "detail": detail,
    }
    if isinstance(error, Invalid) and error.problems:
        members["errors"] = [{"pointer": each.pointer, "detail": each.detail} for each in error.problems]
    return members


def render(error: TocsinError) -> Rendered:
    """The problem as bytes, with the headers that its kind asks for."""
    _, kind = kind_of(error)
    body = json.dumps(document(error), ensure_ascii=True, separators=(",", ":")).encode()
    return Rendered(int(kind.status), body, {"content-type": MEDIA_TYPE, **kind.headers})
