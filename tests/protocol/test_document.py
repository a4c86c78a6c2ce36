"""The running API keeps what its OpenAPI document says, whatever is sent to it and whoever sends it."""

import asyncio
import contextlib
import copy
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.protocol.conftest import Served

DOCUMENT: dict[str, Any] = json.loads((Path(__file__).parents[2] / "openapi" / "openapi.json").read_text())


def keyless() -> dict[str, Any]:
    """The document without its keys, which are sent by the tests themselves: otherwise some requests go without."""
    document: dict[str, Any] = copy.deepcopy(DOCUMENT)
    del document["components"]["securitySchemes"]
    for operations in document["paths"].values():
        for operation in operations.values():
            operation.pop("security", None)
    return document


SCHEMA = schemathesis.openapi.from_dict(keyless())
OPERATIONS = {each.ok().label: each.ok() for each in SCHEMA.get_all_operations() if isinstance(each, Ok)}
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
SCOPES = (None, "read", "operate", "admin")
EXAMPLES = int(os.environ.get("PROTOCOL_EXAMPLES", "0"))
"""How many requests of a kind to send, others each time; 0 sends the few of the suite, which are always the same."""
FEW, MANY = (EXAMPLES // 6 + 1, EXAMPLES) if EXAMPLES else (1, 6)
BEFORE_THE_KEY = {404, 422}
"""What is answered before anybody asks who sends it: the path cannot be read, or a query parameter stands twice."""


def needed(label: str) -> str | None:
    """The scope that the document asks for."""
    method, path = label.split(" ")
    for alternative in DOCUMENT["paths"][path][method.lower()]["security"]:
        return str(alternative["apiKey"][0])
    return None


def places(label: str, served: Served) -> Iterator[dict[str, str] | None]:
    """Path parameters: anything, and, where the path has one, something that is there."""
    yield None
    path = label.split(" ")[1]
    if "{" in path:
        known = "victim" if label.startswith("DELETE") else served.ids[path.split("/")[2]]
        yield {path.split("{")[1].split("}")[0]: known}


class Plan(NamedTuple):
    """Who sends how many requests, which fit the document or do not; `place` fixes what the path names."""

    scope: str | None
    mode: GenerationMode
    place: dict[str, str] | None
    examples: int


def plans(label: str, served: Served) -> Iterator[Plan]:
    """Who sends what, how often: the weakest key that may, a lot; all others, a little."""
    for scope in SCOPES:
        if scope != needed(label):
            yield Plan(scope, GenerationMode.POSITIVE, None, FEW)
            continue
        for place in places(label, served):
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                yield Plan(scope, mode, place, MANY)


def ask(served: Served, label: str, plan: Plan) -> None:
    """Send the requests of the plan, and hold the answers against the document."""
    allowed = SCOPES.index(plan.scope) >= SCOPES.index(needed(label))

    @settings(
        max_examples=plan.examples,
        derandomize=not EXAMPLES,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=OPERATIONS[label].as_strategy(plan.mode, path_parameters=plan.place))
    def one(case: schemathesis.Case[Any]) -> None:
        answer = case.call(base_url=served.url, headers=dict(served.keys[plan.scope]), timeout=10)
        if not allowed:
            assert answer.status_code in {401 if plan.scope is None else 403, *BEFORE_THE_KEY}
        wrong = [negative_data_rejection] if allowed and plan.mode is GenerationMode.NEGATIVE else []
        case.validate_response(answer, checks=[*CHECKS, *wrong])

    # Unsatisfiable: there is nothing in this operation that could be wrong.
    with contextlib.suppress(Unsatisfiable):
        one()


@pytest.mark.parametrize("label", sorted(OPERATIONS))
async def test_an_operation_does_what_the_document_says_for_keys_of_every_scope(served: Served, label: str) -> None:
    for plan in plans(label, served):
        await asyncio.to_thread(ask, served, label, plan)
