"""Every refusal Tocsin can give, as one drawn tree; a class's docstring is its default message.

    TocsinError
    ├── Refused                  the caller asked for something that is not to be had
    │   ├── TickRefused          401
    │   ├── Unauthenticated      401
    │   ├── Forbidden            403
    │   ├── NotFound             404
    │   ├── Conflict             409
    │   │   ├── RunConflict · EventConflict · IdempotencyInFlight
    │   ├── PayloadPurged        410
    │   ├── NotJson              400
    │   ├── TooLarge             413
    │   ├── UnsupportedEncoding  415
    │   └── Invalid              422 (carries `Problem` pointers)
    │       ├── CutoffOutOfRange · IdempotencyMismatch
    ├── Unavailable              503: the database is away
    │   └── Contended            the same to a caller: the transaction lost against another one
    ├── ConfigurationError       start-up refuses; the message names the setting and the mend
    └── DiscoveryFailed          a run fails, with the reason an operator can act on

`service.web.problems` maps each class to a status and a problem page.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault in an input: an RFC 6901 pointer to it, and what is wrong, without the value."""

    pointer: str
    detail: str


class TocsinError(Exception):
    """Tocsin could not do this."""

    def __init__(self, detail: str | None = None) -> None:
        self.detail = detail or (type(self).__doc__ or "").strip().split("\n")[0]
        super().__init__(self.detail)


class Refused(TocsinError):
    """The request was refused."""


class TickRefused(Refused):
    """The tick's signature or token does not belong to this job, or there is no such job."""


class Unauthenticated(Refused):
    """A valid API key is needed: send `Authorization: Bearer <key>`."""


class Forbidden(Refused):
    """This API key's scope does not allow that."""


class NotFound(Refused):
    """There is no such thing here."""


class Conflict(Refused):
    """The request conflicts with what is stored."""


class RunConflict(Conflict):
    """This runId was already claimed with another cutoff."""


class EventConflict(Conflict):
    """An event with this tenantId, type, subject and version exists with other data."""


class IdempotencyInFlight(Conflict):
    """A request with this Idempotency-Key is still being handled; ask again shortly."""


class PayloadPurged(Refused):
    """The payload was deleted by retention, so that it cannot be sent again."""


class NotJson(Refused):
    """The body is not JSON."""


class TooLarge(Refused):
    """The body is larger than this endpoint accepts."""


class UnsupportedEncoding(Refused):
    """Compressed request bodies are not accepted; send the body as it is."""


class Invalid(Refused):
    """The request has fields that cannot be accepted."""

    def __init__(self, *problems: Problem, detail: str | None = None) -> None:
        super().__init__(detail)
        self.problems = problems


class CutoffOutOfRange(Invalid):
    """The cutoff is too far in the future or too old for this job."""

    def __init__(self, *problems: Problem, detail: str | None = None, too_old: bool = False) -> None:
        super().__init__(*problems, detail=detail)
        self.too_old = too_old


class IdempotencyMismatch(Invalid):
    """This Idempotency-Key was used before with another request."""


class Unavailable(TocsinError):
    """The database cannot be reached; ask again shortly."""


class Contended(Unavailable):
    """The request lost a race against another one; ask again."""


class ConfigurationError(TocsinError):
    """The configuration cannot be used."""


class DiscoveryFailed(TocsinError):
    """The run's source could not be read; mend the job and retry the run."""
