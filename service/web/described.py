"""How routes say what they take and answer, for the OpenAPI document; it has no part in handling requests."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from service.domain import errors
from service.domain.errors import Invalid, Problem, TocsinError
from service.web.problems import MEDIA_TYPE, TooSlow, document, kind_of

Responses = dict[int | str, dict[str, Any]]

REQUEST_MODELS: set[type[BaseModel]] = set()
"""Bodies that routes read by themselves; the document has to be told of them."""

OPEN: dict[str, Any] = {"security": []}
"""No API key is asked for."""

_REF = "#/components/schemas/"
_IN_ANY_BODY = (errors.NotJson, errors.TooLarge, errors.UnsupportedEncoding, TooSlow, errors.Invalid)
KEYED = (errors.Unauthenticated, errors.Forbidden)
"""What every operation may answer that asks for an API key."""
CHANGES = (*KEYED, *_IN_ANY_BODY, errors.Conflict, errors.IdempotencyInFlight, errors.IdempotencyMismatch)
"""What every operation may answer that changes something."""


def answers(model: type[BaseModel], described: Mapping[int, str]) -> Responses:
    """The good answers, all of one shape."""
    return {status: {"model": model, "description": text} for status, text in described.items()}


def refusals(*kinds: type[TocsinError]) -> Responses:
    """The problems that an operation may answer, and that the database may be away."""
    described: Responses = {}
    for each in (*kinds, errors.Unavailable):
        example = document(_example(each))
        _, kind = kind_of(_example(each))
        status = int(kind.status)
        entry = described.setdefault(
            status,
            {
                "description": kind.status.phrase,
                "content": {MEDIA_TYPE: {"schema": {"$ref": f"{_REF}ProblemDocument"}, "examples": {}}},
            },
        )
        entry["content"][MEDIA_TYPE]["examples"][kind.slug] = {"summary": kind.title, "value": example}
    return described


def takes(model: type[BaseModel], example: Mapping[str, object], *, required: bool = True) -> dict[str, Any]:
    """The JSON body that an operation reads."""
    REQUEST_MODELS.add(model)
    content = {"schema": {"$ref": f"{_REF}{model.__name__}"}, "example": dict(example)}
    return {"requestBody": {"required": required, "content": {"application/json": content}}}


def _example(kind: type[TocsinError]) -> TocsinError:
    return kind(Problem("/field", "is required")) if issubclass(kind, Invalid) else kind()
