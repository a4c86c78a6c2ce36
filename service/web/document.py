"""The OpenAPI 3.1 document: what the routes say of themselves, made complete and put in one order."""

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic.json_schema import models_json_schema

from service import __version__
from service.domain.model import Scope
from service.domain.operational import Operational
from service.web.auth import BEARER, scope_of
from service.web.described import REQUEST_MODELS
from service.web.operational import BODIES
from service.web.schemas import ProblemDocument, WebhookBody

DESCRIPTION = (
    "One signed tick in, every subscriber reached, nothing lost, everything provable. "
    "Times are RFC 3339 in UTC; lists are paged by an opaque cursor; refusals are application/problem+json."
)

_PATH_PARAMETERS = {
    "jobs": ("The job's name in tocsin.toml.", "shipments.expire"),
    "runs": ("The run's `id`.", "019ad3c4-7c00-7d3e-9b1a-2f6f1f6f0a11"),
    "events": ("The event's id.", "019ad3c4-7d10-7a52-8c77-5b1c9e0d4f22"),
    "subscribers": ("The subscriber's id.", "billing"),
    "deliveries": ("The delivery's id.", "dlv_06dd7h3t21t5533nbce9s3af4800000o"),
    "replays": ("The bulk replay's `id`.", "019ad3c4-7f00-7b1e-8a2b-3c4d5e6f7081"),
}

_PLAIN = {"string": "text", "integer": 1, "number": 1.0, "boolean": False}

_GENERATED_422 = ("HTTPValidationError", "ValidationError")
"""FastAPI's own shape of a validation error, which this API never answers."""


def build(app: FastAPI, routes: Sequence[APIRoute]) -> dict[str, Any]:
    """The document of an app, complete: bodies that routes read themselves, problems, scopes, what receivers get."""
    document = get_openapi(
        title="Tocsin",
        version=__version__,
        openapi_version="3.1.0",
        description=DESCRIPTION,
        routes=app.routes,
        webhooks=app.webhooks.routes,
    )
    schemas = document["components"]["schemas"]
    for name in _GENERATED_422:
        schemas.pop(name, None)
    schemas.update(_own_schemas())
    for path, operations in [*document["paths"].items(), *document["webhooks"].items()]:
        for operation in operations.values():
            _complete(path, operation, schemas)
    for route in routes:
        if route.include_in_schema and (scope := scope_of(route.dependant)):
            for method in route.methods or ():
                _tell_scope(document["paths"][route.path][method.lower()], scope)
    return document


def _tell_scope(operation: dict[str, Any], scope: Scope) -> None:
    """Say which key is needed, for people and, as the role that it is (OpenAPI 3.1, 4.8.30), for programs."""
    said = operation.get("description", "")
    operation["description"] = f"{said} Needs an API key of scope `{scope.value}`.".strip()
    operation["security"] = [{BEARER.scheme_name: [scope.value]}]


def _complete(path: str, operation: dict[str, Any], schemas: dict[str, Any]) -> None:
    """What FastAPI cannot know or gets wrong: path parameters, validation errors, whole examples."""
    _drop_generated_422(operation)
    for parameter in operation.get("parameters", []):
        if parameter["in"] == "path":
            collection = path.split("/")[2]
            parameter["description"], parameter["example"] = _PATH_PARAMETERS[collection]
    for answer in operation["responses"].values():
        content = answer.get("content", {}).get("application/json")
        if content is not None:
            content["example"] = example_of(content["schema"], schemas)


def example_of(schema: dict[str, Any], schemas: dict[str, Any]) -> Any:
    """A value that fits the schema, made from the examples of its fields."""
    ready = [schema[name] for name in ("example", "const", "default") if name in schema]
    ready += [schema[name][0] for name in ("examples", "enum") if name in schema]
    if ready:
        return ready[0]
    if "$ref" in schema:
        return example_of(schemas[schema["$ref"].rsplit("/", 1)[1]], schemas)
    if "anyOf" in schema:
        return example_of(schema["anyOf"][0], schemas)
    if schema.get("type") == "array":
        return [example_of(schema["items"], schemas)]
    if schema.get("type") == "object":
        return {name: example_of(each, schemas) for name, each in schema.get("properties", {}).items()}
    return _PLAIN.get(schema.get("type", ""))


def describe_webhooks(app: FastAPI) -> None:
    """Tell what receivers get; FastAPI never calls these routes, it documents them."""

    @app.webhooks.post(
        "event",
        summary="An event reaches a subscriber",
        description=(
            "Signed per Standard Webhooks. At least once: store `webhook-id` before applying, answer repeats with 2xx. "
            "2xx ends the delivery; 429 and 503 are repeated after Retry-After, other 5xx, 408 and 425 with back-off; "
            "3xx and every other 4xx end it as rejected, and 410 disables the subscriber."
        ),
        operation_id="receiveEvent",
        status_code=204,
        response_description="Received.",
        openapi_extra={"parameters": [_header(*each) for each in _HEADERS], "security": []},
    )
    async def event(body: WebhookBody) -> None:
        """Describe the request; never called."""

    for kind in Operational:
        _describe_operational(app, kind)


def _describe_operational(app: FastAPI, kind: Operational) -> None:
    """The same for one type of what Tocsin tells of itself, whose data it knows."""
    shape, summary, description = BODIES[kind]

    async def told(body: WebhookBody) -> None:
        """Describe the request; never called."""

    told.__annotations__["body"] = shape
    app.webhooks.post(
        kind.value,
        summary=summary,
        description=f"{description} Sent to whoever subscribes to `tocsin.*` or to it by name; `*` leaves it out.",
        operation_id="receive" + shape.__name__,
        status_code=204,
        response_description="Received.",
        openapi_extra={"parameters": [_header(*each) for each in _HEADERS], "security": []},
    )(told)


_HEADERS = (
    ("webhook-id", "The delivery key `<eventId>:<subscriberId>`, the same on every attempt.", "019ad3c4-…:billing"),
    ("webhook-timestamp", "Unix seconds of this attempt.", "1796004003"),
    ("webhook-signature", "`v1,<base64>` for each valid secret, with a space between.", "v1,g0hM9SsE+OTPJTGt/tmI…"),
    ("idempotency-key", "The same as webhook-id.", "019ad3c4-…:billing"),
    ("tocsin-generation", "1 at first; each replay opens the next.", "1"),
    ("tocsin-attempt", "Which attempt this is, from 1, over all generations.", "1"),
    ("tocsin-run", "The run that found the event, where there is one.", "019ad3c4-7c00-7d3e-9b1a-2f6f1f6f0a11"),
    ("traceparent", "W3C trace context.", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
)


def _header(name: str, description: str, example: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "header",
        "required": name not in ("tocsin-run", "traceparent"),
        "description": description,
        "schema": {"type": "string"},
        "example": example,
    }


def _own_schemas() -> dict[str, Any]:
    inputs = sorted(REQUEST_MODELS, key=lambda model: model.__name__)
    _, made = models_json_schema(
        [*((model, "validation") for model in inputs), (ProblemDocument, "serialization")],
        ref_template="#/components/schemas/{model}",
    )
    return dict(made["$defs"])


def _drop_generated_422(operation: dict[str, Any]) -> None:
    answer = operation.get("responses", {}).get("422", {})
    if "HTTPValidationError" in str(answer.get("content", {}).get("application/json", {})):
        del answer["content"]["application/json"]
        if not answer["content"]:
            del operation["responses"]["422"]
