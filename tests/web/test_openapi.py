"""The committed OpenAPI document is what the code says, and says enough of every operation."""

import json
from html import escape
from pathlib import Path
from typing import Any

import pytest

from service.domain.operational import Operational
from service.web.app import openapi_document
from tests.web.conftest import Api

COMMITTED = Path(__file__).parents[2] / "openapi" / "openapi.json"

DOCUMENT = openapi_document()
OPERATIONS = {
    f"{method.upper()} {path}": operation
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
}


def test_the_committed_document_is_the_generated_one() -> None:
    generated = json.dumps(DOCUMENT, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    assert COMMITTED.read_text(encoding="utf-8") == generated, "run: tocsin openapi --write openapi/openapi.json"


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_every_operation_says_what_it_does_takes_and_answers(operation: dict[str, Any]) -> None:
    assert operation["summary"]
    assert "security" in operation
    assert operation["tags"]
    for status, answer in operation["responses"].items():
        if int(status) >= 400:
            content = answer["content"]["application/problem+json"]
            assert content["schema"] == {"$ref": "#/components/schemas/ProblemDocument"}
            assert content["examples"]
        elif "content" in answer:
            assert answer["content"]["application/json"]["example"]
    for body in operation.get("requestBody", {}).get("content", {}).values():
        assert body["example"]
    for parameter in operation.get("parameters", []):
        assert parameter["in"] != "path" or parameter["example"]
        assert parameter.get("description") or parameter["name"] == "limit"


def test_every_reference_leads_somewhere_and_every_operation_has_its_own_name() -> None:
    text = json.dumps(DOCUMENT)
    for reference in {part.split('"')[0] for part in text.split('"$ref": "#/components/schemas/')[1:]}:
        assert reference in DOCUMENT["components"]["schemas"]
    names = [operation["operationId"] for operation in OPERATIONS.values()]
    assert len(set(names)) == len(names)
    assert "HTTPValidationError" not in text


def test_receivers_find_what_they_get_under_webhooks() -> None:
    operation = DOCUMENT["webhooks"]["event"]["post"]
    headers = {each["name"] for each in operation["parameters"]}
    assert {"webhook-id", "webhook-timestamp", "webhook-signature", "idempotency-key", "tocsin-attempt"} <= headers
    assert operation["requestBody"]["content"]["application/json"]["schema"]


@pytest.mark.parametrize("kind", Operational)
def test_what_tocsin_tells_of_itself_stands_under_webhooks_with_its_shape(kind: Operational) -> None:
    operation = DOCUMENT["webhooks"][kind.value]["post"]
    reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rsplit("/", 1)[1]
    shape = DOCUMENT["components"]["schemas"][reference]
    assert shape["properties"]["type"]["const"] == kind.value
    assert shape["properties"]["data"] == {"$ref": f"#/components/schemas/{reference}Data"}


async def test_the_document_and_its_page_are_served_without_a_key_and_without_the_internet(refusing: Api) -> None:
    served = await refusing.client.get("/openapi.json", headers={"authorization": ""})
    assert served.json() == json.loads(json.dumps(DOCUMENT))
    page = await refusing.client.get("/docs", headers={"authorization": ""})
    assert page.status_code == 200
    assert "http://" not in page.text.replace("http://www.w3.org", "")
    assert "<script" not in page.text
    assert all(escape(operation["summary"]) in page.text for operation in OPERATIONS.values())
